/* Builds the JSON body of a request from named members, each a value in JSON. One
 * thread. */
#ifndef CLI_BODY_H
#define CLI_BODY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct body_member {
    char *name; /* mem_new'd */
    strbuf json;
} body_member;

/* All zero: empty. */
typedef struct body {
    body_member *members; /* mem_new'd */
    size_t n, cap;
} body;

/* Frees the members. */
void body_deinit(body *b);
/* Adds a member, or replaces the one of that name. json: a complete value, copied.
 * QUIRE_NO_MEMORY: b is unchanged, after this and all other calls. */
quire_err body_set(body *b, const char *name, str json);
quire_err body_set_int(body *b, const char *name, int64_t v);
quire_err body_set_text(body *b, const char *name, str text);
/* Adds a text to the array `name`, which is created if there is none. */
quire_err body_add_text(body *b, const char *name, const char *text);
/* Adds the number `key` to the object `name`, which is created if there is none. A later
 * number with the same key takes precedence. */
quire_err body_add_number(body *b, const char *name, const char *key, double v);
/* Sets all members of `from` in b. */
quire_err body_set_all(body *b, const body *from);
/* Removes the member `name`, if there is one. */
void body_unset(body *b, const char *name);
bool body_has(const body *b, const char *name);
/* A member's JSON, valid until b changes; empty: absent. */
str body_get(const body *b, const char *name);
/* Appends the body as a JSON object. */
quire_err body_write(const body *b, strbuf *out);

#endif
