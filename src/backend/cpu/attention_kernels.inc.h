/* Attention kernels over one chunk, 16 lanes at a time; attention_plain.c defines what
 * they compute. Included by math_avx2.c, math_avx512.c and math_neon.c.
 *
 * Scores: lanes are positions. Values: lanes are elements. Both are rows of numbers times
 * vectors of 16 lanes, with a tile of sums, queries x vectors, in registers. No sum is
 * ever split, so the grouping of queries changes no bit.
 *
 * Bytes: pages can be anywhere in memory, so the processor cannot predict the next one.
 * While the keys of a block are multiplied, and while its values are, a block chosen by
 * attention_pages.c is prefetched. Each group of queries prefetches its share, row by
 * row, so that memory and multipliers work at the same time. */
#include "backend/cpu/math_kernels.inc.h"
#include "backend/cpu/simd_int.h"

/* Vectors in a tile with n_rows queries: enough sums to hide the latency of fma, in 8
 * registers of 256 bits or 4 of 512. */
#if N_LANES == 16
#define TILE_VECTORS(n_rows) ((n_rows) <= 4 ? 4 : 2)
#else
#define TILE_VECTORS(n_rows) ((n_rows) == 1 ? 4 : (n_rows) <= 3 ? 2 : 1)
#endif
#define MOST_VECTORS 4
#define GROUP        N_FLOAT_ROWS /* most queries in a group */

typedef f32x16 attn_sums[GROUP][MOST_VECTORS];

#define MOST_GROUPS ((ATTN_TILE + GROUP - 1) / GROUP)

/* A group of queries that share loads. All of them see positions first..end; if there are
 * no such positions the range is empty. Some of them see some_first..some_end. With each
 * row that it multiplies, the group prefetches `step` bytes of each block to prefetch,
 * starting at byte `fetched`. */
typedef struct attn_group {
    int32_t query, n, first, end, some_first, some_end, fetched, step;
} attn_group;

/* FORGET makes the compiler reload values from memory instead of using registers. */
#if N_LANES == 8
#define FORGET() __asm__ volatile("" ::: "memory")
#else
#define FORGET() ((void)0)
#endif

/* Makes the compiler address memory at fixed distances from p through p only; otherwise
 * it keeps more pointers than there are registers. */
#define ONE_POINTER(p) __asm__("" : "+r"(p))

/* Prefetches into L2: the bytes are used half a chunk later. */
INLINE void prefetch(const void *p) {
    __builtin_prefetch(p, 0, 2);
}

INLINE int32_t element_bytes(dtype type) {
    return type == DTYPE_F32 ? 4 : type == DTYPE_F8_E4M3 ? 1 : 2;
}

/* Loads 16 elements as floats, in the lane order that is cheapest to load. */
INLINE f32x16 load_elements(dtype type, const uint8_t *p) {
    if (type == DTYPE_F32) {
        return f_load((const float *)(const void *)p);
    }
    if (type == DTYPE_F8_E4M3) {
        return f_load_e4m3(p);
    }
    return type == DTYPE_BF16 ? f_load_bf16_apart((const uint16_t *)(const void *)p)
                              : f_load_f16((const uint16_t *)(const void *)p);
}

/* Load and store sums in that lane order; in memory they are in element order. */
INLINE f32x16 load_sums(dtype type, const float *p) {
    return type == DTYPE_BF16 ? f_apart(f_load(p)) : f_load(p);
}

INLINE void store_sums(dtype type, float *p, f32x16 sums) {
    f_store(p, type == DTYPE_BF16 ? f_together(sums) : sums);
}

/* sums += element k of each query times each vector. */
INLINE void add_products(dtype type, int n_q, int n_v, const float *const *numbers, int32_t k,
                         const uint8_t *const *vectors, attn_sums sums) {
    f32x16 pair[2];
    UNROLL
    for (int c = 0; c < n_v; c++) {
        if (type == DTYPE_F8_E4M3 && n_v > 1 && c % 2 == 0) {
            f_load_e4m3_pair(vectors[c], pair); /* a value's vectors are adjacent */
        }
        f32x16 v = type == DTYPE_F8_E4M3 && n_v > 1 ? pair[c % 2] : load_elements(type, vectors[c]);
        UNROLL
        for (int r = 0; r < n_q; r++) {
            sums[r][c] = f_fma(f_set1(numbers[r][k]), v, sums[r][c]);
            KEEP(sums[r][c]);
        }
        if (n_v > 1 && n_q * n_v > 4) {
            /* 12 registers hold sums, so none are left to keep loaded numbers for the
             * next vector */
            FORGET();
        }
    }
}

