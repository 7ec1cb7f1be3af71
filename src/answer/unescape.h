/* Escapes in the strings that models write, decoded byte by byte. */
#ifndef ANSWER_UNESCAPE_H
#define ANSWER_UNESCAPE_H

#include <stdint.h>

#include "base/str.h"

typedef enum escape_kind { ESCAPE_JSON, ESCAPE_PYTHON } escape_kind;

#define UNESCAPE_BYTES 16

/* Zero-initialised: outside an escape. */
typedef struct unescape {
    uint8_t n;     /* bytes of the escape being read */
    char seen[11]; /* its bytes: \UXXXXXXXX is the longest */
    int32_t high;  /* a high surrogate that waits for its low one; 0: none */
} unescape;

/* Whether a quote belongs to an escape and so does not end the string. A quote among an
 * escape's digits does end it. */
static inline bool unescape_is_open(const unescape *u) {
    return u->n == 1;
}
/* Reads one byte of a string. out[0..return value): the text that is complete now. A
 * backslash that begins no escape is kept, with the byte after it; \' is an escape
 * everywhere, as in JavaScript and Python; a lone surrogate becomes U+FFFD. */
size_t unescape_push(unescape *u, escape_kind kind, char c, char out[UNESCAPE_BYTES]);
/* The string ends: an incomplete escape stays unchanged. */
size_t unescape_end(unescape *u, char out[UNESCAPE_BYTES]);
/* The text is cut off: an escape that is unfinished is dropped. */
void unescape_cut(unescape *u);

/* Appends text as the inside of a JSON string. Marks of special tokens (mark_set.h) are
 * left out. */
quire_err escape_add(strbuf *out, const char *p, size_t n);

/* ---- the input of a custom tool ---- */

/* The input of a call of a custom tool: what its arguments, {"input": "text"}, hold as a
 * string, read while they stream.
 *
 * Arguments of any other form are the input, unchanged. Owner: the choice. */

typedef struct custom_input {
    uint8_t stage, n_seen;
    char seen[16]; /* bytes before the string, while they may still be those */
    unescape text; /* inside the string */
} custom_input;

/* Reads the next piece of the arguments of a call; a zeroed struct has read nothing
 * yet. Appends what the piece adds to the input. QUIRE_NO_MEMORY. */
quire_err custom_input_feed(custom_input *c, str piece, strbuf *out);

#endif
