/* Converts a value that a model writes without quotes, between tags, to JSON of the type
 * that the schema gives.
 *
 * A string is passed on as written; "null" is null if the schema allows null. Values of
 * other types are read as JSON or a Python literal, and become strings if they are not
 * valid. If the schema gives no type, valid JSON other than a quoted string is JSON. */
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

/* The types that a schema allows, as TYPE_ bits; 0: unspecified. root: the schema in
 * which local references are resolved. */
unsigned schema_types(const json_value *schema, const json_value *root);
/* The schema of the member `name`, which may be any text; NULL: unknown. */
const json_value *schema_member(const json_value *schema, const json_value *root, str name);
/* The schema's "properties" object; NULL: none. */
const json_value *schema_properties(const json_value *schema, const json_value *root);
/* The schema of an array's items; NULL: unknown. */
const json_value *schema_items(const json_value *schema, const json_value *root);

typedef struct typed_value {
    unsigned types;
    bool is_streaming; /* the value is a string, written as it arrives */
    strbuf text;       /* the text so far, unless is_streaming */
} typed_value;

/* Begins a value of one of `types`. v->text keeps its memory and its max. */
void typed_begin(typed_value *v, unsigned types);
/* Reads bytes of the value and appends its JSON to *out as soon as its type is certain. A
 * value longer than v->text.max becomes a string. Errors: out's. */
quire_err typed_add(typed_value *v, const char *p, size_t n, strbuf *out);
/* Ends the value: appends what is left of its JSON. Errors as typed_add. */
quire_err typed_end(typed_value *v, strbuf *out);

#endif
