/* Kernels of everything but the products: one table per instruction set, all with the
 * same bits.
 *
 * The plain twins (math_plain.c, attention_plain.c) define the arithmetic. Every sum runs
 * over 16 virtual lanes: lane i adds elements i, i + 16, ... by fma in ascending order;
 * then lanes are added as ((i, i + 8), (i, i + 4), (i, i + 2), (i, i + 1)). Lanes past
 * the end add nothing. Rows are f32, need no alignment, and may have any length. out may
 * be the input row unless noted otherwise. */
#ifndef CPU_MATH_H
#define CPU_MATH_H

#include <math.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/cpu/recurrences.h"
#include "core/attn_program.h"

#define ADAPTER_RANKS 4  /* rows of A that are interleaved (adapter.h) */
#define ADAPTER_ROWS  16 /* most rows in a shrink */

#define ATTN_TILE   32 /* query rows that share loaded keys */
#define ATTN_BLOCK  16 /* positions in a block of keys: SIMD lanes */
#define ATTN_BLOCKS (ATTN_CHUNK / ATTN_BLOCK)

struct attn_change; /* attention_mods.h */

/* The queries of one kv head against one chunk of positions.
 *
 * Query t sees positions first[t]..end[t] of the chunk (end excluded; empty if first >=
 * end). The key of position p is lane p % 16 of k_blocks[p / 16], laid out [d_head][16];
 * its value is row p % 16 of v_blocks[p / 16], [16][d_value]. Lanes of positions that no
 * query sees may hold anything; their values are not read. 64 bytes after a value row
 * must be readable. */
typedef struct attn_tile {
    /* d_head: of queries and keys; acc_stride: d_value rounded up to 16 */
    int32_t n_queries, d_head, d_value, acc_stride;
    /* F32, F16, BF16, F8_E4M3, I8, or I4 for up to math_kernels.int4_.._queries queries.
     * For more queries, int4 is unpacked to I8 and fp8 to F16 first. is_scaled: positions
     * have scales, as in F8_E4M3 and I8 */
    dtype k_type, v_type;
    bool k_is_scaled, v_is_scaled;
    float scale, soft_cap;     /* soft_cap 0: no cap */
    const float *q[ATTN_TILE]; /* [d_head] each */
    int32_t first[ATTN_TILE], end[ATTN_TILE];
    /* [n_queries][ATTN_BLOCKS] bitmaps: within first..end a query sees p if bit p % 16 of
     * element p / 16 is set; NULL: all of first..end */
    const uint16_t *seen;
    bool has_slopes;
    float slopes[ATTN_TILE];
    /* of each query, relative to the chunk's first position; read with slopes only */
    int32_t position[ATTN_TILE];
    struct attn_change *change; /* program that changes scores after scale, cap and slopes; NULL: none */
    int32_t change_query;       /* index of the tile's first query in the change */
    const void *k_blocks[ATTN_BLOCKS], *v_blocks[ATTN_BLOCKS];
    /* Blocks to prefetch: fetch_k while the keys of the block with that index are
     * multiplied, fetch_v while its values are. */
    const void *fetch_k[ATTN_BLOCKS], *fetch_v[ATTN_BLOCKS];
    int32_t fetch_k_bytes, fetch_v_bytes; /* bytes of such a block */
    /* [16] each: a scale per position */
    const float *k_scales[ATTN_BLOCKS], *v_scales[ATTN_BLOCKS];
    /* scales of the blocks to prefetch */
    const float *fetch_k_scales[ATTN_BLOCKS], *fetch_v_scales[ATTN_BLOCKS];
    /* Types I8 and I4 have their blocks as in pages (kv_rows.h). I8 keys are quads
     * [d_head / 4][16][4], I8 values quads [4][d_value][4] of four positions; widths are
     * rounded up to 4. Queries are int8 with a scale if keys are. */
    int8_t *q_int8; /* [n_queries, attn_int8_stride], zeros after d_head */
    float q_scale[ATTN_TILE];
    int32_t q_sum[ATTN_TILE]; /* sum of each query's int8 elements */
    uint8_t *weights;         /* [n_queries, ATTN_CHUNK], scratch */
    float *scores;            /* [n_queries, ATTN_CHUNK], scratch */
    /* [n_queries] results; sum 0: the query sees nothing (all scores -inf), and acc is
     * undefined */
    float *max, *sum;
    float *acc; /* [n_queries, acc_stride] results */
} attn_tile;

