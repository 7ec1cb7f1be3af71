/* ggml block formats: dequantisation, equal to the bit to gguf-py's (separate multiply and add, in its order). */
#ifndef CORE_QUANT_H
#define CORE_QUANT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"

#define QUANT_SUPER 256 /* elements of a K block */

/* How a format stores the scales of its groups: one half a group, with or without another for the min; or codes of so many bits, which are
 * multiplied with halves of the K block. */
typedef enum quant_scale { SCALE_NONE, SCALE_F16, SCALE_F16_MIN, SCALE_FOUR, SCALE_SIX, SCALE_SIX_MIN, SCALE_EIGHT } quant_scale;

/* The formats: value = scale * (number - zero), plus or minus a min where there is one.
 * X(name, elements of a group, bits of a number, zero, how scales are stored) */
#define QUANT_LIST(X)                                                                                                                      \
    X(Q4_0, 32, 4, 8, SCALE_F16)                                                                                                           \
    X(Q4_1, 32, 4, 0, SCALE_F16_MIN)                                                                                                       \
    X(Q5_0, 32, 5, 16, SCALE_F16)                                                                                                          \
    X(Q5_1, 32, 5, 0, SCALE_F16_MIN)                                                                                                       \
    X(Q8_0, 32, 8, 0, SCALE_F16)                                                                                                           \
    X(IQ4_NL, 32, 4, 0, SCALE_F16)                                                                                                         \
    X(Q2_K, 16, 2, 0, SCALE_FOUR)                                                                                                          \
    X(Q3_K, 16, 3, 4, SCALE_SIX)                                                                                                           \
    X(Q4_K, 32, 4, 0, SCALE_SIX_MIN)                                                                                                       \
    X(Q5_K, 32, 5, 0, SCALE_SIX_MIN)                                                                                                       \
    X(Q6_K, 16, 6, 32, SCALE_EIGHT)

typedef struct quant_format {
    int group, bits, zero;
    quant_scale coding;
} quant_format;

/* IQ4_NL's values by number. */
extern const int8_t quant_iq4_values[16];

/* Up to QUANT_SUPER elements as codes, not yet values: numbers as the format stores them (zero not yet subtracted; int8 as
 * bytes). scale and min: codes of each group. d and m: halves of each group (SCALE_F16*) or of all (the others). */
typedef struct quant_codes {
    uint8_t q[QUANT_SUPER];
    uint8_t scale[16], min[16];
    uint16_t d[8], m[8];
} quant_codes;

/* Splits the n elements at `blocks`, of a type of QUANT_LIST, into codes. n: a multiple of the type's block, at most QUANT_SUPER. Any
 * thread. */
void quant_split(dtype t, const uint8_t *blocks, size_t n, quant_codes *out);

/* out[0..n) = the values of n elements of type t at blocks; n is a multiple of the type's block. Types: F32 F16 BF16, 8-bit floats, every
 * Q type. QUIRE_UNSUPPORTED for the integer types. blocks needs no alignment. Any thread. */
quire_err quant_dequantise(dtype t, const void *blocks, size_t n, float *out);

#endif
