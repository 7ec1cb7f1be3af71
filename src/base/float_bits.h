/* Floats as bits, bits as floats, and a test for finite arrays. */
#ifndef BASE_FLOAT_BITS_H
#define BASE_FLOAT_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* ---- finite numbers ---- */

/* Whether numbers are finite: a pass over an array without a branch for each. Pure. */

/* Whether every value of v[0..n) lies between `least` and the largest finite number; NaN
 * does not. With least -FLT_MAX: whether all are finite; with -INFINITY, -infinity passes
 * too. O(n). */
bool finite_from(const float *v, int32_t n, float least);

#endif
