/* Attention over one chunk, 16 lanes at a time; attention_plain.c says what is computed. Included by math_avx2.c and math_avx512.c.
 *
 * Bytes: the chunk's keys and values once for a tile of up to 32 queries, out of the nearest cache for each further group of 4.
 * Scores: lanes are positions; values: lanes are elements. 4 queries x 1 vector, 2 x 2 or 1 x 4 share what they load: four accumulators of
 * 16 lanes, enough to hide the latency of fma on AVX2. No accumulator is ever split, so the grouping shows in no bit. */
#include "backend/cpu/math_kernels.inc.h"

#define GROUP 4

INLINE f32x16 load_elements(dtype type, const void *p, int32_t i) {
    if (type == DTYPE_F32) {
        return f_load((const float *)p + i);
    }
    return type == DTYPE_BF16 ? f_load_bf16((const uint16_t *)p + i) : f_load_f16((const uint16_t *)p + i);
}

/* Pages lie anywhere, so the processor does not foresee the next one: n elements from p on are asked for before they are needed. Only for a
 * tile's first queries: the others find them near. */
INLINE void prefetch(dtype type, const void *p, int32_t n) {
    int32_t n_bytes = n * (type == DTYPE_F32 ? 4 : 2);
    for (int32_t i = 0; i < n_bytes; i += 64) {
        __builtin_prefetch((const char *)p + i);
    }
}

/* Keys of blocks from..from+n, as far as they lie before end. */
INLINE void prefetch_blocks(dtype type, const attn_tile *t, int32_t query, int32_t from, int32_t n, int32_t end) {
    for (int32_t b = from; query == 0 && b < from + n && b < end; b++) {
        prefetch(type, t->k_blocks[b], t->d_head * ATTN_BLOCK);
    }
}

/* Raw products of four (query, block) pairs. Pairs that share a query or a block share its loads; a pair may stand twice. */
INLINE void dot_pairs(dtype type, const float *const q[4], const void *const k[4], int32_t d_head, float *const out[4]) {
    const float *q0 = q[0], *q1 = q[1], *q2 = q[2], *q3 = q[3];
    const void *k0 = k[0], *k1 = k[1], *k2 = k[2], *k3 = k[3];
    f32x16 s0 = f_zero(), s1 = f_zero(), s2 = f_zero(), s3 = f_zero();
    for (int32_t e = 0; e < d_head; e++) {
        s0 = f_fma(f_set1(q0[e]), load_elements(type, k0, e * ATTN_BLOCK), s0);
        s1 = f_fma(f_set1(q1[e]), load_elements(type, k1, e * ATTN_BLOCK), s1);
        s2 = f_fma(f_set1(q2[e]), load_elements(type, k2, e * ATTN_BLOCK), s2);
        s3 = f_fma(f_set1(q3[e]), load_elements(type, k3, e * ATTN_BLOCK), s3);
    }
    f_store(out[0], s0);
    f_store(out[1], s1);
    f_store(out[2], s2);
    f_store(out[3], s3);
}

/* Raw products of queries query..query+n_q with blocks first..end; scores[query][16 * block + lane]. */
INLINE void dot_group(dtype type, const attn_tile *t, int32_t query, int n_q, int32_t first, int32_t end) {
    const float *const *q = t->q + query;
    const void *const *k = t->k_blocks;
    float *s = t->scores + query * ATTN_CHUNK;
    int32_t d = t->d_head, b = first;
    if (n_q == 4) {
        for (; b < end; b++) {
            float *o = s + b * ATTN_BLOCK;
            prefetch_blocks(type, t, query, b + 1, 1, end);
            dot_pairs(type, (const float *const[]){q[0], q[1], q[2], q[3]}, (const void *const[]){k[b], k[b], k[b], k[b]}, d,
                      (float *const[]){o, o + ATTN_CHUNK, o + 2 * ATTN_CHUNK, o + 3 * ATTN_CHUNK});
        }
    } else if (n_q == 2) {
        for (; b < end; b += 2) {
            int32_t c = b + 1 < end ? b + 1 : b;
            float *o = s + b * ATTN_BLOCK, *p = s + c * ATTN_BLOCK;
            prefetch_blocks(type, t, query, b + 2, 2, end);
            dot_pairs(type, (const float *const[]){q[0], q[1], q[0], q[1]}, (const void *const[]){k[b], k[b], k[c], k[c]}, d,
                      (float *const[]){o, o + ATTN_CHUNK, p, p + ATTN_CHUNK});
        }
    } else {
        for (; b + 4 <= end; b += 4) {
            float *o = s + b * ATTN_BLOCK;
            prefetch_blocks(type, t, query, b + 4, 4, end);
            dot_pairs(type, (const float *const[]){q[0], q[0], q[0], q[0]}, (const void *const[]){k[b], k[b + 1], k[b + 2], k[b + 3]}, d,
                      (float *const[]){o, o + ATTN_BLOCK, o + 2 * ATTN_BLOCK, o + 3 * ATTN_BLOCK});
        }
        for (; b < end; b++) {
            float *o = s + b * ATTN_BLOCK;
            dot_pairs(type, (const float *const[]){q[0], q[0], q[0], q[0]}, (const void *const[]){k[b], k[b], k[b], k[b]}, d,
                      (float *const[]){o, o, o, o});
        }
    }
}

