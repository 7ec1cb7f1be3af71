/* The configuration of an engine's tiers: their sizes, and the version of stored pages, from model and numeric configuration. */
#ifndef SETUP_TIER_CONFIG_H
#define SETUP_TIER_CONFIG_H

#include "backend/backend.h"
#include "engine/engine.h"
#include "file/model_file.h"
#include "kv/tier_record.h"
#include "quire.h"

/* Whether o has a tier that outlives the process, or is shared with others: only then is a version needed. */
bool tiers_are_kept(const quire_options *o);
/* Writes a version of at most KV_VERSION_BYTES. It names everything besides the tokens on which the bytes of a page depend: the weights (by
 * a hash of every byte), the description, the numeric configuration, this program's version. Reads the whole file. */
void tiers_version(const model_file *f, const model_desc *d, const backend *b, dtype kv, int32_t max_positions,
                   char out[KV_VERSION_BYTES + 1]);
/* Checks o's sizes. */
quire_err tiers_check(const quire_options *o, quire_error *err);
/* The tiers of o as options of the engine; version and o's texts must outlive them. */
engine_tiers tiers_options(const quire_options *o, const char *version);

#endif
