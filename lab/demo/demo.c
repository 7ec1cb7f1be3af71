/* `quire demo NAME`: schedule, snapshot, sweep, and the frame that they share with radix
 * (demo_radix.c). */
#include "lab/demo/demo.h"

#include "core/kv_layout.h"
#include "lab/bench/baseline_kv.h"
#include "lab/bench/lab.h"
#include "lab/bench/model_runner.h"
#include "lab/sim/serving.h"

enum { MAX_REQUESTS = FIGURES_MAX_POINTS };

/* A list of numbers: the given ones, or else the demonstration's own. */
typedef struct demo_numbers {
    int32_t v[FIGURES_MAX_POINTS], n;
} demo_numbers;

static quire_err demo_read_numbers(const char *name, const char *given, const char *own, demo_numbers *out,
                                   quire_error *err) {
    return figures_parse_list(name, given != NULL ? given : own, out->v, &out->n, err);
}

/* ---- schedule ---- */

/* Requests of known lengths, all present from the start, served by the simulator without
 * a model; each step takes a microsecond, so times count steps. */
typedef struct planned {
    trace t;
    int32_t n_steps; /* steps so far */
    /* tasks that have begun; they do not move */
    const sched_task *tasks[MAX_REQUESTS];
    int32_t n_preempted[MAX_REQUESTS]; /* before the current step */
    const bench_table *table;          /* has a row per step */
} planned;

static void show_step(const planned *p, const scheduler *s);

static void planned_note(void *context, const scheduler *s) {
    planned *p = context;
    p->n_steps++;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        p->tasks[s->tasks[i]->arrival] = s->tasks[i];
    }
    show_step(p, s);
    for (int32_t i = 0; i < p->t.n_requests; i++) {
        p->n_preempted[i] = p->tasks[i] != NULL ? p->tasks[i]->n_preempted : 0;
    }
}

/* Serves the requests with this many rows per step, concurrent sequences, and pages of
 * page_tokens. INVALID: a request never fits; err names it. */
static quire_err planned_run(planned *p, int32_t rows, int32_t slots, int64_t n_pages, int32_t page_tokens,
                             serving_result *r, quire_error *err) {
    static const cost_model a_step = {.n_points = 2, .rows = {0, 1}, .us = {1, 1}};
    for (int32_t i = 0; i < p->t.n_requests; i++) {
        const trace_request *q = &p->t.requests[i];
        int64_t needs = kv_pages_for(q->n_prompt + q->n_output, page_tokens);
        if (needs > n_pages) {
            return err_set(err, QUIRE_INVALID, -1, "request %d needs %lld pages, the pool has %lld",
                           (int)i + 1, (long long)needs, (long long)n_pages);
        }
    }
    const serving_options o = {.cost = &a_step,
                               .batching = BATCH_ITERATION,
                               .reservation = RESERVE_PAGED,
                               .kv_tokens = n_pages * page_tokens,
                               .page_tokens = page_tokens,
                               .max_model_len = p->t.longest,
                               .max_rows = rows,
                               .max_seqs = slots,
                               .speed = 1,
                               .on_plan = planned_note,
                               .context = p};
    return serving_run(&p->t, &o, r, err);
}

enum { STATE_WIDTH = 10 };

/* Describes what the step does for a request: "prefill 8", "decode", ...; "." when it is
 * done. */
static void name_state(const planned *p, const scheduler *s, int32_t i, char *out, size_t n) {
    const sched_task *t = p->tasks[i];
    for (int32_t k = 0; k < s->plan.n_items; k++) {
        int32_t n_rows = s->plan.items[k].n_rows;
        if (s->tasks[k] != t) {
            continue;
        }
        bool decodes = t->n_known > t->n_prompt && t->n_known - t->kv.n_computed == 1 && t->kv.n_computed > 0;
        snprintf(out, n, decodes ? "decode" : "%s %d", t->n_preempted > 0 ? "again" : "prefill", (int)n_rows);
        return;
    }
    snprintf(out, n, "%s",
             t == NULL                            ? "waits"
             : t->n_known == t->n_max             ? "."
             : t->n_preempted > p->n_preempted[i] ? "preempted"
             : t->state == TASK_WAITING           ? "waits"
                                                  : "stands");
}

