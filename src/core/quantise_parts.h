/* Functions that write one block each, for quantise.c, and their helpers. */
#ifndef CORE_QUANTISE_PARTS_H
#define CORE_QUANTISE_PARTS_H

#include <stdint.h>

/* Each writes the block of 256 elements (IQ4_NL: 32) at x. */
void quant_to_q4_k(const float *x, uint8_t *b);
void quant_to_q5_k(const float *x, uint8_t *b);
void quant_to_q6_k(const float *x, uint8_t *b);
void quant_to_iq4_nl(const float *x, uint8_t *b);
void quant_to_iq4_xs(const float *x, uint8_t *b);

static inline void quant_put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* 16 bytes: elements 0..15 in the low nibbles, 16..31 in the high ones. */
static inline void quant_put_nibbles(uint8_t *p, const int q[32]) {
    for (int i = 0; i < 16; i++) {
        p[i] = (uint8_t)((q[i] & 15) | (q[16 + i] & 15) << 4);
    }
}

#endif
