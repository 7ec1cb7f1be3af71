/* Splits the blocks of 256 elements whose numbers are rows of a grid: IQ3, IQ2, IQ1. A
 * code is a number of the row with the sign above. */
#include <assert.h>
#include <string.h>

#include "core/quant_parts.h"

#define N_EIGHTS 32 /* runs of 8 elements in a block */

/* The seven signs of `index`, and an eighth that makes the number of minus signs even. */
static uint8_t even_signs(unsigned index) {
    unsigned odd = index ^ index >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return (uint8_t)(index | (odd & 1) << 7);
}

/* Eight signs as bytes that are 0 or 1, the first in the lowest. */
static uint64_t bytes_of_signs(unsigned signs) {
    const uint64_t each = (signs & 255u) * 0x0101010101010101u & 0x8040201008040201u;
    return (each + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}

/* Eight codes of 2 bits and a sign, on a little-endian machine. */
static void put_eight(unsigned row, unsigned signs, uint8_t *q) {
    uint64_t codes = row;
    codes = (codes | codes << 24) & 0x000000ff000000ffu;
    codes = (codes | codes << 12) & 0x000f000f000f000fu;
    codes = (codes | codes << 6) & 0x0303030303030303u;
    codes |= bytes_of_signs(signs) << 2;
    memcpy(q, &codes, 8);
}

/* Four codes of 3 bits, each in 4, and a sign: one of the low four. */
static void put_four(unsigned row, unsigned signs, uint8_t *q) {
    uint32_t codes = row;
    codes = (codes | codes << 8) & 0x00ff00ffu;
    codes = (codes | codes << 4) & 0x07070707u;
    codes |= ((signs & 15u) * 0x00204081u & 0x01010101u) << 3;
    memcpy(q, &codes, 4);
}

quant_form quant_unpacked(quant_form form) {
    switch (form) {
    case FORM_GRID8_8:
        return FORM_T3_ODD;
    case FORM_GRID8_9:
    case FORM_GRID8_10:
        return FORM_T3_SHORT_ODD;
    case FORM_GRID4_8:
        return FORM_T4_WIDE_ODD;
    case FORM_GRID4_9:
        return FORM_T4_ODD;
    default:
        return form;
    }
}

const uint16_t *quant_grid(quant_form form) {
    static const uint16_t *const grids[N_FORMS] = {[FORM_GRID8_8] = quant_grid_iq2_xxs,
                                                   [FORM_GRID8_9] = quant_grid_iq2_xs,
                                                   [FORM_GRID8_10] = quant_grid_iq2_s,
                                                   [FORM_GRID4_8] = quant_grid_iq3_xxs,
                                                   [FORM_GRID4_9] = quant_grid_iq3_s};
    return grids[form];
}

void quant_row_codes(quant_form form, unsigned row, unsigned signs, uint8_t *q) {
    const unsigned numbers = quant_grid(form)[row];
    if (quant_formats[form].run == 8) {
        put_eight(numbers, signs, q);
    } else {
        put_four(numbers, signs, q);
    }
}

/* Codes of 4 bits, low nibbles first. */
static void quant_grid_put_scales(const uint8_t *b, int n, uint8_t *scale) {
    for (int i = 0; i < n; i++) {
        scale[i] = b[i / 2] >> (4 * (i % 2)) & 15;
    }
}

/* d; for each 32: 4 bytes of rows; a word of 4 times 7 bits of signs and the scale. */
static void rows_iq2_xxs(const uint8_t *b, quant_rows *rows, quant_codes *out) {
    for (int i = 0; i < N_EIGHTS; i++) {
        const uint8_t *group = b + 2 + 8 * (i / 4);
        const uint32_t word = quant_u32(group + 4);
        rows->row[i] = group[i % 4];
        rows->sign[i] = even_signs(word >> (7 * (i % 4)) & 127);
        out->scale[i / 4] = (uint8_t)(word >> 28);
    }
}

/* d, 32 words of 9 bits of row and 7 of signs, 8 bytes of scales of each 16. */
static void rows_iq2_xs(const uint8_t *b, quant_rows *rows, quant_codes *out) {
    for (int i = 0; i < N_EIGHTS; i++) {
        const unsigned word = quant_u16(b + 2 + 2 * i);
        rows->row[i] = word & 511;
        rows->sign[i] = even_signs(word >> 9);
    }
    quant_grid_put_scales(b + 66, 16, out->scale);
}

/* d, 32 bytes of rows, 32 of signs, 8 of rows' top two bits, 8 of scales of each 16. */
static void rows_iq2_s(const uint8_t *b, quant_rows *rows, quant_codes *out) {
    for (int i = 0; i < N_EIGHTS; i++) {
        rows->row[i] = (uint16_t)(b[2 + i] | (b[66 + i / 4] >> (2 * (i % 4)) & 3) << 8);
    }
    memcpy(rows->sign, b + 34, N_EIGHTS);
    quant_grid_put_scales(b + 74, 16, out->scale);
}

/* d, 64 bytes of rows, 8 words as IQ2_XXS has them. */
static void rows_iq3_xxs(const uint8_t *b, quant_rows *rows, quant_codes *out) {
    for (int i = 0; i < 2 * N_EIGHTS; i++) {
        rows->row[i] = b[2 + i];
    }
    for (int i = 0; i < N_EIGHTS; i++) {
        const uint32_t word = quant_u32(b + 66 + 4 * (i / 4));
        rows->sign[i] = even_signs(word >> (7 * (i % 4)) & 127);
        out->scale[i / 4] = (uint8_t)(word >> 28);
    }
}

/* d, 64 bytes of rows, 8 of rows' ninth bits, 32 of signs, 4 of scales of each 32. */
static void rows_iq3_s(const uint8_t *b, quant_rows *rows, quant_codes *out) {
    for (int i = 0; i < 2 * N_EIGHTS; i++) {
        rows->row[i] = (uint16_t)(b[2 + i] | (b[66 + i / 8] >> (i % 8) & 1) << 8);
    }
    memcpy(rows->sign, b + 74, N_EIGHTS);
    quant_grid_put_scales(b + 106, 8, out->scale);
}

void quant_split_rows(dtype t, const uint8_t *block, quant_rows *rows, quant_codes *out) {
    static void (*const splitters[N_DTYPES])(const uint8_t *, quant_rows *,
                                             quant_codes *) = {[DTYPE_IQ2_XXS] = rows_iq2_xxs,
                                                               [DTYPE_IQ2_XS] = rows_iq2_xs,
                                                               [DTYPE_IQ2_S] = rows_iq2_s,
                                                               [DTYPE_IQ3_XXS] = rows_iq3_xxs,
                                                               [DTYPE_IQ3_S] = rows_iq3_s};
    out->d[0] = quant_u16(block);
    splitters[t](block, rows, out);
}

static void split_grid(dtype t, const uint8_t *b, quant_codes *out) {
    const quant_form form = quant_rule_of(t)->form;
    const uint16_t *grid = quant_grid(form);
    quant_rows rows;
    quant_split_rows(t, b, &rows, out);
    for (int i = 0; i < N_EIGHTS && quant_formats[form].run == 8; i++) {
        put_eight(grid[rows.row[i]], rows.sign[i], out->q + 8 * i);
    }
    for (int i = 0; i < 2 * N_EIGHTS && quant_formats[form].run == 4; i++) {
        put_four(grid[rows.row[i]], rows.sign[i / 2] >> (4 * (i % 2)), out->q + 4 * i);
    }
}

#define SPLIT_GRID(name, type)                                                                               \
    void quant_split_##name(const uint8_t *b, int at, quant_codes *out) {                                    \
        (void)at;                                                                                            \
        split_grid(DTYPE_##type, b, out);                                                                    \
    }
SPLIT_GRID(iq2_xxs, IQ2_XXS)
SPLIT_GRID(iq2_xs, IQ2_XS)
SPLIT_GRID(iq2_s, IQ2_S)
SPLIT_GRID(iq3_xxs, IQ3_XXS)
SPLIT_GRID(iq3_s, IQ3_S)
#undef SPLIT_GRID

/* d, 32 bytes of rows, 8 words: 4 times 3 bits of rows, 3 of scale, the sign of the 1/8
 * that is added to all 32. */
void quant_split_iq1_s(const uint8_t *b, int at, quant_codes *out) {
    assert(out != NULL);
    (void)at;
    out->d[0] = quant_u16(b);
    for (int i = 0; i < N_EIGHTS; i++) {
        const unsigned word = quant_u16(b + 34 + 2 * (i / 4));
        put_eight(quant_grid_iq1[b[2 + i] | (word >> (3 * (i % 4)) & 7) << 8], (word >> 15) * 255,
                  out->q + 8 * i);
        out->scale[i / 4] = word >> 12 & 7;
    }
}

/* 32 bytes of rows, 16 of nibbles: 3 bits of row and the sign of the added 1/8 for each
 * 8; 4 words of four 3-bit scales and a nibble of d. */
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
