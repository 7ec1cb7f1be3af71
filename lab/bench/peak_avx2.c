/* Loops for AVX2 and FMA, and for AVX-VNNI. AVX2 has no dot product of int8 that adds to
 * int32; it is made of a multiplication and additions, as in the product kernels
 * (backend/cpu/simd_int.h). */
#include "backend/cpu/simd.h"
#include "lab/bench/peak.h"

typedef __m256i vec;
#define VEC_ZERO()    _mm256_setzero_si256()
#define VEC_LOAD(p)   _mm256_load_si256((const __m256i *)(const void *)(p))
#define VEC_ADD(a, b) _mm256_add_epi64(a, b)

static inline uint64_t vec_sum(vec v) {
    uint64_t words[4];
    _mm256_storeu_si256((__m256i *)(void *)words, v);
    return words[0] + words[1] + words[2] + words[3];
}

#include "lab/bench/peak_read.inc.h"

/* TOGETHER: sums advanced together in each step; one sum at a time, additions often use
 * the multipliers' ports, which loses a quarter. RUN: products of 4-bit numbers before an
 * int16 sum could overflow. */
enum { FLOAT_SUMS = 12, SUMS = 8, TOGETHER = 4, RUN = 8 };

static float f32_avx2(int32_t n) {
    __m256 a[FLOAT_SUMS], x = _mm256_set1_ps(0.75f), y = _mm256_set1_ps(0.5f);
    UNROLL
    for (int i = 0; i < FLOAT_SUMS; i++) {
        a[i] = _mm256_set1_ps((float)i);
    }
    for (int32_t r = 0; r < n; r++) {
        UNROLL
        for (int i = 0; i < FLOAT_SUMS; i++) {
            a[i] = _mm256_fmadd_ps(a[i], x, y);
        }
    }
    UNROLL
    for (int i = 1; i < FLOAT_SUMS; i++) {
        a[0] = _mm256_add_ps(a[0], a[i]);
    }
    return _mm256_cvtss_f32(a[0]);
}

static inline __attribute__((always_inline)) float sum_of(const __m256i *a, int n) {
    __m256i sum = a[0];
    UNROLL
    for (int i = 1; i < n; i++) {
        sum = _mm256_add_epi32(sum, a[i]);
    }
    return (float)vec_sum(sum);
}

/* One instruction for each of TOGETHER sums, in this order; the compiler must not reorder
 * them. */
#define STAGE(name, to, left, right)                                                                         \
    UNROLL                                                                                                   \
    for (int i = 0; i < TOGETHER; i++) {                                                                     \
        __asm__ volatile(name " %2, %1, %0" : "=x"(to) : "x"(left), "x"(right));                             \
    }

/* Magnitudes times signed numbers, as product kernels multiply bytes: complemented if the
 * other's sign is minus. */
static float int8_avx2(int32_t n) {
    __m256i a[SUMS], x = _mm256_set1_epi8(-4), minus = _mm256_set1_epi8(-1), w = _mm256_set1_epi8(5),
                     ones = _mm256_set1_epi16(1);
    UNROLL
    for (int i = 0; i < SUMS; i++) {
        a[i] = _mm256_set1_epi32(i);
    }
    for (int32_t r = 0; r < n; r++) {
        UNROLL
        for (int first = 0; first < SUMS; first += TOGETHER) {
            __m256i v[TOGETHER];
            STAGE("vpxor", v[i], x, minus)
            STAGE("vpmaddubsw", v[i], w, v[i])
            STAGE("vpmaddwd", v[i], ones, v[i])
            STAGE("vpaddd", a[first + i], a[first + i], v[i])
        }
    }
    return sum_of(a, SUMS);
}

static float int8_small_avx2(int32_t n) {
    __m256i a[TOGETHER], x = _mm256_set1_epi8(3), w = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
    UNROLL
    for (int i = 0; i < TOGETHER; i++) {
        a[i] = _mm256_set1_epi32(i);
    }
    for (int32_t r = 0; r < n; r++) {
        __m256i pairs[TOGETHER], v[TOGETHER];
        STAGE("vpmaddubsw", pairs[i], w, x)
        UNROLL
        for (int k = 1; k < RUN; k++) {
            STAGE("vpmaddubsw", v[i], w, x)
            STAGE("vpaddw", pairs[i], pairs[i], v[i])
        }
        STAGE("vpmaddwd", v[i], ones, pairs[i])
        STAGE("vpaddd", a[i], a[i], v[i])
    }
    return sum_of(a, TOGETHER);
}

const peak_kernels peak_avx2 = {
    .read = read_memory,
    .f32 = {"vfmadd, 256 bits", f32_avx2, FLOAT_SUMS * 8 * 2},
    .int8 = {"vpxor, vpmaddubsw, vpmaddwd, vpaddd, 256 bits", int8_avx2, SUMS * 32 * 2},
    .int8_small = {"8 vpmaddubsw + vpaddw, then vpmaddwd, 256 bits", int8_small_avx2, TOGETHER *RUN * 32 * 2},
};

#if defined(QUIRE_AVXVNNI)
static float int8_avxvnni(int32_t n) {
    __m256i a[FLOAT_SUMS], x = _mm256_set1_epi8(3), w = _mm256_set1_epi8(5);
    UNROLL
    for (int i = 0; i < FLOAT_SUMS; i++) {
        a[i] = _mm256_set1_epi32(i);
    }
    for (int32_t r = 0; r < n; r++) {
        UNROLL
        for (int i = 0; i < FLOAT_SUMS; i++) {
            __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(a[i]) : "x"(w), "x"(x));
        }
    }
    return sum_of(a, FLOAT_SUMS);
}

const peak_kernels peak_avxvnni = {
    .read = read_memory,
    .f32 = {"vfmadd, 256 bits", f32_avx2, FLOAT_SUMS * 8 * 2},
    .int8 = {"vpdpbusd, 256 bits", int8_avxvnni, FLOAT_SUMS * 32 * 2},
    .int8_small = {"vpdpbusd, 256 bits", int8_avxvnni, FLOAT_SUMS * 32 * 2},
};
#endif
