#include "lab/bench/headline_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/bench/headline_cost.h"
#include "lab/bench/headline_engine.h"
#include "lab/sim/arrivals.h"

enum { MAX_WIDER = 6 };
static const double ALL_AT_ONCE = 1e12, HIGHER = 1.4, LOWER = 1.6; /* times the clock; steps beyond the rates that were asked for */

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
    [HEADLINE_ORACLE] = {"iteration, oracle", BATCH_ITERATION, RESERVE_ORACLE, SERVING_CACHE_NONE, false, false},
    [HEADLINE_GROWING] = {"iteration, growing", BATCH_ITERATION, RESERVE_GROWING, SERVING_CACHE_NONE, false, false},
    [HEADLINE_PAGED] = {"paged", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_NONE, true, false},
    [HEADLINE_CACHED] = {"paged, prefix cache", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_TOKEN, true, false},
    [HEADLINE_SWAPPED] = {"paged, swapping", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_NONE, true, true},
    [HEADLINE_PLANNER] = {"paged, no engine", BATCH_ITERATION, RESERVE_PAGED, SERVING_CACHE_NONE, false, false},
};

const char *headline_way_name(headline_way w) {
    return ways[w].name;
}

typedef struct course {
    const headline_case_options *o;
    const headline_case *c;
    const trace *t;
    headline_way way;
    const cost_model *cost; /* NULL: really */
    uint64_t *digest;       /* of the answers so far; 0: none yet */
} course;

static quire_err run_really(const course *k, serving_options *so, serving_result *r, quire_error *err) {
    uint64_t digest;
    if (ways[k->way].by_engine) {
        int64_t swap_bytes = ways[k->way].swaps ? so->kv_tokens * kv_layout_token_bytes(&k->o->b->layout) : 0;
        TRY(headline_engine_run(k->o->b, k->t, so, swap_bytes, r, &digest, err));
    } else {
        headline_execution x;
        quire_err e = headline_execution_open(k->o->b, k->t, (int32_t)(so->kv_tokens / HEADLINE_PAGE), so->max_model_len, &x);
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
        return err_set(err, QUIRE_INTERNAL, -1, "%s gives other answers than the ways before it", ways[k->way].name);
    }
    *k->digest = digest;
    return QUIRE_OK;
}

static int by_latency(const void *a, const void *b) {
    const headline_load *x = a, *y = b;
    return (x->latency > y->latency) - (x->latency < y->latency);
}

/* A load whose steps take some percent less or more than the cost model says, about what it is off. With arrivals preemption can turn such
 * a difference into a large one, so the load of the median latency counts. A step that takes f times as long is one in a clock that runs f
 * times as fast. */
