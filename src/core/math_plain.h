/* Scalar math functions of the plain twins. They define what the vector kernels compute
 * in each lane. */
#ifndef CORE_MATH_PLAIN_H
#define CORE_MATH_PLAIN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/float_bits.h"
#include "core/math_poly.h"

/* Like f_max and f_min of simd.h: returns the second operand if either is NaN or both are
 * zero. */
static inline float plain_max(float a, float b) {
    return a > b ? a : b;
}
static inline float plain_min(float a, float b) {
    return a < b ? a : b;
}

static inline float plain_poly(const float *c, int degree, float x) {
    float p = c[degree];
    for (int i = degree - 1; i >= 0; i--) {
        p = fmaf(p, x, c[i]);
    }
    return p;
}

/* 2^n for n in -126..127. */
static inline float plain_exp2_int(int32_t n) {
    return float_of_bits((uint32_t)(n + 127) << 23);
}

/* exp(x) = exp(r) 2^n, where x = n ln 2 + r. 2^n is applied as two factors, so that a
 * subnormal result is rounded once. */
static inline float plain_exp(float x) {
    x = plain_max(EXP_LOWEST, plain_min(EXP_HIGHEST, x));
    float shifted = fmaf(x, EXP_LOG2E, EXP_ROUND);
    float n = shifted - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_LO, fmaf(n, -EXP_LN2_HI, x));
    float p = fmaf(r * r, plain_poly(EXP_POLY, EXP_DEGREE, r), r) + 1.0f;
    int32_t power = (int32_t)(float_bits(shifted) - float_bits(EXP_ROUND));
    int32_t half = power >> 1;
    return (p * plain_exp2_int(half)) * plain_exp2_int(power - half);
}

static inline float plain_tanh(float x) {
    uint32_t sign = float_bits(x) & 0x80000000u;
    float a = float_of_bits(float_bits(x) & 0x7fffffffu);
    float u = a * a;
    float small = fmaf(a * u, plain_poly(TANH_POLY, TANH_DEGREE, u), a);
    float large = 1.0f - 2.0f / (plain_exp(a + a) + 1.0f);
    return float_of_bits(float_bits(a < TANH_SMALL ? small : large) | sign);
}

static inline float plain_silu(float x) {
    return x / (plain_exp(-x) + 1.0f);
}

/* x Phi(x), where Phi is the normal distribution: x - x Phi(-x) if x > 0, else -a
 * Phi(-a). */
static inline float plain_gelu(float x) {
    float a = float_of_bits(float_bits(x) & 0x7fffffffu);
    float tail = a < GELU_HIGHEST ? a * plain_exp(plain_poly(GELU_POLY, GELU_DEGREE, a)) : 0.0f;
    return plain_max(0.0f, x) - tail;
}

static inline float plain_gelu_tanh(float x) {
    float cube = (x * x) * x;
    return (x * 0.5f) * (plain_tanh(GELU_SCALE * fmaf(cube, GELU_CUBE, x)) + 1.0f);
}

static inline float plain_relu(float x) {
    return plain_max(0.0f, x);
}

static inline float plain_sigmoid(float x) {
    return 1.0f / (plain_exp(-x) + 1.0f);
}

/* ln(1 + exp(x)) = the larger of x and 0, + ln(1 + exp(-|x|)). */
static inline float plain_softplus(float x) {
    float e = plain_exp(-float_of_bits(float_bits(x) & 0x7fffffffu));
    float s = e / (e + 2.0f), u = s * s;
    float half = fmaf(s * u, plain_poly(LOG1P_POLY, LOG1P_DEGREE, u), s);
    return plain_max(0.0f, x) + (half + half);
}

static inline float plain_gelu_quick(float x) {
    return x / (plain_exp(-(GELU_QUICK * x)) + 1.0f);
}

static inline float plain_xielu(float positive, float negative, float slope, float eps, float x) {
    float m = plain_min(eps, x);
    float near = fmaf(m * m, plain_poly(EXP_POLY, EXP_DEGREE, m), m - x);
    float far = (plain_exp(m) - 1.0f) - x;
    float below = negative * (m > XIELU_SMALL ? near : far);
    return fmaf(slope, x, 0.0f < x ? (positive * x) * x : below);
}

static inline float plain_swiglu_clamped(float limit, float gate, float up) {
    float g = plain_min(limit, gate);
    float u = plain_max(-limit, plain_min(limit, up));
    return plain_gelu_quick(g) * (u + 1.0f);
}

static inline float plain_silu_clamped(float limit, float gate, float up) {
    float u = plain_max(-limit, plain_min(limit, up));
    return plain_min(limit, plain_silu(gate)) * u;
}

static inline float plain_clamped_silu(float limit, float gate, float up) {
    float u = plain_max(-limit, plain_min(limit, up));
    return plain_silu(plain_min(limit, gate)) * u;
}

/* Sums 16 lanes by a fixed binary tree; overwrites them. */
static inline float plain_tree_sum(float *lanes) {
    for (int step = 8; step >= 1; step /= 2) {
        for (int i = 0; i < step; i++) {
            lanes[i] = lanes[i] + lanes[i + step];
        }
    }
    return lanes[0];
}
static inline float plain_tree_max(float *lanes) {
    for (int step = 8; step >= 1; step /= 2) {
        for (int i = 0; i < step; i++) {
            lanes[i] = plain_max(lanes[i], lanes[i + step]);
        }
    }
    return lanes[0];
}

#endif
