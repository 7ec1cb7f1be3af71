/* Packs the blocks of the quantised types of files, a type at a time. */
#ifndef CPU_PACK_BLOCKS_H
#define CPU_PACK_BLOCKS_H

#include "backend/cpu/pack_weights.h"

/* As pack_block, for grouped kinds. False: nothing was done; w's type can only be
 * packed by its codes (pack_block_of). */
bool pack_file_blocks(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out);

#endif
