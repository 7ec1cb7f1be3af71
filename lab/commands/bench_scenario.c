/* bench scenario: memory and speed of a model that is really run, alone and with others.
 * Scenarios have the sizes at which published work names them, or, with --small, sizes of
 * some seconds. */

#include "base/rng.h"
#include "lab/bench/resident.h"
#include "lab/bench/synthetic.h"
#include "lab/commands/experiment.h"

enum { MAX_REQUESTS = FIGURES_MAX_POINTS, SEED = 31, MIB = 1 << 20, MAX_ROWS = 512 };

typedef struct scenario {
    const char *name, *line;
    int32_t n, n_output;
    bool follows;        /* each request goes on from the one before */
    bool one_step;       /* all prompts in one step */
    int32_t first, step; /* lengths: first, first + step, ..; where follows: first, then step each */
    int32_t least, most; /* lengths drawn among the multiples of least up to most; 0: not drawn */
} scenario;

static const scenario published[] = {
    {"single", "one sequence of 2048 tokens", 1, 260, false, false, 2048, 0, 0, 0},
    {"mixed", "16 sequences of 500, 1000 .. 8000 tokens", 16, 400, false, false, 500, 500, 0, 0},
    {"mixed-random", "16 sequences of 256, 512 .. 4096 tokens, drawn", 16, 400, false, false, 0, 0, 256,
     4096},
    {"chat", "one conversation from 1000 to 32000 tokens: 31 turns of 936", 32, 64, true, false, 936, 936, 0,
     0},
    {"long", "one sequence of 100000 tokens", 1, 260, false, false, 100000, 0, 0, 0},
};
static const scenario miniatures[] = {
    {"single", "one sequence of 512 tokens", 1, 128, false, true, 512, 0, 0, 0},
    {"mixed", "8 sequences of 64 to 960 tokens", 8, 64, false, true, 64, 128, 0, 0},
    {"mixed-random", "8 sequences of 32, 64 .. 992 tokens, drawn", 8, 64, false, true, 0, 0, 32, 992},
    {"chat", "one conversation: 200 tokens, then 6 turns of 150", 7, 64, true, true, 200, 150, 0, 0},
    {"long", "one sequence of 4096 tokens", 1, 64, false, true, 4096, 0, 0, 0},
};
enum { N_SCENARIOS = (int)(sizeof published / sizeof *published) };

/* A scenario on its way: its sizes after flags, and its requests. */
typedef struct play {
    scenario s;
    bool has_lengths; /* given ones */
    int32_t lengths[MAX_REQUESTS];
    lab_request requests[MAX_REQUESTS];
} play;

static void set_lengths(play *p) {
    const scenario *c = &p->s;
    uint64_t seed = SEED;
    for (int32_t i = 0; i < c->n; i++) {
        p->lengths[i] = c->most > 0
                            ? c->least * (1 + (int32_t)(rng_next(&seed) % (uint64_t)(c->most / c->least)))
                        : c->follows && i ? c->step
                                          : c->first + (c->follows ? 0 : i * c->step);
    }
}

static quire_err read_play(const experiment_options *o, const scenario *s, play *p, quire_error *err) {
    *p = (play){.s = *s, .has_lengths = o->lengths != NULL};
    p->s.n_output = o->n_output > 0 ? o->n_output : s->n_output;
    if (o->lengths == NULL) {
        set_lengths(p);
        return QUIRE_OK;
    }
    return figures_parse_list("--lengths", o->lengths, p->lengths, &p->s.n, err);
}

static quire_err make_trial(const experiment_options *o, play *p, variant *t, quire_error *err) {
    const scenario *c = &p->s;
    int64_t rows = 0, longest = 0;
    *t = (variant){.options = o->cli.engine, .requests = p->requests, .n = c->n, .at_once = c->n};
    for (int32_t i = 0; i < c->n; i++) {
        p->requests[i].after = c->follows ? i - 1 : -1;
        int64_t length = (int64_t)p->lengths[i] + c->n_output;
        rows += p->lengths[i];
        longest = c->follows ? longest + length : length > longest ? length : longest;
    }
    if (longest > model_shape_builtin.sizes[SIZE_POSITIONS]) {
        return err_set(err, QUIRE_INVALID, -1, "a sequence of %lld tokens: at most %d here",
                       (long long)longest, (int)model_shape_builtin.sizes[SIZE_POSITIONS]);
    }
    t->max_len = (int32_t)longest;
    t->options.max_seqs = c->n;
    t->options.max_batched_tokens = c->one_step ? (int32_t)rows : MAX_ROWS;
    t->options.step_target_us = 0;
    t->options.n_pages = c->n * (int32_t)(kv_pages_for(t->max_len, t->options.page_tokens) + 1);
    return QUIRE_OK;
}

static void scenario_row(const bench_table *s, const variant *t, const char *name, const kv_layout *l) {
    const lab_result *r = &t->best;
    double kv = (double)(r->n_pages_most * l->page_bytes),
           least = (double)(r->n_tokens_most * kv_layout_token_bytes(l)), fixed = (double)t->peak_bytes - kv;
    TABLE_ROW(s, TXT(name), NUM(t->n), NUM(r->n_tokens_most),
              NUM(t->resident_bytes >= 0 ? (double)t->resident_bytes / MIB : TABLE_ABSENT),
              NUM((double)t->peak_bytes / MIB), NUM(kv / MIB), NUM(100 * (kv / least - 1)),
              NUM(100 * ((fixed + kv) / (fixed + least) - 1)), NUM(r->first_ms), NUM(r->token_ms),
              NUM((double)r->n_output / r->seconds));
}

