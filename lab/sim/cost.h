/* What a step costs: its time as a function of what it computes, measured (`quire bench
 * headline`) or derived from a device's memory bandwidth and arithmetic. The simulator's
 * clock.
 *
 *   time = base(rows) + logits x out_us + decode pairs x decode_pair_us + prefill pairs x
 *          prefill_pair_us + copied tokens x copy_us + swapped tokens x swap_us
 * base is piecewise linear; the last line continues after the last point. It covers the
 * weights' traffic (flat until there are enough rows) and the rows' arithmetic. A pair is
 * a row and a token that it attends to: a decode reads those keys and values from memory,
 * the rows of a prefill share them.
 *
 * Plain numbers; nothing here depends on the trace being simulated. */
#ifndef LAB_SIM_COST_H
#define LAB_SIM_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { COST_MAX_POINTS = 32, COST_NAME_BYTES = 96 };

typedef struct cost_model {
    char model[COST_NAME_BYTES], device[COST_NAME_BYTES];
    int32_t n_points;                                  /* at least 2 */
    double rows[COST_MAX_POINTS], us[COST_MAX_POINTS]; /* rows ascending from 0 or more; us not decreasing */
    double out_us, decode_pair_us, prefill_pair_us;
    double copy_us; /* a token's keys and values copied within memory: read and written */
    /* a token's keys and values moved between device and host memory, one way; measured:
     * copy_us */
    double swap_us;
    int64_t kv_tokens;    /* tokens that fit on the device beside the weights; 0: unknown */
    int64_t token_bytes;  /* bytes of a token's keys and values */
    int64_t weight_bytes; /* weights of a described model; 0: unknown */
    int32_t max_model_len;
} cost_model;

/* What one step computes. */
typedef struct step_work {
    double rows, out; /* rows, and rows with logits */
    double decode_pairs, prefill_pairs;
    double copied, swapped; /* tokens whose keys and values are copied; moved to or from host memory */
} step_work;

/* Knots: numbers of rows at which a measured base bends, ascending: 1 to 8, 12, then
 * powers of two. Products take rows in tiles of about six, so a step of 6 rows may cost
 * as much as one of 4, and one of 8 half as much again. 0 <= i < COST_N_KNOTS. */
enum { COST_N_KNOTS = 32 };
int32_t cost_knot(int32_t i);
/* The last knot not after `rows` >= 0; *part: the fraction of the way to the next
 * knot. */
int32_t cost_knot_before(double rows, double *part);
/* knots[0..COST_MAX_POINTS) = the knots below `most`, then `most`. Returns their
 * number. */
int32_t cost_knots_until(int32_t most, int32_t *knots);

/* c, a mean of n models, becomes the mean of those and `other`, which was measured at the
 * same numbers of rows. n = 0: c becomes `other`. */
void cost_mean(cost_model *c, int32_t n, const cost_model *other);

/* Microseconds. */
double cost_of(const cost_model *c, const step_work *w);

/* A described model on a described device: the weights are read once per step, keys and
 * values of decodes once per row; products and attention take their operations. The
 * longer of memory and arithmetic time counts. Assumes half of the peak arithmetic and
 * 80% of the peak bandwidth; 10% of the memory is for everything but weights, keys and
 * values. device: a name, or "4xNAME" for four as one. QUIRE_INVALID: err lists the known
 * models and devices. */
quire_err cost_describe(const char *model, const char *device, cost_model *out, quire_error *err);

/* Fits a cost model (lab/sim/cost.h) to measured steps: nonnegative factors with the
 * least squared relative errors. */

/* Least squares with nonnegative factors. */

enum { FIT_MAX_TERMS = 40 };

typedef struct fit {
    int32_t n_terms;
    /* normal equations of the samples so far */
    double products[FIT_MAX_TERMS][FIT_MAX_TERMS], sums[FIT_MAX_TERMS];
} fit;

/* Adds a sample: the sum of terms[i] x factor[i] should be value > 0. Its error is
 * relative to value. O(terms^2). */
void fit_add(fit *f, const double *terms, double value);
/* Computes nonnegative factors with the least sum of squared relative errors, by
 * coordinate descent to convergence. A term that no sample has gets 0. */
void fit_solve(const fit *f, double *factors);

/* Terms: what each stretch between knots adds to base(rows), then logits, pairs of
 * decodes, pairs of prefills, and one defined by the caller. */
enum { COST_FIT_OUT, COST_FIT_DECODE, COST_FIT_PREFILL, COST_FIT_OTHER, COST_FIT_N_OTHERS };

/* Adds a step to terms[FIT_MAX_TERMS]. knots[0..n): ascending numbers of rows at which
 * base may bend. */
void cost_fit_add_step(const int32_t *knots, int32_t n, const step_work *w, double *terms);
/* Sets rows, us, out_us, decode_pair_us and prefill_pair_us of *c from factors[n +
 * COST_FIT_N_OTHERS]. */
void cost_fit_fill(const int32_t *knots, int32_t n, const double *factors, cost_model *c);

#endif
