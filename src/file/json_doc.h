/* A parsed JSON file, strict (json/json.h), within limits of depth and size. Integers
 * beyond 64 bits are floats. Immutable after json_doc_parse. */
#ifndef FILE_JSON_DOC_H
#define FILE_JSON_DOC_H

#include "file/meta.h"
#include "json/json.h"

/* Zero-initialised it is absent: root is NULL. */
typedef struct json_doc {
    json_value *root; /* an object, or a list if that was requested */
} json_doc;

/* Parses a whole file, whose root must be an object. QUIRE_BAD_FILE names the byte; *out
 * is then unchanged. */
quire_err json_doc_parse(json_doc *out, str text, json_names names, const char *file, quire_error *err);
/* The same for a file whose root must be a list. */
quire_err json_doc_parse_list(json_doc *out, str text, const char *file, quire_error *err);
void json_doc_deinit(json_doc *d);

/* The member at a dotted path ("rope_scaling.factor"). NULL when it is missing or
 * null. */
json_value *json_doc_find(const json_doc *d, const char *path);
/* Whether a member exists and is null. */
bool json_doc_is_null(const json_doc *d, const char *path);
/* A value as metadata; NULL is META_ABSENT. {"__float__": "Infinity"} is read as that
 * number. */
meta_value json_doc_meta(const json_value *v);
/* Element i < n of an array. */
meta_value json_doc_item(const json_value *array, size_t i);

#endif
