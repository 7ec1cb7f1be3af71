/* A parsed JSON file: strict (json/json.h), with limits on depth and size. Integers
 * beyond 64 bits become floats. Immutable after json_doc_parse. */
#ifndef FILE_JSON_DOC_H
#define FILE_JSON_DOC_H

#include "file/meta.h"
#include "json/json.h"

/* A zero-initialised document is absent: root is NULL. */
typedef struct json_doc {
    json_value *root; /* an object; a list after json_doc_parse_list */
} json_doc;

/* Parses a whole file, whose root must be an object. file: name for messages.
 * QUIRE_BAD_FILE: err names the byte; *out is unchanged. */
quire_err json_doc_parse(json_doc *out, str text, json_names names, const char *file, quire_error *err);
/* Like json_doc_parse, for a file whose root must be a list. */
quire_err json_doc_parse_list(json_doc *out, str text, const char *file, quire_error *err);
void json_doc_deinit(json_doc *d);

/* Returns the member at a dotted path ("rope_scaling.factor"); NULL: it is missing or
 * null. */
json_value *json_doc_find(const json_doc *d, const char *path);
/* Whether the member at a dotted path exists and is null. */
bool json_doc_is_null(const json_doc *d, const char *path);
/* Converts a value to metadata; NULL to META_ABSENT, {"__float__": "Infinity"} to that
 * number. */
meta_value json_doc_meta(const json_value *v);
/* Converts element i < n of an array to metadata. */
meta_value json_doc_item(const json_value *array, size_t i);

#endif
