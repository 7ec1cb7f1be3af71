/* Plain C twin of an adapter's two products; adapter_kernels.inc.h has the same bits. */
#include <math.h>

#include "backend/cpu/math.h"
#include "core/half.h"
#include "core/math_plain.h"

#define LANES 16

/* Number i of packed A or B. */
static float adapter_number(dtype type, const uint8_t *p, size_t i) {
    const uint16_t *halves = (const uint16_t *)(const void *)p;
    switch (type) {
    case DTYPE_F16:
        return f16_to_f32(halves[i]);
    case DTYPE_BF16:
        return bf16_to_f32(halves[i]);
    default:
        return ((const float *)(const void *)p)[i];
    }
}

/* The sum over k for rank r. */
static float shrink_sum(dtype type, const uint8_t *a, int32_t n_in, int32_t r, const float *h) {
    const int32_t k_padded = (n_in + LANES - 1) / LANES * LANES;
    const size_t ranks0 = (size_t)(r / ADAPTER_RANKS) * ADAPTER_RANKS * (size_t)k_padded;
    float lanes[LANES] = {0};
    for (int32_t k = 0; k < k_padded; k++) {
        const size_t place =
            ((size_t)(k / LANES) * ADAPTER_RANKS + (size_t)(r % ADAPTER_RANKS)) * LANES + (size_t)(k % LANES);
        lanes[k % LANES] =
            fmaf(adapter_number(type, a, ranks0 + place), k < n_in ? h[k] : 0.0f, lanes[k % LANES]);
    }
    return plain_tree_sum(lanes);
}

void adapter_shrink_plain(dtype type, const uint8_t *a, const uint8_t *next, int32_t n_in, int32_t n_ranks,
                          const float *const *h, int32_t n_rows, float *const *t) {
    (void)next;
    for (int32_t i = 0; i < n_rows; i++) {
        for (int32_t r = 0; r < n_ranks; r++) {
            t[i][r] = shrink_sum(type, a, n_in, r, h[i]);
        }
    }
}

void adapter_expand_plain(dtype type, const uint8_t *b, const uint8_t *next, int32_t rank, int32_t n_blocks,
                          float scale, const float *t, int32_t t_stride, int32_t n_rows, float *y,
                          int32_t y_stride) {
    (void)next;
    for (int32_t i = 0; i < n_rows; i++) {
        for (int32_t c = 0; c < n_blocks * LANES; c++) {
            float *to = y + (int64_t)i * y_stride + c, sum = 0.0f;
            for (int32_t r = 0; r < rank; r++) {
                const size_t place =
                    ((size_t)(c / LANES) * (size_t)rank + (size_t)r) * LANES + (size_t)(c % LANES);
                sum = fmaf(adapter_number(type, b, place), t[(int64_t)i * t_stride + r], sum);
            }
            *to = fmaf(scale, sum, *to);
        }
    }
}