/* sums += the products of rows e and e + 1 of fp8 keys, which are widened together. */
INLINE void add_fp8_rows(int n_q, int n_b, const float *const *numbers, int32_t e, const uint8_t *const *keys,
                         attn_sums sums) {
    UNROLL
    for (int c = 0; c < n_b; c++) {
        f32x16 rows[2];
        f_load_e4m3_pair(keys[c], rows);
        UNROLL
        for (int i = 0; i < 2; i++) {
            UNROLL
            for (int r = 0; r < n_q; r++) {
                sums[r][c] = f_fma(f_set1(numbers[r][e + i]), rows[i], sums[r][c]);
                KEEP(sums[r][c]);
            }
        }
        if (n_b > 1 && n_q * n_b > 4) {
            FORGET(); /* as in add_products */
        }
    }
}

/* Computes unscaled products of n_q queries with n_b blocks of keys. */
INLINE void dot_blocks(dtype type, int n_q, int n_b, const attn_tile *t, attn_group g, int32_t block) {
    const float *q[GROUP];
    const uint8_t *keys[MOST_VECTORS], *fetch[MOST_VECTORS];
    attn_sums sums;
    UNROLL
    for (int c = 0; c < n_b; c++) {
        keys[c] = t->k_blocks[block + c];
        fetch[c] = (const uint8_t *)t->fetch_k[block + c] + g.fetched;
    }
    UNROLL
    for (int r = 0; r < n_q; r++) {
        q[r] = t->q[g.query + r];
        UNROLL
        for (int c = 0; c < n_b; c++) {
            sums[r][c] = f_zero();
        }
    }
    const int n_rows = type == DTYPE_F8_E4M3 ? 2 : 1; /* fp8 widths are even */
    const bool is_scaled = type == DTYPE_F8_E4M3 || (type == DTYPE_F16 && t->k_is_scaled);
    for (int32_t e = 0; e < t->d_head; e += n_rows) {
        if (type == DTYPE_F8_E4M3) {
            add_fp8_rows(n_q, n_b, q, e, keys, sums);
        } else {
            add_products(type, n_q, n_b, q, e, keys, sums);
        }
        UNROLL
        for (int c = 0; c < n_b; c++) {
            prefetch(fetch[c]);
            fetch[c] += n_rows * g.step;
            keys[c] += n_rows * ATTN_BLOCK * element_bytes(type);
        }
    }
    UNROLL
    for (int r = 0; r < n_q; r++) {
        UNROLL
        for (int c = 0; c < n_b; c++) {
            f32x16 s = is_scaled ? f_mul(sums[r][c], f_load(t->k_scales[block + c])) : sums[r][c];
            store_sums(type, t->scores + (g.query + r) * ATTN_CHUNK + (block + c) * ATTN_BLOCK, s);
        }
    }
}

/* Start of the sums of values: 0, or the contents of acc. */
typedef enum sums_from { FROM_ZERO, FROM_ACC } sums_from;

/* acc of n_q queries = (FROM_ACC: +=) weights . values over the group's positions, for
 * n_v vectors of elements from d on. */
INLINE void weigh_vectors(dtype type, int n_q, int n_v, const attn_tile *t, attn_group g, sums_from from,
                          int32_t d) {
    const int32_t size = element_bytes(type), row = t->d_value * size;
    attn_sums sums;
    UNROLL
    for (int r = 0; r < n_q; r++) {
        UNROLL
        for (int c = 0; c < n_v; c++) {
            sums[r][c] = from == FROM_ZERO
                             ? f_zero()
                             : load_sums(type, t->acc + (g.query + r) * t->acc_stride + d + c * LANES);
        }
    }
    for (int32_t p = g.first; p < g.end;) {
        int32_t block = p / ATTN_BLOCK, offset = p % ATTN_BLOCK,
                last = g.end < p - offset + ATTN_BLOCK ? g.end : p - offset + ATTN_BLOCK;
        const float *at = t->scores + g.query * ATTN_CHUNK + p;
        const uint8_t *values = (const uint8_t *)t->v_blocks[block] + offset * row + d * size;
        const uint8_t *next = (const uint8_t *)t->fetch_v[block] + g.fetched + d * g.step;
        for (; p < last; p++, at++) {
            const uint8_t *vectors[MOST_VECTORS];
            const float *weights[GROUP];
            ONE_POINTER(at);
            UNROLL
            for (int r = 0; r < n_q; r++) {
                weights[r] = at + r * ATTN_CHUNK;
            }
            UNROLL
            for (int c = 0; c < n_v; c++) {
                vectors[c] = values + c * LANES * size;
                prefetch(next + c * ATTN_BLOCK * g.step);
            }
            add_products(type, n_q, n_v, weights, 0, vectors, sums);
            values += row;
            next += g.step;
        }
    }
    UNROLL
    for (int r = 0; r < n_q; r++) {
        UNROLL
        for (int c = 0; c < n_v; c++) {
            store_sums(type, t->acc + (g.query + r) * t->acc_stride + d + c * LANES, sums[r][c]);
        }
    }
}

