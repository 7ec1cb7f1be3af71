/* 16-bit floats, one at a time. Conversions to 16 bits round to nearest even; NaN stays
 * NaN (quiet). */
#ifndef CORE_HALF_H
#define CORE_HALF_H

#include "base/float_bits.h"

static inline float bf16_to_f32(uint16_t h) {
    return float_of_bits((uint32_t)h << 16);
}

static inline uint16_t f32_to_bf16(float f) {
    uint32_t u = float_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* IEEE binary16, subnormals included; the same bits as F16C's instructions. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);

#endif
