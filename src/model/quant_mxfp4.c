/* gpt-oss's MXFP4 (OCP MX): the experts' matrices stacked in one tensor, [experts, rows,
 * groups of 32, 16 bytes], scales [experts, rows, groups] as powers of two. Rows are
 * outputs, unlike those of the same checkpoint in 16 bits. */
#include "model/quant_method.h"

static quire_err mxfp4_read(quant_linear *q) {
    tensor_view codes, scales;
    int64_t n_groups = q->n_in / 32;
    if (q->n_in % 32 != 0) {
        return quant_error(q, "_blocks", "%lld inputs are not a multiple of 32", (long long)q->n_in);
    }
    TRY(quant_need(q, "_blocks", DTYPE_U8, q->n_out, q->n_in / 2, &codes));
    TRY(quant_need(q, "_scales", DTYPE_U8, q->n_out, n_groups, &scales));
    TRY(quant_scales(q, "_scales", &scales, q->n_out, n_groups, false));
    q->m.place = CODES_NIBBLES;
    q->m.kind = CODE_TABLE;
    q->m.table = quant_e2m1;
    q->m.bits = 4;
    q->m.codes = codes.data;
    q->m.group = 32;
    return QUIRE_OK;
}

const quant_method quant_mxfp4_stacked = {
    .suffix = "_blocks", .type = DTYPE_U8, .beside = "_scales", .read = mxfp4_read};