/* Multiplies blocks block..end of the keys, as many at a time as fit in registers. */
INLINE void dot_group(dtype type, int n_q, const attn_tile *t, attn_group g, int32_t block, int32_t end) {
    for (; block + TILE_VECTORS(n_q) <= end; block += TILE_VECTORS(n_q)) {
        dot_blocks(type, n_q, TILE_VECTORS(n_q), t, g, block);
    }
    for (; TILE_VECTORS(n_q) > 1 && block < end; block++) {
        dot_blocks(type, n_q, 1, t, g, block);
    }
}

INLINE void weigh_group(dtype type, int n_q, const attn_tile *t, attn_group g, sums_from from) {
    int32_t d = 0;
    for (; d + TILE_VECTORS(n_q) * LANES <= t->acc_stride; d += TILE_VECTORS(n_q) * LANES) {
        weigh_vectors(type, n_q, TILE_VECTORS(n_q), t, g, from, d);
    }
    for (; TILE_VECTORS(n_q) > 1 && d < t->acc_stride; d += LANES) {
        weigh_vectors(type, n_q, 1, t, g, from, d);
    }
}

/* Calls CASE with the group's number of queries as a constant. */
#if N_FLOAT_ROWS == 8
#define EACH_GROUP(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
#else
#define EACH_GROUP(CASE) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#endif

_Static_assert(GROUP == 6 || GROUP == 8, "EACH_GROUP has them all");

INLINE void dot_any(dtype type, const attn_tile *t, attn_group g, int32_t block, int32_t end) {
    switch (g.n) {
#define CASE(count)                                                                                          \
    case count:                                                                                              \
        dot_group(type, count, t, g, block, end);                                                            \
        break;
        EACH_GROUP(CASE)
#undef CASE
    }
}

INLINE void weigh_any(dtype type, const attn_tile *t, attn_group g, sums_from from) {
    switch (g.n) {
#define CASE(count)                                                                                          \
    case count:                                                                                              \
        weigh_group(type, count, t, g, from);                                                                \
        break;
        EACH_GROUP(CASE)
#undef CASE
    }
}

#include "backend/cpu/attention_softmax.inc.h"

/* Group i of n groups of nearly equal size, since a group of one or two would leave the
 * multipliers idle; and its share of prefetching a block of `bytes` bytes with n_rows
 * rows. */
INLINE attn_group group_of(const attn_tile *t, int32_t i, int32_t n, int32_t n_rows, int32_t bytes) {
    const int32_t row_bytes = (bytes + n_rows - 1) / n_rows;
    int32_t query = t->n_queries * i / n, next = t->n_queries * (i + 1) / n;
    attn_group g = {.query = query,
                    .n = next - query,
                    .end = ATTN_CHUNK,
                    .some_first = ATTN_CHUNK,
                    .fetched = n_rows * row_bytes * i / n,
                    .step = (row_bytes + n - 1) / n};
    for (int32_t q = query; q < next; q++) {
        g.first = t->first[q] > g.first ? t->first[q] : g.first;
        g.end = t->end[q] < g.end ? t->end[q] : g.end;
        g.some_first = t->first[q] < g.some_first ? t->first[q] : g.some_first;
        g.some_end = t->end[q] > g.some_end ? t->end[q] : g.some_end;
    }
    if (g.first >= g.end) {
        g.first = g.end = ATTN_CHUNK;
    }
    return g;
}

/* For each of the group's queries separately: acc += weights . values over its positions
 * within from..to. */
