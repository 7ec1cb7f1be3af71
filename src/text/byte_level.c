#include "text/byte_level.h"

#include "base/turn.h"

#include "text/chars.h"

static bool is_visible(int32_t b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

/* The hidden bytes in order: 00-20, 7F-A0, AD. */
int32_t byte_level_char(uint8_t byte) {
    if (is_visible(byte)) {
        return byte;
    }
    return 0x100 + (byte <= 0x20 ? byte : byte <= 0xA0 ? byte - 0x7F + 0x21 : 0x43);
}

int32_t byte_level_byte(int32_t c) {
    if (c < 0x100) {
        return c >= 0 && is_visible(c) ? c : -1;
    }
    c -= 0x100;
    return c <= 0x20 ? c : c <= 0x42 ? c - 0x21 + 0x7F : c == 0x43 ? 0xAD : -1;
}

quire_err byte_level_add(strbuf *b, str text) {
    size_t before = b->n;
    char block[512];
    for (size_t i = 0; i < text.n;) {
        size_t n = 0;
        for (; i < text.n && n + 2 <= sizeof block; i++) {
            n += utf8_encode(byte_level_char((uint8_t)text.p[i]), block + n);
        }
        quire_err e = strbuf_add(b, block, n);
        e = e == QUIRE_OK ? turn_poll((uint32_t)n / 16) : e;
        if (e != QUIRE_OK) {
            b->n = before;
            return e;
        }
    }
    return QUIRE_OK;
}

/* The byte that text's first character spells, or -1; *len bytes. All of the alphabet has
 * one or two bytes. */
static int32_t byte_level_first_byte(str text, size_t *len) {
    uint8_t first = (uint8_t)text.p[0], second = text.n > 1 ? (uint8_t)text.p[1] : 0;
    *len = first < 0x80 ? 1 : 2;
    if (first < 0x80) {
        return byte_level_byte(first);
    }
    return first >= 0xC2 && first < 0xE0 && (second & 0xC0) == 0x80
               ? byte_level_byte((first & 0x1F) << 6 | (second & 0x3F))
               : -1;
}

quire_err byte_level_add_bytes(strbuf *b, str piece) {
    size_t before = b->n, len;
    TRY(strbuf_reserve(b, piece.n)); /* a character spells one byte */
    for (size_t i = 0; i < piece.n; i += len) {
        int32_t byte = byte_level_first_byte((str){piece.p + i, piece.n - i}, &len);
        if (byte < 0) {
            b->n = before;
            return strbuf_add(b, piece.p, piece.n);
        }
        b->p[b->n++] = (char)byte;
    }
    b->p[b->n] = '\0';
    return QUIRE_OK;
}
