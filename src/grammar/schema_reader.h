/* A schema object whose keywords are being read. Private to schema_*.c.
 *
 * First the keywords that constrain one value by themselves (schema_direct.c) fill one
 * part per type. Then those that apply other schemas to the same value follow, one after
 * the other (schema_applied.c). */
#ifndef GRAMMAR_SCHEMA_READER_H
#define GRAMMAR_SCHEMA_READER_H

#include "grammar/value_shape.h"

typedef struct schema_reader {
    schema *s;
    expr e;
    shape out;
    /* parts filled by direct keywords */
    number_part number;
    string_part string;
    array_part array;
    object_part object;
    array_layer items;
    object_layer members;
    bool no_number, no_string, no_array, no_object; /* true: no value of this type is possible */
} schema_reader;

/* Refuses a keyword at this schema's path (schema_refuse), or reports a wrong value. */
void reader_refuse(schema_reader *r, const char *keyword, const char *why);
void reader_malformed(schema_reader *r, const char *keyword, const char *what);
/* The expression for the subschema v at keyword/token (token may be NULL) or
 * keyword/i. */
uint32_t reader_below(schema_reader *r, const char *keyword, const char *token, const json_value *v);
uint32_t reader_below_at(schema_reader *r, const char *keyword, size_t i, const json_value *v);
/* Reads a count of at least 0. False: malformed. */
bool reader_count(schema_reader *r, const char *keyword, const json_value *v, uint32_t *out);
/* Adds the names in a list to those that o requires. */
void reader_add_required(schema_reader *r, const char *keyword, const json_value *list, object_part *o);

/* One function per keyword; v is its value. */
void keyword_dialect(schema_reader *r, const char *keyword, const json_value *v);
void keyword_type(schema_reader *r, const char *keyword, const json_value *v);
void keyword_bound(schema_reader *r, const char *keyword, const json_value *v);
void keyword_multiple(schema_reader *r, const char *keyword, const json_value *v);
/* minLength, maxItems and the other limits on a number */
void keyword_count(schema_reader *r, const char *keyword, const json_value *v);
void keyword_pattern(schema_reader *r, const char *keyword, const json_value *v);
void keyword_format(schema_reader *r, const char *keyword, const json_value *v);
void keyword_item_list(schema_reader *r, const char *keyword, const json_value *v);
void keyword_items(schema_reader *r, const char *keyword, const json_value *v);
void keyword_contains(schema_reader *r, const char *keyword, const json_value *v);
void keyword_unique(schema_reader *r, const char *keyword, const json_value *v);
void keyword_properties(schema_reader *r, const char *keyword, const json_value *v);
void keyword_patterns(schema_reader *r, const char *keyword, const json_value *v);
void keyword_additional(schema_reader *r, const char *keyword, const json_value *v);
void keyword_required(schema_reader *r, const char *keyword, const json_value *v);
void keyword_names(schema_reader *r, const char *keyword, const json_value *v);
void keyword_enum(schema_reader *r, const char *keyword, const json_value *v);
void keyword_const(schema_reader *r, const char *keyword, const json_value *v);
void keyword_ref(schema_reader *r, const char *keyword, const json_value *v);
void keyword_refused(schema_reader *r, const char *keyword, const json_value *v);
void keyword_all_of(schema_reader *r, const char *keyword, const json_value *v);
void keyword_any_of(schema_reader *r, const char *keyword, const json_value *v);
void keyword_one_of(schema_reader *r, const char *keyword, const json_value *v);
void keyword_not(schema_reader *r, const char *keyword, const json_value *v);
void keyword_if(schema_reader *r, const char *keyword, const json_value *v);
void keyword_dependencies(schema_reader *r, const char *keyword, const json_value *v);
void keyword_unevaluated_properties(schema_reader *r, const char *keyword, const json_value *v);
void keyword_unevaluated_items(schema_reader *r, const char *keyword, const json_value *v);

#endif
