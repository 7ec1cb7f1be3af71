/* Tokens of JSON text (RFC 8259, strict): the lexer of json_check, json_scan and
 * json_read. Private to this room.
 *
 * A call that fails leaves *at at the error and sets *what to a phrase for a person. Any
 * thread. */
#ifndef JSON_LEX_H
#define JSON_LEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct json_number {
    bool is_integer; /* neither fraction nor exponent */
    bool fits;       /* an integer that an int64 holds */
    bool is_long;    /* over 15 digits, or an exponent: the double next to it may not print the same */
    int64_t value;   /* where it fits */
} json_number;

typedef struct json_letters {
    size_t n_bytes; /* of its text, without quotes and escapes */
    bool escaped;   /* it holds a backslash */
} json_letters;

/* The offset of the first byte from at on that is not white space. Polls the turn in long
 * runs; the next poll returns the same. */
size_t json_lex_space(str text, size_t at);
/* Skips a string with its quotes: well-formed UTF-8, no control characters, surrogates in
 * pairs. QUIRE_TOO_LARGE if its text has more than max_bytes: *at is then a KB past the
 * last of them at most, and *what as it was. */
quire_err json_lex_string(str text, size_t *at, size_t max_bytes, json_letters *out, const char **what);
/* Reads a number. QUIRE_CANCELLED, QUIRE_TOO_LARGE: a poll of the turn said so. */
quire_err json_lex_number(str text, size_t *at, json_number *out, const char **what);
/* The length of the word NaN, Infinity or -Infinity at `at`; 0: there is none. */
size_t json_lex_nonfinite(str text, size_t at);
/* Skips true, false or null. */
quire_err json_lex_word(str text, size_t *at, const char **what);
/* Appends the decoded contents of a checked string (the bytes between its quotes).
 * QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err json_lex_unescape(str inside, strbuf *out);
/* Skips the string whose opening quote is at *at, and decodes it: *out borrows the text,
 * or scratch if it has escapes. Errors of both calls above. */
quire_err json_lex_text(str text, size_t *at, strbuf *scratch, str *out);

#endif
