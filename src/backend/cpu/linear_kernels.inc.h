/* Product kernels for AVX2, AVX-512 and NEON, written once. Included by linear_avx2.c,
 * linear_avx512.c, linear_neon.c and linear_i8mm.c. They define LINEAR_TABLE;
 * LINEAR_INTEGERS, LINEAR_TABLES and LINEAR_GRIDS, the products of grouped weights
 * (linear_groups.inc.h); and LINEAR_FINDS_ROWS. linear.h defines the arithmetic and its
 * order; the plain twin has the same bits.
 *
 * Bytes: every weight is read once for up to LINEAR_TILE_ROWS rows of a call. A single
 * row streams the weights and is memory-bound. */
#include <math.h>

#include "backend/cpu/linear.h"
#include "backend/cpu/simd_int.h"
#include "core/half.h"

#define LANES PACK_LANES

#include "backend/cpu/linear_rows.inc.h"

#include "backend/cpu/linear_floats.inc.h"

#include "backend/cpu/linear_scaled.inc.h"

#include "backend/cpu/linear_int8.inc.h"

#if defined(PRODUCT_INT8)
#include "backend/cpu/linear_int8_mm.inc.h"
#else
#define PRODUCT_INT8 product_int8
#endif

/* ---- the table ---- */

#define FLOAT_PRODUCT(name, kind, format)                                                                    \
    static void name(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,        \
                     void *scratch) {                                                                        \
        product_floats(kind, format, part, x, n_rows, y, y_stride, scratch);                                 \
    }
FLOAT_PRODUCT(product_f32, PACK_F32, ROWS_F32)
FLOAT_PRODUCT(product_f16, PACK_F16, ROWS_F32)
FLOAT_PRODUCT(product_bf16_wide, PACK_BF16, ROWS_F32)
FLOAT_PRODUCT(product_bf16, PACK_BF16, ROWS_BF16)
#undef FLOAT_PRODUCT

static void product_e4m3(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                         void *scratch) {
    product_scaled(PACK_E4M3, ROWS_F32, part, x, n_rows, y, y_stride, scratch);
}

static void product_t4_float(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                             void *scratch) {
    product_scaled(PACK_T4_FLOAT, ROWS_F32, part, x, n_rows, y, y_stride, scratch);
}

static void product(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                    void *scratch) {
    switch (part->w->layout.kind) {
    case PACK_F32:
        product_f32(part, x, n_rows, y, y_stride, scratch);
        break;
    case PACK_F16:
        product_f16(part, x, n_rows, y, y_stride, scratch);
        break;
    case PACK_BF16:
        (part->w->format == ROWS_BF16 ? product_bf16 : product_bf16_wide)(part, x, n_rows, y, y_stride,
                                                                          scratch);
        break;
    case PACK_INT8:
        PRODUCT_INT8(part, x, n_rows, y, y_stride, scratch);
        break;
    case PACK_E4M3:
    case PACK_E4M3_TILE:
    case PACK_E4M3_E8M0:
        product_e4m3(part, x, n_rows, y, y_stride, scratch);
        break;
    case PACK_T4_FLOAT:
    case PACK_T4_NESTED:
        product_t4_float(part, x, n_rows, y, y_stride, scratch);
        break;
    default: {
        const quant_format *f = pack_format(part->w->layout.kind);
        (f->run > 1     ? LINEAR_GRIDS
         : f->has_table ? LINEAR_TABLES
                        : LINEAR_INTEGERS)(part, x, n_rows, y, y_stride, scratch);
    }
    }
}

const linear_kernels LINEAR_TABLE = {
    .quantise = {[ROWS_F32] = quantise_f32,
                 [ROWS_BF16] = quantise_bf16,
                 [ROWS_TOKEN] = quantise_token,
                 [ROWS_GROUPS] = quantise_groups},
    .product = product,
    .finds_rows = LINEAR_FINDS_ROWS,
};
