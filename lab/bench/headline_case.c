#include "lab/bench/headline_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "lab/bench/figures.h"
#include "lab/bench/headline_execute.h"
#include "lab/sim/trace_read.h"

headline_load headline_load_of(const serving_result *r, double rate) {
    double running = (double)r->step_running;
    headline_load load = {.rate = rate,
                          .tokens_s = (double)r->output_tokens / (r->span_us * 1e-6),
                          .at_once = running / (double)r->n_steps,
                          .live = (double)r->step_live / (double)r->step_reserved,
                          .n_steps = (double)r->n_steps,
                          .n_preemptions = (double)r->n_preemptions,
                          .work = r->work};
    memcpy(load.steps_at, r->steps_at, sizeof load.steps_at);
    for (int32_t i = 0; i < r->times.n; i++) {
        load.latency += r->times.per_token[i] * 1e-6 / r->times.n;
    }
    return load;
}

static void mean_of(double *mean, int32_t n, double value) {
    *mean += (value - *mean) / (n + 1);
}

void headline_load_mean(headline_load *mean, int32_t n, const headline_load *load) {
    if (n == 0) {
        *mean = *load;
        return;
    }
    mean_of(&mean->latency, n, load->latency);
    mean_of(&mean->tokens_s, n, load->tokens_s);
    mean_of(&mean->at_once, n, load->at_once);
    mean_of(&mean->live, n, load->live);
    mean_of(&mean->n_steps, n, load->n_steps);
    mean_of(&mean->n_preemptions, n, load->n_preemptions);
    mean_of(&mean->work.rows, n, load->work.rows);
    mean_of(&mean->work.out, n, load->work.out);
    mean_of(&mean->work.decode_pairs, n, load->work.decode_pairs);
    mean_of(&mean->work.prefill_pairs, n, load->work.prefill_pairs);
    mean_of(&mean->work.copied, n, load->work.copied);
    mean_of(&mean->work.swapped, n, load->work.swapped);
    for (int k = 0; k < COST_N_KNOTS; k++) {
        mean_of(&mean->steps_at[k], n, load->steps_at[k]);
    }
}

double headline_highest_rate(const headline_load *loads, int32_t n, double bound, bool *is_between) {
    int32_t i = 0;
    while (i < n && loads[i].latency <= bound) {
        i++;
    }
    *is_between = i > 0 && i < n;
    if (!*is_between) {
        return i == 0 ? loads[0].rate : loads[n - 1].rate;
    }
    const headline_load *a = &loads[i - 1], *b = &loads[i];
    double part = log(bound / a->latency) / log(b->latency / a->latency);
    return a->rate * pow(b->rate / a->rate, part);
}

double headline_allowed_us(const cost_model *c, const headline_load *load) {
    step_work rest = load->work; /* work other than rows */
    rest.rows = 0;
    double us = cost_of(c, &rest) - cost_of(c, &(step_work){0});
    for (int k = 0; k < COST_N_KNOTS; k++) {
        us += load->steps_at[k] > 0 ? load->steps_at[k] * cost_of(c, &(step_work){.rows = cost_knot(k)}) : 0;
    }
    return us;
}

double headline_drift(const cost_model *a, const cost_model *b, const headline_load *load) {
    double of_a = headline_allowed_us(a, load), of_b = headline_allowed_us(b, load);
    return fmax(of_a, of_b) / fmin(of_a, of_b) - 1;
}

double headline_idle_latency(const cost_model *c, double mean_prompt, double mean_output, int32_t max_rows) {
    double us = 0;
    for (double at = 0; at < mean_prompt; at += max_rows) {
        double rows = fmin(max_rows, mean_prompt - at);
        us += cost_of(c, &(step_work){.rows = rows, .out = 1, .prefill_pairs = rows * (at + (rows + 1) / 2)});
    }
    double context = mean_prompt + mean_output / 2;
    us += (mean_output - 1) * cost_of(c, &(step_work){.rows = 1, .out = 1, .decode_pairs = context});
    return us / mean_output * 1e-6;
}

int32_t headline_median_run(const double *reached, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        int32_t rank = 0; /* number of runs with lower values */
        for (int32_t k = 0; k < n; k++) {
            rank += reached[k] < reached[i] || (reached[k] == reached[i] && k < i);
        }
        if (rank == (n - 1) / 2) {
            return i;
        }
    }
    return 0;
}

enum { MAX_MEASURES = 96, N_CONTEXTS = 4 };
/* A step is repeated for RUN_US, but at least LEAST_REPEATS times unless it takes
 * LONG_US, so that no knot of the fit depends on a single step. */
