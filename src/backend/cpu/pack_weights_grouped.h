/* Converts grouped weights from file blocks to packed planes, by way of their codes. */
#ifndef CPU_PACK_GROUPED_H
#define CPU_PACK_GROUPED_H

#include "backend/cpu/pack_weights.h"

/* Up to PACK_SUPER elements of one column as codes, not yet values: numbers as the format stores them (zero not yet subtracted; int8 as
 * bytes). scale and min: codes of each 16 or 32 of k. d and m: halves of each 32 (SCALE_F16*) or of all (the others). */
typedef struct pack_codes {
    uint8_t q[PACK_SUPER];
    uint8_t scale[16], min[16];
    uint16_t d[8], m[8];
} pack_codes;

/* Splits the n elements at `blocks` (a multiple of the type's block, at most PACK_SUPER) into codes. */
void pack_split(pack_kind kind, const uint8_t *blocks, int32_t n, pack_codes *out);
/* Writes 16 columns' codes of elements k0..k0+n (k0 a multiple of PACK_SUPER) into a block. */
void pack_join(const pack_layout *plan, const pack_codes columns[PACK_LANES], int32_t k0, int32_t n, uint8_t *block);

#endif
