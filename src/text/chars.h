/* Unicode character classes for tokenizers and patterns, from utf8proc. Stateless; any
 * thread. */
#ifndef TEXT_CHARS_H
#define TEXT_CHARS_H

#include <stdint.h>

#include "base/str.h"
#include "base/utf8.h"

/* c must be a scalar value. */
bool char_is_space(int32_t c);       /* White_Space: 25 characters */
bool char_is_numeric(int32_t c);     /* category N */
bool char_is_punctuation(int32_t c); /* category P and ASCII symbols */
bool char_is_word(int32_t c);        /* Alphabetic, M, Nd, Pc: what \w matches */
bool char_is_mark(int32_t c);        /* category M */
bool char_is_nonspacing(int32_t c);  /* category Mn */
bool char_is_other(int32_t c);       /* categories Cc, Cf, Cs, Co */
/* The number of its script, as for the pre-tokenizer UnicodeScripts: Hiragana and
 * Katakana count as Han. 0: none, as for a space. */
int32_t char_script(int32_t c);
/* Whether c was assigned after Unicode 9: like the tokenizers library, normal forms leave
 * it unchanged. */
bool char_is_inert(int32_t c);
/* Writes the lower case of c, one or two characters, to out and returns their number.
 * Ignores context. */
int char_lower(int32_t c, int32_t out[2]);

/* The byte-level alphabet (Radford et al. 2019, GPT-2): a visible character for each
 * byte, so that vocabularies can be written as text. Bytes that are visible in Latin-1
 * stand for themselves, the other 68 are U+0100 and up. */

#define BYTE_LEVEL_CHARS 0x144 /* exceeds all characters of the alphabet */

int32_t byte_level_char(uint8_t byte);
/* The byte of a character; -1 if it is not in the alphabet. */
int32_t byte_level_byte(int32_t c);
/* Appends text with each byte as a character of the alphabet. */
quire_err byte_level_add(strbuf *b, str text);
/* Appends the bytes that a piece spells. A piece with any other character is appended as
 * it is. */
quire_err byte_level_add_bytes(strbuf *b, str piece);

#endif
