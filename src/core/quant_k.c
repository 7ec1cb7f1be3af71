/* Splits the blocks of 256 elements whose numbers stand for themselves: K types, and
 * IQ4_XS. */
#include <string.h>

#include "core/quant_parts.h"

void quant_split_pairs(const uint8_t *restrict b, int at_bit, uint8_t *restrict q) {
    for (int row = 0; row < 8; row++) {
        const uint8_t *from = b + 32 * (row / 4);
        for (int i = 0; i < 32; i++) {
            q[32 * row + i] = (uint8_t)(q[32 * row + i] | (from[i] >> (2 * (row % 4)) & 3) << at_bit);
        }
    }
}

/* One bit of 256 elements: bit r of byte i belongs to element i of row r. */
static void split_bits(const uint8_t *restrict b, int at_bit, uint8_t *restrict q) {
    for (int row = 0; row < 8; row++) {
        for (int i = 0; i < 32; i++) {
            q[32 * row + i] = (uint8_t)(q[32 * row + i] | (b[i] >> row & 1) << at_bit);
        }
    }
}

/* 16 bytes (scale, min: low and high nibble) of 16 elements each, 64 bytes of 2-bit
 * values, d, dmin. The values lie in two halves of 128 elements: 32 bytes hold four rows
 * of 32, two bits each. */
void quant_split_q2_k(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    for (int i = 0; i < 16; i++) {
        out->scale[i] = b[i] & 15;
        out->min[i] = b[i] >> 4;
    }
    quant_split_pairs(b + 16, 0, out->q);
    out->d[0] = quant_u16(b + 80);
    out->m[0] = quant_u16(b + 82);
}

/* 32 bytes of third bits (0 means: minus 4), 64 bytes of 2-bit values laid out as in
 * Q2_K, 16 scales of 6 bits in 12 bytes, d. */
void quant_split_q3_k(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    quant_split_pairs(b + 32, 0, out->q);
    split_bits(b, 2, out->q);
    for (int i = 0; i < 16; i++) {
        int low4 = b[96 + i % 8] >> (4 * (i / 8)) & 15;
        int high2 = b[104 + i % 4] >> (2 * (i / 4)) & 3;
        out->scale[i] = (uint8_t)(low4 | high2 << 4);
    }
    out->d[0] = quant_u16(b + 108);
}

/* Q4_K and Q5_K: d, dmin, 12 bytes of scales and mins, for Q5_K 32 bytes of fifth bits,
 * 128 of nibbles: 32 bytes hold two rows of 32.
 * 8 scales and 8 mins of 6 bits in 12 bytes: 0..3 in the low bits of bytes 0..3 (mins
 * 4..7); 4..7 in the nibbles of bytes 8..11 with their top two bits in the top bits of
 * bytes 0..3 (mins 4..7). */
static void split_q45_k(bool five, const uint8_t *restrict b, quant_codes *out) {
    const uint8_t *packed = b + 4, *nibbles = five ? b + 48 : b + 16;
    out->d[0] = quant_u16(b);
    out->m[0] = quant_u16(b + 2);
    for (int i = 0; i < 8; i++) {
        if (i < 4) {
            out->scale[i] = packed[i] & 63;
            out->min[i] = packed[4 + i] & 63;
        } else {
            out->scale[i] = (uint8_t)((packed[4 + i] & 15) | (packed[i - 4] >> 6) << 4);
            out->min[i] = (uint8_t)(packed[4 + i] >> 4 | (packed[i] >> 6) << 4);
        }
    }
    for (int row = 0; row < 8; row++) {
        for (int i = 0; i < 32; i++) {
            out->q[32 * row + i] = nibbles[32 * (row / 2) + i] >> (4 * (row % 2)) & 15;
        }
    }
    if (five) {
        split_bits(b + 16, 4, out->q);
    }
}

/* 128 bytes of low nibbles, 64 of two high bits, 16 scales of 8 bits, d. In each half of
 * 128 elements rows 0 and 2 share 32 bytes of nibbles, rows 1 and 3 the next 32; the four
 * rows share 32 bytes of high bits. */
void quant_split_q6_k(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    for (int row = 0; row < 8; row++) {
        const uint8_t *low = b + 64 * (row / 4) + 32 * (row % 2);
        for (int i = 0; i < 32; i++) {
            out->q[32 * row + i] = low[i] >> (4 * (row % 4 / 2)) & 15;
        }
    }
    quant_split_pairs(b + 128, 4, out->q);
    memcpy(out->scale, b + 192, 16);
    out->d[0] = quant_u16(b + 208);
}

void quant_split_q4_k(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    split_q45_k(false, b, out);
}

void quant_split_q5_k(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    split_q45_k(true, b, out);
}

/* d, 2 bytes of the scales' top two bits, 4 of their nibbles, 128 of nibbles: 16 bytes
 * hold elements 0..15 and 16..31 of a group. */
void quant_split_iq4_xs(const uint8_t *b, int at, quant_codes *out) {
    const int high = quant_u16(b + 2);
    (void)at;
    out->d[0] = quant_u16(b);
    for (int g = 0; g < 8; g++) {
        out->scale[g] = (uint8_t)((b[4 + g / 2] >> (4 * (g % 2)) & 15) | (high >> (2 * g) & 3) << 4);
        quant_split_nibbles(b + 8 + 16 * g, 16, out->q + 32 * g);
    }
}
