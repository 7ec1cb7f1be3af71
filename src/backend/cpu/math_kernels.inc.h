/* Elementwise kernels, norms and rotation, 16 lanes at a time. Their plain twins
 * (math_plain.h, math_plain.c) define what they compute: each line here is the same
 * operation on every lane. Included by math_avx2.c, math_avx512.c and math_neon.c. */
#ifndef CPU_MATH_KERNELS_INC_H
#define CPU_MATH_KERNELS_INC_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "backend/cpu/math.h"
#include "backend/cpu/simd.h"
#include "core/half.h"
#include "core/math_poly.h"

#define LANES  16
#define INLINE static inline __attribute__((always_inline))

static inline f32x16 poly16(const float *c, int degree, f32x16 x) {
    f32x16 p = f_set1(c[degree]);
    UNROLL
    for (int i = degree - 1; i >= 0; i--) {
        p = f_fma(p, x, f_set1(c[i]));
    }
    return p;
}

static inline f32x16 exp2_int16(i32x16 n) {
    return f_of_bits(i_shl(i_add(n, i_set1(127)), 23));
}

static inline f32x16 exp16(f32x16 x) {
    x = f_max(f_set1(EXP_LOWEST), f_min(f_set1(EXP_HIGHEST), x));
    f32x16 shifted = f_fma(x, f_set1(EXP_LOG2E), f_set1(EXP_ROUND));
    f32x16 n = f_sub(shifted, f_set1(EXP_ROUND));
    f32x16 r = f_fma(n, f_set1(-EXP_LN2_LO), f_fma(n, f_set1(-EXP_LN2_HI), x));
    f32x16 p = f_add(f_fma(f_mul(r, r), poly16(EXP_POLY, EXP_DEGREE, r), r), f_set1(1.0f));
    i32x16 power = i_sub(f_bits(shifted), f_bits(f_set1(EXP_ROUND)));
    i32x16 half = i_sar(power, 1);
    return f_mul(f_mul(p, exp2_int16(half)), exp2_int16(i_sub(power, half)));
}

#define MOST_EXPS 4

/* exp16 of n vectors side by side, for lanes from EXP_NORMAL to 0, whose results are not
 * subnormal. */
INLINE void exp_normals(int n, f32x16 *x) {
    f32x16 shifted[MOST_EXPS], r[MOST_EXPS], p[MOST_EXPS];
    UNROLL
    for (int i = 0; i < n; i++) {
        shifted[i] = f_fma(x[i], f_set1(EXP_LOG2E), f_set1(EXP_ROUND));
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        r[i] = f_sub(shifted[i], f_set1(EXP_ROUND));
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        r[i] = f_fma(r[i], f_set1(-EXP_LN2_LO), f_fma(r[i], f_set1(-EXP_LN2_HI), x[i]));
        p[i] = f_set1(EXP_POLY[EXP_DEGREE]);
    }
    UNROLL
    for (int c = EXP_DEGREE - 1; c >= 0; c--) {
        UNROLL
        for (int i = 0; i < n; i++) {
            p[i] = f_fma(p[i], r[i], f_set1(EXP_POLY[c]));
        }
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        p[i] = f_add(f_fma(f_mul(r[i], r[i]), p[i], r[i]), f_set1(1.0f));
        /* adds the integer in shifted's low bits to p's exponent */
        x[i] = f_of_bits(i_add(f_bits(p[i]), i_shl(f_bits(shifted[i]), 23)));
    }
}

static inline f32x16 exp_normal16(f32x16 x) {
    exp_normals(1, &x);
    return x;
}

static inline f32x16 with_sign_of(f32x16 a, f32x16 x) {
    return f_of_bits(i_or(f_bits(a), i_and(f_bits(x), i_set1(INT32_MIN))));
}

/* For lanes a in 0..TANH_SMALL. */
static inline f32x16 tanh_small16(f32x16 a) {
    f32x16 u = f_mul(a, a);
    return f_fma(f_mul(a, u), poly16(TANH_POLY, TANH_DEGREE, u), a);
}

static inline f32x16 tanh16(f32x16 x) {
    f32x16 a = f_abs(x), small = tanh_small16(a);
    f32x16 large = f_sub(f_set1(1.0f), f_div(f_set1(2.0f), f_add(exp16(f_add(a, a)), f_set1(1.0f))));
    return with_sign_of(f_select(m_lt(a, f_set1(TANH_SMALL)), small, large), x);
}

