/* JSON text written straight into a buffer.
 *
 * The first failure is kept and everything after it is skipped, so that a whole object can be written and `err` be looked at once.
 * Owner: whoever made it; one thread. What is written is always valid UTF-8. */
#ifndef SERVER_JSON_OUT_H
#define SERVER_JSON_OUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

typedef struct json_out {
    strbuf *to;
    quire_err err; /* the first failure: NO_MEMORY or TOO_LARGE */
} json_out;

/* Text that is JSON already: brackets, commas, keys. */
void json_raw(json_out *o, const char *json);
/* A string with quotes and escapes. A byte that belongs to no valid UTF-8 sequence becomes U+FFFD. */
void json_text(json_out *o, const char *p, size_t n);
/* The same for a 0-terminated string; NULL is null. */
void json_string(json_out *o, const char *s);
void json_int(json_out *o, int64_t v);
/* A number; what is not finite is null. */
void json_number(json_out *o, double v);
/* [1,2,3] */
void json_ints(json_out *o, const int32_t *v, size_t n);
#define JSON_ROW_MAX 16
/* The same for 1 to JSON_ROW_MAX numbers, in one piece: a pool's state has tens of thousands of such rows. */
void json_row(json_out *o, const int64_t *v, int32_t n);

#endif
