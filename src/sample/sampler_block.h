/* The part of the sampler's passes over rows (sampler_rows.inc.h) that is written for
 * each instruction set: in sampler_rows_plain.c, sampler_rows_avx2.c (both take the
 * appends from sampler_append.h) and sampler_rows_avx512.c.
 *
 *   reaches(x, bound)  bit i: x[i] of the group is at least the bound
 *   keep_only(x, set)  sets x[i] to -inf for each i of the group that is not in the set
 *   scan_block(x, base, scale, largest)  the sum of a block's weights relative to a base,
 *                      and its groups' largest logits
 *   append(ids, values, n, first, x, set)  appends the set's ids and values to n others;
 *                      returns the new number
 *   append_inside(inside, n, first, w, set)  the same for the candidates of a cut
 *
 * The set has one bit per index of a group, x or w, whose index 0 is token (or kept
 * token) `first`. Appends write up to PAST_END entries beyond what they return.
 *
 * All functions are static: each instruction set compiles its own. They give the same
 * bits everywhere, since every element is one exactly defined operation and sums have a
 * fixed order. */
#ifndef SAMPLE_SAMPLER_BLOCK_H
#define SAMPLE_SAMPLER_BLOCK_H

#include <math.h>

#include "sample/sampler_parts.h"

#define LANES 16   /* number of partial sums of weights */
#define AHEAD 1024 /* prefetch distance in logits */

/* Unrolls a short loop fully, or by two. */
#ifdef __clang__
#define UNROLL       _Pragma("unroll")
#define UNROLL_TWICE _Pragma("unroll 2")
#else
#define UNROLL       _Pragma("GCC unroll 16")
#define UNROLL_TWICE _Pragma("GCC unroll 2")
#endif

/* Coefficients of 2^r for |r| <= 1/2 within 2e-7 (minimax fit), highest power first. */
#define POWER_OF_2 1.3264726e-3f, 9.6715130e-3f, 5.5507336e-2f, 2.4022242e-1f, 6.9314700e-1f, 1.0f
/* 1.5 * 2^23: adding it leaves the nearest integer in the low bits. */
#define ROUNDS_TO_WHOLE 12582912.0f

/* 2^x for x < 127 within 2e-7, at least about 2^-126: 2^n times a polynomial in x - n. */
static inline float power_of_2(float x) {
    static const float c[] = {POWER_OF_2};
    float y = x > -126.0f ? x : -126.0f;
    float rounded = y + ROUNDS_TO_WHOLE;
    float r = y - (rounded - ROUNDS_TO_WHOLE);
    float p = fmaf(r, c[0], c[1]);
    p = fmaf(p, r, c[2]);
    p = fmaf(p, r, c[3]);
    p = fmaf(p, r, c[4]);
    p = fmaf(p, r, c[5]);
    return float_of_bits(float_bits(p) + (float_bits(rounded) << 23));
}

static inline float sum_of_lanes(float *lanes) {
    UNROLL for (int32_t width = LANES / 2; width > 0; width /= 2) {
        UNROLL for (int32_t j = 0; j < width; j++) {
            lanes[j] += lanes[j + width];
        }
    }
    return lanes[0];
}

/* A block's largest logit, and the sum of its weights relative to a base. The sum is
 * useless if the largest logit is far above the base. */
typedef struct block_scan {
    float largest, sum;
    bool is_nan; /* some logit is NaN */
} block_scan;

#endif