static inline f32x16 silu16(f32x16 x) {
    return f_div(x, f_add(exp16(f_neg(x)), f_set1(1.0f)));
}

static inline f32x16 gelu16(f32x16 x) {
    f32x16 a = f_abs(x), tail = f_mul(a, exp_normal16(poly16(GELU_POLY, GELU_DEGREE, a)));
    return f_sub(f_max(f_zero(), x), f_select(m_lt(a, f_set1(GELU_HIGHEST)), tail, f_zero()));
}

static inline f32x16 gelu_tanh16(f32x16 x) {
    f32x16 cube = f_mul(f_mul(x, x), x);
    f32x16 inner = f_mul(f_set1(GELU_SCALE), f_fma(cube, f_set1(GELU_CUBE), x));
    return f_mul(f_mul(x, f_set1(0.5f)), f_add(tanh16(inner), f_set1(1.0f)));
}

static inline f32x16 relu16(f32x16 x) {
    return f_max(f_zero(), x);
}

static inline f32x16 relu2_16(f32x16 x) {
    return f_mul(relu16(x), relu16(x));
}

static inline f32x16 sigmoid16(f32x16 x) {
    return f_div(f_set1(1.0f), f_add(exp16(f_neg(x)), f_set1(1.0f)));
}

static inline f32x16 softplus16(f32x16 x) {
    f32x16 e = exp16(f_neg(f_abs(x)));
    f32x16 s = f_div(e, f_add(e, f_set1(2.0f))), u = f_mul(s, s);
    f32x16 half = f_fma(f_mul(s, u), poly16(LOG1P_POLY, LOG1P_DEGREE, u), s);
    return f_add(f_max(f_zero(), x), f_add(half, half));
}

static inline f32x16 xielu16(const xielu_desc *d, f32x16 x) {
    f32x16 m = f_min(f_set1(d->eps), x);
    f32x16 near = f_fma(f_mul(m, m), poly16(EXP_POLY, EXP_DEGREE, m), f_sub(m, x));
    f32x16 far = f_sub(f_sub(exp16(m), f_set1(1.0f)), x);
    f32x16 below = f_mul(f_set1(d->negative), f_select(m_lt(f_set1(XIELU_SMALL), m), near, far));
    f32x16 above = f_mul(f_mul(f_set1(d->positive), x), x);
    return f_fma(f_set1(d->linear), x, f_select(m_lt(f_zero(), x), above, below));
}

static inline f32x16 gelu_quick16(f32x16 x) {
    return f_div(x, f_add(exp16(f_neg(f_mul(f_set1(GELU_QUICK), x))), f_set1(1.0f)));
}

static inline f32x16 none16(f32x16 x) {
    return x;
}

static inline f32x16 swiglu_clamped16(f32x16 limit, f32x16 gate, f32x16 up) {
    f32x16 u = f_max(f_neg(limit), f_min(limit, up));
    return f_mul(gelu_quick16(f_min(limit, gate)), f_add(u, f_set1(1.0f)));
}

static inline f32x16 silu_clamped16(f32x16 limit, f32x16 gate, f32x16 up) {
    f32x16 u = f_max(f_neg(limit), f_min(limit, up));
    return f_mul(f_min(limit, silu16(gate)), u);
}

static inline f32x16 clamped_silu16(f32x16 limit, f32x16 gate, f32x16 up) {
    f32x16 u = f_max(f_neg(limit), f_min(limit, up));
    return f_mul(silu16(f_min(limit, gate)), u);
}

/* Forces a copy of the loop for each function. */

INLINE void map(f32x16 (*f)(f32x16), const float *x, int32_t n, float *out) {
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f_store(out + i, f(f_load(x + i)));
    }
    if (i < n) {
        f_store_first(out + i, n - i, f(f_load_first(x + i, n - i)));
    }
}

static void exp_kernel(const float *x, int32_t n, float *out) {
    map(exp16, x, n, out);
}

static void tanh_kernel(const float *x, int32_t n, float *out) {
    map(tanh16, x, n, out);
}

