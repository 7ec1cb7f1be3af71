#include "core/half.h"

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t fraction = h & 0x3ffu;
    if (exponent == 0x1f) { /* infinity, or a NaN that becomes quiet */
        return float_of_bits(sign | 0x7f800000u | fraction << 13 | (fraction != 0 ? 0x400000u : 0));
    }
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24 is exact */
        float magnitude = (float)fraction * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t f32_to_f16(float f) {
    uint32_t bits = float_bits(f);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) { /* NaN: keeps the fraction's top bits and becomes quiet */
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    /* below 2^-14: adding 0.5 rounds to a multiple of 2^-24, ties to even, in the low
     * bits of the sum */
    if (magnitude < 0x38800000u) {
        return (uint16_t)(sign | (float_bits(float_of_bits(magnitude) + 0.5f) - 0x3f000000u));
    }
    uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}