INLINE void weigh_alone(dtype type, const attn_tile *t, attn_group g, int32_t from, int32_t to) {
    for (int32_t q = g.query; q < g.query + g.n; q++) {
        int32_t first = t->first[q] > from ? t->first[q] : from, end = t->end[q] < to ? t->end[q] : to;
        if (first < end) {
            weigh_group(type, 1, t, (attn_group){.query = q, .n = 1, .first = first, .end = end}, FROM_ACC);
        }
    }
}

/* The end of the run of positions from p on that a query sees, or does not see. */
static int32_t stretch_end(const uint16_t *seen, int32_t p, int32_t end) {
    uint32_t same = (seen[p / ATTN_BLOCK] >> p % ATTN_BLOCK & 1) != 0 ? 0xffffu : 0u;
    while (p < end) {
        uint32_t others = (seen[p / ATTN_BLOCK] ^ same) >> p % ATTN_BLOCK;
        if (others != 0) {
            p += __builtin_ctz(others);
            break;
        }
        p += ATTN_BLOCK - p % ATTN_BLOCK;
    }
    return p < end ? p : end;
}

/* Like weigh_alone, for queries that see only some of first..end. */
INLINE void weigh_seen(dtype type, const attn_tile *t, attn_group g, int32_t from, int32_t to) {
    for (int32_t q = g.query; q < g.query + g.n; q++) {
        const uint16_t *seen = t->seen + q * ATTN_BLOCKS;
        int32_t p = t->first[q] > from ? t->first[q] : from, end = t->end[q] < to ? t->end[q] : to;
        for (int32_t next; p < end; p = next) {
            next = stretch_end(seen, p, end);
            if ((seen[p / ATTN_BLOCK] >> p % ATTN_BLOCK & 1) != 0) {
                weigh_group(type, 1, t, (attn_group){.query = q, .n = 1, .first = p, .end = next}, FROM_ACC);
            }
        }
    }
}

/* acc of a group's queries += weights . values, if a query may see only some of its
 * first..end: runs that all of them see together, the positions in between for one query
 * at a time. */
INLINE void attn_pv_seen(dtype type, const attn_tile *t, attn_group g) {
    uint16_t all[ATTN_BLOCKS];
    int32_t first = ATTN_CHUNK, end = 0;
    for (int32_t q = g.query; q < g.query + g.n; q++) {
        for (int32_t b = 0; b < ATTN_BLOCKS; b++) {
            all[b] = (uint16_t)(t->seen[q * ATTN_BLOCKS + b] & (q > g.query ? all[b] : 0xffffu));
        }
        first = t->first[q] < first ? t->first[q] : first;
        end = t->end[q] > end ? t->end[q] : end;
    }
    for (int32_t p = first, next; p < end; p = next) {
        next = stretch_end(all, p, end);
        if ((all[p / ATTN_BLOCK] >> p % ATTN_BLOCK & 1) != 0) {
            g.first = p;
            g.end = next;
            weigh_any(type, t, g, FROM_ACC);
        } else {
            weigh_seen(type, t, g, p, next);
        }
    }
}

/* acc of a group's queries = weights . values: the positions that all of them see
 * together, the positions before and after for one query at a time. */
INLINE void attn_pv(dtype type, const attn_tile *t, attn_group g) {
    const bool all_first = t->seen == NULL && g.some_first == g.first && g.first < g.end;
    if (!all_first) {
        memset(t->acc + (int64_t)g.query * t->acc_stride, 0,
               sizeof *t->acc * (size_t)g.n * (size_t)t->acc_stride);
    }
    if (t->seen != NULL) {
        attn_pv_seen(type, t, g);
        return;
    }
    if (g.some_first < g.first) {
        weigh_alone(type, t, g, 0, g.first);
    }
    weigh_any(type, t, g, all_first ? FROM_ZERO : FROM_ACC);
    if (g.some_end > g.end) {
        weigh_alone(type, t, g, g.end, ATTN_CHUNK);
    }
}

/* The range of blocks that at least one query sees. */
static bool seen_blocks(const attn_tile *t, int32_t *block0, int32_t *block1) {
    int32_t first = ATTN_CHUNK, end = 0;
    for (int32_t i = 0; i < t->n_queries; i++) {
        t->sum[i] = 0.0f;
        if (t->first[i] < t->end[i]) {
            first = t->first[i] < first ? t->first[i] : first;
            end = t->end[i] > end ? t->end[i] : end;
        }
    }
    *block0 = first / ATTN_BLOCK;
    *block1 = (end + ATTN_BLOCK - 1) / ATTN_BLOCK;
    return first < end;
}

