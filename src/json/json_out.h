/* Writes JSON text directly into a buffer.
 *
 * The writer keeps its first error and ignores all later calls, so the caller writes a
 * whole object and checks `err` once. One thread. The output is always valid UTF-8. */
#ifndef JSON_OUT_H
#define JSON_OUT_H

#include <stddef.h>
#include <stdint.h>

#include "json/json.h"

typedef struct json_out {
    strbuf *to;
    quire_err err;  /* the first failure: NO_MEMORY or TOO_LARGE */
    int indent;     /* spaces per level, with each member and item on its own line; 0: no white space */
    bool is_spaced; /* a space after each comma and colon, like Python's json.dumps */
    int depth;      /* number of open brackets */
    size_t max;     /* most bytes of the buffer; more is TOO_LARGE; 0: no bound */
} json_out;

/* Open and close an array or object; bracket is one of '[' ']' '{' '}'. */
void json_begin(json_out *o, char bracket);
void json_end(json_out *o, char bracket);
/* Writes a member's name and colon, with a comma where needed. The value is written next.
 * Returns o. */
json_out *json_name(json_out *o, const char *name);
/* Writes the comma before an array's item if needed. Returns o. */
json_out *json_item(json_out *o);

/* Write a piece of JSON text unchanged: brackets, commas, keys. */
void json_raw(json_out *o, const char *json);
void json_raw_part(json_out *o, str json);
/* Writes a string with quotes and escapes. A byte outside valid UTF-8 becomes U+FFFD. */
void json_text(json_out *o, const char *p, size_t n);
/* Writes two texts as one string. No character may be split between them. */
void json_texts(json_out *o, str first, str second);
/* Writes a 0-terminated string; null for NULL. */
void json_cstr(json_out *o, const char *s);
void json_bool(json_out *o, bool v);
void json_int(json_out *o, int64_t v);
/* Writes a number with nine digits, which identify any float. A value that is not finite
 * becomes null. */
void json_number(json_out *o, double v);
/* Like json_number, but with the fewest digits that read back as v. */
void json_exact(json_out *o, double v);
/* Writes a tree, with members in the order of its text. */
void json_add(json_out *o, const json_value *v);
/* Writes an array of n integers. */
void json_ints(json_out *o, const int32_t *v, size_t n);
typedef struct json_named_int {
    const char *name;
    int64_t value;
} json_named_int;
/* Writes an object {"name":value,..}; an entry with a NULL name ends v. */
void json_named_ints(json_out *o, const json_named_int *v);
#define JSON_ROW_MAX 16
/* Writes an array of 1 to JSON_ROW_MAX integers with a single append, because a pool's
 * state has tens of thousands of such rows. */
void json_row(json_out *o, const int64_t *v, int32_t n);

/* Describes a value briefly for an error text ("\"ten\"", "1.5", "an array"), in buf.
 * Returns buf or a constant. */
#define JSON_BRIEF_BYTES 80
const char *json_brief(const json_value *v, char buf[JSON_BRIEF_BYTES]);

#endif
