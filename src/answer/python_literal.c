#include "answer/python_literal.h"

enum { VALUE, QUOTES, STRING };

/* The JSON escape of a decoded text, a few bytes at a time. */
static quire_err put_decoded(python_literal *p, const char *text, size_t n, strbuf *out) {
    char bytes[8 * UNESCAPE_BYTES];
    size_t n_read, n_bytes = 0;
    json_stream_result result;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\') {
            bytes[n_bytes++] = '\\';
        } /* json_stream writes control characters as escapes */
        bytes[n_bytes++] = text[i];
    }
    return json_stream_add(&p->json, (str){bytes, n_bytes}, out, &result, &n_read);
}

static quire_err python_literal_end_string(python_literal *p, strbuf *out, json_stream_result *result) {
    char text[UNESCAPE_BYTES];
    TRY(put_decoded(p, text, unescape_end(&p->escape, text), out));
    p->state = VALUE;
    return json_stream_push(&p->json, '"', out, result);
}

static quire_err string_byte(python_literal *p, char c, strbuf *out) {
    char text[UNESCAPE_BYTES];
    return put_decoded(p, text, unescape_push(&p->escape, ESCAPE_PYTHON, c, text), out);
}

static quire_err python_literal_in_string(python_literal *p, char c, strbuf *out,
                                          json_stream_result *result) {
    if (c == p->quote && !unescape_is_open(&p->escape)) {
        p->n_quotes++;
        return p->n_quotes == (p->is_triple ? 3 : 1) ? python_literal_end_string(p, out, result) : QUIRE_OK;
    }
    for (; p->n_quotes > 0; p->n_quotes--) { /* quotes that did not end it */
        TRY(string_byte(p, p->quote, out));
    }
    return string_byte(p, c, out);
}

/* After an opening quote: a second one makes an empty string, a third one a string of
 * several lines. */
static quire_err in_quotes(python_literal *p, char c, strbuf *out, json_stream_result *result) {
    if (c == p->quote) {
        p->n_quotes++;
        p->is_triple = p->n_quotes == 3;
        p->state = p->is_triple ? STRING : QUOTES;
        p->n_quotes = p->is_triple ? 0 : p->n_quotes;
        return QUIRE_OK;
    }
    bool is_empty = p->n_quotes == 2;
    p->state = STRING;
    p->n_quotes = 0;
    if (!is_empty) {
        return python_literal_in_string(p, c, out, result);
    }
    TRY(python_literal_end_string(p, out, result));
    if (*result == JSON_STREAM_DONE) {
        *result = JSON_STREAM_BEFORE;
        return QUIRE_OK;
    }
    return python_literal_push(p, c, out, result);
}

static quire_err python_literal_in_value(python_literal *p, char c, strbuf *out, json_stream_result *result) {
    bool is_quote = c == '"' || c == '\'';
    char json = is_quote ? '"' : c == '(' ? '[' : c == ')' && p->json.depth > 0 ? ']' : c;
    TRY(json_stream_push(&p->json, json, out, result));
    if (is_quote && *result == JSON_STREAM_MORE) {
        p->state = QUOTES;
        p->quote = c;
        p->n_quotes = 1;
        p->is_triple = false;
        p->escape = (unescape){0};
    }
    return QUIRE_OK;
}

quire_err python_literal_push(python_literal *p, char c, strbuf *out, json_stream_result *result) {
    *result = JSON_STREAM_MORE;
    switch (p->state) {
    case STRING:
        return python_literal_in_string(p, c, out, result);
    case QUOTES:
        return in_quotes(p, c, out, result);
    default:
        return python_literal_in_value(p, c, out, result);
    }
}

quire_err python_literal_close(python_literal *p, strbuf *out) {
    p->state = VALUE;
    return json_stream_close(&p->json, out);
}
