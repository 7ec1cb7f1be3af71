/* 8-bit floats, one at a time: what FP8 weights and the scales of 4-bit blocks are stored in (OCP OFP8 and MX specifications). */
#ifndef CORE_FLOAT8_H
#define CORE_FLOAT8_H

#include "base/float_bits.h"

/* E4M3 without infinities ("fn"): 448 is the largest, 0x7f and 0xff are NaN. Exact. */
static inline float e4m3_to_f32(uint8_t b) {
    uint32_t sign = (uint32_t)(b & 0x80u) << 24, magnitude = b & 0x7fu;
    /* The exponent's bias grows from 7 to 127 by a product, which is exact and right for subnormals too. */
    float value = float_of_bits(magnitude << 20) * 0x1p120f;
    return magnitude == 0x7fu ? float_of_bits(sign | 0x7fc00000u) : float_of_bits(float_bits(value) | sign);
}

/* E8M0: the power of two 2^(b - 127); 0xff is NaN. Exact. */
static inline float e8m0_to_f32(uint8_t b) {
    return b == 0xffu ? float_of_bits(0x7fc00000u) : float_of_bits(b == 0 ? 0x00400000u : (uint32_t)b << 23);
}

#endif
