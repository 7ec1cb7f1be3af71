/* State and functions shared by the ops over loaded weights.
 *
 * Owner: the backend. A worker's scratch is used by that worker only; everything else
 * changes only between ops. */
#ifndef CPU_LINEAR_OPS_H
#define CPU_LINEAR_OPS_H

#include "backend/cpu/adapter.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"

#define LINEAR_TILE_BLOCKS  4 /* column blocks per task */
#define LINEAR_TILE_COLUMNS (LINEAR_TILE_BLOCKS * PACK_LANES)
#define LINEAR_WIDE_BLOCKS  8 /* the same for many rows, if kernels are is_wide */
#define LINEAR_TILE_FLOATS  (LINEAR_TILE_ROWS * LINEAR_WIDE_BLOCKS * PACK_LANES)
#define LINEAR_MAX_USES     8 /* most weights in an op */

/* The largest logit of a row in the column tiles that one worker computed. value
 * -INFINITY: it computed none; NaN: a logit was infinite or NaN. */
typedef struct row_argmax {
    float value;
    int32_t id; /* ties: the lowest */
} row_argmax;

/* State of the products. Invariant: widest[f] is the widest n_in of weights loaded with
 * row format f, 0 if there are none. Allocated by cpu_linear_step_open. */
typedef struct cpu_linear_state {
    linear *loaded;
    /* weights with an input order: the widest n_in, and the number of orders */
    int32_t widest_ordered, n_orders;
    uint8_t *ordered[LINEAR_MAX_USES]; /* [n_orders] quantised rows, permuted */
    float *placed;                     /* [workers][widest_ordered]: a permuted row */
    int32_t widest[N_ROW_FORMATS];
    uint8_t *rows[N_ROW_FORMATS]; /* quantised rows: max(max_rows, max_out) of the widest */
    float *tiles;                 /* [workers][2][LINEAR_TILE_FLOATS] */
    uint8_t *scratch;             /* [workers][LINEAR_SCRATCH_BYTES] */
    size_t head_bytes;            /* bytes of the widest row of a head's product */
    uint8_t *head_rows;           /* [workers][LINEAR_TILE_ROWS][head_bytes] */
    row_argmax *largest;          /* [workers][max_out], from the last head op */
} cpu_linear_state;

/* Weights of products with one matrix per head. */
struct head_linears {
    int32_t n_heads, n_out, n_in;
    const linear **w; /* [n_heads] */
};

/* y[r * y_stride + c], c in 0..n_blocks * PACK_LANES, = x w^T + bias for the part's
 * columns. scratch: LINEAR_SCRATCH_BYTES of the caller. */
void linear_tile(const cpu_backend *b, const linear_part *part, row_view x, int32_t n_rows, float *y,
                 int32_t y_stride, void *scratch);

/* A tile of a product with adapted rows, and its destination. after: columns that the
 * thread will probably compute next for the same rows; n_blocks 0: unknown. */
typedef struct linear_tile_use {
    const cpu_backend *b;
    linear_part part, after;
    const adapter_rows *rows;
    const shrink_job *shrink; /* computes t of the rows; NULL: t is ready */
    int32_t y_stride, worker;
} linear_tile_use;

/* Like linear_tile, for rows row0 .. row0 + n_rows - 1 of use->rows, including the
 * changes of their adapters. */
void linear_tile_changed(const linear_tile_use *use, row_view x, int32_t row0, int32_t n_rows, float *y);

static inline void *linear_scratch(const cpu_backend *b, int32_t worker) {
    return b->linear_state->scratch + (size_t)worker * LINEAR_SCRATCH_BYTES;
}

/* Converts x[0..n_in) to the row that w's product reads. Called on the worker's
 * thread. */
void linear_input(const cpu_backend *b, const linear *w, const float *x, int32_t worker, void *row);

/* Stride in bytes of quantised rows of k elements, a multiple of 64. */
size_t linear_row_bytes(row_format format, int32_t k);

#endif
