/* Conversions of single floats of 16 and 8 bits. Conversions to 16 bits round to nearest
 * even; NaN becomes a quiet NaN. */
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

/* ---- 8-bit floats ---- */

/* 8-bit floats: the types of FP8 weights and of the scales of 4-bit blocks (OCP OFP8 and
 * MX specifications). */

/* E4M3 without infinities ("fn"): 448 is the largest, 0x7f and 0xff are NaN. Exact. */
static inline float e4m3_to_f32(uint8_t b) {
    uint32_t sign = (uint32_t)(b & 0x80u) << 24, magnitude = b & 0x7fu;
    /* The product moves the exponent's bias from 7 to 127. It is exact, also for
     * subnormals. */
    float value = float_of_bits(magnitude << 20) * 0x1p120f;
    return magnitude == 0x7fu ? float_of_bits(sign | 0x7fc00000u) : float_of_bits(float_bits(value) | sign);
}

/* Rounds to the nearest E4M3, ties to the even code. Magnitudes over 448 become 448; NaN
 * stays NaN. */
static inline uint8_t f32_to_e4m3(float f) {
    uint8_t sign = (uint8_t)(float_bits(f) >> 24 & 0x80u);
    float magnitude = float_of_bits(float_bits(f) & 0x7fffffffu);
    if (!(magnitude < 448.0f)) {
        return (uint8_t)(sign | (magnitude >= 448.0f ? 0x7eu : 0x7fu));
    }
    /* The exponent's bias goes from 127 to 7, and the fraction is rounded to three bits.
     * For a subnormal, adding a number with the same last bit rounds it. For the others,
     * integer addition does; a carry into the exponent is correct. */
    if (magnitude < 0x1p-6f) {
        return (uint8_t)(sign | (float_bits(magnitude + 0x1p14f) - float_bits(0x1p14f)));
    }
    uint32_t bits = float_bits(magnitude) - (120u << 23);
    return (uint8_t)(sign | (bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20);
}

/* The bits of the f16 that equals 2^-8 times an E4M3. NaN becomes 480 * 2^-8, so the
 * caller must exclude it. */
static inline uint16_t e4m3_to_f16_bits(uint8_t b) {
    return (uint16_t)((b & 0x80u) << 8 | (b & 0x7fu) << 7);
}

/* E8M0: the power of two 2^(b - 127); 0xff is NaN. Exact. */
static inline float e8m0_to_f32(uint8_t b) {
    return b == 0xffu ? float_of_bits(0x7fc00000u) : float_of_bits(b == 0 ? 0x00400000u : (uint32_t)b << 23);
}

#endif
