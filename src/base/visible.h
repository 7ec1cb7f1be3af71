/* Text for a terminal, where control characters act: here they are shown as escapes instead. One thread a text. */
#ifndef BASE_VISIBLE_H
#define BASE_VISIBLE_H

#include <stdint.h>

#include "base/str.h"

/* The beginning of a character with which a piece ended. Zero-initialised: none. */
typedef struct visible {
    char held[4];
    uint8_t n_held;
} visible;

/* Appends a piece of a text. Control characters but newline and tab become \x1b or \u0085, the marks that turn the direction of writing
 * \u202e, bytes that are no UTF-8 \xff; all else is as it was. A character whose rest is to come waits for it. NO_MEMORY: *out has a part
 * of the piece. */
quire_err visible_add(visible *v, const char *text, size_t n, strbuf *out);
/* The text ends here: what waited is no character. */
quire_err visible_end(visible *v, strbuf *out);

#endif
