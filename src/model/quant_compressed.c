/* compressed-tensors, written by llm-compressor: integers packed into words or as bytes,
 * and 4-bit floats (NVFP4, MXFP4) packed into bytes. Its int8 weights with a scale per
 * row are computed directly (loader.c); its FP8 is in quant_methods.c. */

#include "core/quant.h"
#include "model/quant_method.h"

const float quant_e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                              -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/* Checks the stored shape of the whole matrix, which says how far the last word is
 * filled. */
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
                             "it says [%lld, %lld]; the model's configuration requires [%lld, %lld]",
                             (long long)dims[0], (long long)dims[1], (long long)q->n_out, (long long)q->n_in);
}

/* Number of words for n codes of `bits` bits. is_full: codes may span two words. */
static int64_t n_words(int64_t n, int32_t bits, bool is_full) {
    const int64_t a_word = 32 / bits;
    return is_full ? (n * bits + 31) / 32 : (n + a_word - 1) / a_word;
}

/* Number of bits of a word that hold codes. */
static uint32_t n_used(int32_t bits, bool is_full) {
    return is_full ? 32 : (uint32_t)(32 / bits * bits);
}

/* Reads zero points, words [..][groups], packed along the outputs as codes are along the
 * inputs, with the offset added. */
static quire_err compressed_read_zeros(quant_linear *q, bool is_full) {
    tensor_view t;
    const int32_t bits = q->m.bits;
    int64_t n_groups = q->m.n_groups;
    TRY(quant_find(q, ".weight_zero_point", &t));
    if (t.data == NULL) {
        return QUIRE_OK;
    }
    TRY(quant_need(q, ".weight_zero_point", DTYPE_I32, n_words(q->n_out, bits, is_full), n_groups, &t));
    const quant_words first = {t.data, (size_t)n_groups, (uint32_t)bits, n_used(bits, is_full)};
    return quant_zeros(q, &first, 4, n_groups, 0);
}

/* Finds the bits of a code from the number of words in a row. A word holds 32 / bits
 * codes or, in newer versions of the library, codes may span two words (*is_full). */
static quire_err find_packing(quant_linear *q, int64_t words, bool *is_full) {
    static const int32_t widths[] = {4, 8, 2, 3, 5, 6, 7};
    for (size_t i = 0; i < sizeof widths / sizeof *widths && q->m.bits == 0; i++) {
        *is_full = n_words(q->n_in, widths[i], false) != words;
        if ((!*is_full || n_words(q->n_in, widths[i], true) == words) && quant_says_bits(q, widths[i])) {
            q->m.bits = widths[i];
        }
    }
    return q->m.bits != 0
               ? QUIRE_OK
               : quant_error(q, ".weight_packed",
                             "rows of %lld words do not fit %lld inputs at the bits that config.json gives",
                             (long long)words, (long long)q->n_in);
}

