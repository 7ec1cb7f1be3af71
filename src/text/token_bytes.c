#include "text/token_bytes.h"

#include <string.h>

#include "text/byte_level.h"
#include "text/chars.h"

/* Whether the text has a character that stands for bytes which are none. */
static bool has_replacement(str text) {
    size_t n = strlen(UTF8_REPLACEMENT), at = 0;
    while (at + n <= text.n && memcmp(text.p + at, UTF8_REPLACEMENT, n) != 0) {
        at++;
    }
    return at + n <= text.n;
}

/* True for "<0xAB>". */
static bool is_byte_piece(str piece, char *byte) {
    int high = piece.n == 6 ? hex_digit(piece.p[3]) : -1, low = piece.n == 6 ? hex_digit(piece.p[4]) : -1;
    *byte = (char)(high * 16 + low);
    return high >= 0 && low >= 0 && memcmp(piece.p, "<0x", 3) == 0 && piece.p[5] == '>';
}

/* The text says a token's bytes unless they are no whole characters. Then the piece does: a byte's name, or the byte-level alphabet. */
quire_err token_bytes_add(const tokenizer *t, const token_texts *texts, int32_t id, strbuf *out) {
    str text = token_texts_of(texts, id), piece = tokenizer_piece(t, id);
    char byte;
    if (tokenizer_is_special(t, id)) {
        return QUIRE_OK;
    }
    if (!has_replacement(text)) {
        return strbuf_add(out, text.p, text.n);
    }
    return is_byte_piece(piece, &byte) ? strbuf_add_char(out, byte) : byte_level_add_bytes(out, piece);
}
