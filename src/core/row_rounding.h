/* How a checkpoint rounds the rows that a quantised layer reads: to floats of 8 or 4 bits
 * with a scale for each group of inputs. */
#ifndef CORE_ROW_ROUNDING_H
#define CORE_ROW_ROUNDING_H

#include <stdint.h>

typedef enum round_to {
    ROUND_NOTHING, /* rows stay as they are */
    ROUND_E4M3,
    ROUND_E2M1
} round_to;

typedef enum round_scale {
    ROUND_FIXED,   /* `fixed`, whatever the row */
    ROUND_LARGEST, /* the largest magnitude over the largest number of the type */
    /* the power of two of the largest magnitude, as the OCP MX formats have it; from 1.75
     * on the next */
    ROUND_POWER,
    ROUND_SCALED /* `fixed` times an E4M3 number, which is `least` where it would be 0 (NVFP4) */
} round_scale;

typedef struct row_rounding {
    round_to to;
    round_scale scale;
    int32_t group; /* of inputs that share a scale; 0: the row's */
    float fixed, least;
} row_rounding;

/* Rounds x[0..n) in place. Magnitudes beyond the type's largest become that. A group with
 * an infinity or NaN becomes NaN. */
void row_round(const row_rounding *r, float *x, int32_t n);

#endif