INLINE void fetch_scales(dtype type, const float *const *scales, int32_t block0, int32_t block1) {
    for (int32_t b = block0; type == DTYPE_F8_E4M3 && b < block1; b++) {
        prefetch(scales[b]);
    }
}

#if N_LANES == 8
/* If two groups share rows of fp8, the first one widens them, which takes as long as two
 * queries' products, and keeps them as floats for the second. */
typedef enum kept_use { KEPT_WRITTEN, KEPT_READ } kept_use;

INLINE f32x16 kept_row(kept_use use, const uint8_t *codes, float *kept) {
    if (use == KEPT_READ) {
        return f_load(kept);
    }
    const f32x16 row = f_load_e4m3(codes);
    f_store(kept, row);
    return row;
}

/* Computes unscaled products of n_q queries with a block of keys. kept: [d_head][16]. */
INLINE void dot_kept(kept_use use, int n_q, const attn_tile *t, attn_group g, int32_t block, float *kept) {
    const uint8_t *keys = t->k_blocks[block], *fetch = (const uint8_t *)t->fetch_k[block] + g.fetched;
    const float *q[GROUP];
    f32x16 sums[GROUP];
    UNROLL
    for (int r = 0; r < n_q; r++) {
        q[r] = t->q[g.query + r];
        sums[r] = f_zero();
    }
    for (int32_t e = 0; e < t->d_head; e++) {
        const f32x16 row = kept_row(use, keys + e * ATTN_BLOCK, kept + e * ATTN_BLOCK);
        prefetch(fetch);
        fetch += g.step;
        UNROLL
        for (int r = 0; r < n_q; r++) {
            sums[r] = f_fma(f_set1(q[r][e]), row, sums[r]);
            KEEP(sums[r]);
        }
    }
    UNROLL
    for (int r = 0; r < n_q; r++) {
        f_store(t->scores + (g.query + r) * ATTN_CHUNK + block * ATTN_BLOCK,
                f_mul(sums[r], f_load(t->k_scales[block])));
    }
}

/* acc of n_q queries = weights . values for elements d..d + 16. kept: [256][16]. */
INLINE void weigh_kept(kept_use use, int n_q, const attn_tile *t, attn_group g, int32_t d, float *kept) {
    const float *weights[GROUP];
    f32x16 sums[GROUP];
    UNROLL
    for (int r = 0; r < n_q; r++) {
        weights[r] = t->scores + (g.query + r) * ATTN_CHUNK;
        sums[r] = f_zero();
    }
    const int32_t row_bytes = t->d_value;
    for (int32_t p = g.first; p < g.end;) {
        const int32_t block = p / ATTN_BLOCK, offset = p % ATTN_BLOCK, next = p - offset + ATTN_BLOCK,
                      last = g.end < next ? g.end : next;
        const uint8_t *values = (const uint8_t *)t->v_blocks[block] + offset * row_bytes + d;
        const uint8_t *fetch = (const uint8_t *)t->fetch_v[block] + g.fetched + d * g.step;
        for (; p < last; p++) {
            const f32x16 row = kept_row(use, values, kept + p * LANES);
            prefetch(fetch);
            UNROLL
            for (int r = 0; r < n_q; r++) {
                sums[r] = f_fma(f_set1(weights[r][p]), row, sums[r]);
                KEEP(sums[r]);
            }
            values += row_bytes;
            fetch += g.step;
        }
    }
    UNROLL
    for (int r = 0; r < n_q; r++) {
        f_store(t->acc + (g.query + r) * t->acc_stride + d, sums[r]);
    }
}

INLINE void dot_kept_any(kept_use use, const attn_tile *t, attn_group g, int32_t block, float *kept) {
    switch (g.n) {
#define CASE(count)                                                                                          \
    case count:                                                                                              \
        dot_kept(use, count, t, g, block, kept);                                                             \
        break;
        EACH_GROUP(CASE)
#undef CASE
    }
}

INLINE void weigh_kept_any(kept_use use, const attn_tile *t, attn_group g, int32_t d, float *kept) {
    switch (g.n) {
#define CASE(count)                                                                                          \
    case count:                                                                                              \
        weigh_kept(use, count, t, g, d, kept);                                                               \
        break;
        EACH_GROUP(CASE)
#undef CASE
    }
}

