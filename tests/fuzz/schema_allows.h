/* Whether a schema written by src/request allows a value. Knows only the JSON Schema
 * keywords that src/request uses. */
#ifndef TESTS_FUZZ_SCHEMA_ALLOWS_H
#define TESTS_FUZZ_SCHEMA_ALLOWS_H

#include <math.h>

#include "json/json.h"

static inline bool schema_allows(const json_value *schema, const json_value *v);

static inline bool schema_is_of_type(str type, const json_value *v) {
    bool is_number = json_numeric(v);
    switch (json_kind_of(v)) {
    case JSON_KIND_NULL:
        return str_is(type, "null");
    case JSON_KIND_BOOL:
        return str_is(type, "boolean");
    case JSON_KIND_TEXT:
        return str_is(type, "string");
    case JSON_KIND_ARRAY:
        return str_is(type, "array");
    case JSON_KIND_OBJECT:
        return str_is(type, "object");
    default:
        return is_number && (str_is(type, "number") ||
                             (str_is(type, "integer") && floor(json_double(v)) == json_double(v)));
    }
}

static inline bool schema_allows_type(const json_value *types, const json_value *v) {
    bool is_one = json_is(types, JSON_KIND_TEXT) && schema_is_of_type(json_str(types), v);
    for (size_t i = 0; i < json_length(types); i++) {
        is_one = is_one || schema_is_of_type(json_str(json_at(types, i)), v);
    }
    return types == NULL || is_one;
}

static inline bool schema_allows_value(const json_value *choices, const json_value *v) {
    bool is_one = choices == NULL;
    for (size_t i = 0; i < json_length(choices); i++) {
        const json_value *c = json_at(choices, i);
        is_one = is_one || json_same(c, v) ||
                 (json_numeric(c) && json_numeric(v) && json_double(c) == json_double(v));
    }
    return is_one;
}

static inline bool schema_allows_number(const json_value *schema, double v) {
    return (!json_has(schema, "minimum") || v >= json_double(json_get(schema, "minimum"))) &&
           (!json_has(schema, "exclusiveMinimum") || v > json_double(json_get(schema, "exclusiveMinimum"))) &&
           (!json_has(schema, "maximum") || v <= json_double(json_get(schema, "maximum")));
}

static inline bool schema_allows_items(const json_value *schema, const json_value *v) {
    size_t n = json_length(v);
    bool fits = n >= (size_t)json_int64(json_get(schema, "minItems")) &&
                (!json_has(schema, "maxItems") || n <= (size_t)json_int64(json_get(schema, "maxItems")));
    for (size_t i = 0; fits && json_has(schema, "items") && i < n; i++) {
        fits = schema_allows(json_get(schema, "items"), json_at(v, i));
    }
    return fits;
}

static inline bool schema_allows_members(const json_value *schema, const json_value *v) {
    const json_value *properties = json_get(schema, "properties"), *required = json_get(schema, "required");
    bool fits = true;
    for (json_member m = {0}; fits && json_next(v, &m);) {
        fits = !json_has(properties, m.name) || schema_allows(json_get(properties, m.name), m.value);
    }
    for (size_t i = 0; fits && i < json_length(required); i++) {
        fits = json_has(v, json_str(json_at(required, i)).p);
    }
    return fits;
}

static inline bool schema_allows(const json_value *schema, const json_value *v) {
    const json_value *any = json_get(schema, "anyOf");
    bool fits_any = any == NULL;
    for (size_t i = 0; i < json_length(any); i++) {
        fits_any = fits_any || schema_allows(json_at(any, i), v);
    }
    if (!fits_any || !schema_allows_type(json_get(schema, "type"), v) ||
        !schema_allows_value(json_get(schema, "enum"), v)) {
        return false;
    }
    switch (json_kind_of(v)) {
    case JSON_KIND_TEXT: /* minLength counts characters, of which there are at most n */
        return json_str(v).n >= (size_t)json_int64(json_get(schema, "minLength"));
    case JSON_KIND_ARRAY:
        return schema_allows_items(schema, v);
    case JSON_KIND_OBJECT:
        return schema_allows_members(schema, v);
    default:
        return !json_numeric(v) || schema_allows_number(schema, json_double(v));
    }
}

#endif
