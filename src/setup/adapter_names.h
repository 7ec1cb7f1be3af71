/* Names of adapters and their files: checks of names, and their lookup in a directory
 * without leaving it. */
#ifndef SETUP_ADAPTER_NAMES_H
#define SETUP_ADAPTER_NAMES_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "quire.h"

#define ADAPTER_NAME_BYTES 255

/* Whether an adapter may have the name: 1 to ADAPTER_NAME_BYTES bytes without control
 * characters. */
bool adapter_name_is_valid(const char *name);
/* The path of the directory's entry of that name, or of NAME.gguf, as realpath gives it.
 * NOT_FOUND: there is none, or it lies outside of the directory, be it by "..", by a path
 * or by a link. dir: as realpath gives it. */
quire_err adapter_name_find(const char *dir, const char *name, strbuf *path);

/* One adapter of a list. */
typedef struct adapter_listed {
    str name; /* empty: not given */
    str path;
    float scale;
} adapter_listed;

/* Reads the next line, and moves *lines past it: NAME=PATH, or a JSON object with name
 * and path, whose texts are kept in *own. False: no line is left, or *err is set. */
bool adapter_names_next(const char **lines, strbuf *own, adapter_listed *out, quire_error *err);
/* Reads the next line, or part between commas: PATH or PATH:SCALE. */
bool adapter_paths_next(const char **lines, adapter_listed *out);

/* ---- adapters among options ---- */

/* What options say about adapters: whether there are any, their number, and their
 * memory. */

/* Whether requests may have adapters. */
bool options_have_adapters(const quire_options *o);
/* How many may be loaded at once. */
int32_t options_max_loaded(const quire_options *o);
/* The largest rank of a batch's adapters: of a blend, the sum of its parts'. */
int32_t options_batch_rank(const quire_options *o);
/* How many adapters o->loras has. */
int32_t options_numbered_adapters(const quire_options *o);
/* The most bytes that loaded adapters may take: their largest number times the largest
 * file that is named or in the directory. */
int64_t options_adapter_bytes(const quire_options *o);

#endif
