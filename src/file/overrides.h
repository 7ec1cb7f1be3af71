/* Overrides: metadata that the operator sets with --hf-overrides or --override-kv because
 * a model's file lacks them or has wrong ones.
 *
 * A list of keys and values that the accessors of metadata.c consult before the file. It
 * records which keys were looked up, so that unused ones are found. A packed model
 * carries the overrides with which it was packed (packed.h); the operator's own take
 * precedence. Any thread may read it. */
#ifndef FILE_OVERRIDES_H
#define FILE_OVERRIDES_H

#include "file/meta.h"

typedef struct overrides overrides;

/* Reads the operator's overrides and `carried`, the overrides of a packed model
 * (overrides_text of its source, or empty). *out is NULL if both are empty. file: name
 * for messages. QUIRE_INVALID: err names the flag and the key, or the flag that belongs
 * to this format. QUIRE_BAD_FILE: `carried` is damaged. */
quire_err overrides_open(model_format format, const char *file, const model_overrides *given, str carried,
                         overrides **out, quire_error *err);
/* Frees the overrides; NULL does nothing. */
void overrides_close(overrides *o);

/* Whether key is overridden. *out is then its value; META_ABSENT for null, and for keys
 * below a value that is no object any more. */
bool overrides_find(overrides *o, const char *key, meta_value *out);
/* Returns all keys and values as a flat JSON object, sorted by key: equal texts are equal
 * overrides. Borrowed. */
str overrides_text(const overrides *o);
/* Returns the flag that sets the overrides of a format. */
const char *overrides_flag(model_format format);
/* QUIRE_INVALID if a key was never looked up; err names it and the nearest key that
 * was. */
quire_err overrides_check(overrides *o, const char *file, quire_error *err);

#endif
