/* The version of pages in tiers: everything besides the tokens on which the bytes of a page depend. */
#ifndef SETUP_TIER_VERSION_H
#define SETUP_TIER_VERSION_H

#include "backend/backend.h"
#include "file/model_file.h"
#include "kv/tier_record.h"
#include "quire.h"

/* Writes a version of at most KV_VERSION_BYTES. It names the weights (by a hash of every byte), the description, the numeric configuration
 * and this program's version. Reads the whole file. */
void tier_version(const model_file *f, const model_desc *d, const backend *b, dtype kv, int32_t max_positions,
                  char out[KV_VERSION_BYTES + 1]);

#endif
