/* A parsed JSON file: JSON as json-c's strict mode has it (bare Infinity and NaN, 01 and 2. are numbers), within limits of depth and size.
 * Immutable after json_doc_parse. */
#ifndef FILE_JSON_DOC_H
#define FILE_JSON_DOC_H

#include "file/meta.h"

struct json_object;

/* Zero-initialised is absent: root is NULL. */
typedef struct json_doc {
    struct json_object *root; /* an object */
} json_doc;

typedef enum json_keys {
    JSON_KEYS_LAST,  /* of equal keys of an object the last one counts */
    JSON_KEYS_UNIQUE /* equal keys are refused, and keys or strings with a 0 character */
} json_keys;

/* Parses a whole file, whose root must be an object. QUIRE_BAD_FILE names the byte. *out is untouched after a failure. */
quire_err json_doc_parse(json_doc *out, str text, json_keys keys, const char *file, quire_error *err);
void json_doc_deinit(json_doc *d);

/* The member at a dotted path ("rope_scaling.factor"), or NULL: not there, or null. */
struct json_object *json_doc_find(const json_doc *d, const char *path);
/* A value as metadata; NULL is META_ABSENT. {"__float__": "Infinity"} is that number. */
meta_value json_meta(struct json_object *v);
/* Element i < n of an array. */
meta_value json_item(struct json_object *array, size_t i);

#endif
