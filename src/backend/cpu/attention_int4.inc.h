/* int4 rows for the attention kernels; kv_rows.h defines the bytes. Part of
 * attention_kernels.inc.h. For many queries, blocks are unpacked to int8; few queries
 * multiply codes directly.
 *
 * Unpacking. Codes times their multiplier are at most 15 * 16, so the two bytes of a
 * 16-bit lane can be multiplied by the same number at once: m (code - zero) is that
 * product minus m zero, in bytes. Keys: lanes are positions, each with its own
 * multiplier. Values: a lane has four positions, whose bytes are multiplied in two
 * steps. */
#include "backend/cpu/kv_rows.h"

typedef uint16_t n_words __attribute__((vector_size(4 * N_LANES)));

INLINE ni n_mul_words(ni a, ni b) {
    return (ni)((n_words)a * (n_words)b);
}

/* Unpacks half h of the 16 positions of a group's keys. */
INLINE void unpack_keys(const uint8_t *codes, const uint8_t *forms, int32_t group, int h, int8_t *out) {
    const ni form =
        n_and(n_shr(n_load(forms + group / 4 * QUAD_BYTES + 4 * h * N_LANES), 8 * (group % 4)), n_set1(255));
    const ni m = n_add(n_and(form, n_set1(15)), n_set1(1)), times = n_or(m, n_shl(m, 16)),
             nibbles = n_set1_bytes(15);
    ni less = n_mul_words(m, n_shr(form, 4));
    less = n_or(less, n_shl(less, 8));
    less = n_or(less, n_shl(less, 16));
    UNROLL
    for (int32_t i = 0; i < 4; i++) {
        const ni both = n_load(codes + (4 * group + i) * QUAD_BYTES + 4 * h * N_LANES);
        int8_t *to = out + (8 * group + i) * QUAD_BYTES + 4 * h * N_LANES;
        n_store(to, n_sub_bytes(n_mul_words(n_and(both, nibbles), times), less));
        n_store(to + 4 * QUAD_BYTES, n_sub_bytes(n_mul_words(n_and(n_shr(both, 4), nibbles), times), less));
    }
}

#define MOST_INT4_GROUPS (DESC_MAX_HEAD / INT4_GROUP)
#define FORM_QUADS       (N_LANES / 4) /* fours of positions in a register, with four forms each */
#define WORD_NIBBLES     0x000f000f
#define WORD_ONES        0x00010001

/* Loads 16 bytes from each of FORM_QUADS places, `step` bytes apart. */
INLINE ni load_forms(const uint8_t *p, int32_t step) {
    ni forms = n_set1(0);
#if defined(__aarch64__)
    (void)step;
    return n_or(forms, n_load(p));
#else
#define PART(i) _mm_loadu_si128((const __m128i *)(const void *)(p + (i)*step))
#if N_LANES == 16
    forms = _mm512_inserti32x4(forms, PART(0), 0);
    forms = _mm512_inserti32x4(forms, PART(1), 1);
    forms = _mm512_inserti32x4(forms, PART(2), 2);
    forms = _mm512_inserti32x4(forms, PART(3), 3);
#else
    forms = _mm256_inserti128_si256(forms, PART(0), 0);
    forms = _mm256_inserti128_si256(forms, PART(1), 1);
#endif
#undef PART
    return forms;
#endif
}

/* Multipliers of a block's values for four groups, by fours of positions, as words: those
 * of positions 0 and 2, and of 1 and 3; and multipliers times zeros, in bytes. */
typedef struct int4_forms {
    uint32_t even[4][4], odd[4][4], less[4][4];
} int4_forms;

/* p: forms of the first four positions; step: bytes to the next four's. */
INLINE void find_forms(const uint8_t *p, int32_t step, int4_forms *out) {
    const ni low = n_set1(WORD_NIBBLES), ones = n_set1(WORD_ONES);
    UNROLL
    for (int quad = 0; quad < 4; quad += FORM_QUADS) {
        const ni forms = load_forms(p + quad * step, step), even = n_add(n_and(forms, low), ones),
                 odd = n_add(n_and(n_shr(forms, 8), low), ones),
                 less_odd = n_mul_words(odd, n_and(n_shr(forms, 12), low));
        n_store(out->even[quad], even);
        n_store(out->odd[quad], odd);
        n_store(out->less[quad], n_or(n_mul_words(even, n_and(n_shr(forms, 4), low)), n_shl(less_odd, 8)));
    }
}

