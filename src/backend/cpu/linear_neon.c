/* Products on NEON with dot products (ARMv8.2). */
#define LINEAR_TABLE linear_neon

#include "backend/cpu/linear.h"
#include "backend/cpu/simd.h"

/* Kept as the f32 they are equal to. */
static void prepare_bf16(const float *x, int32_t k, void *row) {
    float *out = row;
    for (int32_t i = 0; i < k; i += 16) {
        int32_t n = k - i < 16 ? k - i : 16;
        f32x16 v = n == 16 ? f_load(x + i) : f_load_first(x + i, n);
        f_store(out + i, f_of_bits(i_shl(f_to_bf16_lanes(v), 16)));
    }
}

#include "backend/cpu/linear_kernels.inc.h"