static quire_err simulate_load(const course *k, serving_options *so, double rate, headline_load *out, quire_error *err) {
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
static quire_err run_draw(const course *k, double rate, headline_load *out, quire_error *err) {
    const struct way *w = &ways[k->way];
    serving_options so = k->c->server;
    serving_result r;
    so.batching = w->batching;
    so.reservation = w->reservation;
    so.cache = w->cache;
    so.speed = isinf(rate) ? ALL_AT_ONCE : rate;
    so.cost = k->cost != NULL ? k->cost : &k->c->cost;
    if (k->cost != NULL) {
        so.swap_tokens = w->swaps ? so.kv_tokens : 0;
        so.preempt = PREEMPT_SWAP;
        return simulate_load(k, &so, rate, out, err);
    }
    TRY(run_really(k, &so, &r, err));
    *out = headline_load_of(&r, rate);
    serving_result_deinit(&r);
    return QUIRE_OK;
}

static void add_part(headline_load *sum, const headline_load *load, int32_t n) {
    sum->latency += load->latency / n;
    sum->tokens_s += load->tokens_s / n;
    sum->at_once += load->at_once / n;
    sum->live += load->live / n;
    sum->n_preemptions += load->n_preemptions;
}

/* The mean over the draws of arrivals. Where all come at once there is nothing to draw. */
static quire_err run_load(const course *k, double rate, headline_load *out, quire_error *err) {
    const headline_case_options *o = k->o;
    if (isinf(rate) || k->t != o->t || o->n_draws == 1) {
        return run_draw(k, rate, out, err);
    }
    *out = (headline_load){.rate = rate};
    for (int32_t i = 0; i < o->n_draws; i++) {
        headline_load load;
        arrivals_space(o->t, 1, o->seed + (uint64_t)i);
        TRY(run_draw(k, rate, &load, err));
        add_part(out, &load, o->n_draws);
    }
    out->n_preemptions = (out->n_preemptions + o->n_draws / 2) / o->n_draws;
    return QUIRE_OK;
}

/* Adds a load where its rate belongs. */
static quire_err add_load(const course *k, double rate, headline_sweep *s, quire_error *err) {
    headline_load load;
    TRY(run_load(k, rate, &load, err));
    int32_t at = 0;
    while (at < s->n_loads && s->loads[at].rate < rate) {
        at++;
    }
    memmove(&s->loads[at + 1], &s->loads[at], (size_t)(s->n_loads - at) * sizeof *s->loads);
    s->loads[at] = load;
    s->n_loads++;
    return QUIRE_OK;
}

/* Higher rates until the queue grows beyond the bound, lower ones until one is within it. */
static quire_err widen(const course *k, double bound, headline_sweep *s, quire_error *err) {
    for (int32_t i = 0; i < MAX_WIDER && s->loads[s->n_loads - 1].latency <= bound && s->n_loads < HEADLINE_MAX_LOADS; i++) {
        TRY(add_load(k, s->loads[s->n_loads - 1].rate * HIGHER, s, err));
    }
    for (int32_t i = 0; i < MAX_WIDER && s->loads[0].latency > bound && s->n_loads < HEADLINE_MAX_LOADS; i++) {
        TRY(add_load(k, s->loads[0].rate / LOWER, s, err));
    }
    s->highest = headline_highest_rate(s->loads, s->n_loads, bound, &s->is_between);
    return QUIRE_OK;
}

/* Everybody at once, then the asked-for parts of `capacity` requests a second, and as many more as the bound needs. */
static quire_err sweep(const course *k, double capacity, double bound, headline_sweep *s, quire_error *err) {
    for (int32_t i = 0; i < k->o->n_rates; i++) {
        TRY(add_load(k, capacity * k->o->rates[i] / 100, s, err));
    }
    return k->o->n_rates > 0 ? widen(k, bound, s, err) : QUIRE_OK;
}

static double requests_s(const trace *t, const headline_load *burst) {
    return burst->tokens_s * t->n_requests / (double)t->n_output_tokens;
}

/* What steps cost now: *out, and joins the mean. */
static quire_err measure_cost(const headline_case_options *o, headline_case *c, cost_model *out, quire_error *err) {
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

static double bound_of(const headline_case_options *o, const headline_case *c, const cost_model *cost) {
    double n = o->t->n_requests;
    return o->times_idle *
           headline_idle_latency(cost, (double)o->t->n_prompt_tokens / n, (double)o->t->n_output_tokens / n, c->server.max_rows);
}

/* Everybody at once, and what steps cost around it. */
typedef struct burst {
    headline_load load;
    cost_model cost;
} burst;

/* The run that reaches the median of what the steps' cost around it allows, of an even number the lower one. *cost: what steps cost right
 * before, then right after. */
static quire_err run_bursts(const course *k, headline_case *c, cost_model *cost, quire_error *err) {
    burst runs[HEADLINE_MAX_RUNS];
    double reached[HEADLINE_MAX_RUNS]; /* part of what the cost allows */
    int32_t n = k->o->n_runs;
    for (int32_t i = 0; i < n; i++) {
        burst *r = &runs[i];
        TRY(run_load(k, INFINITY, &r->load, err));
        r->cost = *cost;
        TRY(measure_cost(k->o, c, cost, err));
        cost_mean(&r->cost, 1, cost);
        reached[i] = headline_allowed_us(&r->cost, &r->load) * r->load.tokens_s;
    }
    const burst *taken = &runs[headline_median_run(reached, n)];
    c->real[k->way].burst = taken->load;
    c->burst_cost[k->way] = taken->cost;
    return QUIRE_OK;
}

/* Really: at rates about what the simulation can take. *cost: what steps cost right before, then right after. */
static quire_err run_real_way(course k, headline_case *c, cost_model *cost, quire_error *err) {
    course simulated = k;
    headline_load expected;
    simulated.cost = &c->cost;
    TRY(run_load(&simulated, INFINITY, &expected, err));
    TRY(run_bursts(&k, c, cost, err));
    if (k.way != HEADLINE_PLANNER) {
        c->rates_cost[k.way] = *cost;
        TRY(sweep(&k, requests_s(k.t, &expected), c->bound, &c->real[k.way], err));
        TRY(measure_cost(k.o, c, cost, err));
        cost_mean(&c->rates_cost[k.way], 1, cost);
    }
    return QUIRE_OK;
}

/* The same rates, so that the two differ by the steps' time alone; then the device at its own. */
static quire_err simulate_way(course k, headline_case *c, quire_error *err) {
    const headline_sweep *real = &c->real[k.way];
    headline_sweep *s = &c->simulated[k.way];
    k.cost = &c->burst_cost[k.way];
    TRY(run_load(&k, INFINITY, &s->burst, err));
    k.cost = &c->rates_cost[k.way];
    for (int32_t i = 0; i < real->n_loads; i++) {
        TRY(add_load(&k, real->loads[i].rate, s, err));
    }
    TRY(s->n_loads > 0 ? widen(&k, c->bound, s, err) : QUIRE_OK);
    s = &c->device[k.way];
    k.cost = k.o->device;
    TRY(run_load(&k, INFINITY, &s->burst, err));
    k.t = k.o->many;
    return real->n_loads > 0 ? sweep(&k, requests_s(k.o->t, &s->burst), c->device_bound, s, err) : QUIRE_OK;
}

quire_err headline_case_run(const headline_case_options *o, headline_case *c, quire_error *err) {
    uint64_t digest = 0;
    cost_model cost;
    TRY(measure_cost(o, c, &cost, err));
    c->bound = bound_of(o, c, &cost);
    c->device_bound = bound_of(o, c, o->device);
    for (headline_way w = 0; w < HEADLINE_N_WAYS; w++) {
        TRY(run_real_way((course){.o = o, .c = c, .t = o->t, .way = w, .digest = &digest}, c, &cost, err));
    }
    for (headline_way w = 0; w < HEADLINE_N_WAYS; w++) {
        TRY(simulate_way((course){.o = o, .c = c, .t = o->t, .way = w, .digest = &digest}, c, err));
    }
    return QUIRE_OK;
}
