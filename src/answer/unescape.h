/* Decodes the escapes in strings that models write, byte by byte. */
#ifndef ANSWER_UNESCAPE_H
#define ANSWER_UNESCAPE_H

#include <stdint.h>

#include "base/str.h"

typedef enum escape_kind { ESCAPE_JSON, ESCAPE_PYTHON } escape_kind;

#define UNESCAPE_BYTES 16

/* Zero-initialised: outside an escape. */
typedef struct unescape {
    uint8_t n;     /* number of bytes in `seen`; 0: outside an escape */
    char seen[11]; /* the escape being read; \UXXXXXXXX is the longest */
    int32_t high;  /* a high surrogate whose low one is due; 0: none */
} unescape;

/* Whether a quote that comes next belongs to an escape and so does not end the string. A
 * quote among an escape's digits does end it. */
static inline bool unescape_is_open(const unescape *u) {
    return u->n == 1;
}
/* Reads one byte of a string. Writes the bytes that are decoded now to out and returns
 * their number. A backslash that begins no escape is kept, with the byte after it; \' is
 * an escape everywhere; a lone surrogate becomes U+FFFD. */
size_t unescape_push(unescape *u, escape_kind kind, char c, char out[UNESCAPE_BYTES]);
/* Ends the string: writes an incomplete escape to out, unchanged; returns its length. */
size_t unescape_end(unescape *u, char out[UNESCAPE_BYTES]);
/* Drops an unfinished escape, when the text is cut off. */
void unescape_cut(unescape *u);

/* Appends p[0..n), escaped for a JSON string but without its quotes. MARK_BEGIN and
 * MARK_END (mark_set.h) are left out. QUIRE_NO_MEMORY, QUIRE_TOO_LARGE (out->max). */
quire_err escape_add(strbuf *out, const char *p, size_t n);

/* Extracts the input of a custom tool's call: the string in its arguments, {"input":
 * "text"}, decoded while they stream.
 *
 * Arguments of any other form are the input, unchanged. Owner: its choice. */

typedef struct custom_input {
    uint8_t stage, n_seen;
    char seen[16]; /* the bytes read so far, while they may still be {"input": " */
    unescape text; /* state inside the string */
} custom_input;

/* Reads the next piece of a call's arguments and appends what it adds to the input to
 * *out. A zeroed struct has read nothing yet. QUIRE_NO_MEMORY. */
quire_err custom_input_feed(custom_input *c, str piece, strbuf *out);

#endif
