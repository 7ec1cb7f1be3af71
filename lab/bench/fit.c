#include "lab/bench/fit.h"

#include <math.h>

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
