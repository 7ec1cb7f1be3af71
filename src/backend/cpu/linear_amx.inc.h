/* Products by AMX's tiles: INT8 and grouped weights from AMX_FROM rows on. Included by
 * linear_amx.c, and by linear_amx_model.c over a model of the instructions; they define
 * LINEAR_TABLE, LINEAR_GROUPS and LINEAR_BASE, the table that has all other products.
 * Sums are int32 and exact, and what follows them is in linear.h's order, so the bits are
 * LINEAR_BASE's.
 *
 * Quads of 16 columns, as they are packed, are the rows of a tile of weights, and 16 rows
 * of k those of a tile of x. amx_dot of whole tiles is 16 x 16 x 64 products in 16
 * cycles: 1,024 a cycle, where two VNNI pipes have 128.
 *
 *   INT8    2 x 2 tiles of sums stay over all of k. A step of 64 k loads 4 tiles, 64
 *           lines, for 4 amx_dot, 64 cycles: at the 48 bytes a cycle that an L2 gives,
 *           768 products a cycle.
 *   groups  end after 32 of k: half a tile, or a quarter where they have 16. In their 16
 *           cycles 16 sums of 16 columns are stored, loaded, converted and added. Each
 *           takes three operations on two pipes, so 24 cycles, and with the tiles 56
 *           loads, 28 cycles: 292 products a cycle of groups of 32, where VNNI has 93.
 *
 * These are figures on paper. docs/performance.md says what was measured. */
#include "backend/cpu/amx_tiles.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/simd_int.h"

#define AMX_FROM 8 /* rows */

#define LINEAR_BY_TILES 1
#define LINEAR_CODES    3
#include "backend/cpu/linear_groups.inc.h"

#include "backend/cpu/linear_amx_int8.inc.h"

/* ---- the table ---- */

static void quantise_f32(const float *x, int32_t k, void *row) {
    LINEAR_BASE.quantise[ROWS_F32](x, k, row);
}

static void quantise_bf16(const float *x, int32_t k, void *row) {
    LINEAR_BASE.quantise[ROWS_BF16](x, k, row);
}

static void quantise_token(const float *x, int32_t k, void *row) {
    LINEAR_BASE.quantise[ROWS_TOKEN](x, k, row);
}

static void quantise_groups(const float *x, int32_t k, void *row) {
    LINEAR_BASE.quantise[ROWS_GROUPS](x, k, row);
}

static void product(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                    void *scratch) {
    const row_format format = part->w->format;
    if (n_rows < AMX_FROM || (format != ROWS_TOKEN && format != ROWS_GROUPS)) {
        LINEAR_BASE.product(part, x, n_rows, y, y_stride, scratch);
        return;
    }
    (format == ROWS_TOKEN ? product_int8_amx : LINEAR_GROUPS)(part, x, n_rows, y, y_stride, scratch);
    amx_release();
}

static bool finds_rows(void) {
    return LINEAR_BASE.finds_rows != NULL && LINEAR_BASE.finds_rows();
}

const linear_kernels LINEAR_TABLE = {
    .quantise = {[ROWS_F32] = quantise_f32,
                 [ROWS_BF16] = quantise_bf16,
                 [ROWS_TOKEN] = quantise_token,
                 [ROWS_GROUPS] = quantise_groups},
    .product = product,
    .finds_rows = finds_rows,
};