enum { MAX_REPEATS = 64, LEAST_REPEATS = 4, RUN_US = 20000, LONG_US = 200000 };

static const int32_t contexts[N_CONTEXTS] = {16, 128, 512, 1536};
enum { USUAL = 1 }; /* index in contexts of the usual one */

/* n_seqs sequences that decode after `first` tokens each, or one that computes n_rows
 * after them. */
typedef struct measure {
    bool decodes;
    int32_t n_seqs, first, n_rows;
    double us; /* total time of the steps so far */
    int32_t n;
} measure;

typedef struct measuring {
    model_runner *b;
    const headline_cost_options *o;
    int32_t knots[COST_MAX_POINTS], n_knots;
    measure measures[MAX_MEASURES];
    int32_t n;
    int32_t *tokens, *tables; /* [max_len] ids; [n_pages] pages */
    runner_part *parts;       /* [max_seqs] */
} measuring;

static void headline_cost_add_measure(measuring *k, measure m) {
    int32_t each = m.first + (m.decodes ? 1 : m.n_rows);
    if (each <= k->o->max_len && m.n_seqs * kv_pages_for(each, HEADLINE_PAGE) <= k->o->n_pages &&
        k->n < MAX_MEASURES) {
        k->measures[k->n++] = m;
    }
}

/* Chooses steps to measure: rows up to the limit, first in a context and after others;
 * and sequences, with several context lengths if their number is a power of two, since
 * the cost of context is linear. */
static void headline_cost_choose(measuring *k) {
    int32_t most = k->o->max_rows, seqs[COST_MAX_POINTS], n_seqs = cost_knots_until(k->o->max_seqs, seqs);
    k->n_knots = cost_knots_until(most, k->knots);
    for (int32_t i = 0; i < k->n_knots; i++) {
        headline_cost_add_measure(k, (measure){.n_seqs = 1, .n_rows = k->knots[i]});
    }
    headline_cost_add_measure(k, (measure){.n_seqs = 1, .first = most, .n_rows = most});
    for (int32_t n = 0; n < n_seqs; n++) {
        bool all = (seqs[n] & (seqs[n] - 1)) == 0;
        for (int i = all ? 0 : USUAL; i < (all ? N_CONTEXTS : USUAL + 1); i++) {
            headline_cost_add_measure(k, (measure){.decodes = true, .n_seqs = seqs[n], .first = contexts[i]});
        }
    }
}

static quire_err headline_cost_run_step(measuring *k, const measure *m) {
    int32_t rows = m->decodes ? 1 : m->n_rows, each = (int32_t)kv_pages_for(m->first + rows, HEADLINE_PAGE);
    for (int32_t i = 0; i < m->n_seqs; i++) {
        k->parts[i] = (runner_part){.tokens = k->tokens,
                                    .first = m->first,
                                    .n_rows = rows,
                                    .pages = k->tables + (size_t)i * (size_t)each,
                                    .n_logits = 1};
    }
    TRY(model_runner_forward(k->b, k->parts, m->n_seqs));
    for (int32_t i = 0; i < m->n_seqs; i++) {
        k->tokens[0] = model_runner_greedy(k->b, i);
    }
    return QUIRE_OK;
}

static quire_err headline_cost_run_some(measuring *k, measure *m) {
    int64_t spent = 0;
    for (int32_t i = 0; i < MAX_REPEATS && spent < (i < LEAST_REPEATS ? LONG_US : RUN_US); i++) {
        int64_t start = figures_time_us(k->b->n_threads);
        TRY(headline_cost_run_step(k, m));
        int64_t us = figures_time_us(k->b->n_threads) - start;
        spent += us;
        m->us += (double)us;
        m->n++;
    }
    return QUIRE_OK;
}

/* Fills all keys and values with finite numbers, since reading untouched memory would
 * cost nothing. */
static quire_err headline_cost_fill_pages(measuring *k) {
    for (int32_t i = 0; i < k->o->n_pages; i++) {
        k->tables[i] = i;
    }
    TRY(model_runner_prefill(k->b, k->tokens, HEADLINE_PAGE < k->o->max_len ? HEADLINE_PAGE : k->o->max_len,
                             k->tables));
    for (int32_t i = 1; i < k->o->n_pages; i++) {
        kv_copy_pair pair = {0, i};
        k->b->b->ops->kv_copy(k->b->b, &pair, 1);
    }
    return QUIRE_OK;
}

