/* AWQ (arXiv:2306.00978), as AutoAWQ stores it ("gemm"): codes and zero points of 4 bits
 * packed along the outputs, in the order of the kernels for which it was made. */
#include "model/quant_method.h"

static quire_err read_awq(quant_linear *q) {
    tensor_view codes, zeros, scales;
    if (q->n_out % 8 != 0) {
        return quant_error(q, ".qweight", "%lld outputs are not a multiple of 8", (long long)q->n_out);
    }
    TRY(quant_need(q, ".qweight", DTYPE_I32, q->n_in, q->n_out / 8, &codes));
    q->m.place = CODES_WORDS_AWQ;
    q->m.kind = CODE_INTEGER;
    q->m.bits = 4;
    q->m.codes = codes.data;
    TRY(quant_find(q, ".scales", &scales));
    int64_t n_groups = scales.n_dims == 2 ? scales.dims[0] : 0;
    TRY(quant_scales(q, ".scales", &scales, q->n_out, n_groups, true));
    TRY(quant_groups(q, ".scales", n_groups));
    TRY(quant_need(q, ".qzeros", DTYPE_I32, n_groups, q->n_out / 8, &zeros));
    int16_t *to = quant_memory(q, (size_t)(n_groups * q->n_out), sizeof *to);
    if (to == NULL) {
        return QUIRE_NO_MEMORY;
    }
    quant_matrix packed = q->m; /* its inputs are the groups */
    packed.codes = zeros.data;
    for (int64_t o = 0; o < q->n_out; o++) {
        for (int64_t g = 0; g < n_groups; g++) {
            to[o * n_groups + g] = (int16_t)quant_matrix_code(&packed, o, g);
        }
    }
    q->m.zeros = to;
    return QUIRE_OK;
}

const quant_method quant_awq = {.suffix = ".qweight", .type = DTYPE_I32, .only_for = "awq", .read = read_awq};
