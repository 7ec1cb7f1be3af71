/* bench ablation batching: the engine against servers without paging, the same requests
 * in the same memory. */
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "core/kv_layout.h"
#include "lab/bench/baseline_serve.h"
#include "lab/bench/experiment.h"
#include "lab/bench/trial.h"

enum { N_REQUESTS = 32, MAX_SEQS = 16, MAX_LEN = 512, MEMORY_TOKENS = 3072, MAX_ROWS = 512, SEED = 19 };

/* Lengths that differ as people's do: exponential, means 60 and 60. */
static int32_t draw(uint64_t *seed) {
    double u = ((double)(rng_next(seed) >> 11) + 0.5) * 0x1p-53, v = 1 - 60 * log(u);
    return v > MAX_LEN / 2 ? MAX_LEN / 2 : (int32_t)v;
}

static const struct way {
    const char *name;
    bool is_static;
    reservation reservation;
} ways[] = {{"static, padded", true, RESERVE_MAX},
            {"iteration, max", false, RESERVE_MAX},
            {"iteration, pow2", false, RESERVE_POW2},
            {"iteration, oracle", false, RESERVE_ORACLE},
            {"iteration, growing", false, RESERVE_GROWING}};
enum { N_WAYS = (int)(sizeof ways / sizeof *ways), MAX_RUNS = 16 };

typedef struct batching {
    const experiment_options *o;
    lab_request requests[N_REQUESTS];
    trial engine[2]; /* continuous and paged; the same, one sequence at a time */
    baseline_result best[N_WAYS];
    int64_t n_output;
} batching;

static quire_err serve_once(batching *x, int way, quire_error *err) {
    baseline_options o = {
        ways[way].is_static, ways[way].reservation, MEMORY_TOKENS / BASELINE_PAGE, MAX_SEQS, MAX_LEN, NULL};
    bare_options bo = {&x->o->engine,
                       BASELINE_PAGE,
                       o.n_pages + baseline_extra_pages(&o),
                       MAX_ROWS,
                       2 * MAX_SEQS,
                       MAX_LEN,
                       0,
                       false};
    baseline_result r;
    bare b;
    TRY(bare_open(&bo, &b, err));
    quire_err e = baseline_serve(&b, &o, x->requests, N_REQUESTS, &r);
    bare_close(&b);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "%s: %s", ways[way].name, quire_err_text(e));
    }
    if (r.digest != x->engine[0].best.digest) {
        return err_set(err, QUIRE_INTERNAL, -1, "%s gives other answers than the engine", ways[way].name);
    }
    if (x->best[way].n_rows == 0 || r.seconds < x->best[way].seconds) {
        x->best[way] = r;
    }
    return QUIRE_OK;
}

static quire_err run_all(batching *x, int32_t n_runs, quire_error *err) {
    for (int32_t run = 0; run < n_runs; run++) {
        TRY(trials_run(x->engine, 2, 1, true, err));
        for (int way = 0; way < N_WAYS; way++) {
            TRY(serve_once(x, way, err));
        }
    }
    return QUIRE_OK;
}

/* Tokens a second without the thread that reads them, which the baselines do not have. */
static double engine_speed(const lab_result *r) {
    return (double)r->n_output / (r->seconds - r->reader_seconds);
}

static void report(const batching *x, const sheet *s) {
    static const char *const names[] = {"continuous, paged", "one at a time"};
    double all = engine_speed(&x->engine[0].best);
    for (int i = 0; i < 2; i++) {
        const lab_result *r = &x->engine[i].best;
        sheet_row(s, (sheet_cell[]){{names[i], 0},
                                    {NULL, SHEET_ABSENT},
                                    {NULL, (double)r->n_steps},
                                    {NULL, (double)(r->n_prompt_computed + r->n_output - N_REQUESTS)},
                                    {NULL, 0},
                                    {NULL, 0},
                                    {NULL, SHEET_ABSENT},
                                    {NULL, engine_speed(r)},
                                    {NULL, engine_speed(r) / all},
                                    {NULL, r->first_ms},
                                    {NULL, 0},
                                    {NULL, (double)r->n_preemptions}});
    }
    for (int i = 0; i < N_WAYS; i++) {
        const baseline_result *r = &x->best[i];
        double speed = (double)x->n_output / r->seconds;
        sheet_row(s, (sheet_cell[]){{ways[i].name, 0},
                                    {NULL, r->most_at_once},
                                    {NULL, (double)r->n_steps},
                                    {NULL, (double)r->n_rows},
                                    {NULL, (double)r->n_padding},
                                    {NULL, (double)r->n_dead},
                                    {NULL, 100 * r->used},
                                    {NULL, speed},
                                    {NULL, speed / all},
                                    {NULL, r->first_ms},
                                    {NULL, (double)r->copied_bytes / 1e6},
                                    {NULL, (double)r->n_dropped}});
    }
}

static void fill_trials(batching *x) {
    for (int i = 0; i < 2; i++) {
        trial *t = &x->engine[i];
        *t = (trial){.options = x->o->engine,
                     .requests = x->requests,
                     .n = N_REQUESTS,
                     .at_once = N_REQUESTS,
                     .max_len = MAX_LEN};
        t->options.max_seqs = i == 0 ? MAX_SEQS : 1;
        t->options.max_batched_tokens = MAX_ROWS;
        t->options.step_target_us = 0;
        t->options.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
        t->options.page_tokens = BASELINE_PAGE;
        t->options.n_pages = MEMORY_TOKENS / BASELINE_PAGE;
    }
}

quire_err experiment_batching(const experiment_options *o, const char *machine, quire_error *err) {
    static const sheet_column columns[] = {
        {"way", "", 19, SHEET_TEXT, NULL},   {"at_once", "at once", 7, 0, "sequences"},
        {"steps", "steps", 6, 0, "steps"},   {"rows", "rows", 6, 0, "rows"},
        {"padding", "pads", 5, 0, "rows"},   {"dead", "dead", 5, 0, "rows"},
        {"used", "used %", 6, 1, "%"},       {"speed", "tokens/s", 8, 0, "tokens/s"},
        {"relative", "of all", 6, 2, "x"},   {"first_token", "first ms", 9, 1, "ms"},
        {"copied", "MB copied", 9, 1, "MB"}, {"dropped", "dropped", 7, 0, "times"}};
    batching x = {.o = o};
    int32_t lengths[N_REQUESTS], n_runs = o->n_runs > 0 ? o->n_runs : 6;
    uint64_t seed = SEED;
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        lengths[i] = draw(&seed);
    }
    int32_t *tokens = trial_prompts(lengths, N_REQUESTS, 1, x.requests);
    if (tokens == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        x.requests[i].n_output = draw(&seed);
        x.n_output += x.requests[i].n_output;
    }
    fill_trials(&x);
    sheet s = {"ablation", EXPERIMENT_COLUMNS(columns), o->json};
    quire_err e = run_all(&x, n_runs, err);
    if (e == QUIRE_OK) {
        sheet_begin(&s, "The same requests in the same memory: the engine, and servers without paging "
                        "(baseline_serve.h)");
        report(&x, &s);
        sheet_note(&s,
                   "32 requests, exponential lengths of mean 60 and 60, memory for %d tokens, %d places, "
                   "longest %d; all answers equal to "
                   "the engine's (checked); %s; rows counted, exact; "
                   "times fastest of %d runs in turns (measured)",
                   MEMORY_TOKENS, MAX_SEQS, MAX_LEN, machine, (int)n_runs);
    }
    mem_free(tokens);
    return e;
}
