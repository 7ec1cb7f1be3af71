/* Unicode character classes that tokenizers and patterns use, from utf8proc. Stateless:
 * any thread. */
#ifndef TEXT_CHARS_H
#define TEXT_CHARS_H

#include <stdint.h>

#include "base/str.h"
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

/* Byte-level alphabet (Radford et al. 2019, GPT-2): one visible character for each byte,
 * so that a vocabulary can be written as text. Bytes that are visible in Latin-1
 * represent themselves; the other 68 are U+0100 and up. */

#define BYTE_LEVEL_CHARS 0x144 /* all characters of the alphabet are below */

int32_t byte_level_char(uint8_t byte);
/* -1 for a character outside the alphabet. */
int32_t byte_level_byte(int32_t c);
/* Appends text's bytes, spelled in the alphabet. */
quire_err byte_level_add(strbuf *b, str text);
/* Appends the bytes that a piece spells. A piece with any other character is appended
 * unchanged. */
quire_err byte_level_add_bytes(strbuf *b, str piece);

#endif
