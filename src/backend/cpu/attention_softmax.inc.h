/* Attention's softmax within one chunk: turns unscaled products into weights, for all
 * queries of a tile. Part of attention_kernels.inc.h; attention_plain.c defines what is
 * computed. */

/* The lanes of a block that a query sees. */
static inline mask16 block_mask(const attn_tile *t, int32_t query, int32_t block) {
    if (t->seen != NULL) {
        return m_of_bits(t->seen[query * ATTN_BLOCKS + block]);
    }
    return m_without(m_first(t->end[query] - block * ATTN_BLOCK),
                     m_first(t->first[query] - block * ATTN_BLOCK));
}

/* exp16 of n vectors whose lanes are at most 0. */
INLINE void exp_below(int n, f32x16 *x) {
    mask16 normal = m_le(f_set1(EXP_NORMAL), x[0]);
    UNROLL
    for (int i = 1; i < n; i++) {
        normal = m_and(normal, m_le(f_set1(EXP_NORMAL), x[i]));
    }
    if (m_all(normal)) {
        exp_normals(n, x);
        return;
    }
    for (int i = 0; i < n; i++) {
        x[i] = exp16(x[i]);
    }
}

/* Whether products need more than the scale to become scores. */
static inline bool has_changes(const attn_tile *t) {
    return t->soft_cap > 0.0f || t->has_slopes || t->change != NULL;
}

/* cap tanh(s / cap), faster if all lanes are far below the cap, as is usual. */
INLINE f32x16 cap16(f32x16 cap, f32x16 s) {
    f32x16 x = f_div(s, cap), a = f_abs(x);
    return f_mul(cap, m_all(m_lt(a, f_set1(TANH_SMALL))) ? with_sign_of(tanh_small16(a), x) : tanh16(x));
}

