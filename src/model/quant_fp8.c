/* FP8: weights of type E4M3 with a scale for the tensor, a row, a block of 128 x 128
 * (DeepSeek-V3) or 32 inputs of a row (MXFP8). The shape of the scales tells which. */
#include "model/quant_method.h"

/* The size of blocks along a dimension, from the configuration: of compressed-tensors the
 * first of its groups that has some. */
static int64_t scaled_block(const quant_linear *q, int dimension) {
    int64_t sizes[2] = {128, 128};
    size_t n;
    quire_err e = model_file_i64s(q->l->file, QUANT_CONFIG ".weight_block_size", sizes, 2, &n);
    for (int i = 0; i < QUANT_GROUPS && e != QUIRE_OK; i++) {
        char key[QUANT_KEY_BYTES];
        e = model_file_i64s(q->l->file, quant_group_key(i, ".weights.block_structure", key), sizes, 2, &n);
    }
    return e == QUIRE_OK && n == 2 ? sizes[dimension] : 128;
}

/* How many of n share one of n_scales. 0: none fits. */
static int64_t shared_by(int64_t n, int64_t n_scales, int64_t block) {
    return n_scales == 1 ? n : n_scales == n ? 1 : quant_shared_by(n, n_scales, block);
}

static quire_err read_fp8(quant_linear *q) {
    const char *suffix = ".weight_scale_inv";
    tensor_view codes, scales;
    TRY(quant_need(q, ".weight", DTYPE_F8_E4M3, q->n_out, q->n_in, &codes));
    TRY(quant_find(q, suffix, &scales));
    if (scales.data == NULL) {
        suffix = ".weight_scale";
        TRY(quant_find(q, suffix, &scales));
    }
    if (scales.data == NULL) {
        return quant_error(
            q, ".weight",
            "FP8 weights need scales, and the layer has neither weight_scale_inv nor weight_scale");
    }
    int64_t rows = scales.n_dims > 0 ? scales.dims[0] : 1, columns = 1;
    for (int32_t i = 1; i < scales.n_dims; i++) {
        columns *= scales.dims[i]; /* ModelOpt has [rows, 1, columns, 1] */
    }
    bool is_mx = scales.type == DTYPE_U8 || scales.type == DTYPE_F8_E8M0;
    int64_t a_row = shared_by(q->n_out, rows, scaled_block(q, 0));
    int64_t a_column =
        is_mx && columns * 32 == q->n_in ? 32 : shared_by(q->n_in, columns, scaled_block(q, 1));
    if (a_row == 0 || a_column == 0) {
        return quant_error(q, suffix,
                           "its shape [%lld, %lld] does not fit weights of shape [%lld, %lld]: scales are "
                           "for the tensor, a row or a block",
                           (long long)rows, (long long)columns, (long long)q->n_out, (long long)q->n_in);
    }
    scales.n_dims = 2;
    scales.dims[0] = rows;
    scales.dims[1] = columns;
    TRY(quant_scales(q, suffix, &scales, rows, columns, false));
    q->m.place = CODES_BYTES;
    q->m.kind = CODE_E4M3;
    q->m.bits = 8;
    q->m.codes = codes.data;
    q->m.scale_rows = (int32_t)a_row;
    q->m.group = (int32_t)a_column;
    if (quant_rounds_rows(q, "float", 8)) {
        /* by the row, by groups as wide as the weights', or by a scale for all rows */
        q->rounding = (row_rounding){.to = ROUND_E4M3,
                                     .scale = is_mx ? ROUND_POWER : ROUND_LARGEST,
                                     .group = a_column < q->n_in ? (int32_t)a_column : 0};
        TRY(quant_factor(q, ".input_scale", &q->rounding.fixed));
        q->rounding.scale = q->rounding.fixed != 0.0f ? ROUND_FIXED : q->rounding.scale;
    }
    return QUIRE_OK;
}

const quant_method quant_fp8 = {.suffix = ".weight", .type = DTYPE_F8_E4M3, .read = read_fp8};
