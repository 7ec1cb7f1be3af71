/* bench ablation batching: the engine against servers without paging, the same requests
 * in the same memory. */

#include "base/rng.h"
#include "lab/bench/baseline_serve.h"
#include "lab/commands/experiment.h"

enum { N_REQUESTS = 32, MAX_SEQS = 16, MAX_LEN = 512, MEMORY_TOKENS = 3072, MAX_ROWS = 512, SEED = 19 };

/* Lengths that differ as people's do: exponential, means 60 and 60. */
static int32_t experiment_batching_draw(uint64_t *seed) {
    double u = ((double)(rng_next(seed) >> 11) + 0.5) * 0x1p-53, v = 1 - 60 * log(u);
    return v > MAX_LEN / 2 ? MAX_LEN / 2 : (int32_t)v;
}

static const struct way {
    const char *name;
    bool is_static;
    reservation reservation;
    int32_t max_seqs;
} ways[] = {{"continuous, paged", false, RESERVE_PAGED, MAX_SEQS}, /* the engine */
            {"one at a time", false, RESERVE_PAGED, 1},
            {"static, padded", true, RESERVE_MAX, MAX_SEQS},
            {"iteration, max", false, RESERVE_MAX, MAX_SEQS},
            {"iteration, pow2", false, RESERVE_POW2, MAX_SEQS},
            {"iteration, oracle", false, RESERVE_ORACLE, MAX_SEQS},
            {"iteration, growing", false, RESERVE_GROWING, MAX_SEQS}};
enum { N_WAYS = (int)(sizeof ways / sizeof *ways) };

typedef struct batching {
    const experiment_options *o;
    int32_t prompts[N_REQUESTS], outputs[N_REQUESTS];
    baseline_result best[N_WAYS];
    int64_t n_output;
} batching;

static quire_err serve_once(batching *x, int way, quire_error *err) {
    const struct way *w = &ways[way];
    baseline_options o = {w->is_static, w->reservation, MEMORY_TOKENS / BASELINE_PAGE,
                          w->max_seqs,  MAX_LEN,        NULL};
    baseline_result r;
    model_runner b;
    TRY(MODEL_RUNNER_OPEN(&b, err, .engine = &x->o->cli.engine, .page_tokens = BASELINE_PAGE,
                          .n_pages = o.n_pages + baseline_extra_pages(&o), .max_rows = MAX_ROWS,
                          .max_seqs = 2 * MAX_SEQS, .max_len = MAX_LEN));
    quire_err e = baseline_serve(&b, &o, x->prompts, x->outputs, N_REQUESTS, &r, err);
    model_runner_close(&b);
    TRY(e);
    if (way > 0 && r.digest != x->best[0].digest) {
        return err_set(err, QUIRE_INTERNAL, -1, "%s gives other answers than the engine", w->name);
    }
    if (x->best[way].n_rows == 0 || r.seconds < x->best[way].seconds) {
        x->best[way] = r;
    }
    return QUIRE_OK;
}

static quire_err run_all(batching *x, int32_t n_runs, quire_error *err) {
    for (int32_t i = 0; i < n_runs * N_WAYS; i++) {
        TRY(serve_once(x, i % N_WAYS, err));
    }
    return QUIRE_OK;
}

static void experiment_batching_report(const batching *x, const bench_table *s) {
    for (int i = 0; i < N_WAYS; i++) {
        const baseline_result *r = &x->best[i];
        TABLE_ROW(s, TXT(ways[i].name), NUM(r->most_at_once), NUM(r->n_steps), NUM(r->n_rows),
                  NUM(r->n_padding), NUM(r->n_dead), NUM(100 * r->used),
                  NUM((double)x->n_output / r->seconds), NUM(x->best[0].seconds / r->seconds),
                  NUM(r->first_ms), NUM((double)r->copied_bytes / 1e6), NUM(r->n_dropped));
    }
}

quire_err experiment_batching(const experiment_options *o, const char *machine, quire_error *err) {
    batching x = {.o = o};
    int32_t n_runs = o->n_runs > 0 ? o->n_runs : 6;
    uint64_t seed = SEED;
    for (int32_t i = 0; i < 2 * N_REQUESTS; i++) {
        *(i < N_REQUESTS ? &x.prompts[i] : &x.outputs[i - N_REQUESTS]) = experiment_batching_draw(&seed);
    }
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        x.n_output += x.outputs[i];
    }
    TABLE(s, "ablation", o->cli.json, WORD("way", "", 19), FIGURE("at_once", "at once", 7, 0, "sequences"),
          FIGURE("steps", "steps", 6, 0, "steps"), FIGURE("rows", "rows", 6, 0, "rows"),
          FIGURE("padding", "pads", 5, 0, "rows"), FIGURE("dead", "dead", 5, 0, "rows"),
          FIGURE("used", "used %", 6, 1, "%"), FIGURE("speed", "tokens/s", 8, 0, "tokens/s"),
          FIGURE("relative", "of all", 6, 2, "x"), FIGURE("first_token", "first ms", 9, 1, "ms"),
          FIGURE("copied", "MB copied", 9, 1, "MB"), FIGURE("dropped", "dropped", 7, 0, "times"));
    quire_err e = run_all(&x, n_runs, err);
    if (e == QUIRE_OK) {
        table_begin(&s, "The same requests in the same memory: the engine, and servers without paging");
        experiment_batching_report(&x, &s);
        table_note(&s,
                   "32 requests, exponential lengths of mean 60 and 60, memory for %d tokens, %d places, "
                   "longest %d; all answers equal to the engine's (checked); %s; rows counted, exact; times "
                   "of the steps, fastest of %d runs in turns (measured)",
                   MEMORY_TOKENS, MAX_SEQS, MAX_LEN, machine, (int)n_runs);
    }
    return e;
}
