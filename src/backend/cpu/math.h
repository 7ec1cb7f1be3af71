/* Kernels of everything but the products: one table for each instruction set, all with
 * the same bits.
 *
 * The plain twins (math_plain.c, attention_plain.c) define the arithmetic. Every sum runs
 * over 16 virtual lanes: lane i takes the elements i, i + 16, ... by fma in ascending
 * order, then lanes are added as ((i, i + 8), (i, i + 4), (i, i + 2), (i, i + 1)). Lanes
 * past the end add nothing. Rows are f32, need no alignment, and may have any length. out
 * may be the input row unless said otherwise. */
#ifndef CPU_MATH_H
#define CPU_MATH_H

#include <math.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/cpu/recurrences.h"
#include "core/attn_program.h"

#define ADAPTER_RANKS 4  /* rows of A that lie side by side (adapter.h) */
#define ADAPTER_ROWS  16 /* rows of one shrink at most */

#define ATTN_TILE   32 /* query rows that share the keys they load */
#define ATTN_BLOCK  16 /* positions a block of keys: lanes */
#define ATTN_BLOCKS (ATTN_CHUNK / ATTN_BLOCK)

struct attn_change; /* attention_mods.h */

/* The queries of one kv head against one chunk of positions.
 *
 * Query t sees the chunk's positions first[t]..end[t] (end excluded; empty when first >=
 * end). Position p of the chunk has its keys at lane p % 16 of k_blocks[p / 16], laid out
 * [d_head][16]. Its value is row p % 16 of v_blocks[p / 16], [16][d_value]. Lanes of
 * positions that no query sees may hold anything; their values are not read. 64 bytes
 * past a value row must be readable. */
typedef struct attn_tile {
    /* d_head: of queries and keys; acc_stride: d_value rounded up to 16 */
    int32_t n_queries, d_head, d_value, acc_stride;
    /* F32, F16, BF16, F8_E4M3, I8, or I4 for at most so many queries as math_kernels has;
     * else int4 is unpacked to I8 before. fp8 is, to F16, for many queries. is_scaled:
     * whether positions have scales, as those of F8_E4M3 and I8 do */
    dtype k_type, v_type;
    bool k_is_scaled, v_is_scaled;
    float scale, soft_cap;     /* soft_cap 0: none */
    const float *q[ATTN_TILE]; /* [d_head] each */
    int32_t first[ATTN_TILE], end[ATTN_TILE];
    /* [n_queries][ATTN_BLOCKS]: of first..end a query sees those whose bit p % 16 is set
     * in p / 16; NULL: all */
    const uint16_t *seen;
    bool has_slopes;
    float slopes[ATTN_TILE];
    /* of the query, counted from the chunk's first position; read with slopes only */
    int32_t position[ATTN_TILE];
    struct attn_change *change; /* of scores, after scale, cap and slopes, by a program; NULL: none */
    int32_t change_query;       /* the tile's first query among those of the change */
    const void *k_blocks[ATTN_BLOCKS], *v_blocks[ATTN_BLOCKS];
    /* The block of keys or values that is prefetched while a block's keys, and while its
     * values, are multiplied. */
    const void *fetch_k[ATTN_BLOCKS], *fetch_v[ATTN_BLOCKS];
    int32_t fetch_k_bytes, fetch_v_bytes; /* of such a block */
    /* [16] each, a scale a position */
    const float *k_scales[ATTN_BLOCKS], *v_scales[ATTN_BLOCKS];
    /* of the blocks that are prefetched */
    const float *fetch_k_scales[ATTN_BLOCKS], *fetch_v_scales[ATTN_BLOCKS];
    /* For types I8 and I4, whose blocks lie as in pages (kv_rows.h): of I8, keys are quads
     * [d_head / 4][16][4], and values quads [4][d_value][4] of four positions; widths are
     * rounded up to 4 in both. Queries are int8 with their scale where keys are. */
    int8_t *q_int8; /* [n_queries, attn_int8_stride], zeros after d_head */
    float q_scale[ATTN_TILE];
    int32_t q_sum[ATTN_TILE]; /* of the int8 */
    uint8_t *weights;         /* [n_queries, ATTN_CHUNK], scratch */
    float *scores;            /* [n_queries, ATTN_CHUNK], scratch */
    /* [n_queries], result; sum 0 when a query sees nothing (all scores -inf), and then
     * acc is undefined */
    float *max, *sum;
    float *acc; /* [n_queries, acc_stride], result */
} attn_tile;

/* Bytes from one query to the next in attn_tile.q_int8. */
static inline int32_t attn_int8_stride(int32_t d_head) {
    return (d_head + 3) / 4 * 4;
}
#define ATTN_INT8_TOP   126.0f /* the largest weight; 127 with the carried rounding error */
#define ATTN_INT8_LEAST 1e-30f /* weights, or elements of a head, are all 0 where none is larger than this */

