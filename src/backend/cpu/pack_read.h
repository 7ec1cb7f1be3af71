/* Unpacks whole rows of packed weights, for example for a token embedding that shares its
 * weights with the head. */
#ifndef CPU_PACK_READ_H
#define CPU_PACK_READ_H

#include "backend/cpu/pack_weights.h"

/* Number i of the four 6-bit numbers of column c. */
static inline int pack_six_at(const uint8_t *p, int i, int c) {
    if (i < 3) {
        return p[i * PACK_LANES + c] & 63;
    }
    return p[c] >> 6 | p[PACK_LANES + c] >> 6 << 2 | p[2 * PACK_LANES + c] >> 6 << 4;
}

/* q[0..32) = the codes of column c in the group of a grid at p. Returns the scale's code
 * if the form keeps it in the spare bits. */
unsigned pack_read_rows(quant_form form, const uint8_t *p, int c, uint8_t q[PACK_GROUP]);

/* Whether weights packed as `kind` from a tensor of type `from` can be unpacked
 * exactly. */
bool pack_keeps_values(pack_kind kind, dtype from);
/* out[0..n_in) = row `row` (an output's weights) of a matrix with blocks at data, as
 * quant_dequantise gives it for the packed tensor. For float and grouped kinds. order:
 * for grouped kinds, the element of out at each place; or NULL. Reads as many bytes as a
 * block of 16 rows has. Any thread. */
void pack_read_row(const pack_layout *p, const uint8_t *data, int32_t row, const int32_t *order, float *out);

#endif
