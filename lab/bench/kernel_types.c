#include "lab/bench/kernel_types.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "core/half.h"
#include "lab/bench/figures.h"

static const kernel_type types[] = {
    {"q4_0", DTYPE_Q4_0, COMPUTE_INT8},       {"q8_0", DTYPE_Q8_0, COMPUTE_INT8},
    {"q4_k", DTYPE_Q4_K, COMPUTE_INT8},       {"iq4_xs", DTYPE_IQ4_XS, COMPUTE_INT8},
    {"mxfp4", DTYPE_MXFP4, COMPUTE_INT8},     {"nvfp4", DTYPE_NVFP4, COMPUTE_INT8},
    {"iq3_s", DTYPE_IQ3_S, COMPUTE_INT8},     {"iq3_xxs", DTYPE_IQ3_XXS, COMPUTE_INT8},
    {"iq2_xxs", DTYPE_IQ2_XXS, COMPUTE_INT8}, {"iq2_s", DTYPE_IQ2_S, COMPUTE_INT8},
    {"iq2_xs", DTYPE_IQ2_XS, COMPUTE_INT8},   {"iq1_s", DTYPE_IQ1_S, COMPUTE_INT8},
    {"tq2_0", DTYPE_TQ2_0, COMPUTE_INT8},     {"fp8", DTYPE_F8_E4M3, COMPUTE_BF16},
    {"nf4", DTYPE_U8, COMPUTE_BF16},          {"int8", DTYPE_BF16, COMPUTE_INT8},
    {"bf16", DTYPE_BF16, COMPUTE_BF16},       {"f16", DTYPE_F16, COMPUTE_F32},
    {"f32", DTYPE_F32, COMPUTE_F32},          {"q1_0", DTYPE_Q1_0, COMPUTE_INT8},
    {"int4", DTYPE_I32, COMPUTE_INT8}};
enum { N_TYPES = (int)(sizeof types / sizeof types[0]) };

/* Scales of 2^-7, of INT4 for each row, else the same for all; rows that would need more
 * have one. */
enum { MOST_SCALES = 1 << 17 };

static code_kind code_kind_of(dtype t) {
    return t == DTYPE_U8 ? CODE_TABLE : t == DTYPE_I32 ? CODE_INTEGER : CODE_E4M3;
}

static code_place code_place_of(dtype t) {
    return t == DTYPE_U8 ? CODES_NIBBLES : t == DTYPE_I32 ? CODES_WORDS : CODES_BYTES;
}

tensor_view kernel_type_matrix(dtype t, const void *weights, int32_t n_out, int32_t n_in, quant_matrix *m) {
    static float scales[MOST_SCALES], table[16];
    const int64_t n = (int64_t)n_out * n_in;
    tensor_view view = {
        .name = "weights", .type = t, .n_dims = 2, .dims = {n_out, n_in, 1, 1}, .data = weights};
    view.n_bytes = (size_t)(n / dtype_block_elements(t) * dtype_block_bytes(t));
    if (t != DTYPE_F8_E4M3 && t != DTYPE_U8 && t != DTYPE_I32) {
        return view;
    }
    const int32_t wanted = t == DTYPE_U8 ? 64 : 128, scaled_rows = t == DTYPE_I32 ? n_out : 1;
    const int32_t group = (int64_t)scaled_rows * n_in / wanted < MOST_SCALES ? wanted : n_in;
    *m = (quant_matrix){.place = code_place_of(t), .kind = code_kind_of(t), .zero = 8};
    m->bits = t == DTYPE_F8_E4M3 ? 8 : 4;
    m->codes = weights;
    m->n_rows = m->block = m->step = n_out;
    m->n_in = n_in;
    m->table = table;
    m->scales = scales;
    m->scale_rows = n_out / scaled_rows;
    m->group = group;
    m->n_groups = (n_in + group - 1) / group;
    m->factor = 1.0f;
    for (int32_t i = 0; i < MOST_SCALES; i++) {
        scales[i] = 0x1p-7f;
    }
    for (int32_t i = 0; i < 16; i++) {
        table[i] = (float)(2 * i - 15) / 15.0f;
    }
    view.type = DTYPE_F32;
    view.quant = m;
    return view;
}

const kernel_type *kernel_type_next(const char **list) {
    str name = figures_next_word(list);
    for (int i = 0; i < N_TYPES; i++) {
        if (str_is(name, types[i].name)) {
            return &types[i];
        }
    }
    return NULL;
}

quire_err kernel_types_check(const char *list, quire_error *err) {
    for (const char *at = list; *at != '\0';) {
        if (kernel_type_next(&at) == NULL) {
            return err_set(err, QUIRE_INVALID, -1,
                           "--types %s: must be some of " KERNEL_TYPES KERNEL_TYPES_MORE, list);
        }
    }
    return QUIRE_OK;
}

float kernel_type_float(uint64_t *seed) {
    return (float)(rng_next(seed) >> 40) * 0x1p-23f - 1.0f;
}

/* Both halves that a block may begin with are 2^-7, and so is MXFP4's scale. */
void *kernel_type_weights(dtype t, size_t n) {
    size_t block = (size_t)dtype_block_bytes(t), n_blocks = n / (size_t)dtype_block_elements(t);
    uint8_t *bytes = mem_new(n_blocks, block);
    uint64_t seed = 1;
    for (size_t i = 0; bytes != NULL && i < n_blocks; i++) {
        uint8_t *at = bytes + i * block;
        float value = kernel_type_float(&seed);
        uint16_t half = t == DTYPE_F16    ? f32_to_f16(value)
                        : t == DTYPE_BF16 ? f32_to_bf16(value)
                                          : f32_to_f16(0x1p-7f);
        if (block == 1) { /* codes: E4M3 below 2, or two of 4 bits */
            at[0] = (uint8_t)(rng_next(&seed) & (t == DTYPE_U8 ? 0xff : 0xbf));
            continue;
        }
        if (!dtype_is_quantised(t)) {
            memcpy(at, block == sizeof value ? (void *)&value : (void *)&half, block);
            continue;
        }
        for (size_t j = 0; j < block; j++) {
            at[j] = (uint8_t)rng_next(&seed);
        }
        memcpy(at, &half, sizeof half);
        memcpy(at + sizeof half, &half, sizeof half);
        at[0] = t == DTYPE_MXFP4 ? 121 : at[0];
    }
    return bytes;
}