/* Measures copying keys and values by the page, per token. */
static double copy_us(const measuring *k) {
    int64_t start = figures_time_us(k->b->n_threads), n = 0, us = 0;
    for (int32_t i = 0; us < RUN_US && k->o->n_pages > 1; i++, n++) {
        kv_copy_pair pair = {i % (k->o->n_pages / 2), k->o->n_pages / 2 + i % (k->o->n_pages / 2)};
        k->b->b->ops->kv_copy(k->b->b, &pair, 1);
        us = figures_time_us(k->b->n_threads) - start;
    }
    return n > 0 ? (double)us / (double)n / HEADLINE_PAGE : 0;
}

/* ---- fitting ---- */

static step_work headline_cost_work_of(const measure *m) {
    double n = m->n_seqs, rows = m->n_rows;
    return m->decodes
               ? (step_work){.rows = n, .out = n, .decode_pairs = n * (m->first + 1)}
               : (step_work){.rows = rows, .out = 1, .prefill_pairs = rows * (m->first + (rows + 1) / 2)};
}

static void fit_cost(const measuring *k, cost_model *c, double *off) {
    double terms[FIT_MAX_TERMS], factors[FIT_MAX_TERMS], squares = 0;
    fit f = {.n_terms = k->n_knots + COST_FIT_N_OTHERS};
    for (int32_t i = 0; i < k->n; i++) {
        const measure *m = &k->measures[i];
        step_work w = headline_cost_work_of(m);
        memset(terms, 0, sizeof terms);
        cost_fit_add_step(k->knots, k->n_knots, &w, terms);
        fit_add(&f, terms, m->us / m->n);
    }
    fit_solve(&f, factors);
    cost_fit_fill(k->knots, k->n_knots, factors, c);
    for (int32_t i = 0; i < k->n; i++) {
        const measure *m = &k->measures[i];
        step_work w = headline_cost_work_of(m);
        double error = cost_of(c, &w) / (m->us / m->n) - 1;
        squares += error * error;
    }
    *off = sqrt(squares / k->n);
}

static quire_err headline_cost_measure_all(measuring *k) {
    TRY(headline_cost_fill_pages(k));
    for (int32_t run = -1; run < k->o->n_runs; run++) { /* run -1 warms up */
        for (int32_t i = 0; i < k->n; i++) {
            measure *m = &k->measures[i];
            TRY(run < 0 ? headline_cost_run_step(k, m) : headline_cost_run_some(k, m));
        }
    }
    return QUIRE_OK;
}

quire_err headline_cost_measure(model_runner *b, const headline_cost_options *o, cost_model *out, double *off,
                                quire_error *err) {
    measuring *k = mem_new(1, sizeof *k);
    TRY(mem_check_for(k, "the measurements of steps", err));
    *k = (measuring){.b = b, .o = o};
    k->tokens = mem_new((size_t)o->max_len, sizeof *k->tokens);
    k->tables = mem_new((size_t)o->n_pages, sizeof *k->tables);
    k->parts = mem_new((size_t)o->max_seqs, sizeof *k->parts);
    quire_err e = k->tokens && k->tables && k->parts ? QUIRE_OK : QUIRE_NO_MEMORY;
    if (e == QUIRE_OK) {
        model_runner_prompt(b, 1, o->max_len, k->tokens);
        headline_cost_choose(k);
        e = headline_cost_measure_all(k);
    }
    if (e == QUIRE_OK) {
        *out = (cost_model){.kv_tokens = (int64_t)o->n_pages * HEADLINE_PAGE,
                            .token_bytes = kv_layout_token_bytes(&b->layout),
                            .max_model_len = o->max_len};
        snprintf(out->model, sizeof out->model, "%.90s", b->desc->name);
        snprintf(out->device, sizeof out->device, "%.90s", b->b->ops->describe(b->b));
        fit_cost(k, out, off);
        out->swap_us = out->copy_us = copy_us(k);
    } else {
        err_set(err, e, -1, "steps could not be measured: %s", quire_err_text(e));
    }
    mem_free(k->tokens);
    mem_free(k->tables);
    mem_free(k->parts);
    mem_free(k);
    return e;
}

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

/* Most rates beyond those given; most repeated runs of one load, and of all. */
enum { MAX_WIDER = 6, MAX_AGAIN = 3, MOST_AGAIN = HEADLINE_N_WAYS };
static const double HIGHER = 1.4, LOWER = 1.6, TIMES_IDLE = 3; /* the bound, in latencies of an idle server */

