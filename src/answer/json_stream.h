/* Reads a JSON value byte by byte and passes it on: lenient in what it reads, strict in
 * what it writes.
 *
 * Strings are rewritten: control characters and escapes that JSON does not have are
 * repaired. A comma before a closing bracket is dropped. Python's True, False and None
 * become JSON's. json_stream_close completes the output at any point. */
#ifndef ANSWER_JSON_STREAM_H
#define ANSWER_JSON_STREAM_H

#include "answer/unescape.h"
#include "base/str.h"

/* most nested brackets in a value; the whole arguments may have 64 */
#define JSON_STREAM_DEPTH 60
#define JSON_STREAM_SPACE 64 /* bytes of white space that are kept after a comma */

typedef enum json_stream_result {
    JSON_STREAM_MORE,
    JSON_STREAM_DONE,   /* the byte ended the value */
    JSON_STREAM_BEFORE, /* a number or word ended before the byte, which was not read */
    JSON_STREAM_BROKEN  /* the byte is invalid here and was not read; json_stream_close completes the value */
} json_stream_result;

/* Zero-initialised: before a value. */
typedef struct json_stream {
    uint8_t state, n_word, n_space;
    bool in_name, has_comma; /* has_comma: a comma that is written once the next item comes */
    uint16_t depth;
    char word[8], space[JSON_STREAM_SPACE];
    uint8_t is_object[(JSON_STREAM_DEPTH + 7) / 8]; /* a bit for each open bracket */
    unescape escape;
} json_stream;

/* Reads c and appends to *out. QUIRE_NO_MEMORY, QUIRE_TOO_LARGE (out->max). */
quire_err json_stream_push(json_stream *s, char c, strbuf *out, json_stream_result *result);
/* Reads the bytes of text up to the first whose result is not JSON_STREAM_MORE. *n_read:
 * how many were read. Errors as json_stream_push. */
quire_err json_stream_add(json_stream *s, str text, strbuf *out, json_stream_result *result, size_t *n_read);
/* Appends what completes the value: a quote, null for a missing value, brackets. */
quire_err json_stream_close(json_stream *s, strbuf *out);
/* Whether the next byte is inside a string, may begin a member's name, or a value. */
bool json_stream_is_in_string(const json_stream *s);
bool json_stream_wants_name(const json_stream *s);
bool json_stream_wants_value(const json_stream *s);

/* Reads a Python literal byte by byte and writes it as JSON: strings with either kind of
 * quotes are decoded and rewritten, and parentheses become lists. */

/* Zero-initialised: before a value. */
typedef struct python_literal {
    json_stream json;
    uint8_t state;
    char quote;
    uint8_t n_quotes;
    bool is_triple;
    unescape escape;
} python_literal;

/* As json_stream_push. */
quire_err python_literal_push(python_literal *p, char c, strbuf *out, json_stream_result *result);
/* As json_stream_close. */
quire_err python_literal_close(python_literal *p, strbuf *out);

#endif
