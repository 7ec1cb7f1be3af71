/* A pull parser of JSON for texts with hundreds of thousands of entries: it returns
 * values one by one and builds no tree. It is strict (RFC 8259), except for trailing text
 * and names that occur twice. json_check detects those. */
#ifndef JSON_SCAN_H
#define JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct json_scan {
    str text;
    size_t at;
    bool begun;    /* between an opening bracket and its first member */
    bool of_model; /* a model's file: json_scan_span skips what json_limits_model takes */
} json_scan;

/* A number with its text. */
typedef struct json_scan_value {
    str text;
    bool is_integer; /* neither fraction nor exponent */
    bool fits;       /* an integer that an int64 holds: */
    int64_t value;
} json_scan_value;

/* All calls: QUIRE_BAD_FILE if the text does not have the expected token; s->at is near
 * the error. */

/* Reads '{' or '['. */
quire_err json_scan_open(json_scan *s, char bracket);
/* *more true: a member follows. false: the closing bracket was read. */
quire_err json_scan_more(json_scan *s, char closing, bool *more);
/* Reads a string. *out borrows the text if it has no escapes, otherwise scratch, which is
 * cleared first. */
quire_err json_scan_string(json_scan *s, strbuf *scratch, str *out);
/* Reads a member's name and its colon. */
quire_err json_scan_key(json_scan *s, strbuf *scratch, str *out);
/* Reads an integer that an int64 holds. */
quire_err json_scan_int(json_scan *s, int64_t *out);
quire_err json_scan_number(json_scan *s, json_scan_value *out);
/* Reads true, false or null, borrowed. */
quire_err json_scan_word(json_scan *s, str *out);
/* Skips one value, checked within json_limits_config (or s->of_model), and sets *span to
 * it. */
quire_err json_scan_span(json_scan *s, str *span);
/* Reads the next member of an object that was opened: its name, as json_scan_string, and
 * its value as json_scan_span. *more false: the object's end was read. */
quire_err json_scan_next(json_scan *s, strbuf *scratch, str *name, str *span, bool *more);
/* Finds a member of the object in text. *span is its value as written. QUIRE_NOT_FOUND if
 * there is none. */
quire_err json_scan_member(str text, const char *name, str *span);
/* The next value's first character ('"', '[', 't' ...), or 0 at the end. */
char json_scan_peek(json_scan *s);

#endif
