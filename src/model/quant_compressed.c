/* compressed-tensors, what llm-compressor writes: integers packed into words, and 4-bit
 * floats (NVFP4, MXFP4) packed into bytes. Its int8 weights with a scale a row are
 * computed as they are (loader.c), its FP8 is quant_fp8.c's. */
#include <string.h>

#include "core/quant.h"
#include "model/quant_method.h"

const float quant_e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                              -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/* The shape of the whole matrix, which says how much of the last word is filled. */
static quire_err check_written_shape(quant_linear *q) {
    tensor_view t;
    TRY(quant_find(q, ".weight_shape", &t));
    if (t.data == NULL) {
        return QUIRE_OK;
    }
    int64_t dims[2] = {0, 0};
    (void)quant_written_shape(&t, dims);
    return dims[0] == q->n_out && dims[1] == q->n_in
               ? QUIRE_OK
               : quant_error(q, ".weight_shape",
                             "it says [%lld, %lld]; the model's numbers ask for [%lld, %lld]",
                             (long long)dims[0], (long long)dims[1], (long long)q->n_out, (long long)q->n_in);
}

/* Zero points, packed along the outputs, the offset added: words [n_out / (32 /
 * bits)][groups]. */
static quire_err compressed_read_zeros(quant_linear *q) {
    tensor_view t;
    int64_t a_word = 32 / q->m.bits, n_groups = q->m.n_groups;
    TRY(quant_find(q, ".weight_zero_point", &t));
    if (t.data == NULL) {
        return QUIRE_OK;
    }
    TRY(quant_need(q, ".weight_zero_point", DTYPE_I32, (q->n_out + a_word - 1) / a_word, n_groups, &t));
    int16_t *zeros = quant_memory(q, (size_t)(q->n_out * n_groups), sizeof *zeros);
    uint8_t *codes = quant_memory(q, (size_t)q->n_out, 1);
    if (zeros == NULL || codes == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int64_t g = 0; g < n_groups; g++) {
        const quant_words packed = {(const uint8_t *)t.data + 4 * g, (size_t)n_groups, (uint32_t)q->m.bits,
                                    (uint32_t)(a_word * q->m.bits)};
        quant_words_read(&packed, 0, (size_t)q->n_out, codes);
        for (int64_t o = 0; o < q->n_out; o++) {
            zeros[o * n_groups + g] = codes[o];
        }
    }
    q->m.zeros = zeros;
    return QUIRE_OK;
}

static quire_err read_integers(quant_linear *q) {
    static const int32_t widths[] = {4, 8, 2, 3};
    tensor_view codes, scales;
    int64_t words = q->whole->n_dims == 2 ? q->whole->dims[1] : 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths && q->m.bits == 0; i++) {
        int64_t a_word = 32 / widths[i]; /* the rest of a word's bits is unused */
        q->m.bits = (q->n_in + a_word - 1) / a_word == words ? widths[i] : 0;
    }
    if (q->m.bits == 0) {
        return quant_error(q, ".weight_packed",
                           "%lld words a row do not hold 2, 3, 4 or 8 bits for %lld inputs", (long long)words,
                           (long long)q->n_in);
    }
    TRY(quant_need(q, ".weight_packed", DTYPE_I32, q->n_out, words, &codes));
    q->m.place = CODES_WORDS;
    q->m.kind = CODE_INTEGER;
    q->m.zero = 1 << (q->m.bits - 1);
    q->m.codes = codes.data;
    TRY(check_written_shape(q));
    TRY(quant_find(q, ".weight_scale", &scales));
    int64_t n_groups = scales.n_dims == 2 ? scales.dims[1] : 1;
    TRY(quant_scales(q, ".weight_scale", &scales, q->n_out, n_groups, false));
    TRY(quant_groups(q, ".weight_scale", n_groups));
    TRY(compressed_read_zeros(q));
    return quant_group_index(q, ".weight_g_idx");
}

/* Codes of 4 bits in bytes, with a scale for each `group` inputs. */
static quire_err read_fours(quant_linear *q, const char *suffix, dtype scale, int64_t group) {
    tensor_view codes, scales;
    if (q->n_in % group != 0) {
        return quant_error(q, suffix, "%lld inputs are not a multiple of %lld", (long long)q->n_in,
                           (long long)group);
    }
    TRY(quant_need(q, suffix, DTYPE_U8, q->n_out, q->n_in / 2, &codes));
    TRY(quant_need(q, ".weight_scale", scale, q->n_out, q->n_in / group, &scales));
    TRY(quant_scales(q, ".weight_scale", &scales, q->n_out, q->n_in / group, false));
    q->m.place = CODES_NIBBLES;
    q->m.kind = CODE_TABLE;
    q->m.table = quant_e2m1;
    q->m.bits = 4;
    q->m.codes = codes.data;
    q->m.group = (int32_t)group;
    return QUIRE_OK;
}

/* The global scale divides. */
static quire_err read_nvfp4(quant_linear *q) {
    float divisor = 1.0f, input = 0.0f;
    TRY(read_fours(q, ".weight_packed", DTYPE_F8_E4M3, 16));
    TRY(quant_factor(q, ".weight_global_scale", &divisor));
    q->m.factor = 1.0f / divisor;
    TRY(quant_factor(q, ".input_global_scale", &input));
    if (input > 0.0f && quant_rounds_rows(q, 4)) {
        q->rounding = (row_rounding){
            .to = ROUND_E2M1, .scale = ROUND_SCALED, .group = 16, .fixed = 1.0f / input, .least = 0.125f};
    }
    return QUIRE_OK;
}

static quire_err compressed_read_mxfp4(quant_linear *q) {
    if (quant_rounds_rows(q, 4)) {
        q->rounding = (row_rounding){.to = ROUND_E2M1, .scale = ROUND_POWER, .group = 32};
    }
    return read_fours(q, ".weight_packed", DTYPE_U8, 32);
}

/* NVIDIA ModelOpt's NVFP4: the second scale multiplies. */
static quire_err read_modelopt(quant_linear *q) {
    TRY(read_fours(q, ".weight", DTYPE_F8_E4M3, 16));
    TRY(quant_factor(q, ".weight_scale_2", &q->m.factor));
    float input = 0.0f;
    TRY(quant_factor(q, ".input_scale", &input));
    if (input > 0.0f) {
        q->rounding = (row_rounding){
            .to = ROUND_E2M1, .scale = ROUND_SCALED, .group = 16, .fixed = input, .least = 0x1p-9f};
    }
    return QUIRE_OK;
}

const quant_method quant_int_packed = {.suffix = ".weight_packed", .type = DTYPE_I32, .read = read_integers};
const quant_method quant_nvfp4_packed = {
    .suffix = ".weight_packed", .type = DTYPE_U8, .beside = ".weight_global_scale", .read = read_nvfp4};
const quant_method quant_mxfp4_packed = {
    .suffix = ".weight_packed", .type = DTYPE_U8, .read = compressed_read_mxfp4};
const quant_method quant_nvfp4_modelopt = {
    .suffix = ".weight", .type = DTYPE_U8, .beside = ".weight_scale_2", .read = read_modelopt};

/* ---- gpt-oss's MXFP4 ---- */

/* gpt-oss's MXFP4 (OCP MX): the experts' matrices stacked in one tensor, [experts, rows,
 * groups of 32, 16 bytes], scales [experts, rows, groups] as powers of two. Rows are
 * outputs, unlike those of the same checkpoint in 16 bits. */

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
