/* UTF-8: decoding, encoding and repair. Stateless: any thread. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Decodes the character at p[0..n), n > 0, and sets *len to its length. For invalid bytes
 * (overlong forms, surrogates and numbers past 10FFFF too): -1, and *len is the length of
 * the longest prefix of a character there, at least 1 (Unicode's "maximal subpart"). */
int32_t utf8_decode(const char *p, size_t n, size_t *len);
/* The same for valid text: faster. */
int32_t utf8_next(const char *p, size_t *len);
/* Encodes c (a scalar value) into out[0..4); returns its length. */
size_t utf8_encode(int32_t c, char out[4]);
quire_err utf8_add(strbuf *b, int32_t c);
/* Whether p[0..n), an invalid part, may become a character when more bytes come. */
bool utf8_is_unfinished(const char *p, size_t n);
bool utf8_is_valid(str s);
/* The length of the longest valid prefix of s. */
size_t utf8_valid_run(str s);
/* Appends s with each maximal invalid part replaced by U+FFFD. */
quire_err utf8_add_lossy(strbuf *b, str s);

#endif
