#include "answer/custom_input.h"

#include <string.h>

enum { BEFORE, INSIDE, BEHIND, RAW };

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
