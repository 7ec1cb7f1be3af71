/* Converts floats to their bits and back, and tests arrays for finite values. */
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

/* Whether every value of v[0..n) is in [least, FLT_MAX]; a NaN is not. least -FLT_MAX
 * tests that all are finite; -INFINITY also allows -infinity. O(n), vectorised. */
bool finite_from(const float *v, int32_t n, float least);

#endif
