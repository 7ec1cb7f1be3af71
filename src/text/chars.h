/* Unicode character classes that tokenizers and patterns use, from utf8proc. Stateless: any thread. */
#ifndef TEXT_CHARS_H
#define TEXT_CHARS_H

#include "base/utf8.h"

/* c is a scalar value. */
bool char_is_space(int32_t c);       /* White_Space: 25 members */
bool char_is_numeric(int32_t c);     /* N */
bool char_is_punctuation(int32_t c); /* P and ASCII symbols */
bool char_is_word(int32_t c);        /* Alphabetic, M, Nd, Pc: what \w matches */
bool char_is_mark(int32_t c);        /* M */
bool char_is_nonspacing(int32_t c);  /* Mn */
bool char_is_other(int32_t c);       /* Cc, Cf, Cs, Co */
/* Writes the lower case of one character, without context, to out: one or two characters. Returns their number. */
int char_lower(int32_t c, int32_t out[2]);

#endif
