/* Unicode character classes that tokenizers and patterns use, from utf8proc. Stateless:
 * any thread. */
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
/* A number for its script, as the pre-tokenizer UnicodeScripts has them: Hiragana and
 * Katakana count as Han. 0: none (a space too). */
int32_t char_script(int32_t c);
/* Assigned since Unicode 9: normal forms leave it alone, as in the tokenizers library. */
bool char_is_inert(int32_t c);
/* Writes the lower case of one character, without context, to out: one or two characters.
 * Returns their number. */
int char_lower(int32_t c, int32_t out[2]);

#endif
