/* Products by AMX tiles: INT8 weights from AMX_FROM rows on, weights in groups of 32 from
 * AMX_GROUPS_FROM rows on. Included by linear_amx.c, and by linear_amx_model.c over a C
 * model of the instructions; both define LINEAR_TABLE, LINEAR_GROUPS and LINEAR_BASE, the
 * kernels for all other products. Sums are exact int32, and the operations on them have
 * linear.h's order, so results have the bits of LINEAR_BASE.
 *
 * A tile of weights has the packed quads of 16 columns as its rows, a tile of x has 16
 * rows of x. amx_dot of whole tiles computes 16 x 16 x 64 products in 16 cycles: 1,024 per
 * cycle, where two VNNI pipes reach 128. An amx_store takes 16 cycles, too.
 *
 *   INT8    2 x 2 tiles of sums stay loaded over all of k. A step of 64 k loads 4 tiles,
 *           64 lines, for 4 amx_dot in 64 cycles. An Emerald Rapids takes 78 with all in
 *           the L1, 840 products per cycle; the loads alone take 86 from the L2. With 128
 *           rows and weights there it reaches 600, by VNNI 114.
 *   groups  end after 32 k, half a tile. The 16 x 16 sums are stored, loaded, converted,
 *           scaled and added. While tile instructions are in flight, 512-bit conversions,
 *           multiplications and fma have one pipe instead of two: these 48 take 48 cycles,
 *           so at most 170 products per cycle. With 128 rows an Emerald Rapids reaches 100,
 *           by VNNI 89: 80 cycles. With all but the stores, from packed rows, it takes 60. */
#include "backend/cpu/amx_tiles.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/simd_int.h"

/* Least rows for products by tiles: of INT8, and of groups. */
#define AMX_FROM        8
#define AMX_GROUPS_FROM 96

/* Groups that use tiles. With groups of 16, or another fma for a min or zero point, tiles
 * are slower than VNNI. */
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
    .prefetches_from = AMX_FROM,
};
