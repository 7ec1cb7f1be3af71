/* A cost model (lab/sim/cost.h) from steps whose time was measured: the factors, none
 * negative, whose relative errors are least in squares. */
#ifndef LAB_BENCH_COST_FIT_H
#define LAB_BENCH_COST_FIT_H

#include "lab/bench/fit.h"
#include "lab/sim/cost.h"

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
