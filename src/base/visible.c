#include "base/visible.h"

#include "base/utf8.h"

/* Whether a terminal acts on c: C0, DEL, C1, and the embeddings, overrides and isolates
 * of bidirectional text. */
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

/* Appends one character of n bytes, or, where c is -1, n bytes that are none. */
static quire_err add_one(strbuf *out, int32_t c, const char *p, size_t n) {
    if (c < 0 || (acts(c) && c < 0x80)) {
        return visible_add_bytes(out, p, n);
    }
    return acts(c) ? strbuf_addf(out, "\\u%04x", (unsigned)c) : strbuf_add(out, p, n);
}

/* Completes the kept character with text[0..n), its rest or a part of it; *used bytes of
 * text were taken. */
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
    *used = length -
            have; /* the kept bytes were the beginning of a character, so they are no longer than this one */
    return add_one(out, c, whole, length);
}

quire_err visible_add(visible *v, const char *text, size_t n, strbuf *out) {
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
    size_t n = v->n_held;
    v->n_held = 0;
    return visible_add_bytes(out, v->held, n);
}
