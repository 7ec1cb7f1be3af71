/* A cost model (lab/sim/cost.h) from steps whose time was measured: the factors, none
 * negative, whose relative errors are least in squares. */
#ifndef LAB_BENCH_COST_FIT_H
#define LAB_BENCH_COST_FIT_H

#include <stdint.h>

#include "lab/sim/cost.h"

/* Least squares with factors that are not negative: what measured times say about
 * costs. */

enum { FIT_MAX_TERMS = 40 };

typedef struct fit {
    int32_t n_terms;
    /* normal equations of the samples so far */
    double products[FIT_MAX_TERMS][FIT_MAX_TERMS], sums[FIT_MAX_TERMS];
} fit;

/* A sample: the sum of terms[i] x factor[i] should be value > 0. Its error counts
 * relative to value. O(terms^2). */
void fit_add(fit *f, const double *terms, double value);
/* The factors, each 0 or more, whose squared relative errors sum to the least (coordinate
 * descent, to convergence). A term that no sample has gets 0. */
void fit_solve(const fit *f, double *factors);

/* Terms: what each stretch between knots adds to base(rows), then logits, pairs of
 * decodes, of prefills, and one that is the caller's. */
enum { COST_FIT_OUT, COST_FIT_DECODE, COST_FIT_PREFILL, COST_FIT_OTHER, COST_FIT_N_OTHERS };

/* Adds a step to terms[FIT_MAX_TERMS]; knots[0..n): numbers of rows, ascending, at which
 * base may bend. */
void cost_fit_add_step(const int32_t *knots, int32_t n, const step_work *w, double *terms);
/* Sets rows, us, out_us, decode_pair_us and prefill_pair_us of *c by factors[n +
 * COST_FIT_N_OTHERS]. */
void cost_fit_fill(const int32_t *knots, int32_t n, const double *factors, cost_model *c);

#endif
