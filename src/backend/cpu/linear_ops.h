/* What the ops over loaded weights share: their state in the backend, and the size of
 * quantised rows.
 *
 * Owner: the backend. Scratch of a worker is used by that worker alone; the rest changes
 * between ops only. */
#ifndef CPU_LINEAR_OPS_H
#define CPU_LINEAR_OPS_H

#include "backend/cpu/adapter.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"

#define LINEAR_TILE_BLOCKS  4 /* column blocks of one task */
#define LINEAR_TILE_COLUMNS (LINEAR_TILE_BLOCKS * PACK_LANES)
#define LINEAR_MAX_USES     8 /* weights of one op */

/* The largest logit of a row in the column tiles that one worker computed. value
 * -INFINITY: it computed none. NaN: a logit was infinite or NaN. */
typedef struct row_argmax {
    float value;
    int32_t id; /* the lowest of equals */
} row_argmax;

/* What the backend keeps for its products. Invariant: widest[f] is the widest n_in of
 * weights loaded with format f, 0 without any. Sized by cpu_linear_step_open. */
typedef struct cpu_linear_state {
    linear *loaded;
    /* of weights with an order of inputs: the widest n_in, and how many orders there are,
     * up to */
    int32_t widest_ordered, n_orders;
    /* LINEAR_MAX_USES */
    uint8_t *ordered[LINEAR_MAX_USES]; /* of n_orders: as rows */
    float *placed;                     /* [workers][widest_ordered]: a row whose inputs are at their places */
    int32_t widest[N_ROW_FORMATS];
    uint8_t *rows[N_ROW_FORMATS]; /* quantised rows, max(max_rows, max_out) of the widest */
    float *tiles;                 /* [workers][2][LINEAR_TILE_ROWS * LINEAR_TILE_COLUMNS] */
    uint8_t *scratch;             /* [workers][LINEAR_SCRATCH_BYTES] */
    size_t head_bytes;            /* of the widest row of heads' products */
    uint8_t *head_rows;           /* [workers][LINEAR_TILE_ROWS][head_bytes] */
    row_argmax *largest;          /* [workers][max_out], of the last head */
} cpu_linear_state;

/* The weights of products that each head has of its own. */
struct head_linears {
    int32_t n_heads, n_out, n_in;
    const linear **w; /* [n_heads] */
};

/* y[r * y_stride + c], c in 0..n_blocks * PACK_LANES, = x w^T + bias, of the part's
 * columns. scratch: LINEAR_SCRATCH_BYTES of the caller. */
void linear_tile(const cpu_backend *b, const linear_part *part, row_view x, int32_t n_rows, float *y,
                 int32_t y_stride, void *scratch);

/* A tile of a product that has adapted rows, and where it goes. after: the columns that the
 * thread will probably compute next, of the same rows; n_blocks 0: not known. */
typedef struct linear_tile_use {
    const cpu_backend *b;
    linear_part part, after;
    const adapter_rows *rows;
    const shrink_job *shrink; /* which gives t of the rows; NULL: it is there */
    int32_t y_stride, worker;
} linear_tile_use;

/* As above, for rows row0 .. row0 + n_rows - 1 of use->rows, with what their adapters change. */
void linear_tile_changed(const linear_tile_use *use, row_view x, int32_t row0, int32_t n_rows, float *y);

static inline void *linear_scratch(const cpu_backend *b, int32_t worker) {
    return b->linear_state->scratch + (size_t)worker * LINEAR_SCRATCH_BYTES;
}

/* Writes the row that w's product reads of x[0..n_in). On worker's thread. */
void linear_input(const cpu_backend *b, const linear *w, const float *x, int32_t worker, void *row);

/* Bytes from one quantised row of k elements to the next, a multiple of 64. */
size_t linear_row_bytes(row_format format, int32_t k);

#endif
