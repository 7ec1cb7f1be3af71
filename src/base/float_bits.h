/* The bits of a float, the float of bits, and whether floats are finite. */
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

/* Whether every value of v[0..n) is from `least` to the largest finite number; NaN is
 * not. With -FLT_MAX: whether all are finite; with -INFINITY that is allowed too.
 * O(n). */
bool finite_from(const float *v, int32_t n, float least);

#endif