/* Computes unscaled products of two groups. False: fewer groups, or keys too wide. */
static bool score_fp8_pair(const attn_tile *t, const attn_group *groups, int32_t n_groups, int32_t block0,
                           int32_t block1) {
    float kept[DESC_MAX_HEAD * ATTN_BLOCK];
    if (n_groups != 2 || t->d_head > DESC_MAX_HEAD) {
        return false;
    }
    for (int32_t block = block0; block < block1; block++) {
        dot_kept_any(KEPT_WRITTEN, t, groups[0], block, kept);
        dot_kept_any(KEPT_READ, t, groups[1], block, kept);
    }
    return true;
}

/* Computes acc of two groups whose queries all see the same positions. False: there are
 * not two, or they don't. */
static bool weigh_fp8_pair(const attn_tile *t) {
    float kept[ATTN_CHUNK * LANES];
    const int32_t n_groups = (t->n_queries + GROUP - 1) / GROUP;
    for (int32_t i = 1; i < t->n_queries; i++) {
        if (t->first[i] != t->first[0] || t->end[i] != t->end[0]) {
            return false;
        }
    }
    if (n_groups != 2 || t->seen != NULL) {
        return false;
    }
    const attn_group a = group_of(t, 0, 2, t->d_value, t->fetch_v_bytes),
                     b = group_of(t, 1, 2, t->d_value, t->fetch_v_bytes);
    for (int32_t d = 0; d < t->acc_stride; d += LANES) {
        weigh_kept_any(KEPT_WRITTEN, t, a, d, kept);
        weigh_kept_any(KEPT_READ, t, b, d, kept);
    }
    return true;
}
#else
static bool score_fp8_pair(const attn_tile *t, const attn_group *groups, int32_t n_groups, int32_t block0,
                           int32_t block1) {
    (void)t, (void)groups, (void)n_groups, (void)block0, (void)block1;
    return false;
}
static bool weigh_fp8_pair(const attn_tile *t) {
    (void)t;
    return false;
}
#endif

/* Computes unscaled products of the tile's queries with blocks block0..block1 of keys. */
INLINE void score_floats(dtype type, const attn_tile *t, int32_t block0, int32_t block1) {
    const int32_t n_groups = (t->n_queries + GROUP - 1) / GROUP;
    attn_group groups[MOST_GROUPS];
    for (int32_t i = 0; i < n_groups; i++) {
        groups[i] = group_of(t, i, n_groups, t->d_head, t->fetch_k_bytes);
    }
    fetch_scales(type, t->fetch_k_scales, block0, block1);
    if (type == DTYPE_F8_E4M3 && score_fp8_pair(t, groups, n_groups, block0, block1)) {
        return;
    }
    for (int32_t block = block0; block < block1; block += MOST_VECTORS) {
        for (int32_t i = 0; i < n_groups; i++) {
            dot_any(type, t, groups[i], block, block1 - block < MOST_VECTORS ? block1 : block + MOST_VECTORS);
        }
    }
}

#if defined(__AVX512F__)
/* Converts 32 codes of E4M3, not NaN, to halves of 2^-8 times their value
 * (core/half.h). */
static inline ni e4m3_halves(const uint8_t *p) {
    const ni words = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return n_and(_mm512_slli_epi16(words, 7), _mm512_set1_epi16((short)0xbfff));
}
#endif

#if defined(__AVX2__) && !defined(SIMD_EMULATE)
static void unpack_fp8_kernel(const uint8_t *codes, int32_t n, uint16_t *out) {
    for (int32_t i = 0; i < n; i += 2 * N_LANES) {
        n_store(out + i, e4m3_halves(codes + i));
    }
}
#define UNPACK_FP8 unpack_fp8_kernel
#else
#define UNPACK_FP8 NULL
#endif

/* Computes acc of all the tile's queries. */
INLINE void weigh_floats(dtype type, const attn_tile *t) {
    const int32_t n_groups = (t->n_queries + GROUP - 1) / GROUP;
    fetch_scales(type, t->fetch_v_scales, 0, ATTN_BLOCKS);
    if (type == DTYPE_F8_E4M3 && weigh_fp8_pair(t)) {
        return;
    }
    for (int32_t i = 0; i < n_groups; i++) {
        attn_pv(type, t, group_of(t, i, n_groups, t->d_value, t->fetch_v_bytes));
    }
}

#include "backend/cpu/attention_int8.inc.h"

