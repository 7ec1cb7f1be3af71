/* The part of the sampler's row passes (sampler_rows.inc.h) that is written once for each
 * instruction set.
 *
 * The following functions are in sampler_rows_plain.c, sampler_rows_avx2.c and
 * sampler_rows_avx512.c (the first two take the appends from sampler_append.h):
 *
 *   reaches(x, bound)  bit i: whether x[i] of a group is at least the bound
 *   keep_only(x, set)  sets to -inf those of a group that are not in the set
 *   scan_block(x, base, scale, largest)  the sum of a block's weights against a base, and
 *                      its groups' largest logits
 *   append(ids, values, n, first, x, set)  appends a set's members to n others, ids and
 *                      values; returns the new number
 *   append_inside(inside, n, first, w, set)  the same for weights that a cut considers
 *
 * The set has one bit for each index of a group, x or w, that begins with token (or kept
 * token) `first`. Appends write beyond what they return, by at most PAST_END.
 *
 * All functions are static: each instruction set compiles its own. The bits are the same
 * everywhere, as each element is one exactly defined operation and sums have a fixed
 * order. */
#ifndef SAMPLE_SAMPLER_BLOCK_H
#define SAMPLE_SAMPLER_BLOCK_H

#include <math.h>

#include "sample/sampler_parts.h"

#define LANES 16   /* partial sums in which weights are added */
#define AHEAD 1024 /* prefetch distance in logits */

/* Unrolls loops of few iterations wholly, or by two. */
#ifdef __clang__
#define UNROLL       _Pragma("unroll")
#define UNROLL_TWICE _Pragma("unroll 2")
#else
#define UNROLL       _Pragma("GCC unroll 16")
#define UNROLL_TWICE _Pragma("GCC unroll 2")
#endif

/* 2^r, |r| <= 1/2, within 2e-7 (a minimax fit): the highest power first. */
#define POWER_OF_2 1.3264726e-3f, 9.6715130e-3f, 5.5507336e-2f, 2.4022242e-1f, 6.9314700e-1f, 1.0f
/* 1.5 * 2^23: adding it rounds to a whole number, which is then in the low bits */
#define ROUNDS_TO_WHOLE 12582912.0f

/* 2^x for x < 127, within 2e-7; at least about 2^-126. Computes 2^n times a polynomial in
 * the rest. */
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

/* A block's largest logit, and the sum of its weights against a base. The sum is useless
 * when the largest logit is far above the base. */
typedef struct block_scan {
    float largest, sum;
    bool is_nan; /* a logit is NaN */
} block_scan;

#endif