/* The scale of int8 numbers whose largest magnitude is `largest`. *inverse is 1 over it,
 * or 0 where all numbers become 0. */
static inline float attn_int8_scale(float largest, float *inverse) {
    float scale = !isfinite(largest) ? NAN : largest > ATTN_INT8_LEAST ? largest / 127.0f : 0.0f;
    *inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    return scale;
}

/* Whether a query sees position p, which lies in its first..end. */
static inline bool attn_sees(const attn_tile *t, int32_t query, int32_t p) {
    return t->seen == NULL || (t->seen[query * ATTN_BLOCKS + p / ATTN_BLOCK] >> p % ATTN_BLOCK & 1) != 0;
}

/* Replaces the scores of a tile's query by what the tile's change makes of them, lanes
 * that are not seen included. Defined in attention_mods.c, for the kernels. */
void attn_change_scores(const attn_tile *t, int32_t query);

/* A softmax state of one query: weights exp(s - max), their sum, and the weighted sum of
 * values. sum 0: nothing seen yet. */
typedef struct attn_state {
    float max, sum;
    float *acc; /* [d_value rounded up to 16] */
} attn_state;

typedef struct math_kernels {
    /* out[i] = exp(x[i]): a few ulp; exp(-inf) 0, overflow inf, NaN NaN, subnormal
     * results kept. */
    void (*exp)(const float *x, int32_t n, float *out);
    void (*tanh)(const float *x, int32_t n, float *out);
    /* out[i] = f(x[i]). f has one argument and no numbers. */
    void (*activate)(activation f, const float *x, int32_t n, float *out);
    /* out[i] = f(gate[i]) * up[i]. limit: of activations that have one. out may be
     * gate or up. */
    void (*gate_up)(activation f, float limit, const float *gate, const float *up, int32_t n, float *out);
    void (*xielu)(const xielu_desc *d, const float *x, int32_t n, float *out); /* out may be x */
    /* x[i] = scale * x[i]; then with cap > 0: cap * tanh(x[i] / cap). In place. */
    void (*scale_cap)(float scale, float cap, int32_t n, float *x);
    /* The largest of x[0..n), n > 0, as a zero +0. NaN where some number is NaN or
     * infinite. */
    float (*largest)(const float *x, int32_t n);
    /* x[i] += scale * y[i], rounded once. */
    void (*add_scaled)(float scale, const float *y, int32_t n, float *x);
    /* x[r * stride + i] += y[i], i in 0..n, for each of n_rows rows. */
    void (*add_to_rows)(const float *y, int32_t n, int32_t n_rows, float *x, int32_t stride);
    /* out[r * out_stride + i] = y[r * y_stride + i], i in 0..n, for each of n_rows rows,
     * past the caches where rows are aligned to 64 bytes. */
    void (*stream_rows)(const float *y, int32_t y_stride, int32_t n, int32_t n_rows, float *out,
                        int32_t out_stride);
    /* out = x / sqrt(mean(x^2) + eps) * weight. */
    void (*norm_rms)(const float *x, const float *weight, float eps, int32_t n, float *out);
    /* out = (x - mean) / sqrt(var + eps) * weight + bias; bias may be NULL. */
    void (*norm_layer)(const float *x, const float *weight, const float *bias, float eps, int32_t n,
                       float *out);
    /* Rotates the pairs (a[i], b[i]) of a head by the angles with these cosines and
     * sines: a' = a c - b s, b' = b c + a s, products rounded first. ROPE_HALVES: a =
     * x[0..n_pairs), b = x[n_pairs..2 n_pairs). ROPE_NEIGHBOURS: a = x[2i], b = x[2i +
     * 1]. */
    void (*rotate)(rope_pairs pairs, const float *cosines, const float *sines, int32_t n_pairs, float *x);

    /* out[i] = x[i] as F16 or BF16, to nearest even. */
    void (*narrow)(dtype type, const float *x, int32_t n, uint16_t *out);
    /* out[i] = x[i], of BF16. */
    void (*widen)(const uint16_t *x, int32_t n, float *out);
    /* out[i] = x[i] / s as int8, to nearest even, where s = the largest |x| / 127.
     * Returns s: 0 where that largest is at most ATTN_INT8_LEAST, NaN where some x is not
     * finite; out is then all zeros. *sum: the sum of out. */
    float (*narrow_int8)(const float *x, int32_t n, int8_t *out, int32_t *sum);
    /* A block of 16 rows of int4, `width` elements in row_bytes bytes each, as they lie
     * in pages (kv_rows.h), to a block of int8 as it lies in an attn_tile. May write up
     * to 28 elements a row past the block's end. */
    void (*unpack_int4)(bool values, const uint8_t *block, int32_t width, int32_t row_bytes, int8_t *out);
    /* The f16 that n codes of fp8 stand for, n a multiple of 32. NULL: kernels read codes
     * as fast. */
    void (*unpack_fp8)(const uint8_t *codes, int32_t n, uint16_t *out);
    /* up to how many queries attention_tile reads keys, and values, of int4 */
    int32_t int4_key_queries, int4_value_queries;

    /* A block of 16 latents as it lies in an attn_tile as keys, [..][16], to the same as
     * values: their first d_value elements, [16][d_value]. type: F32, F16, BF16, F8_E4M3 or
     * I8, whose blocks are quads. */
    void (*values_of_keys)(dtype type, const void *keys, int32_t d_value, void *values);

    void (*attention_tile)(const attn_tile *t);
    /* t->scores = raw products of the queries with the keys of blocks that some query
     * sees. */
    void (*attention_products)(const attn_tile *t);
    /* Each of n states of `to` = itself merged with a later chunk's. Empty states change
     * nothing; acc of an empty `to` is overwritten. */
    void (*attention_merge)(attn_state *to, const attn_state *chunk, int32_t n, int32_t acc_stride);
    /* out[0..d_value) = acc / (sum + exp(sink)), zeros when the state is empty. sink: one
     * logit, or NULL. Changes *s. */
    void (*attention_finish)(attn_state *s, const float *sink, int32_t d_value, float *out);
    /* The decays a and times t of n elements x, their bias added (decay_form). a may be
     * x. */
    void (*state_decays)(const decay_form *f, const float *x, int32_t n, float *t, float *a);
    /* q = x times scale / sqrt(sum x^2 + eps), or times scale where eps is 0. */
    void (*state_query)(const float *x, float eps, float scale, int32_t n, float *q);
    /* k the same with scale 1, and ak = a k: each element its own a, or a[0]. */
    void (*state_key)(const float *x, float eps, const float *a, bool per_channel, int32_t n, float *k,
                      float *ak);
    void (*state_rows)(const state_rows *s);
    void (*state_scan)(const scan_rows *s);
    void (*state_conv)(const conv_rows *s);
    void (*state_lru)(const lru_rows *s);
    /* The two products of an adapter (adapter.h): t = A h, and y += scale * (B t). A and B
     * are of type F32, F16 or BF16, and are widened exactly.
     *
     * t[i][r], r in 0..n_ranks, = the sum over k of A[r, k] h[i][k], for each of n_rows
     * rows: as every sum of this file, over k padded to 16 by zeros of A. a: at the first of
     * these ranks, a multiple of ADAPTER_RANKS. next: where the caller will read as many
     * bytes after a, for prefetching; or NULL. */
    void (*shrink)(dtype type, const uint8_t *a, const uint8_t *next, int32_t n_in, int32_t n_ranks,
                   const float *const *h, int32_t n_rows, float *const *t);
    /* y[i][c], c in 0..16 n_blocks, = fma(scale, s, y) with s = fma(B[c, r], t[i][r], s)
     * over r = 0 .. rank - 1, ascending, from s = 0. b: at the first of these columns. Rows of
     * t and y are that many floats apart. next: as above, after b. */
    void (*expand)(dtype type, const uint8_t *b, const uint8_t *next, int32_t rank, int32_t n_blocks,
                   float scale, const float *t, int32_t t_stride, int32_t n_rows, float *y,
                   int32_t y_stride);
    /* Runs attention programs; their exp and tanh are those above. */
    attn_run_fn *run_program;
} math_kernels;

