/* The functions that split blocks into codes, one file per family of types. Internal to
 * core/quant. */
#ifndef CORE_QUANT_PARTS_H
#define CORE_QUANT_PARTS_H

#include "core/quant.h"

/* Writes a block's codes to the elements of *out from `at` on; `at` is a multiple of the
 * block size. *out starts zeroed. */
typedef void quant_splitter(const uint8_t *block, int at, quant_codes *out);

quant_splitter quant_split_q4_0, quant_split_q4_1, quant_split_q5_0, quant_split_q5_1, quant_split_q8_0;
quant_splitter quant_split_q2_k, quant_split_q3_k, quant_split_q4_k, quant_split_q5_k, quant_split_q6_k,
    quant_split_iq4_xs;
quant_splitter quant_split_mxfp4, quant_split_nvfp4, quant_split_tq1_0, quant_split_tq2_0, quant_split_q2_0,
    quant_split_q1_0;
quant_splitter quant_split_iq3_s, quant_split_iq3_xxs, quant_split_iq2_s, quant_split_iq2_xs,
    quant_split_iq2_xxs;
quant_splitter quant_split_iq1_m, quant_split_iq1_s;

/* Grids of the IQ types. Each row holds 8 elements of 2 bits (IQ2, IQ1) or 4 of 4 bits
 * (IQ3), element 0 in the lowest bits. */
extern const uint16_t quant_grid_iq2_xxs[256], quant_grid_iq2_xs[512], quant_grid_iq2_s[1024],
    quant_grid_iq1[2048];
extern const uint16_t quant_grid_iq3_xxs[256], quant_grid_iq3_s[512];

/* Reads a block's field. Blocks are unaligned, and little-endian on every machine. */
static inline uint16_t quant_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t quant_u32(const uint8_t *p) {
    return quant_u16(p) | (uint32_t)quant_u16(p + 2) << 16;
}

/* Splits n bytes of nibbles: elements 0..n-1 in the low nibbles, the next n in the
 * high. */
static inline void quant_split_nibbles(const uint8_t *restrict b, int n, uint8_t *restrict q) {
    for (int i = 0; i < n; i++) {
        q[i] = b[i] & 15;
        q[n + i] = b[i] >> 4;
    }
}

#endif
