/* UTF-8: reading, writing and repairing it, and the classes of characters that tokenizers ask for. Stateless: any thread. */
#ifndef TEXT_UTF8_H
#define TEXT_UTF8_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* The character at p[0..n), n > 0. Its length goes to *len. For what is not UTF-8 (overlong forms, surrogates and numbers past 10FFFF too):
 * -1, and *len is the length of the longest prefix of a character that stands there, at least 1 (Unicode's "maximal subpart"). */
int32_t utf8_decode(const char *p, size_t n, size_t *len);
/* The same for text that is known to be valid: quicker. */
int32_t utf8_next(const char *p, size_t *len);
/* Writes c (a scalar value) to out[0..4); its length. */
size_t utf8_encode(int32_t c, char out[4]);
quire_err utf8_add(strbuf *b, int32_t c);
/* True when p[0..n), an invalid part, may become a character when more bytes come. */
bool utf8_is_unfinished(const char *p, size_t n);
bool utf8_is_valid(str s);
/* Appends s with each maximal invalid part replaced by U+FFFD. */
quire_err utf8_add_lossy(strbuf *b, str s);

/* Classes. c is a scalar value. */
bool char_is_space(int32_t c);       /* White_Space: 25 members */
bool char_is_numeric(int32_t c);     /* N */
bool char_is_punctuation(int32_t c); /* P and ASCII symbols */
bool char_is_word(int32_t c);        /* Alphabetic, M, Nd, Pc: what \w matches */
bool char_is_mark(int32_t c);        /* M */
bool char_is_nonspacing(int32_t c);  /* Mn */
bool char_is_other(int32_t c);       /* Cc, Cf, Cs, Co */
/* The lower case of one character by itself, one or two characters in out; their number. */
int char_lower(int32_t c, int32_t out[2]);

#endif