extern const math_kernels math_plain;
#if defined(__x86_64__)
extern const math_kernels math_avx2, math_avx512;
#elif defined(__aarch64__)
extern const math_kernels math_neon;
#endif

/* The runners of programs (core/attn_program_run.inc.h), compiled for each instruction
 * set; attn_run_plain is core's. */
attn_run_fn attn_run_avx2, attn_run_avx512, attn_run_neon;

/* Defined in adapter_plain.c, for math_plain.c's table. */
void adapter_shrink_plain(dtype type, const uint8_t *a, const uint8_t *next, int32_t n_in, int32_t n_ranks,
                          const float *const *h, int32_t n_rows, float *const *t);
void adapter_expand_plain(dtype type, const uint8_t *b, const uint8_t *next, int32_t rank, int32_t n_blocks,
                          float scale, const float *t, int32_t t_stride, int32_t n_rows, float *y,
                          int32_t y_stride);
/* Defined in attention_plain.c, for math_plain.c's table. */
void attention_tile_plain(const attn_tile *t);
void attention_products_plain(const attn_tile *t);
void attention_values_of_keys_plain(dtype type, const void *keys, int32_t d_value, void *values);
void attention_unpack_int4_plain(bool values, const uint8_t *block, int32_t width, int32_t row_bytes,
                                 int8_t *out);
void attention_merge_plain(attn_state *to, const attn_state *chunk, int32_t n, int32_t acc_stride);
void attention_finish_plain(attn_state *s, const float *sink, int32_t d_value, float *out);

#endif