/* Unpacks codes that may span two words to a byte each. */
static quire_err unpack_full(quant_linear *q, const tensor_view *t, int64_t words) {
    uint8_t *bytes = quant_memory(q, (size_t)q->n_out * (size_t)q->n_in, 1);
    for (int64_t o = 0; bytes != NULL && o < q->n_out; o++) {
        const quant_words row = {(const uint8_t *)t->data + 4 * o * words, 1, (uint32_t)q->m.bits, 32};
        quant_words_read(&row, 0, (size_t)q->n_in, bytes + o * q->n_in);
    }
    q->m.place = CODES_BYTES;
    q->m.codes = bytes;
    return bytes != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* Reads scales of integers: [outputs][groups], or one for all. */
static quire_err compressed_read_scales(quant_linear *q) {
    tensor_view t;
    TRY(quant_find(q, ".weight_scale", &t));
    const int64_t n_groups = t.n_dims == 2 ? t.dims[1] : 1;
    const bool is_one = t.data != NULL && n_groups == 1 && (t.n_dims == 0 || t.dims[0] == 1);
    t.n_dims = t.n_dims == 0 ? 1 : t.n_dims;
    TRY(quant_scales(q, ".weight_scale", &t, is_one ? 1 : q->n_out, n_groups, false));
    if (is_one) {
        float *all = quant_memory(q, (size_t)q->n_out, sizeof *all);
        for (int64_t i = 0; all != NULL && i < q->n_out; i++) {
            all[i] = q->m.scales[0];
        }
        q->m.scales = all;
        TRY(all != NULL ? QUIRE_OK : QUIRE_NO_MEMORY);
    }
    return quant_groups(q, ".weight_scale", n_groups);
}

static quire_err read_integers(quant_linear *q) {
    tensor_view codes;
    bool is_full = false;
    const int64_t words = q->whole->n_dims == 2 ? q->whole->dims[1] : 0;
    TRY(find_packing(q, words, &is_full));
    TRY(quant_need(q, ".weight_packed", DTYPE_I32, q->n_out, words, &codes));
    q->m.place = CODES_WORDS;
    q->m.kind = CODE_INTEGER;
    q->m.zero = 1 << (q->m.bits - 1);
    q->m.codes = codes.data;
    if (is_full) {
        TRY(unpack_full(q, &codes, words));
    }
    TRY(check_written_shape(q));
    TRY(compressed_read_scales(q));
    TRY(compressed_read_zeros(q, is_full));
    if (quant_rounds_rows(q, "int", q->m.bits)) {
        q->rounding = (row_rounding){.to = ROUND_E4M3, .scale = ROUND_LARGEST};
    }
    return quant_group_index(q, ".weight_g_idx");
}

/* Reads signed bytes with a scale per group, optionally with zero points. */
static quire_err compressed_read_bytes(quant_linear *q) {
    tensor_view codes, zeros;
    const size_t n = (size_t)q->n_out * (size_t)q->n_in;
    TRY(quant_need(q, ".weight", DTYPE_I8, q->n_out, q->n_in, &codes));
    TRY(compressed_read_scales(q));
    uint8_t *bytes = quant_memory(q, n, 1);
    if (bytes == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        bytes[i] = ((const uint8_t *)codes.data)[i] ^ 0x80;
    }
    quant_set_codes(q, CODES_BYTES, CODE_INTEGER, 8, bytes);
    q->m.zero = 128;
    TRY(quant_find(q, ".weight_zero_point", &zeros));
    if (zeros.data == NULL) {
        return QUIRE_OK;
    }
    TRY(quant_need(q, ".weight_zero_point", DTYPE_I8, q->n_out, q->m.n_groups, &zeros));
    const int64_t n_zeros = q->n_out * q->m.n_groups;
    int16_t *to = quant_memory(q, (size_t)n_zeros, sizeof *to);
    for (int64_t i = 0; to != NULL && i < n_zeros; i++) {
        to[i] = (int16_t)(((const int8_t *)zeros.data)[i] + 128);
    }
    q->m.zeros = to;
    return to != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

/* Reads a scale of this type per `group` inputs. E8M0 scales may be stored as U8. down:
 * the scales are stored [groups, outputs]. */
static quire_err read_scales_of(quant_linear *q, const char *suffix, dtype type, int64_t group, bool down) {
    tensor_view t;
    const int64_t n_groups = q->n_in / group;
    TRY(quant_find(q, suffix, &t));
    type = type == DTYPE_U8 && t.type == DTYPE_F8_E8M0 ? DTYPE_F8_E8M0 : type;
    TRY(quant_need(q, suffix, type, down ? n_groups : q->n_out, down ? q->n_out : n_groups, &t));
    return quant_scales(q, suffix, &t, q->n_out, n_groups, down);
}

/* Reads 4-bit codes in bytes, with a scale per `group` inputs. Stacks of experts without
 * a suffix may be stored [inputs, outputs]. */
static quire_err read_fours(quant_linear *q, const char *suffix, const char *scales, dtype scale,
                            int64_t group) {
    const bool down = *suffix == 0 && q->part != NULL && q->part->transposed;
    tensor_view codes;
    if (q->n_in % group != 0) {
        return quant_error(q, suffix, "%lld inputs are not a multiple of %lld", (long long)q->n_in,
                           (long long)group);
    }
    TRY(quant_need(q, suffix, DTYPE_U8, down ? q->n_in / 2 : q->n_out, down ? q->n_out : q->n_in / 2,
                   &codes));
    TRY(read_scales_of(q, scales, scale, group, down));
    quant_set_codes(q, down ? CODES_NIBBLES_DOWN : CODES_NIBBLES, CODE_TABLE, 4, codes.data);
    q->m.table = quant_e2m1;
    q->m.group = (int32_t)group;
    return QUIRE_OK;
}

/* NVFP4: the global scale is a divisor. */
static quire_err read_nvfp4(quant_linear *q) {
    float divisor = 1.0f, input = 0.0f;
    TRY(read_fours(q, ".weight_packed", ".weight_scale", DTYPE_F8_E4M3, 16));
    TRY(quant_factor(q, ".weight_global_scale", &divisor));
    q->m.factor = 1.0f / divisor;
    TRY(quant_factor(q, ".input_global_scale", &input));
    if (input > 0.0f && quant_rounds_rows(q, "float", 4)) {
        q->rounding = (row_rounding){
            .to = ROUND_E2M1, .scale = ROUND_SCALED, .group = 16, .fixed = 1.0f / input, .least = 0.125f};
    }
    return QUIRE_OK;
}

static quire_err compressed_read_mxfp4(quant_linear *q) {
    if (quant_rounds_rows(q, "float", 4)) {
        q->rounding = (row_rounding){.to = ROUND_E2M1, .scale = ROUND_POWER, .group = 32};
    }
    return read_fours(q, str_ends(str_of(q->whole->name), "_packed") ? ".weight_packed" : ".weight",
                      ".weight_scale", DTYPE_U8, 32);
}

/* NVIDIA ModelOpt's NVFP4: the second scale is a factor. */
static quire_err read_modelopt_factors(quant_linear *q, const char *second, const char *input_scale) {
    float input = 0.0f;
    TRY(quant_factor(q, second, &q->m.factor));
    TRY(quant_factor(q, input_scale, &input));
    if (input > 0.0f) {
        q->rounding = (row_rounding){
            .to = ROUND_E2M1, .scale = ROUND_SCALED, .group = 16, .fixed = input, .least = 0x1p-9f};
    }
    return QUIRE_OK;
}

static quire_err read_modelopt(quant_linear *q) {
    TRY(read_fours(q, ".weight", ".weight_scale", DTYPE_F8_E4M3, 16));
    return read_modelopt_factors(q, ".weight_scale_2", ".input_scale");
}

static quire_err read_modelopt_stacked(quant_linear *q) {
    TRY(read_fours(q, "", "_weight_scale", DTYPE_F8_E4M3, 16));
    return read_modelopt_factors(q, "_weight_scale_2", "_input_scale");
}

const quant_method quant_int_packed = {.suffix = ".weight_packed", .type = DTYPE_I32, .read = read_integers};
const quant_method quant_int_groups = {.suffix = ".weight",
                                       .type = DTYPE_I8,
                                       .beside = ".weight_scale",
                                       .has_groups = true,
                                       .read = compressed_read_bytes};
const quant_method quant_int_zeros = {
    .suffix = ".weight", .type = DTYPE_I8, .beside = ".weight_zero_point", .read = compressed_read_bytes};
const quant_method quant_nvfp4_packed = {
    .suffix = ".weight_packed", .type = DTYPE_U8, .beside = ".weight_global_scale", .read = read_nvfp4};
const quant_method quant_mxfp4_packed = {
    .suffix = ".weight_packed", .type = DTYPE_U8, .read = compressed_read_mxfp4};
const quant_method quant_mxfp4_quark = {.suffix = ".weight",
                                        .type = DTYPE_U8,
                                        .beside = ".weight_scale",
                                        .only_for = "quark",
                                        .read = compressed_read_mxfp4};
const quant_method quant_nvfp4_modelopt = {
    .suffix = ".weight", .type = DTYPE_U8, .beside = ".weight_scale_2", .read = read_modelopt};
const quant_method quant_nvfp4_stacked = {
    .suffix = "", .type = DTYPE_U8, .beside = "_weight_scale_2", .read = read_modelopt_stacked};

/* gpt-oss's MXFP4 (OCP MX): the experts' matrices are stacked in one tensor, [experts,
 * rows, groups of 32, 16 bytes], with scales [experts, rows, groups] as powers of two.
 * Rows are outputs, unlike those of the same checkpoint in 16 bits. */

static quire_err mxfp4_read(quant_linear *q) {
    return read_fours(q, "_blocks", "_scales", DTYPE_U8, 32);
}

const quant_method quant_mxfp4_stacked = {
    .suffix = "_blocks", .type = DTYPE_U8, .beside = "_scales", .read = mxfp4_read};
