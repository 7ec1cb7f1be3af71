/* Packs blocks of the quantised types of files, one function per type. */
#ifndef CPU_PACK_BLOCKS_H
#define CPU_PACK_BLOCKS_H

#include "backend/cpu/pack_weights.h"

/* Like pack_block, for grouped kinds. False: nothing was done, since w's type can only be
 * packed from its codes (pack_block_of). */
bool pack_file_blocks(const pack_layout *plan, const tensor_view *w, int32_t block, uint8_t *out);

#endif