INLINE void gate_with(f32x16 (*f)(f32x16), const float *gate, const float *up, int32_t n, float *out) {
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f_store(out + i, f_mul(f(f_load(gate + i)), f_load(up + i)));
    }
    if (i < n) {
        f_store_first(out + i, n - i, f_mul(f(f_load_first(gate + i, n - i)), f_load_first(up + i, n - i)));
    }
}

INLINE void limit_with(f32x16 (*f)(f32x16, f32x16, f32x16), float limit, const float *gate, const float *up,
                       int32_t n, float *out) {
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f_store(out + i, f(f_set1(limit), f_load(gate + i), f_load(up + i)));
    }
    if (i < n) {
        f_store_first(out + i, n - i,
                      f(f_set1(limit), f_load_first(gate + i, n - i), f_load_first(up + i, n - i)));
    }
}

static void activate_kernel(activation f, const float *x, int32_t n, float *out) {
    switch (f) {
    case ACT_SILU:
        map(silu16, x, n, out);
        break;
    case ACT_GELU:
        map(gelu16, x, n, out);
        break;
    case ACT_GELU_TANH:
        map(gelu_tanh16, x, n, out);
        break;
    case ACT_RELU:
        map(relu16, x, n, out);
        break;
    case ACT_RELU2:
        map(relu2_16, x, n, out);
        break;
    case ACT_GELU_QUICK:
        map(gelu_quick16, x, n, out);
        break;
    case ACT_SIGMOID:
        map(sigmoid16, x, n, out);
        break;
    case ACT_TANH:
        map(tanh16, x, n, out);
        break;
    case ACT_SOFTPLUS:
        map(softplus16, x, n, out);
        break;
    case ACT_NONE:
    case ACT_SWIGLU_CLAMPED: /* has two arguments: see gate_up_kernel */
    case ACT_SILU_CLAMPED:
    case ACT_CLAMPED_SILU:
    case ACT_XIELU: /* see xielu_kernel */
        map(none16, x, n, out);
        break;
    }
}

static void gate_up_kernel(activation f, float limit, const float *gate, const float *up, int32_t n,
                           float *out) {
    switch (f) {
    case ACT_SILU:
        gate_with(silu16, gate, up, n, out);
        break;
    case ACT_GELU:
        gate_with(gelu16, gate, up, n, out);
        break;
    case ACT_GELU_TANH:
        gate_with(gelu_tanh16, gate, up, n, out);
        break;
    case ACT_RELU:
        gate_with(relu16, gate, up, n, out);
        break;
    case ACT_RELU2:
        gate_with(relu2_16, gate, up, n, out);
        break;
    case ACT_GELU_QUICK:
        gate_with(gelu_quick16, gate, up, n, out);
        break;
    case ACT_SIGMOID:
        gate_with(sigmoid16, gate, up, n, out);
        break;
    case ACT_TANH:
        gate_with(tanh16, gate, up, n, out);
        break;
    case ACT_SWIGLU_CLAMPED:
        limit_with(swiglu_clamped16, limit, gate, up, n, out);
        break;
    case ACT_SILU_CLAMPED:
        limit_with(silu_clamped16, limit, gate, up, n, out);
        break;
    case ACT_CLAMPED_SILU:
        limit_with(clamped_silu16, limit, gate, up, n, out);
        break;
    case ACT_SOFTPLUS:
        gate_with(softplus16, gate, up, n, out);
        break;
    case ACT_NONE:
    case ACT_XIELU:
        gate_with(none16, gate, up, n, out);
        break;
    }
}

static void xielu_kernel(const xielu_desc *d, const float *x, int32_t n, float *out) {
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f_store(out + i, xielu16(d, f_load(x + i)));
    }
    if (i < n) {
        f_store_first(out + i, n - i, xielu16(d, f_load_first(x + i, n - i)));
    }
}

static inline f32x16 scale_cap16(f32x16 x, float scale, float cap) {
    f32x16 y = f_mul(f_set1(scale), x);
    return cap > 0.0f ? f_mul(f_set1(cap), tanh16(f_div(y, f_set1(cap)))) : y;
}

static void scale_cap_kernel(float scale, float cap, int32_t n, float *x) {
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f_store(x + i, scale_cap16(f_load(x + i), scale, cap));
    }
    if (i < n) {
        f_store_first(x + i, n - i, scale_cap16(f_load_first(x + i, n - i), scale, cap));
    }
}

/* A number minus itself is 0, except for infinities and NaN, so the sum of these
 * differences shows whether there were any. */