/* Stride in bytes of queries in attn_tile.q_int8. */
static inline int32_t attn_int8_stride(int32_t d_head) {
    return (d_head + 3) / 4 * 4;
}
#define ATTN_INT8_TOP   126.0f /* the largest weight; the carried rounding error can make it 127 */
#define ATTN_INT8_LEAST 1e-30f /* weights, or elements of a head, are all 0 if no magnitude is larger */

/* The scale of int8 numbers whose largest magnitude is `largest`. *inverse is its
 * reciprocal, or 0 if all numbers become 0. */
static inline float attn_int8_scale(float largest, float *inverse) {
    float scale = !isfinite(largest) ? NAN : largest > ATTN_INT8_LEAST ? largest / 127.0f : 0.0f;
    *inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    return scale;
}

/* Whether a query sees position p, which is within its first..end. */
static inline bool attn_sees(const attn_tile *t, int32_t query, int32_t p) {
    return t->seen == NULL || (t->seen[query * ATTN_BLOCKS + p / ATTN_BLOCK] >> p % ATTN_BLOCK & 1) != 0;
}

/* Applies the tile's program to the scores of a query, including lanes that it does not
 * see. Defined in attention_mods.c, for the kernels. */
void attn_change_scores(const attn_tile *t, int32_t query);

/* Softmax state of one query: the maximum score, the sum of weights exp(s - max), and the
 * weighted sum of values. sum 0: nothing seen yet. */
typedef struct attn_state {
    float max, sum;
    float *acc; /* [d_value rounded up to 16] */
} attn_state;

