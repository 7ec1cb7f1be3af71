/* A pull parser for JSON texts with hundreds of thousands of entries. It returns values
 * one by one and builds no tree. It is strict (RFC 8259), except that it ignores trailing
 * text and names that occur twice; json_check detects those. */
#ifndef JSON_SCAN_H
#define JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct json_scan {
    str text;
    size_t at;
    bool begun;    /* an opening bracket was read, but no member after it */
    bool of_model; /* the text is a model's file: json_scan_span uses json_limits_model */
} json_scan;

/* A number and its text. */
typedef struct json_scan_value {
    str text;
    bool is_integer; /* the number has neither fraction nor exponent */
    bool fits;       /* the number is an integer that fits int64, and `value` holds it */
    int64_t value;
} json_scan_value;

/* All calls return QUIRE_BAD_FILE if the text does not have the expected token; s->at is
 * then near the error. */

/* Reads '{' or '['. */
quire_err json_scan_open(json_scan *s, char bracket);
/* Moves to the next member: *more is true if one follows, false if the closing bracket
 * was read. */
quire_err json_scan_more(json_scan *s, char closing, bool *more);
/* Reads a string. *out borrows the text if it has no escapes, otherwise scratch, which is
 * cleared first. */
quire_err json_scan_string(json_scan *s, strbuf *scratch, str *out);
/* Reads a member's name and its colon. */
quire_err json_scan_key(json_scan *s, strbuf *scratch, str *out);
/* Reads an integer that fits int64. */
quire_err json_scan_int(json_scan *s, int64_t *out);
quire_err json_scan_number(json_scan *s, json_scan_value *out);
/* Reads true, false or null; *out borrows the text. */
quire_err json_scan_word(json_scan *s, str *out);
/* Skips one value and sets *span to its text. Checks it within json_limits_config, or
 * json_limits_model if s->of_model. */
quire_err json_scan_span(json_scan *s, str *span);
/* Reads the next member of an open object: its name like json_scan_string, its value like
 * json_scan_span. *more is false if the object's end was read. */
quire_err json_scan_next(json_scan *s, strbuf *scratch, str *name, str *span, bool *more);
/* Reads an object of any number of members: read is called for each at its value, which it
 * reads. Names have at most 4096 bytes. */
quire_err json_scan_members(json_scan *s, quire_err (*read)(void *user, json_scan *s, str name), void *user);
/* Finds a member of the object in text, and sets *span to the text of its value.
 * QUIRE_NOT_FOUND: there is none. */
quire_err json_scan_member(str text, const char *name, str *span);
/* Returns the first character of the next value ('"', '[', 't' ...), or 0 at the end. */
char json_scan_peek(json_scan *s);

#endif
