/* Searches for the scale of a group of elements: the one under which the rounded group is
 * nearest to the group, by weighted squares.
 *
 * A few scales about that which uses the whole range of codes are tried. Each gives
 * codes, and codes give the best scale for them by least squares (Lloyd's alternation,
 * one step); the best pair wins. Large elements count more: the weight of x is |x| plus
 * the root mean square of the block.
 *
 * Sums are taken in FIT_LANES lanes that are added in a fixed order: the bits are the
 * same on every machine. */
#ifndef CORE_QUANTISE_FIT_H
#define CORE_QUANTISE_FIT_H

#include <stdbool.h>

#define FIT_MOST  32 /* elements of a group at most; a multiple of FIT_LANES */
#define FIT_LANES 8

/* How codes become numbers: numbers 0..top with a min, numbers -low..top, or
 * quant_tables[TABLE_IQ4]. */
typedef struct fit_codes {
    float low, top;
    bool has_min, is_table;
} fit_codes;

/* value = scale * number - min */
typedef struct fit {
    float scale, min;
} fit;

/* weights[0..n) for a block of n elements, a multiple of FIT_LANES. */
void fit_weigh(const float *x, int n, float *weights);
/* The best scale (and min, at least 0) of n elements, unrounded; without a min the scale
 * may be negative. All 0: scale 0. */
fit fit_find(const fit_codes *c, const float *x, const float *weights, int n);
/* Numbers of n elements under f, into numbers; the weighted square error that remains. A
 * scale of 0 gives the number nearest to 0. */
float fit_round(const fit_codes *c, const fit *f, const float *x, const float *weights, int n,
                float *numbers);

/* The whole number nearest to x, ties to even, within least..most; NaN gives least. */
static inline float fit_nearest(float x, float least, float most) {
    x = x > least ? x : least;
    x = x < most ? x : most;
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

#endif