/* Multiplies the lower four bits of each four positions' bytes by the positions'
 * multipliers; the products fit in bytes. */
INLINE ni times_each(ni codes, ni even, ni odd) {
    return n_or(n_mul_words(n_and(codes, n_set1(WORD_NIBBLES)), even),
                n_mul_words(n_and(codes, n_set1(WORD_NIBBLES << 8)), odd));
}

/* Unpacks the elements of a group for four positions' values, with form i of `forms`. */
INLINE void unpack_values(const uint8_t *codes, const int4_forms *forms, int quad, int i, int8_t *out) {
    const ni even = n_set1((int32_t)forms->even[quad][i]), odd = n_set1((int32_t)forms->odd[quad][i]),
             less = n_set1((int32_t)forms->less[quad][i]);
    UNROLL
    for (int h = 0; h < N_HALVES; h++) {
        const ni both = n_load(codes + 4 * h * N_LANES);
        n_store(out + 4 * h * N_LANES, n_sub_bytes(times_each(both, even, odd), less));
        n_store(out + QUAD_BYTES + 4 * h * N_LANES, n_sub_bytes(times_each(n_shr(both, 4), even, odd), less));
    }
}

static void unpack_int4_kernel(bool values, const uint8_t *block, int32_t width, int32_t row_bytes,
                               int8_t *out) {
    const int32_t n_groups = (width + INT4_GROUP - 1) / INT4_GROUP, stride = attn_int8_stride(width);
    if (!values) {
        for (int32_t g = 0; g < n_groups; g++) {
            for (int h = 0; h < N_HALVES; h++) {
                unpack_keys(block, block + n_groups * 4 * QUAD_BYTES, g, h, out);
            }
        }
        return;
    }
    /* backwards: the last group may write past its row's end, where other rows begin */
    for (int32_t first = (n_groups - 1) / 4 * 4, end = n_groups; first >= 0; end = first, first -= 4) {
        int4_forms forms;
        find_forms(block + n_groups * QUAD_BYTES + 4 * first, 4 * row_bytes, &forms);
        for (int32_t g = end - 1; g >= first; g--) {
            UNROLL
            for (int quad = 0; quad < 4; quad++) {
                unpack_values(block + quad * 4 * row_bytes + g * QUAD_BYTES, &forms, quad, g - first,
                              out + quad * 4 * stride + 2 * g * QUAD_BYTES);
            }
        }
    }
}

/* Multiplying codes. All sums are integers, so the result is exact. Keys: a group adds m
 * (sum of q code - z sum of q). Values: w m is at most 127 * 16 and a code at most 15, so
 * pairs of positions are multiplied as words; then the sum of w m z is subtracted. */
#if defined(__aarch64__)
#define INT4_KEY_QUERIES   0
#define INT4_VALUE_QUERIES 0
#define score_int4_tile    score_int8_tile
#define weigh_int4_tile    weigh_int8_tile
#else
#define INT4_KEY_QUERIES   (N_LANES == 16 ? 2 : 8)
#define INT4_VALUE_QUERIES 2
#define INT4_ROWS          5 /* rows of a group, with each of which keys are prefetched */

/* sum + the products of two pairs of words. */
INLINE n_sum n_add_pairs(n_sum sum, ni a, ni b) {
#if N_LANES == 16 && !defined(SIMD_EMULATE)
    return (n_sum)_mm512_dpwssd_epi32((ni)sum, a, b);
#elif N_LANES == 16
    /* called by its own name: SIMDe's alias takes other arguments */
    return (n_sum)n_add((ni)sum, simde_mm512_madd_epi16(a, b));
#else
    return (n_sum)n_add((ni)sum, _mm256_madd_epi16(a, b));
#endif
}

INLINE int32_t int4_groups(int32_t width) {
    return (width + INT4_GROUP - 1) / INT4_GROUP;
}

