/* Attention over one chunk, 16 lanes at a time; attention_plain.c says what is computed. Included by math_avx2.c and math_avx512.c after
 * math_kernels.inc.h.
 *
 * Bytes: the chunk's keys and values once for a tile of up to 32 queries, out of the nearest cache for each further group of 4.
 * Scores: lanes are positions; 4 queries x 1 block, 2 x 2 or 1 x 4 share what they load, 4 accumulators of 16 lanes each way.
 * Values: lanes are elements; 4 queries share each value loaded. No accumulator is ever split, so the grouping shows in no bit. */

#define GROUP 4

INLINE f32x16 load_elements(dtype type, const void *p, int32_t i) {
    if (type == DTYPE_F32) {
        return f_load((const float *)p + i);
    }
    return type == DTYPE_BF16 ? f_load_bf16((const uint16_t *)p + i) : f_load_f16((const uint16_t *)p + i);
}

/* Raw products q . k of n_q queries x n_b blocks (both constants) into scores[query][16 * block + lane]. */
INLINE void dot_blocks(dtype type, int n_q, int n_b, const float *const *q, const void *const *blocks, int32_t d_head, float *scores) {
    f32x16 s[GROUP][GROUP];
    for (int i = 0; i < n_q; i++) {
        for (int b = 0; b < n_b; b++) {
            s[i][b] = f_zero();
        }
    }
    for (int32_t e = 0; e < d_head; e++) {
        f32x16 k[GROUP];
        for (int b = 0; b < n_b; b++) {
            k[b] = load_elements(type, blocks[b], e * ATTN_BLOCK);
        }
        for (int i = 0; i < n_q; i++) {
            f32x16 x = f_set1(q[i][e]);
            for (int b = 0; b < n_b; b++) {
                s[i][b] = f_fma(x, k[b], s[i][b]);
            }
        }
    }
    for (int i = 0; i < n_q; i++) {
        for (int b = 0; b < n_b; b++) {
            f_store(scores + i * ATTN_CHUNK + b * ATTN_BLOCK, s[i][b]);
        }
    }
}

/* Raw products of queries query..query+n_q with blocks first..end. */
INLINE void dot_group(dtype type, const attn_tile *t, int32_t query, int n_q, int32_t first, int32_t end) {
    float *scores = t->scores + query * ATTN_CHUNK;
    int32_t b = first;
    if (n_q == 1) {
        for (; b + 4 <= end; b += 4) {
            dot_blocks(type, 1, 4, t->q + query, t->k_blocks + b, t->d_head, scores + b * ATTN_BLOCK);
        }
    }
    if (n_q <= 2) {
        for (; b + 2 <= end; b += 2) {
            dot_blocks(type, n_q, 2, t->q + query, t->k_blocks + b, t->d_head, scores + b * ATTN_BLOCK);
        }
    }
    for (; b < end; b++) {
        dot_blocks(type, n_q, 1, t->q + query, t->k_blocks + b, t->d_head, scores + b * ATTN_BLOCK);
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

/* acc += weights . values over positions first..end for n_q queries (a constant) and n_d * 16 elements from d on. */
INLINE void weigh_block(dtype type, int n_q, int n_d, const attn_tile *t, int32_t query, int32_t first, int32_t end, int32_t d) {
    float *acc = t->acc + (int64_t)query * t->acc_stride + d;
    const float *weights = t->scores + query * ATTN_CHUNK;
    f32x16 a[GROUP][GROUP];
    for (int i = 0; i < n_q; i++) {
        for (int j = 0; j < n_d; j++) {
            a[i][j] = f_load(acc + i * t->acc_stride + j * LANES);
        }
    }
    for (int32_t p = first; p < end; p++) {
        f32x16 v[GROUP];
        for (int j = 0; j < n_d; j++) {
            v[j] = load_elements(type, t->v_rows[p], d + j * LANES);
        }
        for (int i = 0; i < n_q; i++) {
            f32x16 w = f_set1(weights[i * ATTN_CHUNK + p]);
            for (int j = 0; j < n_d; j++) {
                a[i][j] = f_fma(w, v[j], a[i][j]);
            }
        }
    }
    for (int i = 0; i < n_q; i++) {
        for (int j = 0; j < n_d; j++) {
            f_store(acc + i * t->acc_stride + j * LANES, a[i][j]);
        }
    }
}

INLINE void weigh_range(dtype type, int n_q, const attn_tile *t, int32_t query, int32_t first, int32_t end) {
    int32_t d = 0;
    if (n_q == 1) {
        for (; d + 4 * LANES <= t->acc_stride; d += 4 * LANES) {
            weigh_block(type, 1, 4, t, query, first, end, d);
        }
    }
    if (n_q <= 2) {
        for (; d + 2 * LANES <= t->acc_stride; d += 2 * LANES) {
            weigh_block(type, n_q, 2, t, query, first, end, d);
        }
    }
    for (; d < t->acc_stride; d += LANES) {
        weigh_block(type, n_q, 1, t, query, first, end, d);
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

static void attention_tile_kernel(const attn_tile *t) {
    switch (t->type) {
    case DTYPE_F32:
        attend(DTYPE_F32, t);
        break;
    case DTYPE_BF16:
        attend(DTYPE_BF16, t);
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
