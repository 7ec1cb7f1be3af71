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