/* Lanes of a block that a query sees. */
static inline mask16 block_mask(int32_t first, int32_t end, int32_t block) {
    return m_without(m_first(end - block * ATTN_BLOCK), m_first(first - block * ATTN_BLOCK));
}

/* From raw products to weights and their sum; weights of positions not seen are not defined. */
static void soften(const attn_tile *t, int32_t query) {
    float *scores = t->scores + query * ATTN_CHUNK;
    int32_t first = t->first[query], end = t->end[query];
    int32_t block0 = first / ATTN_BLOCK, block1 = (end + ATTN_BLOCK - 1) / ATTN_BLOCK;
    f32x16 max = f_set1(-INFINITY), sum = f_zero();
    f32x16 slope = f_set1(t->slopes[query]), lane = i_to_f(i_load((const int32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
    for (int32_t b = block0; b < block1; b++) {
        f32x16 s = f_mul(f_load(scores + b * ATTN_BLOCK), f_set1(t->scale));
        if (t->soft_cap > 0.0f) {
            s = f_mul(f_set1(t->soft_cap), tanh16(f_div(s, f_set1(t->soft_cap))));
        }
        if (t->has_slopes) {
            f32x16 distance = f_add(f_set1((float)(b * ATTN_BLOCK - t->position[query])), lane);
            s = f_fma(slope, distance, s);
        }
        f_store(scores + b * ATTN_BLOCK, s);
        max = f_select(block_mask(first, end, b), f_max(max, s), max);
    }
    float highest = f_tree_max(max);
    for (int32_t b = block0; b < block1; b++) {
        f32x16 weight = exp16(f_sub(f_load(scores + b * ATTN_BLOCK), f_set1(highest)));
        f_store(scores + b * ATTN_BLOCK, weight);
        sum = f_select(block_mask(first, end, b), f_add(sum, weight), sum);
    }
    t->max[query] = highest;
    t->sum[query] = f_tree_sum(sum);
}

/* acc += weights . values over positions first..end for four (query, 16 elements from d on) pairs; a pair may stand twice. */
INLINE void weigh_pairs(dtype type, const attn_tile *t, const int32_t query[4], const int32_t d[4], int32_t first, int32_t end) {
    const float *w0 = t->scores + query[0] * ATTN_CHUNK, *w1 = t->scores + query[1] * ATTN_CHUNK;
    const float *w2 = t->scores + query[2] * ATTN_CHUNK, *w3 = t->scores + query[3] * ATTN_CHUNK;
    float *acc0 = t->acc + query[0] * t->acc_stride + d[0], *acc1 = t->acc + query[1] * t->acc_stride + d[1];
    float *acc2 = t->acc + query[2] * t->acc_stride + d[2], *acc3 = t->acc + query[3] * t->acc_stride + d[3];
    int32_t d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
    const void *const *rows = t->v_rows;
    f32x16 a0 = f_load(acc0), a1 = f_load(acc1), a2 = f_load(acc2), a3 = f_load(acc3);
    for (int32_t p = first; p < end; p++) {
        const void *v = rows[p];
        if (query[0] == 0 && d0 == 0 && p + ATTN_BLOCK < end) {
            prefetch(type, rows[p + ATTN_BLOCK], t->d_head);
        }
        a0 = f_fma(f_set1(w0[p]), load_elements(type, v, d0), a0);
        a1 = f_fma(f_set1(w1[p]), load_elements(type, v, d1), a1);
        a2 = f_fma(f_set1(w2[p]), load_elements(type, v, d2), a2);
        a3 = f_fma(f_set1(w3[p]), load_elements(type, v, d3), a3);
    }
    f_store(acc0, a0);
    f_store(acc1, a1);
    f_store(acc2, a2);
    f_store(acc3, a3);
}

/* acc += weights . values over positions first..end of queries query..query+n_q. */
INLINE void weigh_range(dtype type, int n_q, const attn_tile *t, int32_t query, int32_t first, int32_t end) {
    int32_t q = query, d = 0, n = t->acc_stride;
    if (first >= end) {
        return;
    }
    if (n_q == 4) {
        for (; d < n; d += LANES) {
            weigh_pairs(type, t, (const int32_t[]){q, q + 1, q + 2, q + 3}, (const int32_t[]){d, d, d, d}, first, end);
        }
    } else if (n_q == 2) {
        for (; d < n; d += 2 * LANES) {
            int32_t c = d + LANES < n ? d + LANES : d;
            weigh_pairs(type, t, (const int32_t[]){q, q + 1, q, q + 1}, (const int32_t[]){d, d, c, c}, first, end);
        }
    } else {
        for (; d + 4 * LANES <= n; d += 4 * LANES) {
            weigh_pairs(type, t, (const int32_t[]){q, q, q, q}, (const int32_t[]){d, d + LANES, d + 2 * LANES, d + 3 * LANES}, first, end);
        }
        for (; d < n; d += LANES) {
            weigh_pairs(type, t, (const int32_t[]){q, q, q, q}, (const int32_t[]){d, d, d, d}, first, end);
        }
    }
}

/* Values of a group of queries: positions all of them see together, those before and after one by one. */
INLINE void weigh_group(dtype type, const attn_tile *t, int32_t query, int n_q) {
    int32_t first = t->first[query], end = t->end[query];
    for (int32_t i = query + 1; i < query + n_q; i++) {
        first = t->first[i] > first ? t->first[i] : first;
        end = t->end[i] < end ? t->end[i] : end;
    }
    memset(t->acc + (int64_t)query * t->acc_stride, 0, sizeof *t->acc * (size_t)n_q * (size_t)t->acc_stride);
    if (n_q == 1 || first >= end) {
        for (int32_t i = query; i < query + n_q; i++) {
            weigh_range(type, 1, t, i, t->first[i], t->end[i]);
        }
        return;
    }
    for (int32_t i = query; i < query + n_q; i++) {
        weigh_range(type, 1, t, i, t->first[i], first);
    }
    weigh_range(type, n_q, t, query, first, end);
    for (int32_t i = query; i < query + n_q; i++) {
        weigh_range(type, 1, t, i, end, t->end[i]);
    }
}

/* One group of n_q queries (a constant), from keys to acc. */
INLINE void attend_group(dtype type, const attn_tile *t, int32_t query, int n_q) {
    int32_t first = ATTN_CHUNK, end = 0;
    for (int32_t i = query; i < query + n_q; i++) {
        t->sum[i] = 0.0f;
        if (t->first[i] < t->end[i]) {
            first = t->first[i] < first ? t->first[i] : first;
            end = t->end[i] > end ? t->end[i] : end;
        }
    }
    if (first >= end) {
        return;
    }
    dot_group(type, t, query, n_q, first / ATTN_BLOCK, (end + ATTN_BLOCK - 1) / ATTN_BLOCK);
    for (int32_t i = query; i < query + n_q; i++) {
        if (t->first[i] < t->end[i]) {
            soften(t, i);
        }
    }
    weigh_group(type, t, query, n_q);
}

INLINE void attend(dtype type, const attn_tile *t) {
    int32_t query = 0;
    for (; query + GROUP <= t->n_queries; query += GROUP) {
        attend_group(type, t, query, GROUP);
    }
    if (query + 2 <= t->n_queries) {
        attend_group(type, t, query, 2);
        query += 2;
    }
    if (query < t->n_queries) {
        attend_group(type, t, query, 1);
    }
}

#include "backend/cpu/attention_int8.inc.h"

static void attention_tile_kernel(const attn_tile *t) {
    switch (t->type) {
    case DTYPE_F32:
        attend(DTYPE_F32, t);
        break;
    case DTYPE_BF16:
        attend(DTYPE_BF16, t);
        break;
    case DTYPE_I8:
        attend_int8(t);
        break;
    default:
        attend(DTYPE_F16, t);
    }
}

static float exp1(float x) {
    float lanes[LANES];
    f_store(lanes, exp16(f_set1(x)));
    return lanes[0];
}

static float max1(float a, float b) {
    return a > b ? a : b;
}

static void attention_merge_kernel(attn_state *to, const attn_state *chunk, int32_t acc_stride) {
    if (chunk->sum == 0.0f) {
        return;
    }
    if (to->sum == 0.0f) {
        to->max = chunk->max;
        to->sum = chunk->sum;
        memcpy(to->acc, chunk->acc, sizeof *to->acc * (size_t)acc_stride);
        return;
    }
    float max = max1(to->max, chunk->max);
    float a = exp1(to->max - max), b = exp1(chunk->max - max);
    to->max = max;
    to->sum = fmaf(to->sum, a, chunk->sum * b);
    for (int32_t i = 0; i < acc_stride; i += LANES) {
        f_store(to->acc + i, f_fma(f_load(to->acc + i), f_set1(a), f_mul(f_load(chunk->acc + i), f_set1(b))));
    }
}

static void attention_finish_kernel(attn_state *s, const float *sink, int32_t d_head, float *out) {
    if (s->sum == 0.0f) {
        memset(out, 0, sizeof *out * (size_t)d_head);
        return;
    }
    float a = 1.0f;
    if (sink != NULL) {
        float max = max1(s->max, *sink);
        a = exp1(s->max - max);
        s->sum = fmaf(s->sum, a, exp1(*sink - max));
        s->max = max;
    }
    f32x16 factor = f_set1(a / s->sum);
    for (int32_t d = 0; d < d_head; d += LANES) {
        f_store_first(out + d, d_head - d, f_mul(f_load(s->acc + d), factor));
    }
}
