/* Splits the blocks of 256 elements whose numbers are rows of a grid: IQ3, IQ2, IQ1. A code is a number of the row with the sign above. */
#include "core/quant_parts.h"

#define N_EIGHTS 32 /* of a block */

/* The seven signs of `index`, and an eighth that makes their number even. */
static uint8_t even_signs(unsigned index) {
    unsigned odd = index ^ index >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return (uint8_t)(index | (odd & 1) << 7);
}

/* Eight codes of 2 bits and a sign. */
static void put_eight(unsigned row, unsigned signs, uint8_t *q) {
    for (int i = 0; i < 8; i++) {
        q[i] = (uint8_t)((row >> (2 * i) & 3) | (signs >> i & 1) << 2);
    }
}

/* Four codes of 3 bits and a sign. */
static void put_four(unsigned row, unsigned signs, uint8_t *q) {
    for (int i = 0; i < 4; i++) {
        q[i] = (uint8_t)((row >> (4 * i) & 7) | (signs >> i & 1) << 3);
    }
}

/* Codes of 4 bits, low nibbles first. */
static void put_scales(const uint8_t *b, int n, uint8_t *scale) {
    for (int i = 0; i < n; i++) {
        scale[i] = b[i / 2] >> (4 * (i % 2)) & 15;
    }
}

/* d; for each 32: 4 bytes of rows; a word of 4 times 7 bits of signs and the scale. */
void quant_split_iq2_xxs(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    out->d[0] = quant_u16(b);
    for (int i = 0; i < N_EIGHTS; i++) {
        const uint8_t *group = b + 2 + 8 * (i / 4);
        const uint32_t word = quant_u32(group + 4);
        put_eight(quant_grid_iq2_xxs[group[i % 4]], even_signs(word >> (7 * (i % 4)) & 127), out->q + 8 * i);
        out->scale[i / 4] = (uint8_t)(word >> 28);
    }
}

/* d, 32 words of 9 bits of row and 7 of signs, 8 bytes of scales of each 16. */
void quant_split_iq2_xs(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    out->d[0] = quant_u16(b);
    for (int i = 0; i < N_EIGHTS; i++) {
        const unsigned word = quant_u16(b + 2 + 2 * i);
        put_eight(quant_grid_iq2_xs[word & 511], even_signs(word >> 9), out->q + 8 * i);
    }
    put_scales(b + 66, 16, out->scale);
}

/* d, 32 bytes of rows, 32 of signs, 8 of rows' top two bits, 8 of scales of each 16. */
void quant_split_iq2_s(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    out->d[0] = quant_u16(b);
    for (int i = 0; i < N_EIGHTS; i++) {
        const unsigned high = b[66 + i / 4] >> (2 * (i % 4)) & 3;
        put_eight(quant_grid_iq2_s[b[2 + i] | high << 8], b[34 + i], out->q + 8 * i);
    }
    put_scales(b + 74, 16, out->scale);
}

/* d, 64 bytes of rows, 8 words as IQ2_XXS has them. */
void quant_split_iq3_xxs(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    out->d[0] = quant_u16(b);
    for (int i = 0; i < 2 * N_EIGHTS; i++) {
        const uint32_t word = quant_u32(b + 66 + 4 * (i / 8));
        const unsigned signs = even_signs(word >> (7 * (i / 2 % 4)) & 127);
        put_four(quant_grid_iq3_xxs[b[2 + i]], signs >> (4 * (i % 2)), out->q + 4 * i);
        out->scale[i / 8] = (uint8_t)(word >> 28);
    }
}

/* d, 64 bytes of rows, 8 of rows' ninth bits, 32 of signs, 4 of scales of each 32. */
void quant_split_iq3_s(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    out->d[0] = quant_u16(b);
    for (int i = 0; i < 2 * N_EIGHTS; i++) {
        const unsigned high = b[66 + i / 8] >> (i % 8) & 1;
        put_four(quant_grid_iq3_s[b[2 + i] | high << 8], b[74 + i / 2] >> (4 * (i % 2)), out->q + 4 * i);
    }
    put_scales(b + 106, 8, out->scale);
}

/* d, 32 bytes of rows, 8 words: 4 times 3 bits of rows, 3 of scale, the sign of an eighth that is added to all 32. */
void quant_split_iq1_s(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    out->d[0] = quant_u16(b);
    for (int i = 0; i < N_EIGHTS; i++) {
        const unsigned word = quant_u16(b + 34 + 2 * (i / 4));
        put_eight(quant_grid_iq1[b[2 + i] | (word >> (3 * (i % 4)) & 7) << 8], (word >> 15) * 255, out->q + 8 * i);
        out->scale[i / 4] = word >> 12 & 7;
    }
}

/* 32 bytes of rows, 16 of nibbles: 3 bits of row and the eighth's sign for each 8; 4 words of four scales of 3 bits, and a nibble of d. */
void quant_split_iq1_m(const uint8_t *b, int at, quant_codes *out) {
    (void)at;
    for (int i = 0; i < N_EIGHTS; i++) {
        const unsigned high = b[32 + i / 2] >> (4 * (i % 2));
        put_eight(quant_grid_iq1[b[i] | (high & 7) << 8], (high >> 3 & 1) * 255, out->q + 8 * i);
    }
    for (int i = 0; i < 16; i++) {
        const unsigned word = quant_u16(b + 48 + 2 * (i / 4));
        out->scale[i] = word >> (3 * (i % 4)) & 7;
        out->d[0] = (uint16_t)(out->d[0] | (i % 4 == 0 ? word >> 12 << i : 0));
    }
}
