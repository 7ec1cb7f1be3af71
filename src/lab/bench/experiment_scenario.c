/* bench scenario: memory and speed of a model that is really run, alone and with others. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "core/kv_layout.h"
#include "lab/bench/experiment.h"
#include "lab/bench/trial.h"

enum { MAX_REQUESTS = 8, SEED = 31, MIB = 1 << 20 };

typedef struct scenario {
    const char *name, *line;
    int32_t n, n_output;
    bool follows; /* each request goes on from the one before */
    int32_t lengths[MAX_REQUESTS];
} scenario;

static const scenario scenarios[] = {
    {"single", "one sequence of 512 tokens", 1, 128, false, {512}},
    {"mixed", "8 sequences of 64 to 960 tokens", 8, 64, false, {64, 192, 320, 448, 576, 704, 832, 960}},
    {"mixed-random", "8 sequences of 16 to 1000 tokens, drawn", 8, 64, false, {0}},
    {"chat", "one conversation: 200 tokens, then 6 turns of 150 and answers of 64", 7, 64, true, {200, 150, 150, 150, 150, 150, 150}},
    {"long", "one sequence of 4096 tokens", 1, 64, false, {4096}},
};
enum { N_SCENARIOS = (int)(sizeof scenarios / sizeof *scenarios) };

static void draw_lengths(const scenario *c, int32_t *out) {
    uint64_t seed = SEED;
    for (int32_t i = 0; i < c->n; i++) {
        out[i] = c->lengths[i] > 0 ? c->lengths[i] : 16 + (int32_t)(rng_next(&seed) % 985);
    }
}

/* Tokens in pages at the end, of all sequences or, where each goes on from the one before, of the last. */
static int64_t live_tokens(const scenario *c, const int32_t *lengths) {
    int64_t tokens = 0;
    for (int32_t i = 0; i < c->n; i++) {
        tokens += lengths[i] + c->n_output - (c->follows && i + 1 < c->n ? 0 : 1);
    }
    return tokens;
}

static trial trial_of(const experiment_options *o, const scenario *c, const int32_t *lengths, lab_request *requests) {
    trial t = {.options = o->engine, .requests = requests, .n = c->n, .at_once = c->n};
    int32_t n_rows = 0;
    for (int32_t i = 0; i < c->n; i++) {
        requests[i].after = c->follows ? i - 1 : -1;
        n_rows += lengths[i];
        t.max_len = c->follows                             ? t.max_len + lengths[i] + c->n_output
                    : lengths[i] + c->n_output > t.max_len ? lengths[i] + c->n_output
                                                           : t.max_len;
    }
    t.options.max_seqs = c->n;
    t.options.max_batched_tokens = n_rows; /* all prompts in one step, so that all run abreast and end together */
    t.options.step_target_us = 0;
    t.options.n_pages = c->n * (int32_t)(kv_pages_for(t.max_len, t.options.page_tokens) + 1);
    return t;
}

static void scenario_row(const sheet *s, const scenario *c, const trial *t, int64_t live, const kv_layout *l) {
    const lab_result *r = &t->best;
    double kv = (double)(r->n_pages_most * l->page_bytes), least = (double)(live * kv_layout_token_bytes(l)),
           fixed = (double)t->peak_bytes - kv;
    sheet_row(s, (sheet_cell[]){{c->name, 0},
                                {NULL, c->n},
                                {NULL, (double)live},
                                {NULL, (double)t->peak_bytes / MIB},
                                {NULL, kv / MIB},
                                {NULL, 100 * (kv / least - 1)},
                                {NULL, 100 * ((fixed + kv) / (fixed + least) - 1)},
                                {NULL, r->first_ms},
                                {NULL, r->token_ms},
                                {NULL, (double)r->n_output / r->seconds}});
}

static quire_err run_scenario(const experiment_options *o, const sheet *s, const scenario *c, int32_t n_runs, quire_error *err) {
    int32_t lengths[MAX_REQUESTS];
    lab_request requests[MAX_REQUESTS];
    draw_lengths(c, lengths);
    int32_t *tokens = trial_prompts(lengths, c->n, c->n_output, requests);
    if (tokens == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    trial t = trial_of(o, c, lengths, requests);
    quire_err e = trials_run(&t, 1, n_runs, false, err);
    lab l;
    e = e == QUIRE_OK ? lab_open(&t.options, t.off, t.max_len, &l, err) : e;
    if (e == QUIRE_OK) {
        scenario_row(s, c, &t, live_tokens(c, lengths), &l.layout);
        sheet_note(s, "%s: %s, answers of %d", c->name, c->line, (int)c->n_output);
        lab_close(&l);
    }
    mem_free(tokens);
    return e;
}

quire_err experiment_scenario(const experiment_options *o, quire_error *err) {
    static const sheet_column columns[] = {{"scenario", "scenario", 12, SHEET_TEXT, NULL},
                                           {"requests", "requests", 8, 0, NULL},
                                           {"tokens", "tokens", 7, 0, NULL},
                                           {"peak", "peak MiB", 8, 2, "MiB"},
                                           {"kv", "KV MiB", 8, 2, "MiB"},
                                           {"overhead", "over KV %", 9, 3, "%"},
                                           {"overhead_all", "over all %", 10, 3, "%"},
                                           {"first_token", "first ms", 9, 1, "ms"},
                                           {"token", "ms/token", 8, 2, "ms"},
                                           {"speed", "tokens/s", 8, 1, "tokens/s"}};
    char machine[160];
    int32_t n_runs = o->n_runs > 0 ? o->n_runs : 2;
    sheet s = {"scenario", EXPERIMENT_COLUMNS(columns), o->json};
    bool any = false;
    TRY(lab_describe(&o->engine, machine, sizeof machine, err));
    for (int i = 0; i < N_SCENARIOS; i++) {
        if (o->name != NULL && strcmp(o->name, scenarios[i].name) != 0) {
            continue;
        }
        if (!any) {
            sheet_begin(
                &s,
                "A model really run; peak: weights, buffers and the pages held at most; over: what pages take beyond the tokens in them");
        }
        any = true;
        TRY(run_scenario(o, &s, &scenarios[i], n_runs, err));
    }
    if (!any) {
        return err_set(err, QUIRE_INVALID, -1, "%s: no such scenario; there are single, mixed, mixed-random, chat and long", o->name);
    }
    sheet_note(&s, "page %d; %s; bytes counted, exact; times the fastest of %d runs (measured)", (int)o->engine.page_tokens, machine,
               (int)n_runs);
    return QUIRE_OK;
}
