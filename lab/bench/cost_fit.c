#include "lab/bench/cost_fit.h"

#include <math.h>
#include <stdint.h>

enum { MAX_ROUNDS = 200000 };

void fit_add(fit *f, const double *terms, double value) {
    for (int32_t i = 0; i < f->n_terms; i++) {
        for (int32_t k = 0; k < f->n_terms; k++) {
            f->products[i][k] += terms[i] / value * (terms[k] / value);
        }
        f->sums[i] += terms[i] / value;
    }
}

/* Moves one factor to where the error is least while the others stand; how far, in
 * effect. */
static double improve(const fit *f, int32_t i, double *factors) {
    double rest = f->sums[i];
    for (int32_t k = 0; k < f->n_terms; k++) {
        rest -= k != i ? f->products[i][k] * factors[k] : 0;
    }
    double before = factors[i];
    factors[i] = fmax(0, rest / f->products[i][i]);
    return fabs(factors[i] - before) * sqrt(f->products[i][i]);
}

void fit_solve(const fit *f, double *factors) {
    for (int32_t i = 0; i < f->n_terms; i++) {
        factors[i] = 0;
    }
    double moved = INFINITY;
    for (int32_t round = 0; round < MAX_ROUNDS && moved > 1e-9; round++) {
        moved = 0;
        for (int32_t i = 0; i < f->n_terms; i++) {
            moved = f->products[i][i] > 0 ? fmax(moved, improve(f, i, factors)) : moved;
        }
    }
}

void cost_fit_add_step(const int32_t *knots, int32_t n, const step_work *w, double *terms) {
    double before = 0;
    for (int32_t i = 0; i < n; i++) {
        double part = i == 0 ? 1 : (w->rows - before) / (knots[i] - before);
        terms[i] += fmax(0, fmin(1, part));
        before = knots[i];
    }
    terms[n + COST_FIT_OUT] += w->out;
    terms[n + COST_FIT_DECODE] += w->decode_pairs;
    terms[n + COST_FIT_PREFILL] += w->prefill_pairs;
}

void cost_fit_fill(const int32_t *knots, int32_t n, const double *factors, cost_model *c) {
    double us = 0;
    c->n_points = n;
    c->out_us = factors[n + COST_FIT_OUT];
    c->decode_pair_us = factors[n + COST_FIT_DECODE];
    c->prefill_pair_us = factors[n + COST_FIT_PREFILL];
    for (int32_t i = 0; i < n; i++) {
        us += factors[i];
        c->rows[i] = knots[i];
        c->us[i] = fmax(us, 1e-3);
    }
}
