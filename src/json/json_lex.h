/* Lexer of JSON text (RFC 8259, strict) for json_check, json_scan and json_read. Private
 * to this room.
 *
 * A call that fails leaves *at at the error and sets *what to a phrase for a person. Any
 * thread. */
#ifndef JSON_LEX_H
#define JSON_LEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct json_number {
    bool is_integer; /* the number has neither fraction nor exponent */
    bool fits;       /* the number is an integer that fits int64 */
    bool is_long;    /* over 15 digits, or an exponent: a double may print differently */
    int64_t value;   /* the value if it fits */
} json_number;

typedef struct json_letters {
    size_t n_bytes; /* bytes of the decoded text */
    bool escaped;   /* the string has an escape */
} json_letters;

/* Skips white space; returns the offset of the first other byte. Polls the turn
 * (base/turn.h) in long runs, and ignores an error: the next poll returns it again. */
size_t json_lex_space(str text, size_t at);
/* Skips a string with its quotes, and checks it: well-formed UTF-8, no control
 * characters, surrogates in pairs. QUIRE_TOO_LARGE: its text exceeds max_bytes; *at is
 * then at most 1 KB past the bound, and *what is unchanged. */
quire_err json_lex_string(str text, size_t *at, size_t max_bytes, json_letters *out, const char **what);
/* Reads a number. QUIRE_CANCELLED, QUIRE_TOO_LARGE: from a poll of the turn. */
quire_err json_lex_number(str text, size_t *at, json_number *out, const char **what);
/* Length of the word NaN, Infinity or -Infinity at `at`; 0: there is none. */
size_t json_lex_nonfinite(str text, size_t at);
/* Skips true, false or null. */
quire_err json_lex_word(str text, size_t *at, const char **what);
/* Appends the decoded contents of a checked string; inside: its bytes between the quotes.
 * QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err json_lex_unescape(str inside, strbuf *out);
/* Skips the string whose opening quote is at *at, and decodes it. *out borrows the text,
 * or scratch if there are escapes. Errors as json_lex_string and json_lex_unescape. */
quire_err json_lex_text(str text, size_t *at, strbuf *scratch, str *out);

#endif
