/* Element types of tensors in files, of KV pages and of compute. */
#ifndef CORE_DTYPE_H
#define CORE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, name in flags, elements per block, bytes per block, ggml type number or -1) */
#define DTYPE_LIST(X)                                                                                        \
    X(F32, f32, 1, 4, 0)                                                                                     \
    X(F16, f16, 1, 2, 1)                                                                                     \
    X(BF16, bf16, 1, 2, 30)                                                                                  \
    X(Q4_0, q4_0, 32, 18, 2)                                                                                 \
    X(Q4_1, q4_1, 32, 20, 3)                                                                                 \
    X(Q5_0, q5_0, 32, 22, 6)                                                                                 \
    X(Q5_1, q5_1, 32, 24, 7)                                                                                 \
    X(Q8_0, q8_0, 32, 34, 8)                                                                                 \
    X(Q2_K, q2_k, 256, 84, 10)                                                                               \
    X(Q3_K, q3_k, 256, 110, 11)                                                                              \
    X(Q4_K, q4_k, 256, 144, 12)                                                                              \
    X(Q5_K, q5_k, 256, 176, 13)                                                                              \
    X(Q6_K, q6_k, 256, 210, 14)                                                                              \
    X(IQ4_NL, iq4_nl, 32, 18, 20)                                                                            \
    X(IQ4_XS, iq4_xs, 256, 136, 23)                                                                          \
    X(MXFP4, mxfp4, 32, 17, 39)                                                                              \
    X(NVFP4, nvfp4, 64, 36, 40)                                                                              \
    X(IQ3_S, iq3_s, 256, 110, 21)                                                                            \
    X(IQ3_XXS, iq3_xxs, 256, 98, 18)                                                                         \
    X(IQ2_S, iq2_s, 256, 82, 22)                                                                             \
    X(IQ2_XS, iq2_xs, 256, 74, 17)                                                                           \
    X(IQ2_XXS, iq2_xxs, 256, 66, 16)                                                                         \
    X(IQ1_M, iq1_m, 256, 56, 29)                                                                             \
    X(IQ1_S, iq1_s, 256, 50, 19)                                                                             \
    X(TQ1_0, tq1_0, 256, 54, 34)                                                                             \
    X(TQ2_0, tq2_0, 256, 66, 35)                                                                             \
    X(Q2_0, q2_0, 64, 18, 42)                                                                                \
    X(Q1_0, q1_0, 128, 18, 41)                                                                               \
    X(I8, int8, 1, 1, 24)                                                                                    \
    X(I16, int16, 1, 2, 25)                                                                                  \
    X(I32, int32, 1, 4, 26)                                                                                  \
    X(I64, int64, 1, 8, 27)                                                                                  \
    X(F64, f64, 1, 8, 28)                                                                                    \
    X(U8, uint8, 1, 1, -1)                                                                                   \
    X(BOOL, bool, 1, 1, -1)                                                                                  \
    X(F8_E4M3, fp8_e4m3, 1, 1, -1)                                                                           \
    X(F8_E8M0, fp8_e8m0, 1, 1, -1)                                                                           \
    X(I4, int4, 32, 17, -1) /* KV pages only: backend/cpu/kv_rows.h */

typedef enum dtype {
#define DTYPE_NAME(name, flag, elements, bytes, ggml) DTYPE_##name,
    DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
        N_DTYPES
} dtype;

/* How matrix products are computed: the main part of the numeric configuration
 * (docs/design.md, Determinism). */
typedef enum compute_mode {
    COMPUTE_F32,
    COMPUTE_BF16,
    COMPUTE_INT8,
    /* f32, with activations rounded as the checkpoint expects (quant_matrix.h): slow, for
     * comparison */
    COMPUTE_FP8
} compute_mode;

/* The name in files: "Q4_0", "BF16", "I8". */
const char *dtype_name(dtype t);
/* The name in flags and messages: "q4_0", "bf16", "int8". */
const char *dtype_flag_name(dtype t);
int32_t dtype_block_elements(dtype t);
int32_t dtype_block_bytes(dtype t);
/* False if ggml has no such type or this build does not read it. */
bool dtype_from_ggml(uint32_t ggml_type, dtype *out);
/* name: as in safetensors ("BF16", "F32", "I64"...). False if unknown. */
bool dtype_from_name(const char *name, size_t n, dtype *out);
/* True for block types; false for floats and plain integers. */
bool dtype_is_quantised(dtype t);
const char *compute_name(compute_mode m);

#endif
