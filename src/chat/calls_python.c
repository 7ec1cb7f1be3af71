/* Calls as Python: [name(key="value", other=[1, {'a': None}]), ..], with keyword arguments that are literals.
 *
 * A literal becomes JSON byte by byte: strings are decoded and written anew, parentheses are lists, and json_stream checks the rest. */
#include <ctype.h>

#include "chat/call_reader.h"

enum { LIST, CALL, NAME, FIRST_KEY, KEY, AFTER_KEY, VALUE, QUOTES, STRING, AFTER_VALUE, AFTER_CALL };

static quire_err begin(call_reader *r) {
    r->u.p = (python_calls){.state = (r->format->flags & FORMAT_LINES) != 0 ? CALL : LIST};
    strbuf_clear(&r->text);
    return QUIRE_OK;
}

static quire_err finish_call(call_reader *r) {
    TRY(strbuf_add_str(&r->arguments, r->u.p.has_members ? "}" : "{}"));
    r->u.p.state = AFTER_CALL;
    r->u.p.has_members = false;
    return call_end(r);
}

/* Completes the value that was begun, and the call. */
static quire_err close_call(call_reader *r) {
    uint8_t state = r->u.p.state;
    if (state == VALUE || state == STRING || state == QUOTES) {
        TRY(json_stream_close(&r->json, &r->arguments));
    }
    return finish_call(r);
}

static quire_err break_off(call_reader *r, char c) {
    TRY(r->in_call ? close_call(r) : QUIRE_OK);
    return call_reject(r, &c, 1);
}

static quire_err put(call_reader *r, const char *p, size_t n, json_stream_result *result) {
    size_t n_read;
    return json_stream_add(&r->json, (str){p, n}, &r->arguments, result, &n_read);
}

/* ---- strings ---- */

static quire_err put_decoded(call_reader *r, const char *p, size_t n) {
    json_stream_result result;
    strbuf_clear(&r->special);
    TRY(escape_add(&r->special, p, n));
    return put(r, r->special.p, r->special.n, &result);
}

static quire_err end_string(call_reader *r) {
    char text[UNESCAPE_BYTES];
    json_stream_result result;
    TRY(put_decoded(r, text, unescape_end(&r->u.p.escape, text)));
    TRY(put(r, "\"", 1, &result));
    r->u.p.state = result == JSON_STREAM_DONE ? AFTER_VALUE : VALUE;
    return QUIRE_OK;
}

static quire_err string_byte(call_reader *r, char c) {
    char text[UNESCAPE_BYTES];
    return put_decoded(r, text, unescape_push(&r->u.p.escape, ESCAPE_PYTHON, c, text));
}

static quire_err byte(call_reader *r, char c);

/* Behind an opening quote: a second one makes an empty string, a third one a string of several lines. */
static quire_err in_quotes(call_reader *r, char c) {
    python_calls *p = &r->u.p;
    if (c == p->quote) {
        p->n_quotes++;
        p->is_triple = p->n_quotes == 3;
        p->state = p->is_triple ? STRING : QUOTES;
        p->n_quotes = p->is_triple ? 0 : p->n_quotes;
        return QUIRE_OK;
    }
    p->state = STRING;
    if (p->n_quotes == 2) {
        TRY(end_string(r));
        return byte(r, c);
    }
    p->n_quotes = 0;
    return byte(r, c);
}

static quire_err in_string(call_reader *r, char c) {
    python_calls *p = &r->u.p;
    if (c == p->quote && !unescape_is_open(&p->escape)) {
        p->n_quotes++;
        if (p->n_quotes == (p->is_triple ? 3 : 1)) {
            return end_string(r);
        }
        return QUIRE_OK;
    }
    for (; p->n_quotes > 0; p->n_quotes--) { /* quotes that did not end it */
        TRY(string_byte(r, p->quote));
    }
    return string_byte(r, c);
}

/* ---- values ---- */

static quire_err in_value(call_reader *r, char c) {
    python_calls *p = &r->u.p;
    json_stream_result result;
    if (c == '"' || c == '\'') {
        TRY(put(r, "\"", 1, &result));
        if (!json_stream_is_in_string(&r->json)) {
            return break_off(r, c);
        }
        p->state = QUOTES;
        p->quote = c;
        p->n_quotes = 1;
        p->is_triple = false;
        p->escape = (unescape){0};
        return QUIRE_OK;
    }
    char json = c == '(' ? '[' : c == ')' && r->json.depth > 0 ? ']' : c;
    TRY(put(r, &json, 1, &result));
    if (result == JSON_STREAM_BROKEN) {
        return break_off(r, c);
    }
    p->state = result == JSON_STREAM_MORE ? VALUE : AFTER_VALUE;
    return result == JSON_STREAM_BEFORE ? byte(r, c) : QUIRE_OK;
}

