/* A JSON value that arrives byte by byte and is passed on as JSON: strict in what it
 * writes, lenient in what it reads.
 *
 * Strings are rewritten: control characters and escapes that JSON does not have are
 * repaired. A comma before a closing bracket is dropped. Python's True, False and None
 * become JSON's. At any time the value can be closed, so that what was written is
 * whole. */
#ifndef ANSWER_JSON_STREAM_H
#define ANSWER_JSON_STREAM_H

#include "answer/unescape.h"
#include "base/str.h"

/* most nested brackets; the arguments around the value also count among the 64 of a
 * request */
#define JSON_STREAM_DEPTH 60
#define JSON_STREAM_SPACE 64 /* bytes of white space that are kept after a comma */

typedef enum json_stream_result {
    JSON_STREAM_MORE,
    JSON_STREAM_DONE,   /* the byte ended the value */
    JSON_STREAM_BEFORE, /* a number or word ended before the byte, which was not read */
    JSON_STREAM_BROKEN  /* the byte fits nowhere and was not read: json_stream_close completes the value */
} json_stream_result;

/* Zero-initialised: before a value. */
typedef struct json_stream {
    uint8_t state, n_word, n_space;
    bool in_name, has_comma; /* a comma is written only once the next item comes */
    uint16_t depth;
    char word[8], space[JSON_STREAM_SPACE];
    uint8_t is_object[(JSON_STREAM_DEPTH + 7) / 8]; /* a bit for each open bracket */
    unescape escape;
} json_stream;

/* Reads c and appends to *out. Errors of strbuf. */
quire_err json_stream_push(json_stream *s, char c, strbuf *out, json_stream_result *result);
/* The same for each of p[0..n), up to the first that does not give MORE; *n_read: how
 * many were read. */
quire_err json_stream_add(json_stream *s, str text, strbuf *out, json_stream_result *result, size_t *n_read);
/* Appends what closes the value: quotes, null for a missing value, brackets. */
quire_err json_stream_close(json_stream *s, strbuf *out);
/* What may come next. */
bool json_stream_is_in_string(const json_stream *s);
bool json_stream_wants_name(const json_stream *s);
bool json_stream_wants_value(const json_stream *s);

/* ---- Python literals ---- */

/* A Python literal that arrives byte by byte, written as JSON: strings with either kind
 * of quotes are decoded and rewritten, parentheses are lists, and json_stream.h checks
 * the rest. */

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
