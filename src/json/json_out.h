/* JSON text written straight into a buffer.
 *
 * The first failure is kept and everything after it is skipped, so that a whole object can be written and `err` be looked at once.
 * Owner: whoever made it; one thread. What is written is always valid UTF-8. */
#ifndef JSON_OUT_H
#define JSON_OUT_H

#include <stddef.h>
#include <stdint.h>

#include "json/json.h"

typedef struct json_out {
    strbuf *to;
    quire_err err; /* the first failure: NO_MEMORY or TOO_LARGE */
    int indent;    /* spaces a level, each member and item on a line of its own; 0: no white space */
    int depth;     /* of what json_begin opened */
} json_out;

/* Opens and closes an array or object: '[' ']', '{' '}'. */
void json_begin(json_out *o, char bracket);
void json_end(json_out *o, char bracket);
/* A member's name and its colon, with the comma where one must be; its value is written next. Returns o. */
json_out *json_name(json_out *o, const char *name);
/* The comma in front of an array's item, where one must be. Returns o. */
json_out *json_item(json_out *o);

/* Text that is JSON already: brackets, commas, keys. */
void json_raw(json_out *o, const char *json);
/* A string with quotes and escapes. A byte that belongs to no valid UTF-8 sequence becomes U+FFFD. */
void json_text(json_out *o, const char *p, size_t n);
/* The same of two texts, one behind the other; a character lies in one of them. */
void json_texts(json_out *o, str first, str second);
/* The same for a 0-terminated string; NULL is null. */
void json_cstr(json_out *o, const char *s);
void json_bool(json_out *o, bool v);
void json_int(json_out *o, int64_t v);
/* A number of nine digits, which tell any float; what is not finite is null. */
void json_number(json_out *o, double v);
/* The same with the fewest digits that read back as v. */
void json_exact(json_out *o, double v);
/* A tree, its members in their order. */
void json_add(json_out *o, const json_value *v);
/* [1,2,3] */
void json_ints(json_out *o, const int32_t *v, size_t n);
#define JSON_ROW_MAX 16
/* The same for 1 to JSON_ROW_MAX numbers, in one piece: a pool's state has tens of thousands of such rows. */
void json_row(json_out *o, const int64_t *v, int32_t n);

/* A short picture of a value for an error text ("\"ten\"", "1.5", "an array"), in buf. Returns buf or a constant. */
#define JSON_BRIEF_BYTES 80
const char *json_brief(const json_value *v, char buf[JSON_BRIEF_BYTES]);

/* ---- an object a line, on stdout ---- */

typedef struct json_line {
    strbuf text;
    json_out out;
} json_line;

/* Begins an object; returns where its members go. */
json_out *json_line_begin(json_line *l);
/* Ends it, prints it and a newline, flushes stdout, frees. */
void json_line_print(json_line *l);

#endif