/* One way of serving: how its next load is run, and its case. */
typedef struct serving_way {
    const headline_case_options *o;
    headline_case *c;
    const trace *t; /* o->t, whose arrivals may be redrawn, or o->many */
    headline_way way;
    bool really;
    const cost_model *cost; /* step costs for a simulation */
    uint64_t *digest;       /* digest of the answers so far; 0: none yet */
    cost_model *now;        /* step costs at the last measurement */
} serving_way;

static quire_err run_really(const serving_way *w, const serving_options *so, serving_result *r,
                            quire_error *err) {
    const struct way *by = &ways[w->way];
    const headline_server server = {by->by_engine,
                                    by->swaps ? so->kv_tokens * kv_layout_token_bytes(&w->o->b->layout) : 0};
    uint64_t digest;
    TRY(headline_serve(w->o->b, w->t, server, so, r, &digest, err));
    if (*w->digest != 0 && *w->digest != digest) {
        serving_result_deinit(r);
        return err_set(err, QUIRE_INTERNAL, -1, "%s gives other answers than the ways before it", by->name);
    }
    *w->digest = digest;
    return QUIRE_OK;
}

static int by_latency(const void *a, const void *b) {
    const headline_load *x = a, *y = b;
    return (x->latency > y->latency) - (x->latency < y->latency);
}

/* Simulates a load several times, with steps a few percent longer or shorter than the
 * cost model says, about its error. With arrivals, preemption can amplify such a
 * difference, so the load with the median latency counts. Steps f times as long are the
 * same as a clock f times as fast. */
static quire_err simulate_load(const serving_way *w, serving_options *so, double rate, headline_load *out,
                               quire_error *err) {
    static const double longer[] = {0.96, 0.98, 1, 1.02, 1.04};
    enum { N = sizeof longer / sizeof *longer };
    headline_load loads[N];
    int32_t n = isinf(rate) ? 1 : N;
    for (int32_t i = 0; i < n; i++) {
        double f = isinf(rate) ? 1 : longer[i];
        serving_result r;
        so->speed = (isinf(rate) ? ALL_AT_ONCE : rate) * f;
        TRY(serving_run(w->t, so, &r, err));
        loads[i] = headline_load_of(&r, rate);
        loads[i].latency *= f;
        loads[i].tokens_s /= f;
        serving_result_deinit(&r);
    }
    qsort(loads, (size_t)n, sizeof *loads, by_latency);
    *out = loads[n / 2];
    return QUIRE_OK;
}

/* Runs one load with one draw of arrivals: the trace's clock runs `rate` times faster. */
static quire_err run_draw(const serving_way *w, double rate, headline_load *out, quire_error *err) {
    const struct way *by = &ways[w->way];
    serving_options so = w->c->server;
    serving_result r;
    so.batching = by->batching;
    so.reservation = by->reservation;
    so.cache = by->cache;
    so.speed = isinf(rate) ? ALL_AT_ONCE : rate;
    so.cost = w->cost;
    if (!w->really) {
        so.swap_tokens = by->swaps ? so.kv_tokens : 0;
        so.preempt = PREEMPT_SWAP;
        return simulate_load(w, &so, rate, out, err);
    }
    TRY(run_really(w, &so, &r, err));
    *out = headline_load_of(&r, rate);
    serving_result_deinit(&r);
    return QUIRE_OK;
}

/* Runs a load at `rate` requests per second (INFINITY: all at once); *out: the mean over
 * the draws of arrivals, if there are several. QUIRE_INTERNAL: the answers differ from
 * earlier ways'. */
static quire_err headline_run_load(const serving_way *w, double rate, headline_load *out, quire_error *err) {
    if (isinf(rate) || w->o->n_draws == 1 || w->t != w->o->t) {
        return run_draw(w, rate, out, err);
    }
    for (int32_t i = 0; i < w->o->n_draws; i++) {
        headline_load load;
        arrivals_space(w->o->t, 1, (uint64_t)i + 1);
        TRY(run_draw(w, rate, &load, err));
        headline_load_mean(out, i, &load);
    }
    return QUIRE_OK;
}

/* Measures the present step costs into *out, and adds them to the mean. */
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

/* A load, and the mean of the step costs right before and after it. */
typedef struct run {
    headline_load load;
    cost_model cost;
} run;

/* Executes a load between two measurements of step costs. A shared machine's speed
 * changes from minute to minute, so if the two differ the load is repeated; the run whose
 * measurements differ least counts, whatever its result. */
