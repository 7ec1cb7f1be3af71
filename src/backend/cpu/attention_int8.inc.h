/* Attention kernels over one chunk of int8 keys and values; attention_plain.c defines
 * what they compute. Included by math_avx2.c, math_avx512.c and math_neon.c.
 *
 * Bytes: half of what 16-bit types take (attention_kernels.inc.h). Products: at best 64
 * per cycle and core (VNNI, 512 bits). They are exact in int32, so order and grouping
 * change no bit. Scores: lanes are positions, with four elements per lane. Values: lanes
 * are elements, with four positions per lane. */
#include "backend/cpu/math_kernels.inc.h"
#include "backend/cpu/simd_int.h"

#include "backend/cpu/round_int8.inc.h"

#define INT8_GROUP (N_LANES / 2) /* queries that share each load */
/* blocks of keys, or vectors of elements, that share loaded weights or queries; sums take
 * 16 registers or 8 */
#define INT8_VECTORS     (N_LANES == 16 ? 2 : 1)
#define INT8_SUMS        (INT8_VECTORS * N_HALVES)
#define INT8_ROUNDED     (N_LANES == 16 ? 4 : 2) /* queries whose weights are rounded together */
#define QUAD_BYTES       64                      /* bytes of a quad of 16 positions or elements */
#define MOST_INT8_GROUPS ((ATTN_TILE + INT8_GROUP - 1) / INT8_GROUP)

/* Quantises a head's key, value or query (math.h). */
static float narrow_int8_kernel(const float *x, int32_t n, int8_t *out, int32_t *sum) {
    const int32_t whole = n / ROUND_NUMBERS * ROUND_NUMBERS;
    float tail[ROUND_NUMBERS], inverse, largest;
    int8_t rounded[ROUND_NUMBERS];
    int32_t bits = largest_magnitude(x, n, tail);
    memcpy(&largest, &bits, sizeof largest);
    float scale = attn_int8_scale(largest, &inverse);
    *sum = round_all(x, inverse, whole, out) + round_all(tail, inverse, ROUND_NUMBERS, rounded);
    memcpy(out + whole, rounded, (size_t)(n - whole));
    return scale;
}

/* Computes unscaled scores of n_q queries with n_b blocks. */
INLINE void score_int8(int n_q, int n_b, const attn_tile *t, attn_group g, int32_t block) {
    int32_t query = g.query, n_quads = (t->d_head + 3) / 4, stride = attn_int8_stride(t->d_head);
    const int8_t *x = t->q_int8 + query * stride;
    n_sum s[INT8_GROUP][INT8_SUMS];
    UNROLL
    for (int i = 0; i < n_q; i++) {
        UNROLL
        for (int c = 0; c < n_b * N_HALVES; c++) {
            s[i][c] = n_quad_start(-128 * t->q_sum[query + i]);
        }
    }
    UNROLL
    for (int c = 0; c < n_b; c++) {
        prefetch(t->fetch_k_scales[block + c]);
    }
    for (int32_t quad = 0; quad < n_quads; quad++) {
        n_quad k[INT8_SUMS];
        UNROLL
        for (int c = 0; c < n_b * N_HALVES; c++) {
            k[c] = n_quad_load((const int8_t *)t->k_blocks[block + c / N_HALVES] +
                               4 * (quad * ATTN_BLOCK + c % N_HALVES * N_LANES));
        }
        UNROLL
        for (int c = 0; c < n_b; c++) {
            prefetch((const int8_t *)t->fetch_k[block + c] + g.fetched + quad * g.step);
        }
        UNROLL
        for (int i = 0; i < n_q; i++) {
            ni q = n_set1(quad_of(x + i * stride + 4 * quad));
            UNROLL
            for (int c = 0; c < n_b * N_HALVES; c++) {
                s[i][c] = n_quad_add(s[i][c], k[c], q);
            }
        }
    }
    UNROLL
    for (int i = 0; i < n_q; i++) {
        UNROLL
        for (int c = 0; c < n_b * N_HALVES; c++) {
            float *out = t->scores + (query + i) * ATTN_CHUNK + block * ATTN_BLOCK + c * N_LANES;
            nf scaled = nf_mul(nf_of((ni)s[i][c]),
                               nf_load(t->k_scales[block + c / N_HALVES] + c % N_HALVES * N_LANES));
            nf_store(out, nf_mul(scaled, nf_set1(t->q_scale[query + i])));
        }
    }
}

