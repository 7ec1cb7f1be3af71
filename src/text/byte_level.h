/* Byte-level alphabet (Radford et al. 2019, GPT-2): one visible character for each byte,
 * so that a vocabulary can be written as text. Bytes that are visible in Latin-1
 * represent themselves; the other 68 are U+0100 and up. */
#ifndef TEXT_BYTE_LEVEL_H
#define TEXT_BYTE_LEVEL_H

#include <stdint.h>

#include "base/str.h"

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
