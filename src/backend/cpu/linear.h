/* Matrix products: loaded weights, activation rows quantised for them, and a table of
 * kernels per instruction set.
 *
 * y[row][column] = sum over k of x[row][k] w[column][k], accumulated in one fixed order
 * for every number of rows, tile and thread:
 *
 *   ROWS_F32     x f32; weights F32, F16 or BF16, widened exactly: acc = fma(x_k, w_k,
 *                acc) from acc = 0, k ascending.
 *   ROWS_BF16    x and weights bf16 (ties to even), k padded to 2 by zeros: as above over
 *                the widened values. AVX512_BF16 uses its dot instruction: a pair at a
 *                time, ascending, with different bits.
 * Weights that are floats with scales are E4M3 (read with ROWS_F32 or ROWS_BF16) and
 * T4_FLOAT or T4_NESTED (ROWS_F32). For each stretch of k with one scale, sum is computed
 * as above over w = number / 256 for E4M3, or the table's entry for T4, both exact. Then
 * acc = fma(sum, scale * 256, acc) for E4M3, fma(sum, scale, acc) for T4, stretches
 * ascending, from acc = 0, or from NaN in a column that has a NaN code.
 *
 *   ROWS_TOKEN   x int8 with one scale per row; INT8 weights: y = (float)(sum of x_k w_k
 *                in int32) * (x_scale * w_scale).
 *   ROWS_GROUPS  x int8 with one scale per 32 of k; grouped weights. For each weight
 *                scale's 16 or 32 of k, ascending: acc = fma((float)(sum of x_k number_k
 *                in int32), w_scale * x_scale, acc), and for forms with mins then acc =
 *                fma(min, x_scale * (float)(sum of x_k), acc).
 * If the weights have a factor, y is then y * factor.
 *
 * Quantisation of activations: a = the largest |x|; q = round(x * (127 / a)), ties to
 * even; scale = a / 127. If a is under 2^-100, all are 0. With an infinity or NaN the
 * scale is NaN and q is 0, so that every result is NaN.
 *
 * Threads: kernels are pure functions of their arguments; threads split columns, never
 * k. */
#ifndef CPU_LINEAR_H
#define CPU_LINEAR_H

#include "backend/backend.h"
#include "backend/cpu/pack_weights.h"

/* The format in which a kernel reads an activation row. A quantised row starts at a
 * multiple of 64 bytes; ROWS_F32 has no alignment:
 *   ROWS_F32     f32 [k]
 *   ROWS_BF16    the kernel's own: at most 4 bytes an element, k padded to 2
 *   ROWS_TOKEN   int8 [k padded to 32], f32 scale, int32 sum of the int8
 *   ROWS_GROUPS  row_group [k/32] */
typedef enum row_format { ROWS_F32, ROWS_BF16, ROWS_TOKEN, ROWS_GROUPS, N_ROW_FORMATS } row_format;

#define ROWS_TINY 0x1p-100f

/* 32 elements of a ROWS_GROUPS row with the values that kernels need for them, in one
 * cache line so that one pointer per row reaches all. Rows are read only by kernels of
 * the table that quantised them. */
typedef struct row_group {
    int8_t q[PACK_GROUP];
    float scale;
    union { /* start values of sums over unsigned numbers */
        struct {
            int32_t times_8, times_128; /* -8 and -128 times the sum of q */
            int32_t times_4[2];         /* -4 times the sums of the first 16 and of the last 16 */
        };
        struct { /* AVX2 (simd_int.h): int16 sums */
            /* -8 times the sums of q[0], q[1], q[4], q[5], q[8].. and of the others */
            int16_t pairs_8[2];
            /* -32 times the same sums in the first 16 and in the last 16 */
            int16_t pairs_32[2][2];
            /* bits 1 and 2: halves with a sum of magnitudes, as in pairs_32, over N_LARGE */
            int32_t large;
        };
    };
    /* scale times the sum of q, of its first 16 and its last 16; multiplied by mins */
    float sum, sums[2];
} row_group;

/* for what a kernel keeps besides its operands: weights unpacked for a tile, partial
 * sums */
#define LINEAR_SCRATCH_BYTES 262144
#define LINEAR_TILE_ROWS     128 /* most rows in a call */

/* Rows of one format; row i is at data + i * stride. Borrowed. */
typedef struct row_view {
    const uint8_t *data;
    size_t stride;
} row_view;

/* Packed weights [n_out, n_in]. Owned by the backend's list, immutable after load. data
 * and scales may point into a file mapped read-only. */
struct linear {
    linear *next;
    int32_t id; /* index among the backend's objects */
    pack_layout layout;
    row_format format;
    uint8_t *data;  /* layout.n_blocks blocks */
    float *scales;  /* INT8: [n_blocks * 16], directly after the blocks; else NULL */
    float *numbers; /* T4: [pack_n_numbers], directly after the blocks; else NULL */
    /* [n_in] after the blocks: the input at each place of the rows to multiply; NULL:
     * unpermuted */
    const int32_t *order;
    float factor;          /* multiplies every result before the bias is added; 1: none */
    float *bias;           /* [n_blocks * 16], or NULL */
    row_rounding rounding; /* rounding of the rows before they are multiplied; ROWS_F32 only */
};

