/* Reads packed weights back: single codes, and whole rows of a matrix, which a table of embeddings is that is the head too. */
#ifndef CPU_PACK_READ_H
#define CPU_PACK_READ_H

#include "backend/cpu/pack_weights.h"

/* Code i of column c in a group whose planes start at p. */
static inline int32_t pack_code_at(int bits, const uint8_t *p, int i, int c) {
    int quad = i / 4, at = 4 * c + i % 4, value = 0;
    if (bits == 8) {
        return (int8_t)p[quad * 64 + at];
    }
    if (bits >= 4) {
        value = p[quad % 4 * 64 + at] >> (4 * (quad / 4)) & 15;
        p += 4 * 64;
    }
    if (bits == 2 || bits == 3 || bits == 6) {
        value |= (p[quad / 4 * 64 + at] >> (2 * (quad % 4)) & 3) << (bits == 6 ? 4 : 0);
        p += 2 * 64;
    }
    if (bits == 3 || bits == 5) {
        value |= (p[at] >> quad & 1) << (bits == 5 ? 4 : 2);
    }
    return value;
}

/* Number i of the four 6-bit numbers of column c. */
static inline int pack_six_at(const uint8_t *p, int i, int c) {
    if (i < 3) {
        return p[i * PACK_LANES + c] & 63;
    }
    return p[c] >> 6 | p[PACK_LANES + c] >> 6 << 2 | p[2 * PACK_LANES + c] >> 6 << 4;
}

/* Whether rows of weights that were packed as `kind` from a tensor of type `from` can be read back exactly. */
bool pack_keeps_values(pack_kind kind, dtype from);
/* out[0..n_in) = row `row` (an output's weights) of a matrix whose blocks lie at data, as quant_dequantise gives it for the tensor that was
 * packed. For kinds of floats and grouped ones. Reads as many bytes as a block of 16 rows has. Any thread. */
void pack_read_row(const pack_layout *p, const uint8_t *data, int32_t row, float *out);

#endif