static float largest_kernel(const float *x, int32_t n) {
    f32x16 most = f_set1(-INFINITY), fault = f_zero();
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f32x16 v = f_load(x + i);
        most = f_max(most, v);
        fault = f_add(fault, f_sub(v, v));
    }
    if (i < n) {
        f32x16 v = f_load_first(x + i, n - i);
        most = f_select(m_first(n - i), f_max(most, v), most);
        fault = f_add(fault, f_sub(v, v));
    }
    return f_tree_sum(fault) + f_tree_max(most);
}

static void add_scaled_kernel(float scale, const float *y, int32_t n, float *x) {
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f_store(x + i, f_fma(f_set1(scale), f_load(y + i), f_load(x + i)));
    }
    if (i < n) {
        f_store_first(x + i, n - i,
                      f_fma(f_set1(scale), f_load_first(y + i, n - i), f_load_first(x + i, n - i)));
    }
}

static void add_to_rows_kernel(const float *y, int32_t n, int32_t n_rows, float *x, int32_t stride) {
    for (int32_t r = 0; r < n_rows; r++, x += stride) {
        int32_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            f_store(x + i, f_add(f_load(x + i), f_load(y + i)));
        }
        if (i < n) {
            f_store_first(x + i, n - i, f_add(f_load_first(x + i, n - i), f_load_first(y + i, n - i)));
        }
    }
}

static void stream_rows_kernel(const float *y, int32_t y_stride, int32_t n, int32_t n_rows, float *out,
                               int32_t out_stride) {
    for (int32_t r = 0; r < n_rows; r++, y += y_stride, out += out_stride) {
        int32_t i = 0, whole = (uintptr_t)out % (LANES * sizeof *out) == 0 ? n - n % LANES : 0;
        for (; i < whole; i += LANES) {
            f_stream(out + i, f_load(y + i));
        }
        memcpy(out + i, y + i, (size_t)(n - i) * sizeof *out);
    }
    f_stream_end();
}

static void norm_rms_kernel(const float *x, const float *weight, float eps, int32_t n, float *out) {
    f32x16 squares = f_zero();
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f32x16 v = f_load(x + i);
        squares = f_fma(v, v, squares);
    }
    if (i < n) {
        f32x16 v = f_load_first(x + i, n - i);
        squares = f_fma(v, v, squares);
    }
    f32x16 inverse = f_set1(1.0f / sqrtf(f_tree_sum(squares) / (float)n + eps));
    for (i = 0; i + LANES <= n; i += LANES) {
        f_store(out + i, f_mul(f_mul(f_load(x + i), inverse), f_load(weight + i)));
    }
    if (i < n) {
        f_store_first(out + i, n - i,
                      f_mul(f_mul(f_load_first(x + i, n - i), inverse), f_load_first(weight + i, n - i)));
    }
}

static inline f32x16 layer16(f32x16 x, f32x16 mean, f32x16 inverse, f32x16 weight, const f32x16 *bias) {
    f32x16 y = f_mul(f_sub(x, mean), inverse);
    return bias != NULL ? f_fma(y, weight, *bias) : f_mul(y, weight);
}

static void norm_layer_kernel(const float *x, const float *weight, const float *bias, float eps, int32_t n,
                              float *out) {
    int32_t whole = n - n % LANES, rest = n % LANES;
    f32x16 sum = f_zero();
    for (int32_t i = 0; i < whole; i += LANES) {
        sum = f_add(sum, f_load(x + i));
    }
    if (rest > 0) {
        sum = f_select(m_first(rest), f_add(sum, f_load_first(x + whole, rest)), sum);
    }
    f32x16 mean = f_set1(f_tree_sum(sum) / (float)n);
    f32x16 squares = f_zero();
    for (int32_t i = 0; i < whole; i += LANES) {
        f32x16 d = f_sub(f_load(x + i), mean);
        squares = f_fma(d, d, squares);
    }
    if (rest > 0) {
        f32x16 d = f_sub(f_load_first(x + whole, rest), mean);
        squares = f_select(m_first(rest), f_fma(d, d, squares), squares);
    }
    f32x16 inverse = f_set1(1.0f / sqrtf(f_tree_sum(squares) / (float)n + eps));
    for (int32_t i = 0; i < whole; i += LANES) {
        f32x16 b = bias != NULL ? f_load(bias + i) : f_zero();
        f_store(out + i, layer16(f_load(x + i), mean, inverse, f_load(weight + i), bias != NULL ? &b : NULL));
    }
    if (rest > 0) {
        f32x16 b = bias != NULL ? f_load_first(bias + whole, rest) : f_zero();
        f32x16 w = f_load_first(weight + whole, rest);
        f_store_first(out + whole, rest,
                      layer16(f_load_first(x + whole, rest), mean, inverse, w, bias != NULL ? &b : NULL));
    }
}

