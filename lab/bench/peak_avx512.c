/* Loops for AVX-512 with VNNI, and the tables, with what peak_avx512bf16.c and peak_amx.c
 * add. Floats and int8 have an instruction each that multiplies and adds; without the dot
 * instruction, bf16 is multiplied as f32. */
#include "lab/bench/peak_avx512.h"
#include "backend/cpu/simd.h"
#include "lab/bench/peak.h"

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

#include "lab/bench/peak_read.inc.h"

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
    .int8 = {"vpdpbusd, 512 bits", int8_avx512, SUMS * 64 * 2},
    .int8_small = {"vpdpbusd, 512 bits", int8_avx512, SUMS * 64 * 2},
};

const peak_kernels peak_avx512bf16 = {
    .read = read_memory,
    .f32 = {"vfmadd, 512 bits", f32_avx512, SUMS * 16 * 2},
    .bf16 = {"vdpbf16ps, 512 bits", peak_dot_bf16, SUMS * 32 * 2},
    .int8 = {"vpdpbusd, 512 bits", int8_avx512, SUMS * 64 * 2},
    .int8_small = {"vpdpbusd, 512 bits", int8_avx512, SUMS * 64 * 2},
};

#if defined(QUIRE_AMX)
const peak_kernels peak_amx = {
    .read = read_memory,
    .f32 = {"vfmadd, 512 bits", f32_avx512, SUMS * 16 * 2},
    .int8 = {"tdpbssd, whole tiles", peak_tiles, PEAK_TILES * 16 * 16 * 64 * 2},
    .int8_small = {"tdpbssd, 32 of k", peak_half_tiles, PEAK_TILES * 16 * 16 * 32 * 2},
};
#endif
