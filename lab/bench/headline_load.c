#include "lab/bench/headline_load.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "lab/bench/headline_engine.h"
#include "lab/sim/arrivals.h"

static const double ALL_AT_ONCE = 1e12; /* times the clock */

static const struct way {
    const char *name;
    batching batching;
    reservation reservation;
    serving_cache cache;
    bool by_engine, swaps;
} ways[HEADLINE_N_WAYS] = {
    [HEADLINE_STATIC] = {"static, padded", BATCH_STATIC, RESERVE_MAX, SERVING_CACHE_NONE, false, false},
    [HEADLINE_MAX] = {"iteration, max", BATCH_ITERATION, RESERVE_MAX, SERVING_CACHE_NONE, false, false},
    [HEADLINE_POW2] = {"iteration, pow2", BATCH_ITERATION, RESERVE_POW2, SERVING_CACHE_NONE, false, false},
    [HEADLINE_ORACLE] = {"iteration, oracle", BATCH_ITERATION, RESERVE_ORACLE, SERVING_CACHE_NONE, false,
                         false},
    [HEADLINE_GROWING] = {"iteration, growing", BATCH_ITERATION, RESERVE_GROWING, SERVING_CACHE_NONE, false,
                          false},
    [HEADLINE_PAGED] = {"paged", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_NONE, true, false},
    [HEADLINE_CACHED] = {"paged, prefix cache", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_TOKEN, true,
                         false},
    [HEADLINE_SWAPPED] = {"paged, swapping", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_NONE, true, true},
    [HEADLINE_PLANNER] = {"paged, no engine", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_NONE, false,
                          false},
};

const char *headline_way_name(headline_way w) {
    return ways[w].name;
}

static quire_err run_really(const headline_course *k, serving_options *so, serving_result *r,
                            quire_error *err) {
    uint64_t digest;
    if (ways[k->way].by_engine) {
        int64_t swap_bytes = ways[k->way].swaps ? so->kv_tokens * kv_layout_token_bytes(&k->b->layout) : 0;
        TRY(headline_engine_run(k->b, k->t, so, swap_bytes, r, &digest, err));
    } else {
        headline_execution x;
        quire_err e = headline_execution_open(k->b, k->t, (int32_t)(so->kv_tokens / HEADLINE_PAGE),
                                              so->max_model_len, &x);
        if (e != QUIRE_OK) {
            return err_set(err, e, -1, "out of memory for %d requests", (int)k->t->n_requests);
        }
        so->execution = &x.hooks;
        e = serving_run(k->t, so, r, err);
        digest = headline_execution_digest(&x);
        headline_execution_close(&x);
        TRY(e);
    }
    if (*k->digest != 0 && *k->digest != digest) {
        serving_result_deinit(r);
        return err_set(err, QUIRE_INTERNAL, -1, "%s gives other answers than the ways before it",
                       ways[k->way].name);
    }
    *k->digest = digest;
    return QUIRE_OK;
}

static int by_latency(const void *a, const void *b) {
    const headline_load *x = a, *y = b;
    return (x->latency > y->latency) - (x->latency < y->latency);
}

/* A load whose steps take some percent less or more than the cost model says, about what
 * it is off. With arrivals preemption can turn such a difference into a large one, so the
 * load of the median latency counts. A step that takes f times as long is one in a clock
 * that runs f times as fast. */
static quire_err simulate_load(const headline_course *k, serving_options *so, double rate, headline_load *out,
                               quire_error *err) {
    static const double longer[] = {0.96, 0.98, 1, 1.02, 1.04};
    enum { N = sizeof longer / sizeof *longer };
    headline_load loads[N];
    int32_t n = isinf(rate) ? 1 : N;
    for (int32_t i = 0; i < n; i++) {
        double f = isinf(rate) ? 1 : longer[i];
        serving_result r;
        so->speed = (isinf(rate) ? ALL_AT_ONCE : rate) * f;
        TRY(serving_run(k->t, so, &r, err));
        loads[i] = headline_load_of(&r, rate);
        loads[i].latency *= f;
        loads[i].tokens_s /= f;
        serving_result_deinit(&r);
    }
    qsort(loads, (size_t)n, sizeof *loads, by_latency);
    *out = loads[n / 2];
    return QUIRE_OK;
}

/* One load of one draw: the trace's clock runs `rate` times as fast. */
static quire_err run_draw(const headline_course *k, double rate, headline_load *out, quire_error *err) {
    const struct way *w = &ways[k->way];
    serving_options so = *k->server;
    serving_result r;
    so.batching = w->batching;
    so.reservation = w->reservation;
    so.cache = w->cache;
    so.speed = isinf(rate) ? ALL_AT_ONCE : rate;
    so.cost = k->cost;
    if (!k->really) {
        so.swap_tokens = w->swaps ? so.kv_tokens : 0;
        so.preempt = PREEMPT_SWAP;
        return simulate_load(k, &so, rate, out, err);
    }
    TRY(run_really(k, &so, &r, err));
    *out = headline_load_of(&r, rate);
    serving_result_deinit(&r);
    return QUIRE_OK;
}

quire_err headline_run_load(const headline_course *k, double rate, headline_load *out, quire_error *err) {
    if (isinf(rate) || k->drawn == NULL) {
        return run_draw(k, rate, out, err);
    }
    for (int32_t i = 0; i < k->n_draws; i++) {
        headline_load load;
        arrivals_space(k->drawn, 1, k->seed + (uint64_t)i);
        TRY(run_draw(k, rate, &load, err));
        headline_load_mean(out, i, &load);
    }
    return QUIRE_OK;
}
