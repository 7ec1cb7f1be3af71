/* Products on AVX-512 with VNNI and BF16. */
#define LINEAR_TABLE linear_avx512

#include "backend/cpu/linear.h"
#include "backend/cpu/simd.h"

static void prepare_bf16(const float *x, int32_t k, void *row) {
    uint16_t *out = row;
    for (int32_t i = 0; i < k; i += 16) {
        int32_t n = k - i < 16 ? k - i : 16;
        f_store_bf16(out + i, n == 16 ? f_load(x + i) : f_load_first(x + i, n));
    }
}

/* acc + the pair of products of each lane. */
static inline f32x16 dot_bf16(f32x16 acc, i32x16 w, i32x16 x) {
    return (f32x16){_mm512_dpbf16_ps(acc.v, (__m512bh)w.v, (__m512bh)x.v)};
}
#define LINEAR_DOT_BF16 dot_bf16

#include "backend/cpu/linear_kernels.inc.h"
