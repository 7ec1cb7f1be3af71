/* A pull reader of JSON for texts with hundreds of thousands of entries: values come out one by one, nothing is built. Strict (RFC 8259),
 * but for trailing text and names that occur twice, which are the caller's to judge (json_check does). */
#ifndef JSON_SCAN_H
#define JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct json_scan {
    str text;
    size_t at;
    bool begun; /* between an opening bracket and its first member */
} json_scan;

/* A number as written. */
typedef struct json_scan_value {
    str text;
    bool is_integer; /* neither fraction nor exponent */
    bool fits;       /* an integer that an int64 holds: */
    int64_t value;
} json_scan_value;

/* All: QUIRE_BAD_FILE where the text does not hold what is wanted; s->at is about where. */

/* Takes '{' or '['. */
quire_err json_scan_open(json_scan *s, char bracket);
/* *more true: a member follows. false: the closing bracket was taken. */
quire_err json_scan_more(json_scan *s, char closing, bool *more);
/* A string: *out borrows the text where it has no escapes, else scratch, which is cleared. */
quire_err json_scan_string(json_scan *s, strbuf *scratch, str *out);
/* A member's name and its colon. */
quire_err json_scan_key(json_scan *s, strbuf *scratch, str *out);
/* An integer that an int64 holds. */
quire_err json_scan_int(json_scan *s, int64_t *out);
quire_err json_scan_number(json_scan *s, json_scan_value *out);
/* true, false or null, borrowed. */
quire_err json_scan_word(json_scan *s, str *out);
/* Passes over one value, checked within json_limits_config; it goes to *span. */
quire_err json_scan_span(json_scan *s, str *span);
/* Finds a member of the object that text is; its value as written goes to *span. QUIRE_NOT_FOUND where there is none. */
quire_err json_scan_member(str text, const char *name, str *span);
/* The next value's first character ('"', '[', 't' ...), or 0 at the end. */
char json_scan_peek(json_scan *s);

#endif