/* A range of memory. */
typedef struct linear_run {
    const uint8_t *at;
    size_t n_bytes;
} linear_run;

/* Part of a product: some column blocks of w. next: blocks of the same layout that the
 * thread will probably read next, or NULL; a kernel may prefetch them but must not read
 * them, as the guess can be wrong. is_near: the thread has probably just read the part's
 * blocks for other rows, so that they are in its L2. soon: other memory that the thread
 * reads after the product; a kernel that is compute-bound may prefetch it. */
typedef struct linear_part {
    const linear *w;
    int32_t block0, n_blocks;
    const uint8_t *next;
    int32_t n_soon;
    bool is_near;
    const linear_run *soon; /* [n_soon] */
} linear_part;

/* y[r * y_stride + c], c in 0..n_blocks * 16, = the products of n_rows rows in w->format,
 * at most LINEAR_TILE_ROWS, with the part's columns, without bias. Padding columns are
 * undefined. scratch: LINEAR_SCRATCH_BYTES of the calling thread, aligned to 64,
 * undefined before and after. */
typedef void linear_product(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                            void *scratch);

typedef struct linear_kernels {
    /* Converts x[0..k) to row format i, padding included, and writes it to row. */
    void (*quantise[N_ROW_FORMATS])(const float *x, int32_t k, void *row);
    linear_product *product;
    /* Whether this processor looks up rows of grids so fast that weights stay packed.
     * NULL: no; they are unpacked at load. */
    bool (*finds_rows)(void);
    /* Whether tasks of many rows have LINEAR_WIDE_BLOCKS: products so fast that reading
     * the rows from beyond the L2 for fewer columns would slow them. */
    bool is_wide;
    /* The number of rows from which products of INT8 prefetch their results; 0: none do. */
    int32_t prefetches_from;
} linear_kernels;

extern const linear_kernels linear_plain;
/* out[0..n_in) = row `row` of weights of a scaled kind, as f32. */
void linear_scaled_row(const linear *w, int32_t row, float *out);
#if defined(__x86_64__)
extern const linear_kernels linear_avx2, linear_avx512, linear_avx512bf16;
extern const linear_kernels linear_avxvnni;               /* if the build has it (cmake/isa.cmake) */
extern const linear_kernels linear_amx, linear_amx_model; /* if the build has them (cmake/isa.cmake) */
/* Products of grouped weights, used by the tables above. */
linear_product linear_integers_avx2, linear_tables_avx2, linear_grids_avx2;
linear_product linear_integers_avxvnni, linear_tables_avxvnni;
/* the last one needs VBMI */
linear_product linear_integers_avx512, linear_tables_avx512, linear_grids_avx512;
linear_product linear_groups_amx, linear_groups_amx_model;
#elif defined(__aarch64__)
extern const linear_kernels linear_neon, linear_i8mm;
/* products of grouped weights, used by both NEON tables */
linear_product linear_integers_neon, linear_tables_neon, linear_grids_neon;
#endif

/* The row format of a weight kind under a compute mode. */
static inline row_format linear_format(pack_kind kind, compute_mode mode) {
    if (pack_is_scaled(kind)) {
        return mode == COMPUTE_BF16 && !pack_is_fours(kind) ? ROWS_BF16 : ROWS_F32;
    }
    if (mode == COMPUTE_INT8) {
        return kind == PACK_INT8 ? ROWS_TOKEN : ROWS_GROUPS;
    }
    return mode == COMPUTE_BF16 ? ROWS_BF16 : ROWS_F32;
}

static inline int32_t linear_pad(int32_t k, int32_t unit) {
    return (k + unit - 1) / unit * unit;
}

static inline const uint8_t *linear_block(const linear *w, int32_t block) {
    return w->data + (size_t)block * w->layout.block_bytes;
}

/* Fills the fields of row_group other than q and scale, as all kernels but AVX2's read
 * them. */
static inline void row_group_sums(row_group *g, int32_t first, int32_t last) {
    int32_t sum = first + last;
    g->times_8 = -8 * sum;
    g->times_128 = -128 * sum;
    g->times_4[0] = -4 * first;
    g->times_4[1] = -4 * last;
    g->sum = g->scale * (float)sum;
    g->sums[0] = g->scale * (float)first;
    g->sums[1] = g->scale * (float)last;
}

/* End of k in a product of floats: rows of ROWS_BF16 are padded. */
static inline int32_t linear_k_end(const linear *w) {
    return w->format == ROWS_BF16 ? w->layout.k_padded : w->layout.n_in;
}

/* ---- tasks of ROWS_TOKEN rows ---- */
static inline const float *row_scales(const uint8_t *row, int32_t k) {
    return (const float *)(const void *)(row + linear_pad(k, PACK_GROUP));
}

static inline int32_t row_sum(const uint8_t *row, int32_t k) {
    return *(const int32_t *)(const void *)(row_scales(row, k) + 1);
}

#endif
