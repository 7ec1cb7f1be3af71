#include "text/chars.h"

#include <assert.h>
#include <utf8proc.h>

#include "base/turn.h"

bool char_is_space(int32_t c) {
    if (c < 0x80) {
        return c == ' ' || (c >= '\t' && c <= '\r');
    }
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool char_is_numeric(int32_t c) {
    if (c < 0x80) {
        return c >= '0' && c <= '9';
    }
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool char_is_punctuation(int32_t c) {
    if (c < 0x80) {
        return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
               (c >= 0x7B && c <= 0x7E);
    }
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool char_is_mark(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

bool char_is_nonspacing(int32_t c) {
    return utf8proc_category(c) == UTF8PROC_CATEGORY_MN;
}

bool char_is_word(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    /* Alphabetic is L, Nl, some marks (which M covers), and these symbols: circled and
     * squared Latin letters. */
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_ND) || k == UTF8PROC_CATEGORY_NL ||
           k == UTF8PROC_CATEGORY_PC || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D;
}

bool char_is_other(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_CC && k <= UTF8PROC_CATEGORY_CO;
}

static const uint32_t scripts[] = {
#include "text/script_table.inc"
};

int32_t char_script(int32_t c) {
    size_t low = 0, high = sizeof scripts / sizeof *scripts;
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        if (scripts[mid] >> 8 <= (uint32_t)c) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return c == ' ' ? 0 : (int32_t)(scripts[low] & 0xFF);
}

static const int32_t inert[][2] = {
#include "text/inert_table.inc"
};

bool char_is_inert(int32_t c) {
    size_t low = 0, high = sizeof inert / sizeof *inert;
    if (c < inert[0][0]) {
        return false;
    }
    while (high - low > 1) {
        size_t mid = (low + high) / 2;
        if (inert[mid][0] <= c) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return c <= inert[low][1];
}

int char_lower(int32_t c, int32_t out[2]) {
    if (c == 0x130) { /* the only character with two characters as its lower case */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = c >= 'A' && c <= 'Z' ? c + 32 : c < 0x80 ? c : utf8proc_tolower(c);
    return 1;
}

static bool is_visible(int32_t b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

/* The bytes without a visible character, in order: 00-20, 7F-A0, AD. */
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
    assert(b != NULL);
    size_t before = b->n;
    char block[512];
    for (size_t i = 0; i < text.n;) {
        size_t n = 0;
        for (; i < text.n && n + 2 <= sizeof block; i++) {
            n += utf8_encode(byte_level_char((uint8_t)text.p[i]), block + n);
        }
        quire_err e = strbuf_add(b, block, n);
        if (e != QUIRE_OK || (e = turn_poll((uint32_t)n / 16)) != QUIRE_OK) {
            b->n = before;
            if (b->p != NULL) {
                b->p[before] = '\0';
            }
            return e;
        }
    }
    return QUIRE_OK;
}

/* The byte spelled by text's first character, or -1; *len: the character's length. Those
 * of the alphabet have one or two bytes. */
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
    assert(b != NULL);
    size_t before = b->n, len;
    TRY(strbuf_reserve(b, piece.n)); /* one byte per character */
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
