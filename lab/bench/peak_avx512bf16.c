/* The AVX512_BF16 loop: its dot instruction. */
#include "lab/bench/peak_avx512.h"

float peak_dot_bf16(int32_t n) {
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
