/* Quantises floats to the blocks of GGUF's types: the inverse of quant_dequantise
 * (quant.h).
 *
 * Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, MXFP4, TQ1_0 and TQ2_0 have the bits of ggml's reference
 * quantiser and gguf-py. No reference defines the bits of Q4_K, Q5_K, Q6_K, IQ4_NL and
 * IQ4_XS: there, quantise_k.c searches for the scales. Pure: a row has the same bits on
 * every machine. */
#ifndef CORE_QUANTISE_H
#define CORE_QUANTISE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"

#define QUANTISE_LARGEST 65504.0f /* the largest magnitude that all types represent with 16-bit scales */

/* blocks = the n elements of x in type t: a type listed above, F16, BF16 or F32. Elements
 * that are not finite or exceed QUANTISE_LARGEST give an unspecified block.
 * QUIRE_UNSUPPORTED for other types; QUIRE_INVALID if n is no multiple of the type's
 * block. blocks needs no alignment. Any thread. */
quire_err quant_quantise(dtype t, const float *x, size_t n, void *blocks);

/* Functions of quantise_k.c that write one block each, and their helpers. */

/* Quantises the 256 elements (IQ4_NL: 32) at x to one block at b. */
void quant_to_q4_k(const float *x, uint8_t *b);
void quant_to_q5_k(const float *x, uint8_t *b);
void quant_to_q6_k(const float *x, uint8_t *b);
void quant_to_iq4_nl(const float *x, uint8_t *b);
void quant_to_iq4_xs(const float *x, uint8_t *b);

static inline void quant_put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* Packs 16 bytes: elements 0..15 in the low nibbles, 16..31 in the high. */
static inline void quant_put_nibbles(uint8_t *p, const int q[32]) {
    for (int i = 0; i < 16; i++) {
        p[i] = (uint8_t)((q[i] & 15) | (q[16 + i] & 15) << 4);
    }
}

#endif
