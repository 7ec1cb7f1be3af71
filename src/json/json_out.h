/* Writes JSON text directly into a buffer.
 *
 * The writer keeps the first failure and skips everything after it, so that the caller
 * can write a whole object and check `err` once. Owner: its creator; one thread. The
 * output is always valid UTF-8. */
#ifndef JSON_OUT_H
#define JSON_OUT_H

#include <stddef.h>
#include <stdint.h>

#include "json/json.h"

typedef struct json_out {
    strbuf *to;
    quire_err err;  /* the first failure: NO_MEMORY or TOO_LARGE */
    int indent;     /* spaces for each depth, each member and item on a line of its own; 0: no white space */
    bool is_spaced; /* a space after each comma and colon, as Python's json.dumps has it */
    int depth;      /* how many brackets are open */
    size_t max;     /* bytes of the buffer, past which all is TOO_LARGE; 0: no bound */
} json_out;

/* Opens and closes an array or object: '[' ']', '{' '}'. */
void json_begin(json_out *o, char bracket);
void json_end(json_out *o, char bracket);
/* Writes a member's name and colon, with a comma where needed. The value is written next.
 * Returns o. */
json_out *json_name(json_out *o, const char *name);
/* Writes the comma before an array's item, where needed. Returns o. */
json_out *json_item(json_out *o);

/* Writes text that is JSON already: brackets, commas, keys. */
void json_raw(json_out *o, const char *json);
void json_raw_part(json_out *o, str json);
/* Writes a string with quotes and escapes. A byte outside valid UTF-8 becomes U+FFFD. */
void json_text(json_out *o, const char *p, size_t n);
/* The same for two texts, one after the other. No character may cross from one to the
 * other. */
void json_texts(json_out *o, str first, str second);
/* The same for a 0-terminated string; NULL is null. */
void json_cstr(json_out *o, const char *s);
void json_bool(json_out *o, bool v);
void json_int(json_out *o, int64_t v);
/* A number with nine digits, which identify any float. A value that is not finite becomes
 * null. */
void json_number(json_out *o, double v);
/* As json_number, with the fewest digits that read back as v. */
void json_exact(json_out *o, double v);
/* Writes a tree, its members in their order. */
void json_add(json_out *o, const json_value *v);
/* [1,2,3] */
void json_ints(json_out *o, const int32_t *v, size_t n);
typedef struct json_named_int {
    const char *name;
    int64_t value;
} json_named_int;
/* {"name":value,..} of v, which a name of NULL ends. */
void json_named_ints(json_out *o, const json_named_int *v);
#define JSON_ROW_MAX 16
/* The same for 1 to JSON_ROW_MAX numbers, in one append: a pool's state has tens of
 * thousands of such rows. */
void json_row(json_out *o, const int64_t *v, int32_t n);

/* A short picture of a value for an error text ("\"ten\"", "1.5", "an array"), in buf.
 * Returns buf or a constant. */
#define JSON_BRIEF_BYTES 80
const char *json_brief(const json_value *v, char buf[JSON_BRIEF_BYTES]);

#endif