/* Prints a row: the step, and the running requests and free pages after it. */
static void show_step(const planned *p, const scheduler *s) {
    char states[MAX_REQUESTS][24];
    int32_t n_running = s->n_running, n_free = kv_pool_counts(s->kv->pool).n_free;
    for (int32_t k = 0; k < s->plan.n_items; k++) {
        const sched_task *t = s->tasks[k];
        if (t->kv.n_computed + s->plan.items[k].n_rows == t->n_known && t->n_known + 1 == t->n_max) {
            n_running--; /* it has just generated its last token */
            n_free += kv_seq_pages(&t->kv);
        }
    }
    table_cell cells[MAX_REQUESTS + 4] = {NUM(p->n_steps), NUM(s->plan.n_rows), NUM(n_running), NUM(n_free)};
    for (int32_t i = 0; i < p->t.n_requests; i++) {
        name_state(p, s, i, states[i], sizeof states[i]);
        cells[4 + i] = TXT(states[i]);
    }
    table_row(p->table, cells, 4 + (size_t)p->t.n_requests);
}

static quire_err read_requests(const demo_options *o, planned *p, quire_error *err) {
    demo_numbers prompts, lengths;
    TRY(demo_read_numbers("--prompt-lengths", o->prompt_lengths, "10,3,6,12,2", &prompts, err));
    TRY(demo_read_numbers("--lengths", o->lengths, "4,8,3,6,9", &lengths, err));
    if (prompts.n != lengths.n) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--prompt-lengths has %d numbers, --lengths %d: one of each a request", (int)prompts.n,
                       (int)lengths.n);
    }
    *p = (planned){.n_steps = 0};
    return trace_of_lengths(prompts.v, lengths.v, prompts.n, &p->t, err);
}

static quire_err demo_schedule(const demo_options *o, quire_error *err) {
    planned p;
    serving_result r;
    char names[MAX_REQUESTS][8], heading[160];
    table_column columns[MAX_REQUESTS + 4] = {{"step", "step", 4, 0, NULL},
                                              {"rows", "rows", 4, 0, NULL},
                                              {"running", "running", 7, 0, NULL},
                                              {"pages_free", "free", 4, 0, NULL}};
    int32_t page_tokens = demo_or(o->page_tokens, 4), n_pages = demo_or(o->n_pages, 6),
            rows = demo_or(o->n_rows, 8), slots = demo_or(o->slots, 4);
    TRY(read_requests(o, &p, err));
    for (int32_t i = 0; i < p.t.n_requests; i++) {
        snprintf(names[i], sizeof names[i], "r%d", (int)i + 1);
        columns[4 + i] = (table_column){names[i], names[i], STATE_WIDTH, TABLE_TEXT, NULL};
    }
    const bench_table s = {"demo schedule", columns, p.t.n_requests + 4, o->cli.json};
    snprintf(heading, sizeof heading, "%d requests; %d rows a step, %d sequences, %d pages of %d tokens",
             (int)p.t.n_requests, (int)rows, (int)slots, (int)n_pages, (int)page_tokens);
    p.table = &s;
    table_begin(&s, heading);
    quire_err e = planned_run(&p, rows, slots, n_pages, page_tokens, &r, err);
    trace_deinit(&p.t);
    TRY(e);
    table_note(&s,
               "%d steps, %lld preemptions; planned by the engine's scheduler over a real pool and block "
               "tables, without a model (exact)",
               (int)p.n_steps, (long long)r.n_preemptions);
    serving_result_deinit(&r);
    return QUIRE_OK;
}

/* ---- snapshot ---- */

enum { MAX_ROWS = 512, SEED = 11 };

/* Two runs over the same tokens: with contiguous keys and values, and with scattered
 * pages. */
typedef struct snapshot {
    model_runner b;
    int32_t n_prompt, n_decode;
    int32_t *tokens;           /* [n_prompt + n_decode] */
    float *contiguous, *paged; /* [n_decode][n_vocab] */
} snapshot;

typedef struct snapshot_counts {
    int64_t n_tokens, n_pages, n_logits, n_different; /* totals of all prompts */
} snapshot_counts;

/* Teacher forcing: the tokens are given, and every row of logits after the prompt is
 * kept. */
static quire_err collect_logits(snapshot *s, const int32_t *pages, float *out) {
    size_t width = (size_t)s->b.desc->n_vocab;
    TRY(model_runner_prefill(&s->b, s->tokens, s->n_prompt, pages));
    for (int32_t i = 0; i < s->n_decode; i++) {
        memcpy(out + (size_t)i * width, model_runner_logits(&s->b, 0), width * sizeof *out);
        runner_part p = {s->tokens, s->n_prompt + i, 1, pages, 1, NULL, NULL};
        TRY(model_runner_forward(&s->b, &p, 1));
    }
    return QUIRE_OK;
}

