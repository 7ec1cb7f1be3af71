/* A value that a model writes without quotes, between tags, with the type that the schema
 * gives.
 *
 * A string property is passed on as written; "null" is null if the type allows both;
 * values of other types are JSON, or strings if they are not valid JSON. Without a type,
 * whatever is valid JSON is JSON. */
#ifndef ANSWER_TYPED_VALUE_H
#define ANSWER_TYPED_VALUE_H

#include "base/str.h"
#include "json/json.h"

enum {
    TYPE_STRING = 1 << 0,
    TYPE_NULL = 1 << 1,
    TYPE_BOOLEAN = 1 << 2,
    TYPE_NUMBER = 1 << 3,
    TYPE_OBJECT = 1 << 4,
    TYPE_ARRAY = 1 << 5
};

/* The types that a schema allows; 0: unspecified. root: the schema that its references
 * are in. */
unsigned schema_types(const json_value *schema, const json_value *root);
/* The schema of a member, or of an array's items; NULL: unknown. name is any text. */
const json_value *schema_member(const json_value *schema, const json_value *root, str name);
/* The object of members with their own schemas; NULL: none. */
const json_value *schema_properties(const json_value *schema, const json_value *root);
const json_value *schema_items(const json_value *schema, const json_value *root);

typedef struct typed_value {
    unsigned types;
    bool is_streaming; /* a string that is written as it arrives */
    strbuf text;       /* else: the text so far */
} typed_value;

/* Begins a value; text keeps its memory and its max. */
void typed_begin(typed_value *v, unsigned types);
/* Reads bytes of the value and appends JSON to *out as soon as it is known. A value
 * longer than text.max is a string. */
quire_err typed_add(typed_value *v, const char *p, size_t n, strbuf *out);
quire_err typed_end(typed_value *v, strbuf *out);

#endif