static quire_err experiment_scenario_run_once(void *context, quire_error *err) {
    return variants_run(context, 1, 1, false, err);
}

static quire_err experiment_scenario_run_scenario(const experiment_options *o, const bench_table *s,
                                                  const scenario *c, int32_t n_runs, quire_error *err) {
    play p;
    variant t;
    lab l;
    TRY(read_play(o, c, &p, err));
    int32_t *tokens = variant_prompts(p.lengths, p.s.n, p.s.n_output, p.requests);
    TRY(mem_check_for(tokens, "the prompts", err));
    quire_err e = make_trial(o, &p, &t, err);
    for (int32_t run = 0; e == QUIRE_OK && run < n_runs; run++) {
        e = resident_apart(experiment_scenario_run_once, &t, &t, sizeof t, err);
    }
    e = e == QUIRE_OK ? lab_open(&t.options, t.off, t.max_len, &l, err) : e;
    if (e == QUIRE_OK) {
        scenario_row(s, &t, c->name, &l.layout);
        table_note(s, "%s: %s, answers of %d", c->name, p.has_lengths ? "lengths as given" : c->line,
                   (int)p.s.n_output);
        lab_close(&l);
    }
    mem_free(tokens);
    return e;
}

static quire_err run_scenarios(const experiment_options *o, quire_error *err) {
    const scenario *scenarios = o->small ? miniatures : published;
    char machine[160];
    int32_t n_runs = o->n_runs > 0 ? o->n_runs : o->small ? 2 : 1;
    TABLE(s, "scenario", o->cli.json, WORD("scenario", "scenario", 12), KEY("requests", "requests", 8, 0),
          KEY("tokens", "tokens", 7, 0), FIGURE("resident", "resident MiB", 12, 1, "MiB"),
          FIGURE("peak", "counted", 8, 2, "MiB"), FIGURE("kv", "KV MiB", 8, 2, "MiB"),
          FIGURE("overhead", "over KV %", 9, 3, "%"), FIGURE("overhead_all", "over all %", 10, 3, "%"),
          FIGURE("first_token", "first ms", 9, 1, "ms"), FIGURE("steady", "ms/token", 8, 2, "ms"),
          FIGURE("speed", "tokens/s", 8, 1, "tokens/s"));
    TRY(lab_describe(&o->cli.engine, machine, sizeof machine, err));
    for (int i = 0; i < N_SCENARIOS; i++) {
        if (o->cli.argument != NULL && strcmp(o->cli.argument, scenarios[i].name) == 0) {
            play p;
            variant t;
            TRY(read_play(o, &scenarios[i], &p, err));
            TRY(make_trial(o, &p, &t, err));
        }
    }
    table_begin(&s, "A model really run. tokens: in pages when most are held; resident: the most that the "
                    "system counts for a process that does nothing else; counted: weights, buffers and those "
                    "pages; over: what pages take beyond their tokens");
    for (int i = 0; i < N_SCENARIOS; i++) {
        if (o->cli.argument == NULL || strcmp(o->cli.argument, scenarios[i].name) == 0) {
            TRY(experiment_scenario_run_scenario(o, &s, &scenarios[i], n_runs, err));
        }
    }
    table_note(&s,
               "page %d; %s; pages and tokens counted, exact; resident memory and times measured, the "
               "fastest of %d runs; first ms: with all prompts sent at once; ms/token: between the first "
               "token and the last, by the engine's clock",
               (int)o->cli.engine.page_tokens, machine, (int)n_runs);
    return QUIRE_OK;
}

static quire_err experiment_scenario(const cli_options *cli, quire_error *err) {
    const experiment_options *o = (const void *)cli;
    bool any = o->cli.argument == NULL;
    for (int i = 0; i < N_SCENARIOS; i++) {
        any = any || strcmp(o->cli.argument, published[i].name) == 0;
    }
    if (!any) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s: no such scenario; there are single, mixed, mixed-random, chat and long",
                       o->cli.argument);
    }
    if (o->cli.argument == NULL && (o->lengths != NULL || o->n_output > 0)) {
        return err_set(err, QUIRE_INVALID, -1, "--lengths and --output are of one scenario: name it");
    }
    experiment_options own = *o;
    synthetic made = {.fd = -1};
    if (!o->small) {
        TRY(synthetic_open_builtin(&own.cli.engine, &made, err));
    }
    quire_err e = run_scenarios(&own, err);
    synthetic_close(&made);
    return e;
}

#define AT(member) .offset = offsetof(experiment_options, member)

static const flag scenario_flags[] = {
    {"--small", NULL, "sizes of some seconds, by the model's own weights", FLAG_SWITCH, AT(small)},
    {"--lengths", "LIST", "tokens of the prompts, in place of the scenario's; of chat, what each turn adds",
     TEXT(lengths)},
    {"--output", "N", "tokens of each answer, in place of the scenario's", COUNT(n_output, 1, 131072)},
    {0},
};

EXPERIMENT(scenario, " [NAME]", ARGUMENT_NAME, "memory and speed of a model, alone and with others",
           "  quire bench scenario mixed-random                      also: single mixed chat long\n"
           "  quire bench scenario long --lengths 100000 --output 257\n"
           "the built-in model's shape with random weights and 131,072 positions, unless --model or --small "
           "is given\n",
           scenario_flags, flags_experiment_page);
