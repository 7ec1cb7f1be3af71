/* Least squares with factors that are not negative: what measured times say about
 * costs. */
#ifndef LAB_BENCH_FIT_H
#define LAB_BENCH_FIT_H

#include <stdint.h>

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

#endif
