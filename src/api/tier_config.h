/* What the tiers of an engine are called and how large they are: the version of stored pages, from model and numeric configuration. */
#ifndef API_TIER_CONFIG_H
#define API_TIER_CONFIG_H

#include "backend/backend.h"
#include "engine/engine.h"
#include "file/model_file.h"
#include "kv/tier_record.h"
#include "quire.h"

/* Whether o asks for a tier that outlives the process, or is shared with others: only then is a version needed. */
bool tiers_are_kept(const quire_options *o);
/* Names, in at most KV_VERSION_BYTES, everything that the bytes of a page depend on but its tokens: the weights (by a hash of every byte),
 * the description, the numeric configuration, this program's version. Reads the whole file. */
void tiers_version(const model_file *f, const model_desc *d, const backend *b, dtype kv, int32_t max_positions,
                   char out[KV_VERSION_BYTES + 1]);
/* Checks o's sizes. */
quire_err tiers_check(const quire_options *o, quire_error *err);
/* The engine's part of o; version and o's texts are borrowed. */
engine_tiers tiers_options(const quire_options *o, const char *version);

#endif
