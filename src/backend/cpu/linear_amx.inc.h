/* Products by AMX's tiles: INT8 weights from AMX_FROM rows on, and those in groups of 32
 * from AMX_GROUPS_FROM. Included by linear_amx.c, and by linear_amx_model.c over a model
 * of the instructions; they define LINEAR_TABLE, LINEAR_GROUPS and LINEAR_BASE, the table
 * that has all other products. Sums are int32 and exact, and what follows them is in
 * linear.h's order, so the bits are LINEAR_BASE's.
 *
 * Quads of 16 columns, as they are packed, are the rows of a tile of weights, and 16 rows
 * of k those of a tile of x. amx_dot of whole tiles is 16 x 16 x 64 products in 16
 * cycles: 1,024 a cycle, where two VNNI pipes have 128. An amx_store takes 16 cycles too.
 *
 *   INT8    2 x 2 tiles of sums stay over all of k. A step of 64 k loads 4 tiles, 64
 *           lines, for 4 amx_dot, 64 cycles. Of 128 rows whose weights are near, an
 *           Emerald Rapids makes 500 products a cycle, by VNNI 114.
 *   groups  end after 32 of k: half a tile. Its 16 sums of 16 columns are stored, loaded,
 *           converted, scaled and added. While tile instructions are in flight, 512-bit
 *           conversions, multiplications and fma have one of their two pipes: these 48
 *           take 48 cycles, at most 170 products a cycle. Of 128 rows Emerald Rapids makes
 *           95, by VNNI 84: tiles alone take 55 cycles, and what follows them 45. */
#include "backend/cpu/amx_tiles.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/simd_int.h"

/* Least rows for products by tiles: of INT8, and of groups. */
#define AMX_FROM        8
#define AMX_GROUPS_FROM 96

/* The groups that go by tiles: for those of 16, and with a further fma for a min or a
 * zero, tiles are slower than VNNI. */
#define LINEAR_BY_TILES 1
#define LINEAR_HAS(group, scale)                                                                             \
    ((group) == PACK_GROUP && (scale) != SCALE_F16_MIN && (scale) != SCALE_SIX_MIN &&                        \
     (scale) != SCALE_F16_ZERO)
#define LINEAR_CODES 3
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

static bool takes_tiles(const pack_layout *l, row_format format, int32_t n_rows) {
    if (format != ROWS_GROUPS) {
        return format == ROWS_TOKEN && n_rows >= AMX_FROM;
    }
    const quant_format *f = pack_format(l->kind);
    return n_rows >= AMX_GROUPS_FROM && LINEAR_HAS(f->group, f->coding);
}

static void product(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                    void *scratch) {
    const row_format format = part->w->format;
    if (!takes_tiles(&part->w->layout, format, n_rows)) {
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
    .is_wide = true,
};
