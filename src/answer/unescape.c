#include "answer/unescape.h"

#include <assert.h>
#include <string.h>

#include "answer/mark_set.h"
#include "base/utf8.h"

static size_t unescape_add(char *out, size_t n, const char *p, size_t n_p) {
    memcpy(out + n, p, n_p);
    return n + n_p;
}

static size_t add_char(char *out, size_t n, int32_t c) {
    return n + utf8_encode(c, out + n);
}

/* Writes U+FFFD for a pending high surrogate without its low one. */
static size_t flush_high(unescape *u, char *out) {
    size_t n = u->high != 0 ? unescape_add(out, 0, UTF8_REPLACEMENT, 3) : 0;
    u->high = 0;
    return n;
}

static size_t add_code(unescape *u, char *out, int32_t c) {
    if (u->high != 0 && c >= 0xDC00 && c < 0xE000) {
        c = 0x10000 + ((u->high - 0xD800) << 10) + (c - 0xDC00);
        u->high = 0;
        return add_char(out, 0, c);
    }
    size_t n = flush_high(u, out);
    if (c >= 0xD800 && c < 0xDC00) {
        u->high = c;
        return n;
    }
    bool is_scalar = c >= 0 && c <= 0x10FFFF && !(c >= 0xDC00 && c < 0xE000);
    return is_scalar ? add_char(out, n, c) : unescape_add(out, n, UTF8_REPLACEMENT, 3);
}

/* How many digits follow \x, \u or \U; 0 for any other escape. */
static int digits_of(escape_kind kind, char c) {
    return c == 'u' ? 4 : kind != ESCAPE_PYTHON ? 0 : c == 'x' ? 2 : c == 'U' ? 8 : 0;
}

static size_t simple(unescape *u, escape_kind kind, char c, char *out) {
    static const char names[] = "bfnrtav0", values[] = "\b\f\n\r\t\a\v";
    const char *itself = kind == ESCAPE_PYTHON ? "\\\"'" : "\\\"/'";
    const char *at = c != 0 ? strchr(names, c) : NULL;
    size_t n = flush_high(u, out), n_names = kind == ESCAPE_PYTHON ? 8 : 5;
    if (at != NULL && (size_t)(at - names) < n_names) {
        out[n] = values[at - names];
        return n + 1;
    }
    if (kind == ESCAPE_PYTHON && c == '\n') {
        return n;
    }
    if (c == 0 || strchr(itself, c) == NULL) { /* not an escape: usually a path or a regular expression */
        out[n++] = '\\';
    }
    out[n] = c;
    return n + 1;
}

/* The value of the digits so far. */
static int32_t number_of(const unescape *u) {
    uint32_t v = 0;
    for (uint8_t i = 2; i < u->n; i++) {
        v = v << 4 | (uint32_t)hex_digit(u->seen[i]);
    }
    return v > 0x10FFFF ? -1 : (int32_t)v;
}

size_t unescape_push(unescape *u, escape_kind kind, char c, char out[UNESCAPE_BYTES]) {
    assert(u != NULL);
    if (u->n == 0 && c == '\\') {
        u->seen[u->n++] = c;
        return 0;
    }
    if (u->n == 0) {
        size_t n = flush_high(u, out);
        out[n] = c;
        return n + 1;
    }
    if (u->n == 1 && digits_of(kind, c) == 0) {
        u->n = 0;
        return simple(u, kind, c, out);
    }
    /* too few digits: the escape is kept unchanged, and c follows it */
    if (u->n > 1 && hex_digit(c) < 0) {
        size_t n = flush_high(u, out);
        n = unescape_add(out, n, u->seen, u->n > 10 ? 10 : u->n);
        u->n = 0;
        char last[UNESCAPE_BYTES];
        return n < UNESCAPE_BYTES ? unescape_add(out, n, last, unescape_push(u, kind, c, last)) : n;
    }
    u->seen[u->n++] = c;
    if (u->n == digits_of(kind, u->seen[1]) + 2) {
        int32_t v = number_of(u);
        u->n = 0;
        return add_code(u, out, v);
    }
    return 0;
}

size_t unescape_end(unescape *u, char out[UNESCAPE_BYTES]) {
    assert(u != NULL);
    size_t n = unescape_add(out, flush_high(u, out), u->seen, u->n);
    u->n = 0;
    return n;
}

void unescape_cut(unescape *u) {
    assert(u != NULL);
    u->n = 0;
}

quire_err escape_add(strbuf *out, const char *p, size_t n) {
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c >= 0x20 && c != '"' && c != '\\' && p[i] != MARK_BEGIN && p[i] != MARK_END) {
            continue;
        }
        TRY(strbuf_add(out, p + from, i - from));
        from = i + 1;
        if (c == '"' || c == '\\') {
            TRY(strbuf_addf(out, "\\%c", c));
        } else if (c == '\n' || c == '\t' || c == '\r') {
            TRY(strbuf_addf(out, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r'));
        } else if (c < 0x20) {
            TRY(strbuf_addf(out, "\\u%04x", c));
        }
    }
    return n > from ? strbuf_add(out, p + from, n - from) : QUIRE_OK;
}

/* ---- the input of a custom tool ---- */

enum { BEFORE, INSIDE, BEHIND, RAW };

static const char opening[] = "{\"input\":\"";

/* Reads a byte before the input string. */
static quire_err before(custom_input *c, char b, strbuf *out) {
    bool in_name = c->n_seen > 1 && c->n_seen < 8;
    if (!in_name && (b == ' ' || b == '\n' || b == '\t' || b == '\r')) {
        return QUIRE_OK; /* white space is dropped from other arguments too; it means nothing in JSON */
    }
    c->seen[c->n_seen++] = b;
    if (memcmp(c->seen, opening, c->n_seen) != 0) {
        c->stage = RAW;
        return strbuf_add(out, c->seen, c->n_seen);
    }
    c->stage = c->n_seen == sizeof opening - 1 ? INSIDE : BEFORE;
    return QUIRE_OK;
}

static quire_err custom_input_inside(custom_input *c, char b, strbuf *out) {
    char text[UNESCAPE_BYTES];
    bool ends = b == '"' && !unescape_is_open(&c->text);
    size_t n = ends ? unescape_end(&c->text, text) : unescape_push(&c->text, ESCAPE_JSON, b, text);
    c->stage = ends ? BEHIND : INSIDE;
    return strbuf_add(out, text, n);
}

static quire_err custom_input_take(custom_input *c, char b, strbuf *out) {
    switch (c->stage) {
    case BEFORE:
        return before(c, b, out);
    case INSIDE:
        return custom_input_inside(c, b, out);
    case BEHIND:
        return QUIRE_OK;
    default:
        return strbuf_add_char(out, b);
    }
}

quire_err custom_input_feed(custom_input *c, str piece, strbuf *out) {
    for (size_t i = 0; i < piece.n; i++) {
        TRY(custom_input_take(c, piece.p[i], out));
    }
    return QUIRE_OK;
}
