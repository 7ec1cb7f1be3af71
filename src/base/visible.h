/* Makes text safe for a terminal, where control characters have effects: it shows them as
 * escapes. One thread for each text. */
#ifndef BASE_VISIBLE_H
#define BASE_VISIBLE_H

#include <stdint.h>

#include "base/str.h"

/* An incomplete character at the end of a piece. Zero-initialised: none. */
typedef struct visible {
    char held[4];
    uint8_t n_held;
} visible;

/* Appends a piece of a text. Control characters but newline and tab become \x1b or
 * \u0085, marks of writing direction \u202e, bytes that are no UTF-8 \xff; all else is
 * unchanged. An incomplete character is kept for the next piece. NO_MEMORY: *out has a
 * part of the piece. */
quire_err visible_add(visible *v, const char *text, size_t n, strbuf *out);
/* Ends the text: bytes kept for the next piece are no character. */
quire_err visible_end(visible *v, strbuf *out);

#endif