static inline f32x16 turned_a(f32x16 a, f32x16 b, f32x16 c, f32x16 s) {
    return f_sub(f_mul(a, c), f_mul(b, s));
}

static inline f32x16 turned_b(f32x16 a, f32x16 b, f32x16 c, f32x16 s) {
    return f_add(f_mul(b, c), f_mul(a, s));
}

/* 8 pairs (a, b): x c plus (b, a) times (-s, s). Same bits as turned_a and turned_b,
 * since p - q is p + -q, and -b s is b times -s. */
static inline f32x16 turned_neighbours(f32x16 x, f32x16 c, f32x16 s) {
    static const float signs[LANES] = {-0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f,
                                       -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f};
    f32x16 product = f_mul(f_swap_neighbours(x), s);
    return f_add(f_mul(x, c), f_of_bits(i_xor(f_bits(product), f_bits(f_load(signs)))));
}

static void rotate_neighbours(const float *cosines, const float *sines, int32_t n_pairs, float *x) {
    int32_t i = 0;
    for (; i + LANES <= n_pairs; i += LANES) {
        float *y = x + 2 * i;
        f32x16 c = f_load(cosines + i), s = f_load(sines + i);
        f_store(y, turned_neighbours(f_load(y), f_twice_low(c), f_twice_low(s)));
        f_store(y + LANES, turned_neighbours(f_load(y + LANES), f_twice_high(c), f_twice_high(s)));
    }
    for (; i < n_pairs; i += LANES / 2) {
        int32_t n = n_pairs - i < LANES / 2 ? n_pairs - i : LANES / 2;
        f32x16 c = f_load_first(cosines + i, n), s = f_load_first(sines + i, n),
               v = f_load_first(x + 2 * i, 2 * n);
        f_store_first(x + 2 * i, 2 * n, turned_neighbours(v, f_twice_low(c), f_twice_low(s)));
    }
}

static void rotate_halves(const float *cosines, const float *sines, int32_t n_pairs, float *x) {
    float *y = x + n_pairs;
    int32_t i = 0;
    for (; i + LANES <= n_pairs; i += LANES) {
        f32x16 a = f_load(x + i), b = f_load(y + i), c = f_load(cosines + i), s = f_load(sines + i);
        f_store(x + i, turned_a(a, b, c, s));
        f_store(y + i, turned_b(a, b, c, s));
    }
    if (i < n_pairs) {
        int32_t n = n_pairs - i;
        f32x16 a = f_load_first(x + i, n), b = f_load_first(y + i, n);
        f32x16 c = f_load_first(cosines + i, n), s = f_load_first(sines + i, n);
        f_store_first(x + i, n, turned_a(a, b, c, s));
        f_store_first(y + i, n, turned_b(a, b, c, s));
    }
}

static void rotate_kernel(rope_pairs pairs, const float *cosines, const float *sines, int32_t n_pairs,
                          float *x) {
    (pairs == ROPE_NEIGHBOURS ? rotate_neighbours : rotate_halves)(cosines, sines, n_pairs, x);
}

static void narrow_kernel(dtype type, const float *x, int32_t n, uint16_t *out) {
    int32_t i = 0;
    for (; type == DTYPE_F16 && i + LANES <= n; i += LANES) {
        f_store_f16(out + i, f_load(x + i));
    }
    for (; type == DTYPE_BF16 && i + LANES <= n; i += LANES) {
        f_store_bf16(out + i, f_load(x + i));
    }
    for (; i < n; i++) {
        out[i] = type == DTYPE_BF16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]);
    }
}

static void widen_kernel(const uint16_t *x, int32_t n, float *out) {
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f_store(out + i, f_load_bf16(x + i));
    }
    for (; i < n; i++) {
        out[i] = bf16_to_f32(x[i]);
    }
}

#endif
