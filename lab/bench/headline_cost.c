#include "lab/bench/headline_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "lab/bench/figures.h"
#include "lab/bench/headline_execute.h"
#include "lab/sim/cost.h"

enum { MAX_MEASURES = 96, N_CONTEXTS = 4 };
/* A step is repeated for RUN_US; one that takes longer, some times, so that no knot of
 * the fit hangs on a single step, unless that takes LONG_US. */
enum { MAX_REPEATS = 64, LEAST_REPEATS = 4, RUN_US = 20000, LONG_US = 200000 };

static const int32_t contexts[N_CONTEXTS] = {16, 128, 512, 1536};
enum { USUAL = 1 }; /* of these */

/* So many sequences that decode behind `first` tokens each, or one that computes n_rows
 * behind them. */
typedef struct measure {
    bool decodes;
    int32_t n_seqs, first, n_rows;
    double us; /* of all steps so far */
    int32_t n;
} measure;

typedef struct measuring {
    model_runner *b;
    const headline_cost_options *o;
    int32_t knots[COST_MAX_POINTS], n_knots;
    measure measures[MAX_MEASURES];
    int32_t n;
    int32_t *tokens, *tables; /* [max_len]; [n_pages] */
    runner_part *parts;       /* [max_seqs] */
} measuring;

static int32_t headline_cost_pages_for(int32_t n_tokens) {
    return (int32_t)kv_pages_for(n_tokens, HEADLINE_PAGE);
}

static void headline_cost_add_measure(measuring *k, measure m) {
    int32_t each = m.first + (m.decodes ? 1 : m.n_rows);
    if (each <= k->o->max_len && (int64_t)m.n_seqs * headline_cost_pages_for(each) <= k->o->n_pages &&
        k->n < MAX_MEASURES) {
        k->measures[k->n++] = m;
    }
}

/* Rows up to the limit, alone and behind others; sequences, behind several contexts where
 * their number is a power of two, since what a token of context costs does not bend. */
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
    int32_t rows = m->decodes ? 1 : m->n_rows, each = headline_cost_pages_for(m->first + rows);
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

/* Finite keys and values everywhere: memory that was never written costs nothing to
 * read. */
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

/* Moving a token's keys and values, by the page. */
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
    for (int32_t run = -1; run < k->o->n_runs; run++) { /* the first warms up */
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
