/* Tokens of JSON text (RFC 8259), to the letter: what json_check, json_scan and json_read agree on. Within the room only.
 *
 * A call that fails leaves *at where the text is wrong and gives a phrase for a person in *what. Any thread. */
#ifndef JSON_LEX_H
#define JSON_LEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct json_number {
    bool is_integer; /* neither fraction nor exponent */
    bool fits;       /* an integer that an int64 holds */
    int64_t value;   /* where it fits */
} json_number;

/* The first byte at or behind at that is no white space. */
size_t json_lex_space(str text, size_t at);
/* Passes a string, quotes included: well-formed UTF-8, no control characters, surrogates in pairs. *escaped: it holds a backslash. */
quire_err json_lex_string(str text, size_t *at, bool *escaped, const char **what);
/* Passes a number. */
quire_err json_lex_number(str text, size_t *at, json_number *out, const char **what);
/* Passes true, false or null. */
quire_err json_lex_word(str text, size_t *at, const char **what);
/* Appends what a checked string (between its quotes) means. QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err json_lex_unescape(str inside, strbuf *out);

#endif
