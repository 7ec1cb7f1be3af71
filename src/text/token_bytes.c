#include "text/token_bytes.h"

#include <string.h>

#include "text/byte_level.h"
#include "text/chars.h"

/* Whether the text has a replacement character for invalid bytes. */
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

/* The text has a token's bytes unless they are not whole characters. Then the piece does:
 * a byte's name, or the byte-level alphabet. */
static quire_err token_bytes_add_bytes(const tokenizer *t, str text, int32_t id, strbuf *out) {
    str piece = tokenizer_piece(t, id);
    char byte;
    if (!has_replacement(text)) {
        return strbuf_add(out, text.p, text.n);
    }
    return is_byte_piece(piece, &byte) ? strbuf_add_char(out, byte) : byte_level_add_bytes(out, piece);
}

quire_err token_bytes_add(const tokenizer *t, const token_texts *texts, int32_t id, strbuf *out) {
    return tokenizer_is_special(t, id) ? QUIRE_OK
                                       : token_bytes_add_bytes(t, token_texts_of(texts, id), id, out);
}

quire_err token_bytes_add_one(const tokenizer *t, int32_t id, strbuf *out) {
    strbuf text = {0};
    quire_err e = token_text_add(t, id, &text);
    e = e == QUIRE_OK ? token_bytes_add_bytes(t, (str){text.p, text.n}, id, out) : e;
    strbuf_deinit(&text);
    return e;
}
