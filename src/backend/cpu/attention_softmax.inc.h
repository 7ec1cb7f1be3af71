/* Attention's softmax within one chunk: raw products become weights, for all queries of a
 * tile. Part of attention_kernels.inc.h; attention_plain.c defines what is computed. */

/* The lanes of a block that a query sees. */
static inline mask16 block_mask(const attn_tile *t, int32_t query, int32_t block) {
    if (t->seen != NULL) {
        return m_of_bits(t->seen[query * ATTN_BLOCKS + block]);
    }
    return m_without(m_first(t->end[query] - block * ATTN_BLOCK),
                     m_first(t->first[query] - block * ATTN_BLOCK));
}

/* exp16 for lanes that are at most 0. */
INLINE f32x16 exp_below16(f32x16 x) {
    return m_all(m_le(f_set1(EXP_NORMAL), x)) ? exp_normal16(x) : exp16(x);
}

/* Whether raw products need more than the scale to become scores. */
static inline bool has_changes(const attn_tile *t) {
    return t->soft_cap > 0.0f || t->has_slopes || t->change != NULL;
}

/* cap tanh(s / cap), quicker where all lanes are far below the cap, as they nearly always
 * are. */
INLINE f32x16 cap16(f32x16 cap, f32x16 s) {
    f32x16 x = f_div(s, cap), a = f_abs(x);
    return f_mul(cap, m_all(m_lt(a, f_set1(TANH_SMALL))) ? with_sign_of(tanh_small16(a), x) : tanh16(x));
}

/* Turns raw products of blocks block0..block1 into scores, with cap, slope and
 * program. */
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

/* True when a query sees all of a block, which then needs no mask. */
static inline bool sees_all(const attn_tile *t, int32_t query, int32_t block) {
    return t->first[query] <= block * ATTN_BLOCK && (block + 1) * ATTN_BLOCK <= t->end[query] &&
           (t->seen == NULL || t->seen[query * ATTN_BLOCKS + block] == 0xffff);
}

#define LINE_BYTES 64

/* How many lines of the block that fetch_v names are prefetched during the softmax before
 * int8 values are weighed. The softmax takes half of a chunk's time, and memory would be
 * idle. */
INLINE int32_t lines_for_softmax(const attn_tile *t) {
    return t->fetch_v_bytes / LINE_BYTES / 2;
}

#define SOFTMAX_ROWS 2 /* queries at a time: one waits for its instructions while another runs */

/* Turns raw products of blocks block0..block1 into weights and their sum, n_q queries
 * side by side. Weights of positions that are not seen are undefined. For values with
 * scales a weight is stored times its value's
 * scale; for int8 values 0 where a position is not seen, and top is the largest. */
INLINE void softmax(dtype type, int n_q, const attn_tile *t, int32_t query, int32_t block0, int32_t block1,
                    float *top) {
    const float factor = has_changes(t) ? 1.0f : t->scale;
    float *scores = t->scores + query * ATTN_CHUNK, highest[SOFTMAX_ROWS];
    f32x16 max[SOFTMAX_ROWS], sum[SOFTMAX_ROWS], most[SOFTMAX_ROWS];
    const int32_t n_lines = type == DTYPE_I8 ? lines_for_softmax(t) : 0;
    const int32_t line0 = n_lines * query / t->n_queries, line1 = n_lines * (query + n_q) / t->n_queries;
    UNROLL
    for (int i = 0; i < n_q; i++) {
        max[i] = f_set1(-INFINITY);
        sum[i] = most[i] = f_zero();
    }
    for (int32_t b = block0; b < block1; b++) {
        UNROLL
        for (int i = 0; i < n_q; i++) {
            f32x16 higher =
                f_max(max[i], f_mul(f_load(scores + i * ATTN_CHUNK + b * ATTN_BLOCK), f_set1(factor)));
            max[i] =
                sees_all(t, query + i, b) ? higher : f_select(block_mask(t, query + i, b), higher, max[i]);
        }
    }
    UNROLL
    for (int i = 0; i < n_q; i++) {
        highest[i] = f_tree_max(max[i]);
        /* the sum is then 0, or NaN where a score is: f_max may lose it */
        highest[i] = highest[i] == -INFINITY ? 0.0f : highest[i];
    }
    for (int32_t b = block0; b < block1; b++) {
        for (int32_t i = line0; i < line1; i++) {
            prefetch((const uint8_t *)t->fetch_v[b] + i * LINE_BYTES);
        }
        UNROLL
        for (int i = 0; i < n_q; i++) {
            float *s = scores + i * ATTN_CHUNK + b * ATTN_BLOCK;
            f32x16 weight = exp_below16(f_sub(f_mul(f_load(s), f_set1(factor)), f_set1(highest[i])));
            f32x16 stored = type != DTYPE_F32 ? f_mul(weight, f_load(t->v_scales[b])) : weight;
            if (sees_all(t, query + i, b)) {
                sum[i] = f_add(sum[i], weight);
            } else {
                mask16 seen = block_mask(t, query + i, b);
                sum[i] = f_select(seen, f_add(sum[i], weight), sum[i]);
                stored = type == DTYPE_I8 ? f_select(seen, stored, f_zero()) : stored;
            }
            f_store(s, stored);
            most[i] = f_max(most[i], stored);
        }
    }
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

/* For values of fp8. */
static void soften_scaled(const attn_tile *t, int32_t block0, int32_t block1) {
    float top[ATTN_TILE];
    soften_all(DTYPE_F8_E4M3, t, block0, block1, top);
}