/* Converts the softmax weights of n_q queries to integers of 0..127 times step. Several
 * queries run together, because each has to wait for the rounding error carried from
 * block to block. */
INLINE void weights_to_int8(int n_q, const attn_tile *t, int32_t query, int32_t block0, int32_t block1,
                            const float *top, float *step) {
    const float *scores = t->scores + query * ATTN_CHUNK;
    f32x16 carry[INT8_ROUNDED], inverse[INT8_ROUNDED];
    UNROLL
    for (int i = 0; i < n_q; i++) {
        step[i] = top[i] > ATTN_INT8_LEAST ? top[i] / ATTN_INT8_TOP : 0.0f;
        inverse[i] = f_set1(top[i] > ATTN_INT8_LEAST ? ATTN_INT8_TOP / top[i] : 0.0f);
        carry[i] = f_zero();
    }
    for (int32_t b = block0; b < block1; b++) {
        UNROLL
        for (int i = 0; i < n_q; i++) {
            f32x16 x = f_mul(f_load(scores + i * ATTN_CHUNK + b * ATTN_BLOCK), inverse[i]);
            f32x16 sum = f_add(carry[i], f_min(f_max(x, f_zero()), f_set1(ATTN_INT8_TOP))),
                   whole = f_round(sum);
            carry[i] = f_sub(sum, whole);
            i_store_u8(t->weights + (query + i) * ATTN_CHUNK + b * ATTN_BLOCK, f_to_i(whole));
        }
    }
}

/* Computes acc of n_q queries for n_v vectors of elements from d on, from their weights
 * over blocks block0..block1. step: the value of a weight of 1. */
INLINE void weigh_int8_vectors(int n_q, int n_v, const attn_tile *t, attn_group g, int32_t block0,
                               int32_t block1, const float *step, int32_t d) {
    int32_t query = g.query, quad_bytes = 4 * attn_int8_stride(t->d_value);
    n_sum s[INT8_GROUP][INT8_SUMS];
    UNROLL
    for (int i = 0; i < n_q; i++) {
        UNROLL
        for (int c = 0; c < n_v * N_HALVES; c++) {
            s[i][c] = (n_sum)n_set1(0);
        }
    }
    for (int32_t block = block0; block < block1; block++) {
        const int8_t *values = (const int8_t *)t->v_blocks[block] + 4 * d;
        const uint8_t *weights = t->weights + query * ATTN_CHUNK + block * ATTN_BLOCK;
        const int8_t *next = (const int8_t *)t->fetch_v[block];
        /* the softmax has prefetched the first half */
        next += LINE_BYTES * lines_for_softmax(t) + (g.fetched + d / 4 * g.step) / 2;
        ROLLED
        for (int quad = 0; quad < 4; quad++, values += quad_bytes, weights += 4, next += g.step / 2) {
            ni v[INT8_SUMS];
            UNROLL
            for (int c = 0; c < n_v * N_HALVES; c++) {
                v[c] = n_load(values + 4 * c * N_LANES);
            }
            UNROLL
            for (int c = 0; c < n_v; c++) {
                prefetch(next + c * 2 * g.step);
            }
            UNROLL
            for (int i = 0; i < n_q; i++) {
                ni w = n_set1(quad_of((const int8_t *)weights + i * ATTN_CHUNK));
                UNROLL
                for (int c = 0; c < n_v * N_HALVES; c++) {
                    s[i][c] = n_add_small(s[i][c], w, v[c]);
                }
            }
        }
    }
    UNROLL
    for (int i = 0; i < n_q; i++) {
        UNROLL
        for (int c = 0; c < n_v * N_HALVES; c++) {
            float *out = t->acc + (int64_t)(query + i) * t->acc_stride + d + c * N_LANES;
            nf_store(out, nf_mul(nf_of((ni)s[i][c]), nf_set1(step[i])));
        }
    }
}

