/* Attention over one chunk of int8 keys and values; attention_plain.c says what is computed. Included by math_avx2.c, math_avx512.c and math_neon.c.
 *
 * Bytes: as in attention_kernels.inc.h, half of those of 16-bit types. Products: 64 a cycle and core at best (VNNI, 512 bits), exact in int32, so
 * neither order nor grouping shows. Scores: lanes are positions, four elements a lane; values: lanes are elements, four positions a lane.
 * While a block of keys is multiplied, the next one and the block's values are asked for. */
#include "backend/cpu/math_kernels.inc.h"
#include "backend/cpu/simd_int.h"

#define INT8_GROUP (N_LANES / 2) /* queries that share what is loaded: sums in 8 registers */

/* Raw scores of n_q queries with a block. next: the block of keys to ask for. */
INLINE void score_int8(const attn_tile *t, int32_t query, int n_q, int32_t block, int32_t next) {
    const int8_t *keys = t->k_blocks[block], *values = t->v_blocks[block], *next_keys = t->k_blocks[next];
    int32_t n_quads = (t->d_head + 3) / 4, stride = attn_int8_stride(t->d_head);
    const int8_t *x = t->q_int8 + query * stride;
    n_sum s[INT8_GROUP][N_HALVES];
    UNROLL
    for (int i = 0; i < n_q; i++) {
        UNROLL
        for (int h = 0; h < N_HALVES; h++) {
            s[i][h] = n_quad_start(t->q_sum[query + i]);
        }
    }
    __builtin_prefetch(t->k_scales[next]);
    __builtin_prefetch(t->v_scales[block]);
    for (int32_t quad = 0; quad < n_quads; quad++) {
        n_quad k[N_HALVES];
        UNROLL
        for (int h = 0; h < N_HALVES; h++) {
            k[h] = n_quad_load(keys + 4 * (quad * ATTN_BLOCK + h * N_LANES));
        }
        __builtin_prefetch(next_keys + quad * 4 * ATTN_BLOCK);
        __builtin_prefetch(values + quad * 4 * ATTN_BLOCK);
        UNROLL
        for (int i = 0; i < n_q; i++) {
            ni q = n_set1(quad_of(x + i * stride + 4 * quad));
            UNROLL
            for (int h = 0; h < N_HALVES; h++) {
                s[i][h] = n_quad_add(s[i][h], k[h], q);
            }
        }
    }
    UNROLL
    for (int i = 0; i < n_q; i++) {
        float *out = t->scores + (query + i) * ATTN_CHUNK + block * ATTN_BLOCK;
        UNROLL
        for (int h = 0; h < N_HALVES; h++) {
            nf scaled = nf_mul(nf_of((ni)s[i][h]), nf_load(t->k_scales[block] + h * N_LANES));
            nf_store(out + h * N_LANES, nf_mul(scaled, nf_set1(t->q_scale[query + i])));
        }
    }
}

/* A query's weights times the values' scales as numbers of 0..127 times what is returned; 0 where it sees nothing. Blocks block0..block1. */
static float weights_to_int8(const attn_tile *t, int32_t query, int32_t block0, int32_t block1) {
    float *scores = t->scores + query * ATTN_CHUNK;
    f32x16 max = f_zero(), carry = f_zero();
    for (int32_t b = block0; b < block1; b++) {
        mask16 seen = block_mask(t->first[query], t->end[query], b);
        f32x16 u = f_select(seen, f_mul(f_load(scores + b * ATTN_BLOCK), f_load(t->v_scales[b])), f_zero());
        f_store(scores + b * ATTN_BLOCK, u);
        max = f_max(max, u);
    }
    float highest = f_tree_max(max), inverse = highest > ATTN_INT8_LEAST ? ATTN_INT8_TOP / highest : 0.0f;
    for (int32_t b = block0; b < block1; b++) {
        f32x16 x = f_min(f_max(f_mul(f_load(scores + b * ATTN_BLOCK), f_set1(inverse)), f_zero()), f_set1(ATTN_INT8_TOP));
        f32x16 sum = f_add(carry, x), whole = f_round(sum);
        carry = f_sub(sum, whole);
        i_store_u8(t->weights + query * ATTN_CHUNK + b * ATTN_BLOCK, f_to_i(whole));
    }
    return highest > ATTN_INT8_LEAST ? highest / ATTN_INT8_TOP : 0.0f;
}

