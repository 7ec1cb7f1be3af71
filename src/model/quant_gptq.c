/* GPTQ (arXiv:2210.17323), as AutoGPTQ and GPTQModel store it: codes packed along the
 * inputs, zero points along the outputs. Checkpoints of format "gptq" store a zero point
 * minus 1, those of "gptq_v2" as it is. */
#include "core/quant.h"
#include "model/quant_method.h"

/* The zero points: words [groups][n_out * bits / 32], the first output in the lowest
 * bits; of 3 bits some lie in two words. */
static quire_err gptq_read_zeros(quant_linear *q, int64_t n_groups) {
    int32_t bits = q->m.bits;
    int64_t words = (q->n_out * bits + 31) / 32;
    str format;
    tensor_view t;
    bool is_v2 = model_file_str(q->l->file, QUANT_CONFIG ".checkpoint_format", &format) == QUIRE_OK &&
                 str_is(format, "gptq_v2");
    TRY(quant_need(q, ".qzeros", DTYPE_I32, n_groups, words, &t));
    int16_t *zeros = quant_memory(q, (size_t)(n_groups * q->n_out), sizeof *zeros);
    uint8_t *codes = quant_memory(q, (size_t)q->n_out, 1);
    if (zeros == NULL || codes == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int64_t g = 0; g < n_groups; g++) {
        const quant_words packed = {(const uint8_t *)t.data + (size_t)(g * words) * 4, 1, (uint32_t)bits, 32};
        quant_words_read(&packed, 0, (size_t)q->n_out, codes);
        for (int64_t o = 0; o < q->n_out; o++) {
            zeros[o * n_groups + g] = (int16_t)(codes[o] + !is_v2);
        }
    }
    q->m.zeros = zeros;
    return QUIRE_OK;
}

static quire_err read_gptq(quant_linear *q) {
    tensor_view scales, codes;
    int64_t words = q->whole->n_dims == 2 ? q->whole->dims[0] : 0, bits = words * 32 / q->n_in;
    if ((bits != 2 && bits != 3 && bits != 4 && bits != 8) || words * 32 != bits * q->n_in) {
        return quant_error(q, ".qweight", "%lld rows of words do not hold 2, 3, 4 or 8 bits for %lld inputs",
                           (long long)words, (long long)q->n_in);
    }
    TRY(quant_need(q, ".qweight", DTYPE_I32, words, q->n_out, &codes));
    q->m.place = CODES_WORDS_DOWN;
    q->m.kind = CODE_INTEGER;
    q->m.bits = (int32_t)bits;
    q->m.codes = codes.data;
    TRY(quant_find(q, ".scales", &scales));
    int64_t n_groups = scales.n_dims == 2 ? scales.dims[0] : 0;
    TRY(quant_scales(q, ".scales", &scales, q->n_out, n_groups, true));
    TRY(quant_groups(q, ".scales", n_groups));
    TRY(gptq_read_zeros(q, n_groups));
    return quant_group_index(q, ".g_idx");
}

const quant_method quant_gptq = {.suffix = ".qweight", .type = DTYPE_I32, .read = read_gptq};

/* ---- AWQ ---- */

/* AWQ (arXiv:2306.00978), as AutoAWQ stores it ("gemm"): codes and zero points of 4 bits
 * packed along the outputs, in the order of the kernels for which it was made. */

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
