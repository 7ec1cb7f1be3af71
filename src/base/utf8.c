#include "base/utf8.h"

#include <assert.h>

/* The length of a character with a given lead byte, and the range of its second byte;
 * later bytes are in 80..BF (Unicode 15, table 3-7). */
typedef struct lead {
    uint8_t len, low, high;
} lead;

static lead lead_of(uint8_t b) {
    if (b < 0xC2 || b > 0xF4) {
        return (lead){0, 0, 0};
    }
    if (b < 0xE0) {
        return (lead){2, 0x80, 0xBF};
    }
    if (b < 0xF0) {
        return (lead){3, b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF};
    }
    return (lead){4, b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF};
}

int32_t utf8_decode(const char *p, size_t n, size_t *len) {
    const uint8_t *b = (const uint8_t *)p;
    *len = 1;
    if (b[0] < 0x80) {
        return b[0];
    }
    lead l = lead_of(b[0]);
    if (l.len == 0) {
        return -1;
    }
    int32_t c = b[0] & (0x7F >> l.len);
    for (size_t i = 1; i < l.len; i++) {
        uint8_t low = i == 1 ? l.low : 0x80, high = i == 1 ? l.high : 0xBF;
        if (i >= n || b[i] < low || b[i] > high) {
            *len = i;
            return -1;
        }
        c = c << 6 | (b[i] & 0x3F);
    }
    *len = l.len;
    return c;
}

int32_t utf8_next(const char *p, size_t *len) {
    const uint8_t *b = (const uint8_t *)p;
    if (b[0] < 0x80) {
        *len = 1;
        return b[0];
    }
    if (b[0] < 0xE0) {
        *len = 2;
        return (b[0] & 0x1F) << 6 | (b[1] & 0x3F);
    }
    if (b[0] < 0xF0) {
        *len = 3;
        return (b[0] & 0x0F) << 12 | (b[1] & 0x3F) << 6 | (b[2] & 0x3F);
    }
    *len = 4;
    return (b[0] & 0x07) << 18 | (b[1] & 0x3F) << 12 | (b[2] & 0x3F) << 6 | (b[3] & 0x3F);
}

size_t utf8_encode(int32_t c, char out[4]) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    static const int32_t marks[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(marks[n] | c);
    return n;
}

quire_err utf8_add(strbuf *b, int32_t c) {
    char bytes[4];
    return strbuf_add(b, bytes, utf8_encode(c, bytes));
}

bool utf8_is_unfinished(const char *p, size_t n) {
    size_t len;
    return n > 0 && utf8_decode(p, n, &len) < 0 && len == n && lead_of((uint8_t)p[0]).len > n;
}

/* Returns the number of ASCII bytes at the beginning of s. */
static size_t ascii_run(str s) {
    size_t i = 0;
    for (; i + 8 <= s.n; i += 8) {
        uint64_t word;
        memcpy(&word, s.p + i, 8);
        if ((word & 0x8080808080808080u) != 0) {
            break;
        }
    }
    while (i < s.n && (uint8_t)s.p[i] < 0x80) {
        i++;
    }
    return i;
}

size_t utf8_valid_run(str s) {
    size_t i = 0;
    while (i < s.n) {
        i += ascii_run((str){s.p + i, s.n - i});
        size_t len;
        if (i < s.n) {
            if (utf8_decode(s.p + i, s.n - i, &len) < 0) {
                return i;
            }
            i += len;
        }
    }
    return i;
}

bool utf8_is_valid(str s) {
    return utf8_valid_run(s) == s.n;
}

quire_err utf8_add_lossy(strbuf *b, str s) {
    assert(b != NULL);
    size_t before = b->n;
    while (s.n > 0) {
        size_t run = utf8_valid_run(s);
        quire_err e = strbuf_add(b, s.p, run);
        s = (str){s.p + run, s.n - run};
        if (e == QUIRE_OK && s.n > 0) {
            size_t len;
            (void)utf8_decode(s.p, s.n, &len);
            s = (str){s.p + len, s.n - len};
            e = strbuf_add_str(b, UTF8_REPLACEMENT);
        }
        if (e != QUIRE_OK) {
            b->n = before;
            if (b->p != NULL) {
                b->p[before] = '\0';
            }
            return e;
        }
    }
    return QUIRE_OK;
}

/* Whether a terminal acts on c: C0 except newline and tab, DEL, C1, and the embeddings,
 * overrides and isolates of bidirectional text. */
static bool acts(int32_t c) {
    if (c < 0x20) {
        return c != '\n' && c != '\t';
    }
    return (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

static quire_err visible_add_bytes(strbuf *out, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        TRY(strbuf_addf(out, "\\x%02x", (unsigned)(unsigned char)p[i]));
    }
    return QUIRE_OK;
}

/* Appends the character c, n bytes at p, in visible form; c -1: invalid bytes. */
static quire_err add_one(strbuf *out, int32_t c, const char *p, size_t n) {
    if (c < 0 || (acts(c) && c < 0x80)) {
        return visible_add_bytes(out, p, n);
    }
    return acts(c) ? strbuf_addf(out, "\\u%04x", (unsigned)c) : strbuf_add(out, p, n);
}

/* Completes the kept character with bytes of text[0..n), or keeps more of it; *used is
 * the number of bytes taken. */
static quire_err visible_complete(visible *v, const char *text, size_t n, strbuf *out, size_t *used) {
    char whole[sizeof v->held];
    size_t have = v->n_held, length;
    size_t more = n < sizeof whole - have ? n : sizeof whole - have;
    memcpy(whole, v->held, have);
    memcpy(whole + have, text, more);
    int32_t c = utf8_decode(whole, have + more, &length);
    if (c < 0 && length == have + more && utf8_is_unfinished(whole, length)) {
        memcpy(v->held, whole, length);
        v->n_held = (uint8_t)length;
        *used = more;
        return QUIRE_OK;
    }
    v->n_held = 0;
    *used = length - have; /* not below 0: the kept bytes are a prefix of this character */
    return add_one(out, c, whole, length);
}

quire_err visible_add(visible *v, const char *text, size_t n, strbuf *out) {
    assert(v != NULL);
    size_t at = 0, length;
    if (v->n_held > 0 && n > 0) {
        TRY(visible_complete(v, text, n, out, &at));
    }
    for (; at < n; at += length) {
        int32_t c = utf8_decode(text + at, n - at, &length);
        if (c < 0 && at + length == n && utf8_is_unfinished(text + at, length)) {
            memcpy(v->held, text + at, length);
            v->n_held = (uint8_t)length;
        } else {
            TRY(add_one(out, c, text + at, length));
        }
    }
    return QUIRE_OK;
}

quire_err visible_end(visible *v, strbuf *out) {
    assert(v != NULL);
    size_t n = v->n_held;
    v->n_held = 0;
    return visible_add_bytes(out, v->held, n);
}
