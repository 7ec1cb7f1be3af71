/* Matrix products: loaded weights, activation rows quantised for them, and the table of
 * kernels, one for each instruction set.
 *
 * y[row][column] = sum over k of x[row][k] w[column][k], accumulated in one fixed order
 * for every number of rows, tile and thread:
 *
 *   ROWS_F32     x f32; weights F32, F16 or BF16, widened exactly: acc = fma(x_k, w_k,
 *                acc) from acc = 0, k ascending.
 *   ROWS_BF16    x and weights bf16 (ties to even), k padded to 2 by zeros: as above over
 *                the widened values. AVX512_BF16 has a dot instruction for that: a pair
 *                at a time, ascending, with bits of its own.
 *
 * E4M3 and T4_FLOAT (T4_NESTED too) weights, floats with scales, are multiplied with rows
 * of ROWS_F32, and E4M3 with those of ROWS_BF16 too: the sum of each scale's stretch of k
 * is that of these formats over w = number / 256, or of T4_FLOAT the table's entry, exact
 * in f32 and (E4M3) in bf16; then acc = fma(sum, scale * 256, acc), of T4_FLOAT fma(sum,
 * scale, acc), stretches ascending, from acc = 0, or NaN in a column that has a code
 * which is NaN.
 *
 *   ROWS_TOKEN   x int8 with one scale a row; INT8 weights: y = (float)(sum of x_k w_k in
 *                int32) * (x_scale * w_scale).
 *   ROWS_GROUPS  x int8 with one scale for each 32 of k; grouped weights. For each weight
 *                scale's 16 or 32 of k, ascending: acc = fma((float)(sum of x_k number_k
 *                in int32), w_scale * x_scale, acc), and for forms with mins then acc =
 *                fma(min, x_scale * (float)(sum of x_k), acc).
 *
 * Where the weights have a factor, y is then y * factor.
 *
 * Activations are quantised in this way: a = the largest |x|; q = round(x * (127 / a)),
 * ties to even; scale = a / 127. With a under 2^-100 all are 0. With an infinity or NaN
 * the scale is NaN and q is 0, so that every result is NaN.
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

/* 32 elements of a ROWS_GROUPS row and the values that kernels use with them: one cache
 * line, so that one pointer a row reaches all. Each table of kernels reads the rows that
 * it has quantised. */
typedef struct row_group {
    int8_t q[PACK_GROUP];
    float scale;
    union { /* what sums over unsigned numbers start from */
        struct {
            int32_t times_8, times_128; /* -8 and -128 times the sum of q */
            int32_t times_4[2];         /* -4 times the sums of the first 16 and of the last */
        };
        struct { /* AVX2 (simd_int.h): of sums in int16 */
            /* -8 times the sums of q[0], q[1], q[4], q[5], q[8].. and of the others */
            int16_t pairs_8[2];
            int16_t pairs_32[2][2]; /* -32 times those of the first 16 and of the last */
            /* 1 and 2: which halves have a sum of magnitudes, as in pairs_32, over
             * N_LARGE */
            int32_t large;
        };
    };
    /* scale times the sum of q, of its first 16 and of its last: what mins are multiplied
     * with */
    float sum, sums[2];
} row_group;

/* what a kernel may keep beside its operands: weights unpacked for a tile, partial
 * sums */
#define LINEAR_SCRATCH_BYTES 262144
#define LINEAR_TILE_ROWS     128 /* rows of a call, at most */

/* Rows of one format: row i is at data + i * stride. Borrowed. */
typedef struct row_view {
    const uint8_t *data;
    size_t stride;
} row_view;

/* Packed weights [n_out, n_in]. Owned by the backend's list, unchanged after load. data
 * and scales may point into a file mapped read-only. */
struct linear {
    linear *next;
    int32_t id; /* among the backend's objects */
    pack_layout layout;
    row_format format;
    uint8_t *data;  /* layout.n_blocks blocks */
    float *scales;  /* [n_blocks * 16] of INT8, right after the blocks, else NULL */
    float *numbers; /* [pack_n_numbers], in the same place, else NULL */
    /* [n_in]: which input stands at each place of the rows that are multiplied, after
     * the blocks; NULL: its own */
    const int32_t *order;
    float factor;          /* what every product is multiplied with before its bias is added; 1: nothing */
    float *bias;           /* [n_blocks * 16], or NULL */
    row_rounding rounding; /* of the rows before they are multiplied: of ROWS_F32 only */
};

/* Bytes in memory. */
typedef struct linear_run {
    const uint8_t *at;
    size_t n_bytes;
} linear_run;

/* A part of a product: some column blocks of w. next: where the thread will probably read
 * on, in blocks of the same layout, or NULL. A kernel may prefetch it, but never reads
 * it: it can be the wrong place. soon: what the thread reads after the product besides
 * weights; a kernel may prefetch it while it computes more than it reads. */
typedef struct linear_part {
    const linear *w;
    int32_t block0, n_blocks;
    const uint8_t *next;
    int32_t n_soon;
    const linear_run *soon; /* [n_soon] */
} linear_part;

/* y[r * y_stride + c], c in 0..n_blocks * 16, = the product of n_rows rows, at most
 * LINEAR_TILE_ROWS, which are in w->format, with the part's columns, without bias.
 * Padding columns get undefined values, which must not be read. scratch:
 * LINEAR_SCRATCH_BYTES of the calling thread's own, at a multiple of 64, undefined before
 * and after. */
typedef void linear_product(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                            void *scratch);

typedef struct linear_kernels {
    /* Converts x[0..k) to the format of the index and writes it to row, padding
     * included. */
    void (*quantise[N_ROW_FORMATS])(const float *x, int32_t k, void *row);
    linear_product *product;
    /* Whether this processor finds rows of grids so fast that weights keep them. NULL:
     * no; they are unpacked as they are loaded. */
    bool (*finds_rows)(void);
} linear_kernels;

extern const linear_kernels linear_plain;
/* out[0..n_in) = row `row` of weights of a scaled kind. */
void linear_scaled_row(const linear *w, int32_t row, float *out);
#if defined(__x86_64__)
extern const linear_kernels linear_avx2, linear_avx512, linear_avx512bf16;
extern const linear_kernels linear_avxvnni;               /* where the build has it (cmake/isa.cmake) */
extern const linear_kernels linear_amx, linear_amx_model; /* where the build has them (cmake/isa.cmake) */
/* Parts of them: grouped weights. */
linear_product linear_integers_avx2, linear_tables_avx2, linear_grids_avx2;
linear_product linear_integers_avxvnni, linear_tables_avxvnni;
linear_product linear_integers_avx512, linear_tables_avx512, linear_grids_avx512; /* the last with VBMI too */
linear_product linear_groups_amx, linear_groups_amx_model;
#elif defined(__aarch64__)
extern const linear_kernels linear_neon, linear_i8mm;
/* parts of both: grouped weights */
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

/* Fills the fields of row_group besides q and scale, as they are in kernels other than
 * AVX2's. */
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

/* Where the k of a product with floats ends: rows of ROWS_BF16 are padded. */
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
