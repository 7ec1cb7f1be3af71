/* Overrides: metadata that the operator sets for a model, by --hf-overrides or
 * --override-kv, if its file lacks them or has wrong ones.
 *
 * A list of keys with values, which the accessors of metadata.c consult before the file.
 * It records which keys were looked up, so that unused ones are found. A packed model
 * carries the overrides with which it was packed (packed.h); the operator's own take
 * precedence. Any thread may read it. */
#ifndef FILE_OVERRIDES_H
#define FILE_OVERRIDES_H

#include "file/meta.h"

typedef struct overrides overrides;

/* Reads the operator's overrides and those that a packed model carries (overrides_text of
 * its source, or empty). *out is NULL if both are empty. QUIRE_INVALID: err names the
 * flag and the key, or the flag that belongs to this format; QUIRE_BAD_FILE: what is
 * carried is damaged. file is used in messages. */
quire_err overrides_open(model_format format, const char *file, const model_overrides *given, str carried,
                         overrides **out, quire_error *err);
/* NULL is allowed. */
void overrides_close(overrides *o);

/* Whether key is overridden. *out is then its value: META_ABSENT for null, and inside
 * values that are not objects any more. */
bool overrides_find(overrides *o, const char *key, meta_value *out);
/* All keys and values as a JSON object without nesting, sorted by key: equal texts are
 * equal overrides. */
str overrides_text(const overrides *o);
/* The flag that sets the overrides of a format. */
const char *overrides_flag(model_format format);
/* QUIRE_INVALID names a key that was never looked up, and the nearest one that was. */
quire_err overrides_check(overrides *o, const char *file, quire_error *err);

#endif
