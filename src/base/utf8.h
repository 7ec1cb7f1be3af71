/* UTF-8: decoding, encoding and repair. Stateless: any thread. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Decodes the character at p[0..n), n > 0, and sets *len to its length. For invalid bytes
 * (including overlong forms, surrogates and code points past 10FFFF): -1, and *len is the
 * length of the longest prefix of a character there, at least 1 (Unicode's "maximal
 * subpart"). */
int32_t utf8_decode(const char *p, size_t n, size_t *len);
/* As utf8_decode, but faster, for text known to be valid. */
int32_t utf8_next(const char *p, size_t *len);
/* Encodes c, a scalar value, into out[0..4); returns its length. utf8_add appends it. */
size_t utf8_encode(int32_t c, char out[4]);
quire_err utf8_add(strbuf *b, int32_t c);
/* Whether p[0..n), an invalid part, is the beginning of a character. */
bool utf8_is_unfinished(const char *p, size_t n);
bool utf8_is_valid(str s);
/* Returns the number of characters in valid text. */
static inline size_t utf8_count(str s) {
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        n += ((uint8_t)s.p[i] & 0xC0) != 0x80;
    }
    return n;
}
/* Returns the length of the longest valid prefix of s. */
size_t utf8_valid_run(str s);
/* Appends s with U+FFFD for each maximal invalid part. On failure appends nothing. */
quire_err utf8_add_lossy(strbuf *b, str s);

/* Makes text safe for a terminal by escaping control characters. One thread per text. */

/* The bytes of an incomplete character at the end of a piece. Zero-initialised: none. */
typedef struct visible {
    char held[4];
    uint8_t n_held;
} visible;

/* Appends a piece of a text. Control characters other than newline and tab become \x1b or
 * \u0085, direction marks \u202e, invalid bytes \xff; the rest is unchanged. An
 * incomplete character waits for the next piece. QUIRE_NO_MEMORY: *out has a part. */
quire_err visible_add(visible *v, const char *text, size_t n, strbuf *out);
/* Ends the text: appends the bytes of an incomplete character as invalid ones. */
quire_err visible_end(visible *v, strbuf *out);

#endif