INLINE int32_t int4_row_bytes(int32_t width) {
    return attn_int8_stride(17 * int4_groups(width));
}

/* Computes minus the sum of a query's elements per group, as the lower of two words. */
static void sum_query_groups(const int8_t *q, int32_t n, int32_t *sums) {
    for (int32_t group = 0; group * INT4_GROUP < n; group++) {
        const int32_t end = n < (group + 1) * INT4_GROUP ? n : (group + 1) * INT4_GROUP;
        int32_t sum = 0;
        for (int32_t i = group * INT4_GROUP; i < end; i++) {
            sum += q[i];
        }
        sums[group] = -sum & 0xffff;
    }
}

/* Computes the sums of q * code of n_q queries over a group's first n_quads quads. */
INLINE void dot_int4_group(int n_q, const uint8_t *codes, const int8_t *q, int32_t stride, int32_t n_quads,
                           ni *dots) {
    UNROLL
    for (int r = 0; r < n_q; r++) {
        dots[r] = n_dot_open(n_set1(0));
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        const ni both = n_load(codes + i * QUAD_BYTES), low = n_and(both, n_set1_bytes(15)),
                 high = n_and(n_shr(both, 4), n_set1_bytes(15));
        UNROLL
        for (int r = 0; r < n_q; r++) {
            if (i < n_quads) {
                const ni quad = n_set1(quad_of(q + r * stride + 4 * i));
                dots[r] = i == 0 ? n_dot_first(false, dots[r], low, quad) : n_dot_add(dots[r], low, quad);
            }
            if (i + 4 < n_quads) {
                dots[r] = n_dot_add(dots[r], high, n_set1(quad_of(q + r * stride + 4 * (i + 4))));
            }
        }
    }
    UNROLL
    for (int r = 0; r < n_q; r++) {
        dots[r] = n_dot_close(dots[r], n_set1(0));
    }
}

/* Computes unscaled scores of n_q queries with half h of a block. sums: from
 * sum_query_groups. */
INLINE void score_int4(int n_q, const attn_tile *t, attn_group g, int32_t block, int h,
                       const int32_t (*sums)[MOST_INT4_GROUPS]) {
    const int32_t n_groups = int4_groups(t->d_head), stride = attn_int8_stride(t->d_head);
    const int8_t *q = t->q_int8 + g.query * stride;
    const uint8_t *codes = (const uint8_t *)t->k_blocks[block] + 4 * h * N_LANES,
                  *forms = codes + n_groups * 4 * QUAD_BYTES;
    const uint8_t *next = (const uint8_t *)t->fetch_k[block] + g.fetched;
    n_sum s[INT8_GROUP];
    ni dots[INT8_GROUP];
    UNROLL
    for (int r = 0; r < n_q; r++) {
        s[r] = (n_sum)n_set1(0);
    }
    for (int32_t group = 0; group < n_groups; group++) {
        const int32_t n_quads = stride / 4 - group * QUADS;
        const ni form = n_and(n_shr(n_load(forms + group / 4 * QUAD_BYTES), 8 * (group % 4)), n_set1(255)),
                 m = n_add(n_and(form, n_set1(15)), n_set1(1)), zero = n_shr(form, 4);
        if (n_quads >= QUADS) {
            dot_int4_group(n_q, codes, q, stride, QUADS, dots);
        } else {
            dot_int4_group(n_q, codes, q, stride, n_quads, dots);
        }
        for (int i = h == 0 ? 0 : INT4_ROWS; i < INT4_ROWS; i++) {
            prefetch(next + i * g.step);
        }
        UNROLL
        for (int r = 0; r < n_q; r++) {
            s[r] += (n_sum)m * n_add_pairs((n_sum)dots[r], zero, n_set1(sums[g.query + r][group]));
        }
        codes += 4 * QUAD_BYTES;
        next += INT4_ROWS * g.step;
        q += INT4_GROUP;
    }
    UNROLL
    for (int r = 0; r < n_q; r++) {
        nf scaled = nf_mul(nf_of((ni)s[r]), nf_load(t->k_scales[block] + h * N_LANES));
        nf_store(t->scores + (g.query + r) * ATTN_CHUNK + block * ATTN_BLOCK + h * N_LANES,
                 nf_mul(scaled, nf_set1(t->q_scale[g.query + r])));
    }
}

