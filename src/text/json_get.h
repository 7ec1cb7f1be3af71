/* Reading members of json-c objects with defaults; what stands there with another type counts as absent unless said otherwise. */
#ifndef TEXT_JSON_GET_H
#define TEXT_JSON_GET_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* Parses a document strictly, at most 64 levels deep; NULL when it is not one. The caller puts it. */
struct json_object *json_get_document(str text);
/* NULL when absent or null. */
struct json_object *json_get(struct json_object *o, const char *key);
/* Borrowed; empty when absent. */
str json_get_str(struct json_object *o, const char *key);
bool json_get_bool(struct json_object *o, const char *key, bool otherwise);
/* otherwise also when it is out of range. */
int32_t json_get_int32(struct json_object *o, const char *key, int32_t otherwise);

#endif