static quire_err begin_value(call_reader *r) {
    python_calls *p = &r->u.p;
    str key = call_str(&r->text);
    TRY(r->in_call ? QUIRE_OK : call_begin(r));
    TRY(strbuf_add_str(&r->arguments, p->has_members ? ", \"" : "{\""));
    TRY(escape_add(&r->arguments, key.p, key.n));
    TRY(strbuf_add_str(&r->arguments, "\": "));
    strbuf_clear(&r->text);
    p->has_members = true;
    p->state = VALUE;
    r->json = (json_stream){0};
    return QUIRE_OK;
}

/* ---- calls ---- */

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static quire_err end_call(call_reader *r) {
    TRY(r->in_call ? QUIRE_OK : call_begin(r));
    return finish_call(r);
}

/* A name, or a key, collects in r->text. */
static quire_err in_name(call_reader *r, char c) {
    python_calls *p = &r->u.p;
    if (is_word(c) || (p->state == NAME && (c == '.' || c == '-'))) {
        return strbuf_add_char(&r->text, c);
    }
    if (p->state == NAME && c == '(' && call_is_name(call_str(&r->text))) {
        TRY(call_set(&r->name, call_str(&r->text)));
        p->state = FIRST_KEY;
        return QUIRE_OK;
    }
    if (p->state == KEY && (c == '=' || call_space(c))) {
        p->state = AFTER_KEY;
        return c == '=' ? begin_value(r) : QUIRE_OK;
    }
    return break_off(r, c);
}

static quire_err begin_word(call_reader *r, char c, uint8_t state) {
    if (!is_word(c) || isdigit((unsigned char)c)) {
        return break_off(r, c);
    }
    r->u.p.state = state;
    strbuf_clear(&r->text);
    return strbuf_add_char(&r->text, c);
}

static quire_err close_list(call_reader *r) {
    call_leave(r);
    return QUIRE_OK;
}

/* c is no white space. */
static quire_err between(call_reader *r, char c) {
    python_calls *p = &r->u.p;
    bool in_lines = (r->format->flags & FORMAT_LINES) != 0;
    switch (p->state) {
    case LIST:
        p->state = CALL;
        p->in_list = true;
        return c == '[' ? QUIRE_OK : break_off(r, c);
    case CALL:
        if (in_lines && c == '[' && !p->in_list) {
            p->in_list = true;
            return QUIRE_OK;
        }
        return c == ']' && p->in_list ? close_list(r) : begin_word(r, c, NAME);
    case FIRST_KEY:
        return c == ')' ? end_call(r) : begin_word(r, c, KEY);
    case AFTER_KEY:
        return c == '=' ? begin_value(r) : break_off(r, c);
    case AFTER_VALUE:
        if (c == ',') {
            p->state = FIRST_KEY;
            return QUIRE_OK;
        }
        return c == ')' ? end_call(r) : break_off(r, c);
    default: /* AFTER_CALL */
        if (c == ',') {
            p->state = CALL;
            return QUIRE_OK;
        }
        if (c == ']' && p->in_list) {
            return close_list(r);
        }
        return in_lines ? begin_word(r, c, NAME) : break_off(r, c);
    }
}

static quire_err byte(call_reader *r, char c) {
    switch (r->u.p.state) {
    case NAME:
    case KEY:
        TRY(in_name(r, c));
        break;
    case VALUE:
        TRY(in_value(r, c));
        break;
    case QUOTES:
        TRY(in_quotes(r, c));
        break;
    case STRING:
        TRY(in_string(r, c));
        break;
    default:
        TRY(call_space(c) ? QUIRE_OK : between(r, c));
    }
    return r->in_call ? call_flush_arguments(r) : QUIRE_OK;
}

static quire_err end(call_reader *r, bool cut_off) {
    if (!r->in_call) {
        return QUIRE_OK;
    }
    return cut_off ? call_end(r) : close_call(r);
}

const call_machine python_machine = {begin, byte, end, true};
