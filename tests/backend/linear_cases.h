/* Random weight matrices of every type that a product accepts. */
#ifndef TESTS_LINEAR_CASES_H
#define TESTS_LINEAR_CASES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "core/half.h"
#include "core/quant.h"

#define N_WEIGHT_TYPES 28
#define N_OLD_TYPES    14 /* leading types in the first set of stored hashes */
#define N_NEW_TYPES    26 /* leading types in the first and second set */

static const dtype weight_types[N_WEIGHT_TYPES] = {
    DTYPE_F32,     DTYPE_F16,   DTYPE_BF16,  DTYPE_Q4_0,  DTYPE_Q4_1,    DTYPE_Q5_0,  DTYPE_Q5_1,
    DTYPE_Q8_0,    DTYPE_Q2_K,  DTYPE_Q3_K,  DTYPE_Q4_K,  DTYPE_Q5_K,    DTYPE_Q6_K,  DTYPE_IQ4_NL,
    DTYPE_IQ4_XS,  DTYPE_MXFP4, DTYPE_NVFP4, DTYPE_IQ3_S, DTYPE_IQ3_XXS, DTYPE_IQ2_S, DTYPE_IQ2_XS,
    DTYPE_IQ2_XXS, DTYPE_IQ1_M, DTYPE_IQ1_S, DTYPE_TQ1_0, DTYPE_TQ2_0,   DTYPE_Q2_0,  DTYPE_Q1_0};
static const char *const isa_names[N_ISAS] = {"plain",     "avx2",       "avxvnni", "avx512", "amx",
                                              "amx-model", "avx512bf16", "neon",    "i8mm"};

/* Returns a uniform number in [-1, 1), a multiple of 2^-23. */
static inline float random_float(uint64_t *seed) {
    return (float)((int64_t)(rng_next(seed) >> 40) - (1 << 23)) * 0x1p-23f;
}

/* Finds the byte offsets of a block's f16 scales; returns their number. */
static inline int half_places(dtype t, size_t places[2]) {
    switch (t) {
    case DTYPE_Q2_K:
        places[0] = 80;
        places[1] = 82;
        return 2;
    case DTYPE_Q3_K:
        places[0] = 108;
        return 1;
    case DTYPE_Q6_K:
        places[0] = 208;
        return 1;
    case DTYPE_TQ1_0:
        places[0] = 52;
        return 1;
    case DTYPE_TQ2_0:
        places[0] = 64;
        return 1;
    case DTYPE_MXFP4:
    case DTYPE_NVFP4:
    case DTYPE_IQ1_M:
        return 0;
    default:
        places[0] = 0;
        places[1] = 2;
        return t == DTYPE_Q4_1 || t == DTYPE_Q5_1 || t == DTYPE_Q4_K || t == DTYPE_Q5_K ? 2 : 1;
    }
}

/* Sets scales that are not plain f16: 8-bit exponents and floats, or an f16 spread over
 * the top nibbles of four words. */
static inline void set_scales(dtype t, uint8_t *b, uint64_t *seed) {
    const uint16_t d = t == DTYPE_IQ1_M ? f32_to_f16(random_float(seed) * 0x1p-5f) : 0;
    if (t == DTYPE_MXFP4) {
        b[0] = (uint8_t)(110 + rng_next(seed) % 20);
    }
    for (int i = 0; i < 4 && t == DTYPE_NVFP4; i++) {
        b[i] = (uint8_t)(rng_next(seed) % 64); /* E4M3, some subnormal */
    }
    for (int i = 0; i < 4 && t == DTYPE_IQ1_M; i++) {
        b[49 + 2 * i] = (uint8_t)((b[49 + 2 * i] & 15) | (d >> (4 * i) & 15) << 4);
    }
}

/* Returns n elements of type t, which the caller frees: random codes, and f16 scales in
 * [-2^-5, 2^-5). */
static inline uint8_t *random_weights(dtype t, size_t n, uint64_t *seed) {
    size_t block = (size_t)dtype_block_bytes(t), n_blocks = n / (size_t)dtype_block_elements(t);
    uint8_t *bytes = malloc(n_blocks * block);
    for (size_t i = 0; i < n_blocks; i++) {
        uint8_t *b = bytes + i * block;
        if (!dtype_is_quantised(t)) {
            float x = random_float(seed);
            uint16_t h = t == DTYPE_F16 ? f32_to_f16(x) : f32_to_bf16(x);
            memcpy(b, t == DTYPE_F32 ? (void *)&x : (void *)&h, block);
            continue;
        }
        for (size_t j = 0; j < block; j++) {
            b[j] = (uint8_t)rng_next(seed);
        }
        size_t places[2];
        set_scales(t, b, seed);
        for (int h = half_places(t, places) - 1; h >= 0; h--) {
            uint16_t d = f32_to_f16(random_float(seed) * 0x1p-5f);
            memcpy(b + places[h], &d, sizeof d);
        }
    }
    return bytes;
}

static inline tensor_view matrix_view(dtype t, int32_t n_out, int32_t n_in, const void *data) {
    size_t n = (size_t)n_out * (size_t)n_in;
    return (tensor_view){.name = "w",
                         .type = t,
                         .n_dims = 2,
                         .dims = {n_out, n_in, 1, 1},
                         .data = data,
                         .n_bytes = n / (size_t)dtype_block_elements(t) * (size_t)dtype_block_bytes(t)};
}

/* Opens a backend. NULL: this processor lacks the instruction set. */
static inline backend *open_isa(const char *isa, compute_mode mode, int32_t n_threads) {
    backend *b = NULL;
    quire_error err;
    const backend_options options = {
        .compute = mode, .isa = isa, .n_threads = getenv("QUIRE_TEST_EMULATED") != NULL ? 1 : n_threads};
    quire_err e = backend_cpu_open(&options, &b, &err);
    if (e == QUIRE_UNSUPPORTED) {
        return NULL;
    }
    if (e != QUIRE_OK) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return b;
}

static inline uint64_t fnv64(uint64_t hash, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ p[i]) * 0x100000001b3u;
    }
    return hash;
}

#endif