INLINE void score_int4_block(int n_q, const attn_tile *t, attn_group g, int32_t block,
                             const int32_t (*sums)[MOST_INT4_GROUPS]) {
    for (int h = 0; h < N_HALVES; h++) {
        score_int4(n_q, t, g, block, h, sums);
    }
}

#if N_LANES == 16
#define INT4_KEY_GROUP       2 /* queries at a time */
#define EACH_INT4_KEYS(CASE) CASE(1) CASE(2)
#else
#define INT4_KEY_GROUP       4
#define EACH_INT4_KEYS(CASE) CASE(1) CASE(2) CASE(3) CASE(4)
#endif

/* Computes unscaled products of all the tile's queries with blocks block0..block1 of int4
 * keys. */
static void score_int4_tile(const attn_tile *t, int32_t block0, int32_t block1) {
    const int32_t stride = attn_int8_stride(t->d_head);
    const int32_t n_groups = (t->n_queries + INT4_KEY_GROUP - 1) / INT4_KEY_GROUP;
    attn_group groups[INT4_KEY_QUERIES / INT4_KEY_GROUP] = {{0}};
    int32_t sums[INT4_KEY_QUERIES][MOST_INT4_GROUPS];
    for (int32_t i = 0; i < t->n_queries; i++) {
        sum_query_groups(t->q_int8 + i * stride, stride, sums[i]);
    }
    for (int32_t i = 0; i < n_groups; i++) {
        groups[i] = group_of(t, i, n_groups, INT4_ROWS * int4_groups(t->d_head), t->fetch_k_bytes);
    }
    for (int32_t block = block0; block < block1; block++) {
        prefetch(t->fetch_k_scales[block]);
        for (int32_t i = 0; i < n_groups; i++) {
            switch (groups[i].n) {
#define CASE(count)                                                                                          \
    case count:                                                                                              \
        score_int4_block(count, t, groups[i], block, sums);                                                  \
        break;
                EACH_INT4_KEYS(CASE)
#undef CASE
            }
        }
    }
}

/* A query's weights times the multipliers of four groups, as pairs of words: of positions
 * 0 and 2 of each four, and of 1 and 3. less: the sums of these products times zeros. */
typedef struct int4_weights {
    uint32_t even[ATTN_CHUNK / 4][4], odd[ATTN_CHUNK / 4][4];
    int32_t less[4];
} int4_weights;

/* Loads FORM_QUADS words, each into four lanes. */
INLINE ni load_each_four(const uint8_t *p) {
#if N_LANES == 16
    const __m128i words = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                    _mm512_castsi128_si512(words));
#else
    const __m128i words = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(words),
                                       _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
#endif
}

/* For four groups whose forms begin at byte `at` of each four positions' values. */
static void multiply_weights(const attn_tile *t, int32_t query, int32_t at, int32_t block0, int32_t block1,
                             int4_weights *out) {
    const int32_t step = 4 * int4_row_bytes(t->d_value);
    const ni low = n_set1(WORD_NIBBLES), bytes = n_set1(0x00ff00ff);
    int32_t lanes[N_LANES];
    n_sum less = (n_sum)n_set1(0);
    for (int32_t block = block0; block < block1; block++) {
        const uint8_t *values = (const uint8_t *)t->v_blocks[block] + at;
        for (int32_t i = 0; i < 4; i += FORM_QUADS) {
            const int32_t quad = 4 * block + i;
            const ni forms = load_forms(values + i * step, step),
                     w = load_each_four(t->weights + query * ATTN_CHUNK + 4 * quad);
            const ni even = n_mul_words(n_add(n_and(forms, low), n_set1(WORD_ONES)), n_and(w, bytes)),
                     odd = n_mul_words(n_add(n_and(n_shr(forms, 8), low), n_set1(WORD_ONES)),
                                       n_and(n_shr(w, 8), bytes));
            less = n_add_pairs(less, even, n_and(n_shr(forms, 4), low));
            less = n_add_pairs(less, odd, n_and(n_shr(forms, 12), low));
            n_store(out->even[quad], even);
            n_store(out->odd[quad], odd);
        }
    }
    n_store(lanes, (ni)less);
    for (int group = 0; group < 4; group++) {
        out->less[group] = 0;
        for (int i = group; i < N_LANES; i += 4) {
            out->less[group] += lanes[i];
        }
    }
}

