/* Loops for AVX-512 with VNNI: what they share with those of AVX512_BF16 and AMX, which
 * are compiled separately. Included only by files of these instruction sets. */
#ifndef LAB_BENCH_PEAK_AVX512_H
#define LAB_BENCH_PEAK_AVX512_H

#include "backend/cpu/simd.h"

enum { SUMS = 16 };

static inline __attribute__((always_inline)) float sum_of(const __m512 *a) {
    __m512 sum = a[0];
    UNROLL
    for (int i = 1; i < SUMS; i++) {
        sum = _mm512_add_ps(sum, a[i]);
    }
    return f_tree_sum((f32x16){sum});
}

/* The bf16 loop, for a table of peak_avx512.c: n rounds of one vdpbf16ps per sum. */
float peak_dot_bf16(int32_t n);

/* The AMX loops: n rounds of a product into each of PEAK_TILES tiles, with whole tiles
 * and with groups of 32. */
#define PEAK_TILES 4
float peak_tiles(int32_t n);
float peak_half_tiles(int32_t n);

#endif
