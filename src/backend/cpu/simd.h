/* A virtual machine of 16 float lanes, so that kernels are written once and compiled for
 * AVX2 (two 256-bit registers), AVX-512 (one register) and NEON (four 128-bit registers).
 *
 * A kernel is in X_kernels.inc.h, included by X_avx2.c, X_avx512.c and X_neon.c. Its
 * plain C twin in X_plain.c is written separately and gives the same bits, because every
 * function here is one exactly defined IEEE operation per lane: round to nearest even, no
 * flush to zero. min and max follow x86: if a or b is NaN, or both are zero, the result
 * is b. Masks are opaque; m_first(n) selects the lanes below n. With SIMD_EMULATE,
 * AVX-512 runs through SIMDe, for machines without it.
 *
 * Names: f_ floats, i_ 32-bit integers, m_ masks. Pointers need no alignment. */
#ifndef CPU_SIMD_H
#define CPU_SIMD_H

#include <stdint.h>

/* LANEWISE_n(result, name, type, instruction) defines an operation of n operands that is
 * one instruction per register. EACH_n, in the instruction set's header, lists the
 * registers of a value. */
#define LANEWISE_1(result, name, type, op)                                                                   \
    static inline result name(type x) {                                                                      \
        return (result){EACH_1(op, x)};                                                                      \
    }
#define LANEWISE_2(result, name, type, op)                                                                   \
    static inline result name(type x, type y) {                                                              \
        return (result){EACH_2(op, x, y)};                                                                   \
    }
#define LANEWISE_3(result, name, type, op)                                                                   \
    static inline result name(type x, type y, type z) {                                                      \
        return (result){EACH_3(op, x, y, z)};                                                                \
    }
#define LANEWISE_SHIFT(name, op)                                                                             \
    static inline i32x16 name(i32x16 x, int n) {                                                             \
        return (i32x16){EACH_SHIFT(op, x, n)};                                                               \
    }

#if defined(__aarch64__)
#include "backend/cpu/simd_neon.h"
#elif defined(__AVX512F__) || defined(SIMD_EMULATE)
#include "backend/cpu/simd_avx512.h"
#else
#include "backend/cpu/simd_avx2.h"
#endif

/* Unrolls loops over registers so that arrays of them stay in registers. Not in
 * emulation, where each instruction is itself a loop. */
#ifdef __clang__
#define ROLLED     _Pragma("nounroll")
#define UNROLL_ALL _Pragma("unroll")
#else
#define ROLLED     _Pragma("GCC unroll 1")
#define UNROLL_ALL _Pragma("GCC unroll 16")
#endif
#ifdef SIMD_EMULATE
#define UNROLL ROLLED
#else
#define UNROLL UNROLL_ALL
#endif

/* KEEP forces a value into its registers at this point. Compilers need such hints with 16
 * registers and 12 sums. */
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(SIMD_EMULATE)
#define KEEP(value) __asm__("" : "+x"((value).a), "+x"((value).b))
#else
#define KEEP(value) ((void)0)
#endif

#if defined(__x86_64__)
/* Lane 0 of the sum over ((i, i + 8), (i, i + 4), (i, i + 2), (i, i + 1)), the only order
 * in which 16 lanes are added. */
static inline float f_tree_sum(f32x16 a) {
    __m256 h = _mm256_add_ps(f_low(a), f_high(a));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}

/* Lanes must be in 0..255. */
static inline void i_store_u8(uint8_t *p, i32x16 v) {
    uint16_t halves[16];
    i_store_u16(halves, v);
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)halves),
            high = _mm_loadu_si128((const __m128i *)(const void *)(halves + 8));
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi16(low, high));
}

/* The largest lane, by f_max in the same tree order. */
static inline float f_tree_max(f32x16 a) {
    __m256 h = _mm256_max_ps(f_low(a), f_high(a));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
#endif

static inline f32x16 f_abs(f32x16 a) {
    return f_of_bits(i_and(f_bits(a), i_set1(0x7fffffff)));
}

static inline f32x16 f_neg(f32x16 a) {
    return f_of_bits(i_xor(f_bits(a), i_set1(INT32_MIN)));
}

/* Rounds each lane to bf16, to nearest even, as an integer 0..65535. NaN stays NaN,
 * quiet. */
static inline i32x16 f_to_bf16_lanes(f32x16 a) {
    i32x16 u = f_bits(a);
    i32x16 high = i_shr(u, 16);
    i32x16 rounded = i_shr(i_add(u, i_add(i_set1(0x7fff), i_and(high, i_set1(1)))), 16);
    return i_select(m_nan(a), i_or(high, i_set1(0x40)), rounded);
}

static inline void f_store_bf16(uint16_t *p, f32x16 a) {
    i_store_u16(p, f_to_bf16_lanes(a));
}

static inline f32x16 f_load_bf16(const uint16_t *p) {
    return f_of_bits(i_shl(i_load_u16(p), 16));
}

#ifndef SIMD_APART /* other instruction sets keep lanes in order when bf16 is widened */
static inline f32x16 f_apart(f32x16 a) {
    return a;
}

static inline f32x16 f_together(f32x16 a) {
    return a;
}

static inline f32x16 f_load_bf16_apart(const uint16_t *p) {
    return f_load_bf16(p);
}
#endif

#endif