static quire_err run_contiguous(snapshot *s) {
    baseline_kv *k;
    TRY(baseline_kv_attach(s->b.b, 1, s->n_prompt + s->n_decode, &k));
    quire_err e = collect_logits(s, NULL, s->contiguous);
    TRY_DONE(e, baseline_kv_error(k));
done:
    baseline_kv_detach(k);
    return e;
}

/* Compares the logits of each prompt, and adds to the counts. */
static quire_err compare_prompts(snapshot *s, const demo_numbers *prompts, int32_t longest,
                                 int32_t page_tokens, snapshot_counts *c) {
    size_t n = (size_t)s->n_decode * (size_t)s->b.desc->n_vocab;
    const int32_t most = longest + s->n_decode;
    int32_t *pages = mem_new((size_t)kv_pages_for(most, page_tokens), sizeof *pages);
    s->tokens = mem_new((size_t)most, sizeof *s->tokens);
    s->contiguous = mem_new(n, sizeof *s->contiguous);
    s->paged = mem_new(n, sizeof *s->paged);
    quire_err e = pages && s->tokens && s->contiguous && s->paged ? QUIRE_OK : QUIRE_NO_MEMORY;
    for (int32_t i = 0; e == QUIRE_OK && i < prompts->n; i++) {
        s->n_prompt = prompts->v[i];
        const int32_t n_tokens = s->n_prompt + s->n_decode,
                      n_pages = (int32_t)kv_pages_for(n_tokens, page_tokens);
        model_runner_prompt(&s->b, SEED + (uint64_t)s->n_prompt, n_tokens, s->tokens);
        model_runner_scatter(SEED, n_pages, pages);
        TRY_DONE(e, run_contiguous(s));
        TRY_DONE(e, collect_logits(s, pages, s->paged));
        for (size_t k = 0; k < n; k++) {
            c->n_different += memcmp(&s->contiguous[k], &s->paged[k], sizeof(float)) != 0;
        }
        c->n_tokens += n_tokens;
        c->n_pages += n_pages;
        c->n_logits += (int64_t)n;
    }
done:
    mem_free(pages);
    mem_free(s->tokens);
    mem_free(s->contiguous);
    mem_free(s->paged);
    return e;
}

/* Prints a row: all prompts with one page size. */
static quire_err snapshot_row(const demo_options *o, const bench_table *sh, const demo_numbers *prompts,
                              int32_t page_tokens, bool is_last, quire_error *err) {
    snapshot s = {.n_decode = demo_or(o->n_tokens, 32)};
    snapshot_counts c = {0};
    int32_t longest = figures_largest(prompts->v, prompts->n);
    TRY(MODEL_RUNNER_OPEN(&s.b, err, .engine = &o->cli.engine, .page_tokens = page_tokens,
                          .n_pages = (int32_t)kv_pages_for(longest + s.n_decode, page_tokens),
                          .max_rows = MAX_ROWS, .max_seqs = 1, .max_len = longest + s.n_decode));
    quire_err e = compare_prompts(&s, prompts, longest, page_tokens, &c);
    if (e != QUIRE_OK) {
        err_set(err, e, -1, "%s", quire_err_text(e));
    } else {
        TABLE_ROW(sh, NUM(page_tokens), NUM(c.n_tokens), NUM(c.n_pages), NUM(c.n_logits), NUM(c.n_different),
                  TXT(c.n_different == 0 ? "yes" : "no"));
        if (c.n_different > 0) {
            e = err_set(err, QUIRE_INTERNAL, -1, "pages of %d tokens change %lld logits", (int)page_tokens,
                        (long long)c.n_different);
        } else if (is_last) {
            table_note(sh,
                       "%s, compute %s, KV %s: %d prompts of up to %d tokens, then %d tokens one by one; "
                       "both ways really computed, compared byte for byte (exact)",
                       s.b.desc->name, compute_name(s.b.b->compute), s.b.layout.type_name, (int)prompts->n,
                       (int)longest, (int)s.n_decode);
        }
    }
    model_runner_close(&s.b);
    return e;
}

/* Four short and four long prompts, as published. */
static quire_err demo_snapshot(const demo_options *o, quire_error *err) {
    static const int32_t sizes[] = {1, 4, 16, 64, 256};
    enum { N_SIZES = sizeof sizes / sizeof *sizes };
    demo_numbers prompts;
    TRY(demo_read_numbers("--prompt-lengths", o->prompt_lengths, "7,16,21,33,257,300,400,530", &prompts,
                          err));
    TABLE(sh, "demo snapshot", o->cli.json, KEY("page_tokens", "page", 5, 0), KEY("tokens", "tokens", 7, 0),
          KEY("pages", "pages", 6, 0), KEY("logits", "logits compared", 15, 0),
          KEY("different", "different", 9, 0), WORD("equal", "equal bits", 10));
    table_begin(&sh, "Logits after prompts, keys and values in one piece against pages strewn over the pool");
    for (int32_t i = 0; i < N_SIZES; i++) {
        TRY(snapshot_row(o, &sh, &prompts, sizes[i], i + 1 == N_SIZES, err));
    }
    return QUIRE_OK;
}

