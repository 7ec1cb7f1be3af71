/* Quantises activation rows for products as defined in linear.h: one row per call, on any
 * thread. Part of linear_kernels.inc.h. */
#include "backend/cpu/round_int8.inc.h"

static void quantise_f32(const float *x, int32_t k, void *row) {
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

/* The scales of 4 groups at once. */
INLINE n_four scales_of(n_four a, n_four *inverse) {
    const n_four nan = {NAN, NAN, NAN, NAN};
    n_four_ints finite = a < INFINITY, some = finite & (a >= ROWS_TINY);
    *inverse = (n_four)((n_four_ints)(127.0f / a) & some);
    return (n_four)(((n_four_ints)(a / 127.0f) & some) | ((n_four_ints)nan & ~finite));
}

/* Sets the fields of 4 groups other than q. */
INLINE void store_sums(row_group *to, n_four scale, const n_bytes q[4]) {
    n_four_ints halves[2];
#if N_WORDS
    const n_row_words words = n_words_of(q, halves);
    const n_four_ints starts[] = {words.pairs_8, words.pairs_32[0], words.pairs_32[1], words.large};
#else
    n_byte_sums(q, halves);
    const n_four_ints all = halves[0] + halves[1],
                      starts[] = {-8 * all, -128 * all, -4 * halves[0], -4 * halves[1]};
#endif
    const n_four_ints sum = halves[0] + halves[1];
    const n_four sums[] = {scale * n_four_of(sum), scale * n_four_of(halves[0]),
                           scale * n_four_of(halves[1])};
    const n_four_ints fields[] = {
        (n_four_ints)scale,   starts[0],           starts[1], starts[2], starts[3], (n_four_ints)sums[0],
        (n_four_ints)sums[1], (n_four_ints)sums[2]};
    n_store_lanes(&to->scale, sizeof *to, fields);
}

/* Quantises 4 groups; what a group has only one of is computed for all four together. */
INLINE void quantise_four(const float *x, row_group *to) {
    ni largest[4];
    n_bytes q[4];
    n_four inverse, scale;
    UNROLL
    for (int i = 0; i < 4; i++) {
        largest[i] = magnitudes32(x + i * PACK_GROUP);
    }
    scale = scales_of((n_four)n_max_lanes(largest), &inverse);
    UNROLL
    for (int i = 0; i < 4; i++) {
        q[i] = rounded32(x + i * PACK_GROUP, inverse[i]);
        n_store_bytes(to[i].q, q[i]);
    }
    store_sums(to, scale, q);
}

static void quantise_groups(const float *x, int32_t k, void *row) {
    row_group *to = row;
    int32_t n = k / PACK_GROUP, whole = n / 4 * 4, rest = n - whole;
    for (int32_t g = 0; g < whole; g += 4) {
        quantise_four(x + g * PACK_GROUP, to + g);
    }
    if (rest > 0) {
        float last[4 * PACK_GROUP] = {0};
        row_group groups[4];
        memcpy(last, x + whole * PACK_GROUP, (size_t)rest * PACK_GROUP * sizeof *x);
        quantise_four(last, groups);
        memcpy(to + whole, groups, (size_t)rest * sizeof *to);
    }
}

static void quantise_token(const float *x, int32_t k, void *row) {
    int8_t *q = row;
    int32_t whole = k / PACK_GROUP * PACK_GROUP, padded = linear_pad(k, PACK_GROUP);
    float tail[PACK_GROUP], inverse, scale = scale_of((uint32_t)largest_magnitude(x, k, tail), &inverse);
    int32_t sum = round_all(x, inverse, whole, q) + round_all(tail, inverse, padded - whole, q + whole);
    memcpy(q + padded, &scale, sizeof scale);
    memcpy(q + padded + sizeof scale, &sum, sizeof sum);
}

/* Stored as the f32 of equal value. */
static void quantise_bf16(const float *x, int32_t k, void *row) {
    float *out = row;
    for (int32_t i = 0; i < k; i += 16) {
        int32_t n = k - i < 16 ? k - i : 16;
        f32x16 v = n == 16 ? f_load(x + i) : f_load_first(x + i, n);
        f_store(out + i, f_of_bits(i_shl(f_to_bf16_lanes(v), 16)));
    }
}
