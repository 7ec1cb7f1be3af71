/* A pull reader of JSON for files with hundreds of thousands of entries: strings come out one by one, nothing is built. Strict (RFC 8259),
 * but for trailing text, which is the caller's to judge. Small documents inside are better given to json-c: json_scan_span. */
#ifndef TEXT_JSON_SCAN_H
#define TEXT_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct json_scan {
    str text;
    size_t at;
    bool begun; /* between an opening bracket and its first member */
} json_scan;

/* All: QUIRE_BAD_FILE where the text is not what was asked for; s->at is about where. */

/* Takes '{' or '['. */
quire_err json_scan_open(json_scan *s, char bracket);
/* *more true: a member follows. false: the closing bracket was taken. */
quire_err json_scan_more(json_scan *s, char closing, bool *more);
/* A string: *out borrows the text where it has no escapes, else scratch, which is cleared. An unpaired surrogate becomes U+FFFD. */
quire_err json_scan_string(json_scan *s, strbuf *scratch, str *out);
/* A member's name and its colon. */
quire_err json_scan_key(json_scan *s, strbuf *scratch, str *out);
quire_err json_scan_int(json_scan *s, int64_t *out);
/* Passes over one value, which goes to *span. At most 64 levels deep. */
quire_err json_scan_span(json_scan *s, str *span);
/* The next value's first character ('"', '[', 't' ...), or 0 at the end. */
char json_scan_peek(json_scan *s);

#endif
