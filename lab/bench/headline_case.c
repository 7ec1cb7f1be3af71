#include "lab/bench/headline_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/bench/headline_cost.h"
#include "lab/bench/headline_engine.h"
#include "lab/bench/headline_execute.h"
#include "lab/bench/headline_figures.h"
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

static quire_err run_really(const headline_run *k, serving_options *so, serving_result *r, quire_error *err) {
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
static quire_err simulate_load(const headline_run *k, serving_options *so, double rate, headline_load *out,
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
static quire_err run_draw(const headline_run *k, double rate, headline_load *out, quire_error *err) {
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

quire_err headline_run_load(const headline_run *k, double rate, headline_load *out, quire_error *err) {
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

/* Rates beyond those that were asked for; of one load, and of all, runs that replace
 * another. */
enum { MAX_WIDER = 6, MAX_AGAIN = 3, MOST_AGAIN = HEADLINE_N_WAYS };
static const double HIGHER = 1.4, LOWER = 1.6;

/* One way of serving: how its next load is run, and in which case. */
typedef struct serving_way {
    headline_run k;
    const headline_case_options *o;
    headline_case *c;
    cost_model *now; /* what steps cost when it was measured last */
} serving_way;

/* What steps cost now: *out, and joins the mean. */
static quire_err measure_cost(const headline_case_options *o, headline_case *c, cost_model *out,
                              quire_error *err) {
    headline_cost_options co = {.n_pages = (int32_t)(c->server.kv_tokens / HEADLINE_PAGE),
                                .max_rows = c->server.max_rows,
                                .max_seqs = c->server.max_seqs,
                                .max_len = c->server.max_model_len,
                                .n_runs = 1};
    double off;
    TRY(headline_cost_measure(o->b, &co, out, &off, err));
    cost_mean(&c->cost, c->n_costs, out);
    c->cost_off += (off - c->cost_off) / (c->n_costs + 1);
    c->n_costs++;
    return QUIRE_OK;
}

/* A load, and what steps cost right before and after it, mean. */
typedef struct run {
    headline_load load;
    cost_model cost;
} run;

/* A load that really runs, between two measurements. The speed of a machine that others
 * share changes from one minute to the next: where the two differ, it runs again, and the
 * run whose two differ least counts, whatever it gave. */
static quire_err run_steadily(const serving_way *w, double rate, run *out, quire_error *err) {
    double least = INFINITY;
    w->c->n_loads++;
    for (int32_t i = 0; i <= MAX_AGAIN && least > HEADLINE_STEADY && (i == 0 || w->c->n_again < MOST_AGAIN);
         i++) {
        run r = {.cost = *w->now};
        TRY(headline_run_load(&w->k, rate, &r.load, err));
        TRY(measure_cost(w->o, w->c, w->now, err));
        double drift = headline_drift(&r.cost, w->now, &r.load);
        cost_mean(&r.cost, 1, w->now);
        if (drift < least) {
            least = drift;
            *out = r;
        }
        w->c->n_again += i > 0;
    }
    return QUIRE_OK;
}

static quire_err headline_case_run_load(const serving_way *w, double rate, run *out, quire_error *err) {
    return w->k.really ? run_steadily(w, rate, out, err) : headline_run_load(&w->k, rate, &out->load, err);
}

/* Adds a load where its rate belongs. */
static quire_err add_load(const serving_way *w, double rate, headline_sweep *s, quire_error *err) {
    run r = {0};
    TRY(headline_case_run_load(w, rate, &r, err));
    int32_t at = 0;
    while (at < s->n_loads && s->loads[at].rate < rate) {
        at++;
    }
    size_t behind = (size_t)(s->n_loads - at);
    memmove(&s->loads[at + 1], &s->loads[at], behind * sizeof *s->loads);
    memmove(&s->costs[at + 1], &s->costs[at], behind * sizeof *s->costs);
    s->loads[at] = r.load;
    s->costs[at] = r.cost;
    s->n_loads++;
    return QUIRE_OK;
}

/* Higher rates until the queue grows beyond the bound, lower ones until one is within
 * it. */
static quire_err headline_case_widen(const serving_way *w, double bound, headline_sweep *s,
                                     quire_error *err) {
    for (int32_t i = 0;
         i < MAX_WIDER && s->loads[s->n_loads - 1].latency <= bound && s->n_loads < HEADLINE_MAX_LOADS; i++) {
        TRY(add_load(w, s->loads[s->n_loads - 1].rate * HIGHER, s, err));
    }
    for (int32_t i = 0; i < MAX_WIDER && s->loads[0].latency > bound && s->n_loads < HEADLINE_MAX_LOADS;
         i++) {
        TRY(add_load(w, s->loads[0].rate / LOWER, s, err));
    }
    s->highest = headline_highest_rate(s->loads, s->n_loads, bound, &s->is_between);
    return QUIRE_OK;
}

/* Everybody at once, then the asked-for parts of `capacity` requests a second, and as
 * many more as the bound needs. */
static quire_err sweep(const serving_way *w, double capacity, double bound, headline_sweep *s,
                       quire_error *err) {
    for (int32_t i = 0; i < w->o->n_rates; i++) {
        TRY(add_load(w, capacity * w->o->rates[i] / 100, s, err));
    }
    return w->o->n_rates > 0 ? headline_case_widen(w, bound, s, err) : QUIRE_OK;
}

static double requests_s(const trace *t, const headline_load *burst) {
    return burst->tokens_s * t->n_requests / (double)t->n_output_tokens;
}

static double bound_of(const headline_case_options *o, const headline_case *c, const cost_model *cost) {
    double n = o->t->n_requests;
    return o->times_idle * headline_idle_latency(cost, (double)o->t->n_prompt_tokens / n,
                                                 (double)o->t->n_output_tokens / n, c->server.max_rows);
}

/* Everybody at once, so many times: the run that reaches the median of what the steps'
 * cost around it allows, of an even number the lower one. */
static quire_err run_bursts(const serving_way *w, headline_sweep *s, quire_error *err) {
    run runs[HEADLINE_MAX_RUNS];
    double reached[HEADLINE_MAX_RUNS]; /* part of what the cost allows */
    int32_t n = w->o->n_runs;
    for (int32_t i = 0; i < n; i++) {
        TRY(headline_case_run_load(w, INFINITY, &runs[i], err));
        reached[i] = headline_allowed_us(&runs[i].cost, &runs[i].load) * runs[i].load.tokens_s;
    }
    const run *taken = &runs[headline_median_run(reached, n)];
    s->burst = taken->load;
    s->burst_cost = taken->cost;
    return QUIRE_OK;
}

/* Really: at rates about what the simulation can take. */
static quire_err run_real_way(serving_way w, quire_error *err) {
    headline_sweep *s = &w.c->real[w.k.way];
    headline_load expected;
    TRY(headline_run_load(&w.k, INFINITY, &expected, err));
    w.k.really = true;
    TRY(run_bursts(&w, s, err));
    return w.k.way != HEADLINE_PLANNER ? sweep(&w, requests_s(w.k.t, &expected), w.c->bound, s, err)
                                       : QUIRE_OK;
}

/* The same rates, each at what steps cost around the real load, so that the two differ by
 * the steps' time alone; rates beyond those at the mean. */
static quire_err simulate_way(serving_way w, quire_error *err) {
    const headline_sweep *real = &w.c->real[w.k.way];
    headline_sweep *s = &w.c->simulated[w.k.way];
    cost_model mean;
    w.k.cost = &real->burst_cost;
    TRY(headline_run_load(&w.k, INFINITY, &s->burst, err));
    for (int32_t i = 0; i < real->n_loads; i++) {
        w.k.cost = &real->costs[i];
        TRY(add_load(&w, real->loads[i].rate, s, err));
        cost_mean(&mean, i, &real->costs[i]);
    }
    w.k.cost = &mean;
    return s->n_loads > 0 ? headline_case_widen(&w, w.c->bound, s, err) : QUIRE_OK;
}

/* The described device, at its own rates, with many requests. */
static quire_err simulate_device(serving_way w, quire_error *err) {
    headline_sweep *s = &w.c->device[w.k.way];
    w.k.cost = w.o->device;
    TRY(headline_run_load(&w.k, INFINITY, &s->burst, err));
    w.k.t = w.o->many;
    w.k.drawn = NULL;
    return w.c->real[w.k.way].n_loads > 0
               ? sweep(&w, requests_s(w.o->t, &s->burst), w.c->device_bound, s, err)
               : QUIRE_OK;
}

quire_err headline_case_run(const headline_case_options *o, headline_case *c, quire_error *err) {
    uint64_t digest = 0;
    cost_model now;
    serving_way w = {.o = o, .c = c, .now = &now};
    w.k = (headline_run){.b = o->b,
                         .t = o->t,
                         .drawn = o->n_draws > 1 ? o->t : NULL,
                         .n_draws = o->n_draws,
                         .seed = o->seed,
                         .server = &c->server,
                         .cost = &c->cost,
                         .digest = &digest};
    TRY(measure_cost(o, c, &now, err));
    c->bound = bound_of(o, c, &now);
    c->device_bound = bound_of(o, c, o->device);
    for (w.k.way = 0; w.k.way < HEADLINE_N_WAYS; w.k.way++) {
        TRY(run_real_way(w, err));
    }
    for (w.k.way = 0; w.k.way < HEADLINE_N_WAYS; w.k.way++) {
        TRY(simulate_way(w, err));
        TRY(simulate_device(w, err));
    }
    return QUIRE_OK;
}