/* acc of n_q queries from their weights over blocks block0..block1. step: what a weight of 1 stands for. */
INLINE void weigh_int8(const attn_tile *t, int32_t query, int n_q, int32_t block0, int32_t block1, const float *step) {
    int32_t quad_bytes = 4 * ((t->d_head + 3) / 4 * 4);
    for (int32_t d = 0; d < t->acc_stride; d += LANES) {
        n_sum s[INT8_GROUP][N_HALVES];
        UNROLL
        for (int i = 0; i < n_q; i++) {
            UNROLL
            for (int h = 0; h < N_HALVES; h++) {
                s[i][h] = (n_sum)n_set1(0);
            }
        }
        for (int32_t block = block0; block < block1; block++) {
            const int8_t *values = (const int8_t *)t->v_blocks[block] + 4 * d;
            const uint8_t *weights = t->weights + query * ATTN_CHUNK + block * ATTN_BLOCK;
            ROLLED
            for (int quad = 0; quad < 4; quad++, values += quad_bytes, weights += 4) {
                ni v[N_HALVES];
                UNROLL
                for (int h = 0; h < N_HALVES; h++) {
                    v[h] = n_load(values + 4 * h * N_LANES);
                }
                UNROLL
                for (int i = 0; i < n_q; i++) {
                    ni w = n_set1(quad_of((const int8_t *)weights + i * ATTN_CHUNK));
                    UNROLL
                    for (int h = 0; h < N_HALVES; h++) {
                        s[i][h] = n_add_small(s[i][h], w, v[h]);
                    }
                }
            }
        }
        UNROLL
        for (int i = 0; i < n_q; i++) {
            UNROLL
            for (int h = 0; h < N_HALVES; h++) {
                nf_store(t->acc + (int64_t)(query + i) * t->acc_stride + d + h * N_LANES, nf_mul(nf_of((ni)s[i][h]), nf_set1(step[i])));
            }
        }
    }
}

/* A group of n_q queries (a constant), from keys to acc, over blocks block0..block1. */
INLINE void attend_int8_group(const attn_tile *t, int32_t query, int n_q, int32_t block0, int32_t block1) {
    float step[INT8_GROUP];
    for (int32_t b = block0; b < block1; b++) {
        score_int8(t, query, n_q, b, b + 1 < block1 ? b + 1 : b);
    }
    for (int i = 0; i < n_q; i++) {
        if (t->first[query + i] < t->end[query + i]) {
            soften(t, query + i);
        }
        step[i] = weights_to_int8(t, query + i, block0, block1);
    }
    weigh_int8(t, query, n_q, block0, block1, step);
}

static void attend_int8(const attn_tile *t) {
    int32_t first = ATTN_CHUNK, end = 0;
    for (int32_t i = 0; i < t->n_queries; i++) {
        t->sum[i] = 0.0f;
        if (t->first[i] < t->end[i]) {
            first = t->first[i] < first ? t->first[i] : first;
            end = t->end[i] > end ? t->end[i] : end;
        }
    }
    int32_t block0 = first / ATTN_BLOCK, block1 = (end + ATTN_BLOCK - 1) / ATTN_BLOCK, query = 0;
    if (first >= end) {
        return;
    }
    for (; query + INT8_GROUP <= t->n_queries; query += INT8_GROUP) {
        attend_int8_group(t, query, INT8_GROUP, block0, block1);
    }
    for (; query + 2 <= t->n_queries; query += 2) {
        attend_int8_group(t, query, 2, block0, block1);
    }
    if (query < t->n_queries) {
        attend_int8_group(t, query, 1, block0, block1);
    }
}