INLINE void weigh_int8(int n_q, const attn_tile *t, attn_group g, int32_t block0, int32_t block1,
                       const float *step) {
    int32_t d = 0;
    for (; d + INT8_VECTORS * LANES <= t->acc_stride; d += INT8_VECTORS * LANES) {
        weigh_int8_vectors(n_q, INT8_VECTORS, t, g, block0, block1, step, d);
    }
    for (; INT8_VECTORS > 1 && d < t->acc_stride; d += LANES) {
        weigh_int8_vectors(n_q, 1, t, g, block0, block1, step, d);
    }
}

#if N_LANES == 16
#define EACH_INT8_GROUP(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
#elif N_LANES == 8
#define EACH_INT8_GROUP(CASE) CASE(1) CASE(2) CASE(3) CASE(4)
#else
#define EACH_INT8_GROUP(CASE) CASE(1) CASE(2)
#endif

INLINE void score_int8_blocks(int n_q, const attn_tile *t, attn_group g, int32_t block, int32_t end) {
    for (; block + INT8_VECTORS <= end; block += INT8_VECTORS) {
        score_int8(n_q, INT8_VECTORS, t, g, block);
    }
    for (; INT8_VECTORS > 1 && block < end; block++) {
        score_int8(n_q, 1, t, g, block);
    }
}

static void score_int8_group(const attn_tile *t, attn_group g, int32_t block0, int32_t block1) {
    switch (g.n) {
#define CASE(count)                                                                                          \
    case count:                                                                                              \
        score_int8_blocks(count, t, g, block0, block1);                                                      \
        break;
        EACH_INT8_GROUP(CASE)
#undef CASE
    }
}

static void weigh_int8_group(const attn_tile *t, attn_group g, int32_t block0, int32_t block1,
                             const float *step) {
    switch (g.n) {
#define CASE(count)                                                                                          \
    case count:                                                                                              \
        weigh_int8(count, t, g, block0, block1, step);                                                       \
        break;
        EACH_INT8_GROUP(CASE)
#undef CASE
    }
}

static attn_group int8_group_of(const attn_tile *t, int32_t i, int32_t n, int32_t width,
                                int32_t fetched_bytes) {
    return group_of(t, i, n, (width + 3) / 4, fetched_bytes);
}

/* Computes unscaled products of the tile's queries with blocks block0..block1 of keys. */
static void score_int8_tile(const attn_tile *t, int32_t block0, int32_t block1) {
    const int32_t n_groups = (t->n_queries + INT8_GROUP - 1) / INT8_GROUP;
    attn_group groups[MOST_INT8_GROUPS];
    for (int32_t i = 0; i < n_groups; i++) {
        groups[i] = int8_group_of(t, i, n_groups, t->d_head, t->fetch_k_bytes);
    }
    for (int32_t block = block0; block < block1; block += MOST_VECTORS) {
        for (int32_t i = 0; i < n_groups; i++) {
            score_int8_group(t, groups[i], block,
                             block1 - block < MOST_VECTORS ? block1 : block + MOST_VECTORS);
        }
    }
}

/* Softmax: computes the weights of the tile's queries, and the value of a weight of 1. */
static void soften_int8(const attn_tile *t, int32_t block0, int32_t block1, float *step) {
    float top[ATTN_TILE];
    int32_t query = 0;
    soften_all(DTYPE_I8, t, block0, block1, top);
    for (; query + INT8_ROUNDED <= t->n_queries; query += INT8_ROUNDED) {
        weights_to_int8(INT8_ROUNDED, t, query, block0, block1, top + query, step + query);
    }
    for (; query < t->n_queries; query++) {
        weights_to_int8(1, t, query, block0, block1, top + query, step + query);
    }
    for (int32_t b = block0; b < block1; b++) {
        prefetch(t->fetch_v_scales[b]);
    }
}

/* Softmax, and acc of all the tile's queries. */
static void weigh_int8_tile(const attn_tile *t, int32_t block0, int32_t block1) {
    const int32_t n_groups = (t->n_queries + INT8_GROUP - 1) / INT8_GROUP;
    float step[ATTN_TILE];
    soften_int8(t, block0, block1, step);
    for (int32_t i = 0; i < n_groups; i++) {
        const attn_group g = int8_group_of(t, i, n_groups, t->d_value, t->fetch_v_bytes);
        weigh_int8_group(t, g, block0, block1, step + g.query);
    }
}
