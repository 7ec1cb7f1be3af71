#include "api/custom_input.h"

#include <string.h>

#include "base/utf8.h"

enum { BEFORE, INSIDE, ESCAPE, HEX, BEHIND, RAW };

static const char opening[] = "{\"input\":\"";

/* Takes a byte before the string. */
static quire_err before(custom_input *c, char b, strbuf *out) {
    bool in_name = c->n_seen > 1 && c->n_seen < 8;
    if (!in_name && (b == ' ' || b == '\n' || b == '\t' || b == '\r')) {
        return QUIRE_OK; /* other arguments lose it too, which changes no JSON */
    }
    c->seen[c->n_seen++] = b;
    if (memcmp(c->seen, opening, c->n_seen) != 0) {
        c->stage = RAW;
        return strbuf_add(out, c->seen, c->n_seen);
    }
    c->stage = c->n_seen == sizeof opening - 1 ? INSIDE : BEFORE;
    return QUIRE_OK;
}

static quire_err add_char(custom_input *c, uint32_t code, strbuf *out) {
    char bytes[4];
    if (code >= 0xD800 && code < 0xDC00) {
        c->high = code;
        return QUIRE_OK;
    }
    bool is_low = code >= 0xDC00 && code < 0xE000;
    code = is_low ? c->high > 0 ? 0x10000 + ((c->high - 0xD800) << 10) + (code - 0xDC00) : 0xFFFD : code;
    c->high = 0;
    return strbuf_add(out, bytes, utf8_encode((int32_t)code, bytes));
}

static quire_err escape(custom_input *c, char b, strbuf *out) {
    static const char names[] = "bfnrt\"\\/", values[] = "\b\f\n\r\t\"\\/";
    const char *at = b != 0 ? strchr(names, b) : NULL;
    c->stage = b == 'u' ? HEX : INSIDE;
    c->code = c->n_hex = 0;
    return at != NULL ? strbuf_add_char(out, values[at - names]) : QUIRE_OK;
}

static quire_err take(custom_input *c, char b, strbuf *out) {
    switch (c->stage) {
    case BEFORE: return before(c, b, out);
    case INSIDE:
        if (b == '"' || b == '\\') {
            c->stage = b == '"' ? BEHIND : ESCAPE;
            return QUIRE_OK;
        }
        return strbuf_add_char(out, b);
    case ESCAPE: return escape(c, b, out);
    case HEX:
        c->code = c->code << 4 | (uint32_t)(hex_digit(b) >= 0 ? hex_digit(b) : 0);
        if (++c->n_hex < 4) {
            return QUIRE_OK;
        }
        c->stage = INSIDE;
        return add_char(c, c->code, out);
    case BEHIND: return QUIRE_OK;
    default: return strbuf_add_char(out, b);
    }
}

quire_err custom_input_feed(custom_input *c, str piece, strbuf *out) {
    for (size_t i = 0; i < piece.n; i++) {
        TRY(take(c, piece.p[i], out));
    }
    return QUIRE_OK;
}