static quire_err run_steadily(const serving_way *w, double rate, run *out, quire_error *err) {
    double least = INFINITY;
    w->c->n_loads++;
    for (int32_t i = 0; i <= MAX_AGAIN && least > HEADLINE_STEADY && (i == 0 || w->c->n_again < MOST_AGAIN);
         i++) {
        run r = {.cost = *w->now};
        TRY(headline_run_load(w, rate, &r.load, err));
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
    return w->really ? run_steadily(w, rate, out, err) : headline_run_load(w, rate, &out->load, err);
}

/* Inserts a load in order of rate. */
static quire_err add_load(const serving_way *w, double rate, headline_sweep *s, quire_error *err) {
    run r = {0};
    TRY(headline_case_run_load(w, rate, &r, err));
    int32_t at = 0;
    while (at < s->n_loads && s->loads[at].rate < rate) {
        at++;
    }
    size_t n_after = (size_t)(s->n_loads - at);
    memmove(&s->loads[at + 1], &s->loads[at], n_after * sizeof *s->loads);
    memmove(&s->costs[at + 1], &s->costs[at], n_after * sizeof *s->costs);
    s->loads[at] = r.load;
    s->costs[at] = r.cost;
    s->n_loads++;
    return QUIRE_OK;
}

/* Adds higher rates until the queue grows beyond the bound, and lower ones until one is
 * within it. */
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

/* Runs all requests at once, then the given percentages of `capacity` requests per
 * second, then more rates as the bound requires. */
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
    return TIMES_IDLE * headline_idle_latency(cost, (double)o->t->n_prompt_tokens / n,
                                              (double)o->t->n_output_tokens / n, c->server.max_rows);
}

/* Runs all requests at once several times, and takes the run with the median (lower
 * median) share of what step costs allow. */
static quire_err run_bursts(const serving_way *w, headline_sweep *s, quire_error *err) {
    run runs[HEADLINE_MAX_RUNS];
    double reached[HEADLINE_MAX_RUNS]; /* share of what the step costs allow */
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

/* Executes loads at rates near the capacity in simulation. */
static quire_err run_real_way(serving_way w, quire_error *err) {
    headline_sweep *s = &w.c->real[w.way];
    headline_load expected;
    TRY(headline_run_load(&w, INFINITY, &expected, err));
    w.really = true;
    TRY(run_bursts(&w, s, err));
    return w.way != HEADLINE_PLANNER ? sweep(&w, requests_s(w.t, &expected), w.c->bound, s, err) : QUIRE_OK;
}

/* Simulates the same rates, each with the step costs measured around its execution, so
 * that only the steps' times differ; additional rates use the mean cost. */
static quire_err simulate_way(serving_way w, quire_error *err) {
    const headline_sweep *real = &w.c->real[w.way];
    headline_sweep *s = &w.c->simulated[w.way];
    cost_model mean;
    w.cost = &real->burst_cost;
    TRY(headline_run_load(&w, INFINITY, &s->burst, err));
    for (int32_t i = 0; i < real->n_loads; i++) {
        w.cost = &real->costs[i];
        TRY(add_load(&w, real->loads[i].rate, s, err));
        cost_mean(&mean, i, &real->costs[i]);
    }
    w.cost = &mean;
    return s->n_loads > 0 ? headline_case_widen(&w, w.c->bound, s, err) : QUIRE_OK;
}

/* Simulates the described device at its own rates, with many requests. */
static quire_err simulate_device(serving_way w, quire_error *err) {
    headline_sweep *s = &w.c->device[w.way];
    w.cost = w.o->device;
    TRY(headline_run_load(&w, INFINITY, &s->burst, err));
    w.t = w.o->many;
    return w.c->real[w.way].n_loads > 0 ? sweep(&w, requests_s(w.o->t, &s->burst), w.c->device_bound, s, err)
                                        : QUIRE_OK;
}

quire_err headline_case_run(const headline_case_options *o, headline_case *c, quire_error *err) {
    uint64_t digest = 0;
    cost_model now;
    serving_way w = {.o = o, .c = c, .t = o->t, .cost = &c->cost, .digest = &digest, .now = &now};
    TRY(measure_cost(o, c, &now, err));
    c->bound = bound_of(o, c, &now);
    c->device_bound = bound_of(o, c, o->device);
    for (w.way = 0; w.way < HEADLINE_N_WAYS; w.way++) {
        TRY(run_real_way(w, err));
    }
    for (w.way = 0; w.way < HEADLINE_N_WAYS; w.way++) {
        TRY(simulate_way(w, err));
        TRY(simulate_device(w, err));
    }
    return QUIRE_OK;
}
