/* The loops for AVX-512 with VNNI and BF16: each kind has an instruction that multiplies and adds. */
#include "backend/cpu/simd.h"
#include "bench/peak.h"

typedef __m512i vec;
#define VEC_ZERO()    _mm512_setzero_si512()
#define VEC_LOAD(p)   _mm512_load_si512((const void *)(p))
#define VEC_ADD(a, b) _mm512_add_epi64(a, b)

static inline uint64_t vec_sum(vec v) {
    uint64_t words[8], sum = 0;
    _mm512_storeu_si512((void *)words, v);
    for (int i = 0; i < 8; i++) {
        sum += words[i];
    }
    return sum;
}

#include "bench/peak_read.inc.h"

enum { SUMS = 16 };

static inline __attribute__((always_inline)) float sum_of(const __m512 *a) {
    __m512 sum = a[0];
    UNROLL
    for (int i = 1; i < SUMS; i++) {
        sum = _mm512_add_ps(sum, a[i]);
    }
    return f_tree_sum((f32x16){sum});
}

static float f32_avx512(int32_t n) {
    __m512 a[SUMS], x = _mm512_set1_ps(0.75f), y = _mm512_set1_ps(0.5f);
    UNROLL
    for (int i = 0; i < SUMS; i++) {
        a[i] = _mm512_set1_ps((float)i);
    }
    for (int32_t r = 0; r < n; r++) {
        UNROLL
        for (int i = 0; i < SUMS; i++) {
            a[i] = _mm512_fmadd_ps(a[i], x, y);
        }
    }
    return sum_of(a);
}

static float bf16_avx512(int32_t n) {
    __m512 a[SUMS];
    __m512i x = _mm512_set1_epi16(0x3f80), y = _mm512_set1_epi16(0x3f00); /* 1 and 0.5 */
    UNROLL
    for (int i = 0; i < SUMS; i++) {
        a[i] = _mm512_set1_ps((float)i);
    }
    for (int32_t r = 0; r < n; r++) {
        UNROLL
        for (int i = 0; i < SUMS; i++) {
            a[i] = _mm512_dpbf16_ps(a[i], (__m512bh)x, (__m512bh)y);
        }
    }
    return sum_of(a);
}

static float int8_avx512(int32_t n) {
    __m512i a[SUMS], x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(5);
    UNROLL
    for (int i = 0; i < SUMS; i++) {
        a[i] = _mm512_set1_epi32(i);
    }
    for (int32_t r = 0; r < n; r++) {
        UNROLL
        for (int i = 0; i < SUMS; i++) {
            a[i] = _mm512_dpbusd_epi32(a[i], x, y);
        }
    }
    __m512i sum = a[0];
    UNROLL
    for (int i = 1; i < SUMS; i++) {
        sum = _mm512_add_epi32(sum, a[i]);
    }
    return (float)vec_sum(sum);
}

const peak_kernels peak_avx512 = {
    .read = read_memory,
    .f32 = {"vfmadd, 512 bits", f32_avx512, SUMS * 16 * 2},
    .bf16 = {"vdpbf16ps, 512 bits", bf16_avx512, SUMS * 32 * 2},
    .int8 = {"vpdpbusd, 512 bits", int8_avx512, SUMS * 64 * 2},
    .int8_small = {"vpdpbusd, 512 bits", int8_avx512, SUMS * 64 * 2},
};
