/* Splits blocks of E2M1 numbers (MXFP4, NVFP4) and of the fewest bits (TQ1_0, TQ2_0,
 * Q2_0, Q1_0). */
#include "core/quant_parts.h"

/* A byte of scale, 16 of nibbles. */
void quant_split_mxfp4(const uint8_t *b, int at, quant_codes *out) {
    out->scale[at / QUANT_GROUP] = b[0];
    quant_split_nibbles(b + 1, 16, out->q + at);
}

/* 64 elements: 4 bytes of scales, then 8 of nibbles for each 16 elements. A scale's top
 * bit means nothing; all ones mean 0. */
void quant_split_nvfp4(const uint8_t *b, int at, quant_codes *out) {
    for (int g = 0; g < 4; g++) {
        out->scale[at / 16 + g] = b[g] == 0x7f ? 0 : b[g] & 0x7f;
        quant_split_nibbles(b + 4 + 8 * g, 8, out->q + at + 16 * g);
    }
}

/* Codes of n elements whose zero is 1, so that 0..2 stand for -1..1. One half counts for
 * all of them. */
static void set_half(uint16_t d, int at, int n, quant_codes *out) {
    for (int g = at / QUANT_GROUP; g < (at + n) / QUANT_GROUP; g++) {
        out->d[g] = d;
        out->zero[g] = 1;
    }
}

/* n bytes of so many digits each: digit r of byte i is element r * n + i. A byte is a
 * fraction of 256 whose first digits in base 3 these are, so each follows from three
 * times the byte. */
static void split_digits(const uint8_t *restrict b, int n, int digits, uint8_t *restrict q) {
    for (int i = 0; i < n; i++) {
        unsigned fraction = b[i];
        for (int r = 0; r < digits; r++) {
            q[r * n + i] = (uint8_t)(fraction * 3 >> 8);
            fraction = fraction * 3 & 255;
        }
    }
}

/* 32 bytes of 5 digits, 16 of 5, 4 of 4, d. */
void quant_split_tq1_0(const uint8_t *b, int at, quant_codes *out) {
    split_digits(b, 32, 5, out->q);
    split_digits(b + 32, 16, 5, out->q + 160);
    split_digits(b + 48, 4, 4, out->q + 240);
    set_half(quant_u16(b + 52), at, QUANT_SUPER, out);
}

/* 64 bytes of pairs of bits, d. The pair 3, which no quantiser writes, stands for 2. */
void quant_split_tq2_0(const uint8_t *b, int at, quant_codes *out) {
    quant_split_pairs(b, 0, out->q);
    set_half(quant_u16(b + 64), at, QUANT_SUPER, out);
}

/* 64 elements: d, 16 bytes of pairs of bits, the first in the lowest. They stand for
 * -1..2. */
void quant_split_q2_0(const uint8_t *b, int at, quant_codes *out) {
    for (int i = 0; i < 64; i++) {
        out->q[at + i] = b[2 + i / 4] >> 2 * (i % 4) & 3;
    }
    set_half(quant_u16(b), at, 64, out);
}

/* 128 elements: d, 16 bytes of bits, the first in the lowest. They stand for -1 and 1. */
void quant_split_q1_0(const uint8_t *b, int at, quant_codes *out) {
    for (int i = 0; i < 128; i++) {
        out->q[at + i] = (uint8_t)(2 * (b[2 + i / 8] >> i % 8 & 1));
    }
    set_half(quant_u16(b), at, 128, out);
}