/* ---- sweep ---- */

enum { MAX_BATCH = 64, MIB = 1 << 20 };

static quire_err sweep_row(const demo_options *o, const bench_table *s, int32_t n, int32_t length,
                           int32_t n_output, quire_error *err) {
    int32_t lengths[MAX_BATCH];
    lab_request requests[MAX_BATCH];
    for (int32_t i = 0; i < n; i++) {
        lengths[i] = length;
    }
    int32_t *tokens = variant_prompts(lengths, n, n_output, requests);
    TRY(mem_check_for(tokens, "the measurement", err));
    variant t = {
        .options = o->cli.engine, .requests = requests, .n = n, .at_once = n, .max_len = length + n_output};
    t.options.max_seqs = n;
    t.options.step_target_us = 0;
    t.options.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    t.options.n_pages = n * (int32_t)kv_pages_for(t.max_len, t.options.page_tokens);
    quire_err e = variants_run(&t, 1, demo_or(o->n_runs, 1), false, err);
    mem_free(tokens);
    TRY(e);
    const lab_result *r = &t.best;
    double at_once = r->decode_speed * r->token_ms / 1000;
    TABLE_ROW(s, NUM(n), NUM(length), NUM(n_output), NUM(n_output > 1 ? r->decode_speed : TABLE_ABSENT),
              NUM(n_output > 1 ? r->token_ms : TABLE_ABSENT), NUM(n_output > 1 ? at_once : TABLE_ABSENT),
              NUM(r->first_ms), NUM(r->n_pages_most), NUM((double)t.peak_bytes / MIB));
    bool fits = at_once <= 1.001 * n && (at_once > 0 || n_output == 1);
    return fits ? QUIRE_OK
                : err_set(err, QUIRE_INTERNAL, -1,
                          "%d answers at once, but tokens/s x ms/token / 1000 is %.2f: the times are not of "
                          "one clock",
                          (int)n, at_once);
}

static quire_err demo_sweep(const demo_options *o, quire_error *err) {
    demo_numbers batches, lengths, answers;
    char machine[160];
    TRY(demo_read_numbers("--lengths", o->lengths, "16", &answers, err));
    TRY(demo_read_numbers("--batch", o->batches, "1,2,4,8,16", &batches, err));
    TRY(demo_read_numbers("--context", o->contexts, "32,128,512,1024", &lengths, err));
    for (int32_t i = 0; i < batches.n; i++) {
        if (batches.v[i] > MAX_BATCH) {
            return err_set(err, QUIRE_INVALID, -1, "--batch %d: at most %d here", (int)batches.v[i],
                           MAX_BATCH);
        }
    }
    int64_t longest = 0;
    for (int32_t i = 0; i < lengths.n * answers.n; i++) {
        int64_t n = (int64_t)lengths.v[i % lengths.n] + answers.v[i / lengths.n];
        longest = n > longest ? n : longest;
    }
    TRY(lab_check_length(&o->cli.engine, longest, err));
    TRY(lab_describe(&o->cli.engine, machine, sizeof machine, err));
    TABLE(s, "demo sweep", o->cli.json, KEY("batch", "batch", 5, 0), KEY("length", "length", 6, 0),
          KEY("answer", "answer", 6, 0), KEY("tokens_per_s", "tokens/s", 9, 1),
          KEY("token_ms", "ms/token", 8, 3), KEY("at_once", "at once", 7, 2),
          KEY("first_token_ms", "first ms", 9, 1), KEY("pages_most", "pages", 6, 0),
          KEY("peak_mib", "peak MiB", 8, 2));
    table_begin(&s, "Requests of so many tokens, so many at once; tokens/s: after each answer's first token");
    for (int32_t i = 0; i < lengths.n; i++) {
        for (int32_t j = 0; j < answers.n * batches.n; j++) {
            TRY(sweep_row(o, &s, batches.v[j % batches.n], lengths.v[i], answers.v[j / batches.n], err));
        }
    }
    table_note(&s,
               "%s; times measured (fastest of %d runs), pages counted; by the engine's clock, when it "
               "commits a token; at once: tokens/s x ms/token / 1000, less than the batch where prompts take "
               "several steps; peak: weights, buffers and the pages held at most",
               machine, (int)demo_or(o->n_runs, 1));
    return QUIRE_OK;
}