#include "backend/cpu/attention_int4.inc.h"

#include "backend/cpu/attention_latent.inc.h"

static void score_tile(const attn_tile *t, int32_t block0, int32_t block1) {
    switch (t->k_type) {
    case DTYPE_F32:
        score_floats(DTYPE_F32, t, block0, block1);
        break;
    case DTYPE_BF16:
        score_floats(DTYPE_BF16, t, block0, block1);
        break;
    case DTYPE_F8_E4M3:
        score_floats(DTYPE_F8_E4M3, t, block0, block1);
        break;
    case DTYPE_I8:
        score_int8_tile(t, block0, block1);
        break;
    case DTYPE_I4:
        score_int4_tile(t, block0, block1);
        break;
    default:
        score_floats(DTYPE_F16, t, block0, block1);
    }
}

/* Softmax, and the weighted sums of values. */
static void weigh_tile(const attn_tile *t, int32_t block0, int32_t block1) {
    switch (t->v_type) {
    case DTYPE_F32:
        soften_floats(t, block0, block1);
        weigh_floats(DTYPE_F32, t);
        break;
    case DTYPE_BF16:
        soften_floats(t, block0, block1);
        weigh_floats(DTYPE_BF16, t);
        break;
    case DTYPE_F8_E4M3:
        soften_scaled(t, block0, block1);
        weigh_floats(DTYPE_F8_E4M3, t);
        break;
    case DTYPE_I8:
        weigh_int8_tile(t, block0, block1);
        break;
    case DTYPE_I4:
        weigh_int4_tile(t, block0, block1);
        break;
    default:
        (t->v_is_scaled ? soften_scaled : soften_floats)(t, block0, block1);
        weigh_floats(DTYPE_F16, t);
    }
}

static void attention_tile_kernel(const attn_tile *t) {
    int32_t block0, block1;
    if (seen_blocks(t, &block0, &block1)) {
        score_tile(t, block0, block1);
        weigh_tile(t, block0, block1);
    }
}

static void attention_products_kernel(const attn_tile *t) {
    int32_t block0, block1;
    if (seen_blocks(t, &block0, &block1)) {
        score_tile(t, block0, block1);
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

/* Merges the chunk's state into `to`, with factors a for `to` and b for the chunk. */
INLINE void merge_state(attn_state *to, const attn_state *chunk, float a, float b, int32_t acc_stride) {
    if (chunk->sum == 0.0f) {
        return;
    }
    if (to->sum == 0.0f) {
        to->max = chunk->max;
        to->sum = chunk->sum;
        memcpy(to->acc, chunk->acc, sizeof *to->acc * (size_t)acc_stride);
        return;
    }
    to->max = max1(to->max, chunk->max);
    to->sum = fmaf(to->sum, a, chunk->sum * b);
    for (int32_t i = 0; i < acc_stride; i += LANES) {
        f_store(to->acc + i, f_fma(f_load(to->acc + i), f_set1(a), f_mul(f_load(chunk->acc + i), f_set1(b))));
    }
}

/* Computes the exponentials of LANES states together, which is faster than one by one. */
static void attention_merge_kernel(attn_state *to, const attn_state *chunk, int32_t n, int32_t acc_stride) {
    for (int32_t first = 0; first < n; first += LANES) {
        const int32_t count = n - first < LANES ? n - first : LANES;
        float a[LANES] = {0}, b[LANES] = {0};
        for (int32_t i = 0; i < count; i++) {
            const attn_state *x = &to[first + i], *y = &chunk[first + i];
            const bool both = x->sum != 0.0f && y->sum != 0.0f;
            const float max = both ? max1(x->max, y->max) : 0.0f;
            a[i] = both ? x->max - max : 0.0f;
            b[i] = both ? y->max - max : 0.0f;
        }
        f_store(a, exp16(f_load(a)));
        f_store(b, exp16(f_load(b)));
        for (int32_t i = 0; i < count; i++) {
            merge_state(&to[first + i], &chunk[first + i], a[i], b[i], acc_stride);
        }
    }
}

static void attention_finish_kernel(attn_state *s, const float *sink, int32_t d_value, float *out) {
    if (s->sum == 0.0f) {
        memset(out, 0, sizeof *out * (size_t)d_value);
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
    for (int32_t d = 0; d < d_value; d += LANES) {
        f_store_first(out + d, d_value - d, f_mul(f_load(s->acc + d), factor));
    }
}
