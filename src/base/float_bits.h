/* The bits of a float, and the float of bits. */
#ifndef BASE_FLOAT_BITS_H
#define BASE_FLOAT_BITS_H

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

#endif