typedef struct math_kernels {
    /* out[i] = exp(x[i]), within a few ulp; exp(-inf) = 0, overflow gives inf, NaN stays
     * NaN, subnormal results are kept. */
    void (*exp)(const float *x, int32_t n, float *out);
    void (*tanh)(const float *x, int32_t n, float *out);
    /* out[i] = f(x[i]) for an f of one argument without parameters. */
    void (*activate)(activation f, const float *x, int32_t n, float *out);
    /* out[i] = f(gate[i]) * up[i]. limit: for activations with a limit. out may be gate
     * or up. */
    void (*gate_up)(activation f, float limit, const float *gate, const float *up, int32_t n, float *out);
    void (*xielu)(const xielu_desc *d, const float *x, int32_t n, float *out); /* out may be x */
    /* x[i] = scale * x[i]; if cap > 0, then cap * tanh(x[i] / cap). In place. */
    void (*scale_cap)(float scale, float cap, int32_t n, float *x);
    /* The largest of x[0..n), n > 0, with zeros as +0. NaN if any number is NaN or
     * infinite. */
    float (*largest)(const float *x, int32_t n);
    /* x[i] += scale * y[i], rounded once. */
    void (*add_scaled)(float scale, const float *y, int32_t n, float *x);
    /* x[r * stride + i] += y[i], i in 0..n, for each of n_rows rows. */
    void (*add_to_rows)(const float *y, int32_t n, int32_t n_rows, float *x, int32_t stride);
    /* out[r * out_stride + i] = y[r * y_stride + i], i in 0..n, for each of n_rows rows;
     * bypasses the caches if rows are aligned to 64 bytes. */
    void (*stream_rows)(const float *y, int32_t y_stride, int32_t n, int32_t n_rows, float *out,
                        int32_t out_stride);
    /* out = x / sqrt(mean(x^2) + eps) * weight. */
    void (*norm_rms)(const float *x, const float *weight, float eps, int32_t n, float *out);
    /* out = (x - mean) / sqrt(var + eps) * weight + bias; bias may be NULL. */
    void (*norm_layer)(const float *x, const float *weight, const float *bias, float eps, int32_t n,
                       float *out);
    /* Rotates the pairs (a[i], b[i]) of a head by angles with these cosines and sines: a'
     * = a c - b s, b' = b c + a s, products rounded first. ROPE_HALVES: a =
     * x[0..n_pairs), b = x[n_pairs..2 n_pairs). ROPE_NEIGHBOURS: a = x[2i], b = x[2i +
     * 1]. */
    void (*rotate)(rope_pairs pairs, const float *cosines, const float *sines, int32_t n_pairs, float *x);

    /* out[i] = x[i] as F16 or BF16, rounded to nearest even. */
    void (*narrow)(dtype type, const float *x, int32_t n, uint16_t *out);
    /* out[i] = x[i], from BF16. */
    void (*widen)(const uint16_t *x, int32_t n, float *out);
    /* out[i] = x[i] / s as int8, to nearest even, with s = the largest |x| / 127. Returns
     * s. s is 0 if that largest is at most ATTN_INT8_LEAST, NaN if some x is not finite;
     * out is then all 0. *sum: the sum of out. */
    float (*narrow_int8)(const float *x, int32_t n, int8_t *out, int32_t *sum);
    /* Converts a block of 16 rows of int4, `width` elements in row_bytes bytes each, from
     * the layout of pages (kv_rows.h) to an int8 block of an attn_tile. May write up to
     * 28 elements per row past the block's end. */
    void (*unpack_int4)(bool values, const uint8_t *block, int32_t width, int32_t row_bytes, int8_t *out);
    /* Converts n codes of fp8 to f16; n is a multiple of 32. NULL: kernels read codes as
     * fast. */
    void (*unpack_fp8)(const uint8_t *codes, int32_t n, uint16_t *out);
    /* most queries for which attention_tile reads keys, and values, as int4 */
    int32_t int4_key_queries, int4_value_queries;

    /* Transposes a block of 16 latents from keys of an attn_tile, [..][16], to values:
     * their first d_value elements, [16][d_value]. type: F32, F16, BF16, F8_E4M3 or I8,
     * whose blocks are quads. */
    void (*values_of_keys)(dtype type, const void *keys, int32_t d_value, void *values);

    void (*attention_tile)(const attn_tile *t);
    /* t->scores = unscaled products of the queries with the keys, for blocks that some
     * query sees. */
    void (*attention_products)(const attn_tile *t);
    /* Merges each of n states `to` with the state of a later chunk. Empty states change
     * nothing; acc of an empty `to` is overwritten. */
    void (*attention_merge)(attn_state *to, const attn_state *chunk, int32_t n, int32_t acc_stride);
    /* out[0..d_value) = acc / (sum + exp(sink)); zeros if the state is empty. sink: one
     * logit, or NULL. Changes *s. */
    void (*attention_finish)(attn_state *s, const float *sink, int32_t d_value, float *out);
    /* Decays a and times t of n elements x, after their bias is added (decay_form). a may
     * be x. */
    void (*state_decays)(const decay_form *f, const float *x, int32_t n, float *t, float *a);
    /* q = x times scale / sqrt(sum x^2 + eps), or times scale if eps is 0. */
    void (*state_query)(const float *x, float eps, float scale, int32_t n, float *q);
    /* k = x as state_query with scale 1, and ak = a k, with an a per element if
     * per_channel, else a[0]. */
    void (*state_key)(const float *x, float eps, const float *a, bool per_channel, int32_t n, float *k,
                      float *ak);
    void (*state_rows)(const state_rows *s);
    void (*state_scan)(const scan_rows *s);
    void (*state_conv)(const conv_rows *s);
    void (*state_lru)(const lru_rows *s);
    /* The two products of an adapter (adapter.h): t = A h, and y += scale * (B t). A and
     * B are F32, F16 or BF16, widened exactly.
     *
     * t[i][r], r in 0..n_ranks, = the sum over k of A[r, k] h[i][k], for each of n_rows
     * rows, summed like every sum of this file, over k padded to 16 by zeros in A. a: A
     * at the first of these ranks, a multiple of ADAPTER_RANKS. next: memory to prefetch,
     * as many bytes as are read of a; or NULL. */
    void (*shrink)(dtype type, const uint8_t *a, const uint8_t *next, int32_t n_in, int32_t n_ranks,
                   const float *const *h, int32_t n_rows, float *const *t);
    /* y[i][c], c in 0..16 n_blocks, = fma(scale, s, y) with s = fma(B[c, r], t[i][r], s)
     * over r = 0 .. rank - 1, ascending, from s = 0. b: B at the first of these columns.
     * Rows of t and y are t_stride and y_stride floats apart. next: memory to prefetch
     * after b, as above. */
    void (*expand)(dtype type, const uint8_t *b, const uint8_t *next, int32_t rank, int32_t n_blocks,
                   float scale, const float *t, int32_t t_stride, int32_t n_rows, float *y, int32_t y_stride);
    /* Runs attention programs; their exp and tanh are those of this table. */
    attn_run_fn *run_program;
} math_kernels;

extern const math_kernels math_plain;
#if defined(__x86_64__)
extern const math_kernels math_avx2, math_avx512;
#elif defined(__aarch64__)
extern const math_kernels math_neon;
#endif

/* Runners of attention programs (core/attn_program_run.inc.h), one per instruction set;
 * attn_run_plain is in core. */
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
