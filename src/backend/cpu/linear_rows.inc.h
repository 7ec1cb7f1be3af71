/* Activation rows made ready for products (linear.h says how they are quantised): one row a call, on any thread. Part of
 * linear_kernels.inc.h. */
#include "backend/cpu/round_int8.inc.h"

static void prepare_f32(const float *x, int32_t k, void *row) {
    memcpy(row, x, (size_t)k * sizeof *x);
}

INLINE float scale_of(uint32_t largest_bits, float *inverse) {
    float a;
    memcpy(&a, &largest_bits, sizeof a);
    *inverse = 0.0f;
    if (!isfinite(a) || a < ROWS_TINY) {
        return isfinite(a) ? 0.0f : NAN;
    }
    *inverse = 127.0f / a;
    return a / 127.0f;
}

static void prepare_groups(const float *x, int32_t k, void *row) {
    row_group *to = row;
    for (int32_t g = 0; g < k / PACK_GROUP; g++, to++, x += PACK_GROUP) {
        int32_t sums[2];
        float inverse;
        to->scale = scale_of((uint32_t)lanes_max(n_fold_max(magnitudes32(x))), &inverse);
        quantise32(x, inverse, to->q, sums);
        row_group_sums(to, sums[0], sums[1]);
    }
}

static void prepare_token(const float *x, int32_t k, void *row) {
    int8_t *q = row;
    int32_t whole = k / PACK_GROUP * PACK_GROUP, padded = linear_pad(k, PACK_GROUP), sum = 0, sums[2];
    float tail[PACK_GROUP], inverse, scale = scale_of((uint32_t)largest_magnitude(x, k, tail), &inverse);
    for (int32_t i = 0; i < padded; i += PACK_GROUP) {
        quantise32(i < whole ? x + i : tail, inverse, q + i, sums);
        sum += sums[0] + sums[1];
    }
    memcpy(q + padded, &scale, sizeof scale);
    memcpy(q + padded + sizeof scale, &sum, sizeof sum);
}

/* Kept as the f32 they are equal to. */
static void prepare_bf16(const float *x, int32_t k, void *row) {
    float *out = row;
    for (int32_t i = 0; i < k; i += 16) {
        int32_t n = k - i < 16 ? k - i : 16;
        f32x16 v = n == 16 ? f_load(x + i) : f_load_first(x + i, n);
        f_store(out + i, f_of_bits(i_shl(f_to_bf16_lanes(v), 16)));
    }
}