/* Turns products of blocks block0..block1 into scores, with cap, slope and program. */
static void change_scores(const attn_tile *t, int32_t query, int32_t block0, int32_t block1) {
    float *scores = t->scores + query * ATTN_CHUNK;
    f32x16 slope = f_set1(t->slopes[query]),
           lane = i_to_f(i_load((const int32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
    for (int32_t b = block0; b < block1; b++) {
        f32x16 s = f_mul(f_load(scores + b * ATTN_BLOCK), f_set1(t->scale));
        if (t->soft_cap > 0.0f) {
            s = cap16(f_set1(t->soft_cap), s);
        }
        if (t->has_slopes) {
            f32x16 distance = f_add(f_set1((float)(b * ATTN_BLOCK - t->position[query])), lane);
            s = f_fma(slope, distance, s);
        }
        f_store(scores + b * ATTN_BLOCK, s);
    }
    if (t->change != NULL) {
        attn_change_scores(t, query);
    }
}

/* Whether a query sees all of a block, so that no mask is needed. */
static inline bool sees_all(const attn_tile *t, int32_t query, int32_t block) {
    return t->first[query] <= block * ATTN_BLOCK && (block + 1) * ATTN_BLOCK <= t->end[query] &&
           (t->seen == NULL || t->seen[query * ATTN_BLOCKS + block] == 0xffff);
}

#define LINE_BYTES 64

/* Number of lines of the block in fetch_v to prefetch during the softmax, before int8
 * values are weighed. The softmax takes half of a chunk's time, in which memory would be
 * idle. */
INLINE int32_t lines_for_softmax(const attn_tile *t) {
    return t->fetch_v_bytes / LINE_BYTES / 2;
}

/* queries at a time, so that others run while one waits for its instructions */
#define SOFTMAX_ROWS (N_LANES == 16 ? 4 : 2)

/* The end of the run of blocks from block0 on that all n_q queries see entirely. */
static int32_t whole_blocks(const attn_tile *t, int32_t n_q, int32_t query, int32_t block0, int32_t block1) {
    int32_t end = block1 * ATTN_BLOCK;
    for (int32_t q = query; q < query + n_q; q++) {
        if (t->seen != NULL || t->first[q] > block0 * ATTN_BLOCK) {
            return block0;
        }
        end = t->end[q] < end ? t->end[q] : end;
    }
    return end / ATTN_BLOCK > block0 ? end / ATTN_BLOCK : block0;
}

/* Updates max of n_q queries with their scores in blocks block..end. */
INLINE void highest_scores(bool is_whole, int n_q, const attn_tile *t, int32_t query, int32_t block,
                           int32_t end, float factor, f32x16 *max) {
    for (; block < end; block++) {
        UNROLL
        for (int i = 0; i < n_q; i++) {
            const float *s = t->scores + (query + i) * ATTN_CHUNK + block * ATTN_BLOCK;
            const f32x16 higher = f_max(max[i], f_mul(f_load(s), f_set1(factor)));
            max[i] = is_whole || sees_all(t, query + i, block)
                         ? higher
                         : f_select(block_mask(t, query + i, block), higher, max[i]);
        }
    }
}

/* Stores the weights of n_q queries in blocks block..end, adds them up, and finds the
 * largest one stored. */
INLINE void store_weights(dtype type, bool is_whole, int n_q, const attn_tile *t, int32_t query,
                          int32_t block, int32_t end, float factor, const float *highest, f32x16 *sum,
                          f32x16 *most) {
    const int32_t n_lines = type == DTYPE_I8 ? lines_for_softmax(t) : 0;
    const int32_t line0 = n_lines * query / t->n_queries, line1 = n_lines * (query + n_q) / t->n_queries;
    for (; block < end; block++) {
        float *s = t->scores + query * ATTN_CHUNK + block * ATTN_BLOCK;
        f32x16 weight[MOST_EXPS];
        for (int32_t i = line0; i < line1; i++) {
            prefetch((const uint8_t *)t->fetch_v[block] + i * LINE_BYTES);
        }
        UNROLL
        for (int i = 0; i < n_q; i++) {
            weight[i] = f_sub(f_mul(f_load(s + i * ATTN_CHUNK), f_set1(factor)), f_set1(highest[i]));
        }
        exp_below(n_q, weight);
        UNROLL
        for (int i = 0; i < n_q; i++) {
            f32x16 stored = type != DTYPE_F32 ? f_mul(weight[i], f_load(t->v_scales[block])) : weight[i];
            if (is_whole || sees_all(t, query + i, block)) {
                sum[i] = f_add(sum[i], weight[i]);
            } else {
                mask16 seen = block_mask(t, query + i, block);
                sum[i] = f_select(seen, f_add(sum[i], weight[i]), sum[i]);
                stored = type == DTYPE_I8 ? f_select(seen, stored, f_zero()) : stored;
            }
            f_store(s + i * ATTN_CHUNK, stored);
            most[i] = f_max(most[i], stored);
        }
    }
}

/* Turns products of blocks block0..block1 into weights and their sum, for n_q queries
 * side by side. Weights of positions that are not seen are undefined. For values with
 * scales, a weight is stored times its value's scale; for int8 values it is 0 if the
 * position is not seen, and top is the largest. */
INLINE void softmax(dtype type, int n_q, const attn_tile *t, int32_t query, int32_t block0, int32_t block1,
                    float *top) {
    const float factor = has_changes(t) ? 1.0f : t->scale;
    const int32_t whole = whole_blocks(t, n_q, query, block0, block1);
    float highest[MOST_EXPS];
    f32x16 max[MOST_EXPS], sum[MOST_EXPS], most[MOST_EXPS];
    UNROLL
    for (int i = 0; i < n_q; i++) {
        max[i] = f_set1(-INFINITY);
        sum[i] = most[i] = f_zero();
    }
    highest_scores(true, n_q, t, query, block0, whole, factor, max);
    highest_scores(false, n_q, t, query, whole, block1, factor, max);
    UNROLL
    for (int i = 0; i < n_q; i++) {
        highest[i] = f_tree_max(max[i]);
        /* the sum is then 0, or NaN if a score is, which f_max may lose */
        highest[i] = highest[i] == -INFINITY ? 0.0f : highest[i];
    }
    store_weights(type, true, n_q, t, query, block0, whole, factor, highest, sum, most);
    store_weights(type, false, n_q, t, query, whole, block1, factor, highest, sum, most);
    UNROLL
    for (int i = 0; i < n_q; i++) {
        t->max[query + i] = highest[i];
        t->sum[query + i] = f_tree_sum(sum[i]);
        top[i] = type == DTYPE_I8 ? f_tree_max(most[i]) : 0.0f;
    }
}

/* Softmax of all the tile's queries. */
INLINE void soften_all(dtype type, const attn_tile *t, int32_t block0, int32_t block1, float *top) {
    int32_t query = 0;
    for (int32_t i = 0; has_changes(t) && i < t->n_queries; i++) {
        change_scores(t, i, block0, block1);
    }
    for (; query + SOFTMAX_ROWS <= t->n_queries; query += SOFTMAX_ROWS) {
        softmax(type, SOFTMAX_ROWS, t, query, block0, block1, top + query);
    }
    for (; query < t->n_queries; query++) {
        softmax(type, 1, t, query, block0, block1, top + query);
    }
}

static void soften_floats(const attn_tile *t, int32_t block0, int32_t block1) {
    float top[ATTN_TILE];
    soften_all(DTYPE_F32, t, block0, block1, top);
}

/* Softmax for fp8 values. */
static void soften_scaled(const attn_tile *t, int32_t block0, int32_t block1) {
    float top[ATTN_TILE];
    soften_all(DTYPE_F8_E4M3, t, block0, block1, top);
}
