#include "lab/bench/kernel_types.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "core/half.h"

static const kernel_type types[] = {
    {"q4_0", DTYPE_Q4_0, COMPUTE_INT8},     {"q8_0", DTYPE_Q8_0, COMPUTE_INT8},       {"q4_k", DTYPE_Q4_K, COMPUTE_INT8},
    {"iq4_xs", DTYPE_IQ4_XS, COMPUTE_INT8}, {"mxfp4", DTYPE_MXFP4, COMPUTE_INT8},     {"nvfp4", DTYPE_NVFP4, COMPUTE_INT8},
    {"iq3_s", DTYPE_IQ3_S, COMPUTE_INT8},   {"iq3_xxs", DTYPE_IQ3_XXS, COMPUTE_INT8}, {"iq2_xxs", DTYPE_IQ2_XXS, COMPUTE_INT8},
    {"iq2_s", DTYPE_IQ2_S, COMPUTE_INT8},   {"tq2_0", DTYPE_TQ2_0, COMPUTE_INT8},     {"int8", DTYPE_BF16, COMPUTE_INT8},
    {"bf16", DTYPE_BF16, COMPUTE_BF16},     {"f16", DTYPE_F16, COMPUTE_F32},          {"f32", DTYPE_F32, COMPUTE_F32}};
enum { N_TYPES = (int)(sizeof types / sizeof types[0]) };

const kernel_type *kernel_type_next(const char **list) {
    size_t n = strcspn(*list, ",");
    const char *name = *list;
    *list += n + ((*list)[n] == ',');
    for (int i = 0; i < N_TYPES; i++) {
        if (strlen(types[i].name) == n && memcmp(types[i].name, name, n) == 0) {
            return &types[i];
        }
    }
    return NULL;
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
        uint16_t half = t == DTYPE_F16 ? f32_to_f16(value) : t == DTYPE_BF16 ? f32_to_bf16(value) : f32_to_f16(0x1p-7f);
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