/* ---- the command ---- */

static const struct {
    const char *name, *line;
    quire_err (*run)(const demo_options *o, quire_error *err);
    const char *takes; /* its flags, besides those of the model */
    bool runs;         /* whether it runs a model */
} demos[] = {
    {"radix", "nine states of a prefix tree, in words", demo_radix, "--page-size", false},
    {"schedule", "what the planner gives each request, step by step", demo_schedule,
     "--lengths --prompt-lengths --max-num-seqs --max-num-batched-tokens --kv-pages --page-size", false},
    {"snapshot", "paged equal to contiguous, to the bit", demo_snapshot, "--prompt-lengths --max-tokens",
     true},
    {"sweep", "speed, latency and memory by batch and length", demo_sweep,
     "--batch --context --lengths --runs", true},
};
enum { N_DEMOS = (int)(sizeof demos / sizeof *demos) };

static void demo_defaults(cli_options *o) {
    quire_options_init(&o->engine);
    o->engine.model = "builtin";
}

/* Whether `words`, separated by single spaces, contain the word. */
static bool demo_has_word(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + n, word)) {
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0)) {
            return true;
        }
    }
    return false;
}

#define AT(member) .offset = offsetof(demo_options, member)

static const flag demo_flags[] = {
    {"--lengths", "LIST", "tokens of the answers", TEXT(lengths)},
    {"--prompt-lengths", "LIST", "tokens of the prompts", TEXT(prompt_lengths)},
    {"--batch", "LIST", "sequences at once", TEXT(batches)},
    {"--context", "LIST", "tokens of a sequence, before those that are measured", TEXT(contexts)},
    {"--runs", "N", "runs per measured figure", COUNT(n_runs, 1, 64)},
    {"--model -m", "MODEL", "the model that is run", TEXT(cli.engine.model)},
    {"--max-tokens -n", "N", "tokens after each prompt", COUNT(n_tokens, 1, 1 << 20)},
    {"--max-num-seqs", "N", "sequences that run at once; without: 4", COUNT(slots, 1, 1 << 16)},
    {"--max-num-batched-tokens", "N", "rows a step; without: 8", COUNT(n_rows, 1, 1 << 20)},
    {"--kv-pages", "N", "pages of the pool", COUNT(n_pages, 1, 1 << 20)},
    {"--page-size", "N", "tokens a page holds; without: schedule 4, radix 1", PAGE_SIZE(page_tokens)},
    {0},
};
enum { N_DEMO_FLAGS = (int)(sizeof demo_flags / sizeof *demo_flags) };

/* Refuses flags that the demonstration does not use, and model flags if it runs none. */
static quire_err demo_check_flags(const demo_options *o, const char *takes, bool runs, quire_error *err) {
    for (const flag *const *f = o->cli.given; f != NULL && *f != NULL; f++) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn((*f)->names, " "), (*f)->names);
        bool is_own = *f >= demo_flags && *f < demo_flags + N_DEMO_FLAGS && strcmp(name, "--model") != 0;
        if (is_own && !demo_has_word(takes, name)) {
            return err_set(err, QUIRE_INVALID, -1, "demo %s does not use %s; it takes %s", o->cli.argument,
                           name, takes);
        }
        if (!is_own && !runs && strcmp(name, "--json") != 0) {
            return err_set(err, QUIRE_INVALID, -1, "demo %s runs no model, so %s does nothing",
                           o->cli.argument, name);
        }
    }
    return QUIRE_OK;
}

static quire_err demo_run(const cli_options *cli, quire_error *err) {
    const demo_options *o = (const void *)cli;
    if (cli->argument == NULL) {
        printf("quire demo NAME [flags]\n\n");
    }
    for (int i = 0; i < N_DEMOS; i++) {
        if (cli->argument == NULL) {
            printf("  %-9s %s\n", demos[i].name, demos[i].line);
        } else if (strcmp(cli->argument, demos[i].name) == 0) {
            TRY(demo_check_flags(o, demos[i].takes, demos[i].runs, err));
            return demos[i].run(o, err);
        }
    }
    return cli->argument == NULL
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1, "%s: no such demonstration; `quire demo` lists them",
                         cli->argument);
}

LAB_COMMAND(demo, "demo", " [NAME]", ARGUMENT_NAME, "demonstrations of paging and continuous batching",
            "  quire demo                                             lists the demonstrations\n"
            "  quire demo radix --page-size 4\n"
            "  quire demo schedule --prompt-lengths 10,3,6 --lengths 4,8,3 --json\n",
            demo_flags, flags_compute, FLAGS_KV, flags_threads, flags_json, flags_help);