/* Computes acc of n_q queries for the 32 elements of a group. step: the value of a weight
 * of 1. */
INLINE void weigh_int4(int n_q, const attn_tile *t, attn_group g, int32_t block0, int32_t block1,
                       int32_t group, const int4_weights *w, const float *step) {
    const int32_t quad_bytes = 4 * int4_row_bytes(t->d_value);
    /* [query][half][elements 0..15, 16..31][positions 0 and 2, 1 and 3] */
    n_sum s[INT4_VALUE_QUERIES][N_HALVES][2][2];
    UNROLL
    for (int i = 0; i < 4 * N_HALVES * n_q; i++) {
        (&s[0][0][0][0])[i] = (n_sum)n_set1(0);
    }
    for (int32_t block = block0; block < block1; block++) {
        const uint8_t *codes = (const uint8_t *)t->v_blocks[block] + group * QUAD_BYTES;
        const uint8_t *next = (const uint8_t *)t->fetch_v[block] + LINE_BYTES * lines_for_softmax(t);
        next += (g.fetched + 4 * group * g.step) / 2; /* the softmax has prefetched the first half */
        ROLLED
        for (int32_t quad = 4 * block; quad < 4 * block + 4; quad++) {
            UNROLL
            for (int h = 0; h < N_HALVES; h++) {
                const ni both = n_load(codes + 4 * h * N_LANES), nibbles = n_set1(WORD_NIBBLES);
                UNROLL
                for (int i = 0; i < 4; i++) {
                    const ni words = n_and(n_shr(both, 4 * i), nibbles);
                    UNROLL
                    for (int r = 0; r < n_q; r++) {
                        const ni times = n_set1((int32_t)(i < 2 ? w[r].even : w[r].odd)[quad][group % 4]);
                        s[r][h][i % 2][i / 2] = n_add_pairs(s[r][h][i % 2][i / 2], words, times);
                    }
                }
            }
            prefetch(next);
            codes += quad_bytes;
            next += g.step / 2;
        }
    }
    UNROLL
    for (int r = 0; r < n_q; r++) {
        float *out = t->acc + (int64_t)(g.query + r) * t->acc_stride + group * INT4_GROUP;
        UNROLL
        for (int i = 0; i < 2 * N_HALVES; i++) {
            if (group * INT4_GROUP + i * N_LANES < t->acc_stride) {
                n_sum *half = s[r][i % N_HALVES][i / N_HALVES];
                nf_store(out + i * N_LANES,
                         nf_mul(nf_of((ni)(half[0] + half[1] - w[r].less[group % 4])), nf_set1(step[r])));
            }
        }
    }
}

INLINE void weigh_int4_queries(int n_q, const attn_tile *t, attn_group g, int32_t block0, int32_t block1,
                               const float *step) {
    const int32_t n_groups = int4_groups(t->d_value);
    int4_weights w[INT4_VALUE_QUERIES];
    for (int32_t group = 0; group < n_groups; group++) {
        for (int r = 0; group % 4 == 0 && r < n_q; r++) {
            multiply_weights(t, g.query + r, n_groups * QUAD_BYTES + 4 * group, block0, block1, &w[r]);
        }
        weigh_int4(n_q, t, g, block0, block1, group, w, step);
    }
}

/* Softmax, and acc of all the tile's queries, over int4 values. */
static void weigh_int4_tile(const attn_tile *t, int32_t block0, int32_t block1) {
    float step[ATTN_TILE];
    soften_int8(t, block0, block1, step);
    const attn_group g = group_of(t, 0, 1, 4 * int4_groups(t->d_value), t->fetch_v_bytes);
    if (t->n_queries == 1) {
        weigh_int4_queries(1, t, g, block0, block1, step);
    } else {
        weigh_int4_queries(2, t, g, block0, block1, step);
    }
}
#endif
