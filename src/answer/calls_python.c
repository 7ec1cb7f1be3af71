/* Calls as Python: [name(key="value", other=[1, {'a': None}]), ..], with keyword
 * arguments that are literals. */
#include <ctype.h>

#include "answer/call_reader.h"

enum { LIST, CALL, NAME, FIRST_KEY, KEY, AFTER_KEY, VALUE, AFTER_VALUE, AFTER_CALL };

static quire_err calls_python_begin(call_reader *r) {
    r->u.p = (python_calls){.state = (r->flags & FORMAT_LINES) != 0 ? CALL : LIST};
    strbuf_clear(&r->text);
    return QUIRE_OK;
}

static quire_err calls_python_finish_call(call_reader *r) {
    TRY(strbuf_add_str(&r->arguments, r->u.p.has_members ? "}" : "{}"));
    r->u.p.state = AFTER_CALL;
    r->u.p.has_members = false;
    return call_end(r);
}

/* Completes the open value and ends the call. */
static quire_err close_call(call_reader *r) {
    if (r->u.p.state == VALUE) {
        TRY(python_literal_close(&r->u.p.value, &r->arguments));
    }
    return calls_python_finish_call(r);
}

static quire_err calls_python_break_off(call_reader *r, char c) {
    if (r->in_call) {
        TRY(close_call(r));
    }
    return call_reject(r, &c, 1);
}

static quire_err calls_python_byte(call_reader *r, char c);

static quire_err calls_python_in_value(call_reader *r, char c) {
    json_stream_result result;
    TRY(python_literal_push(&r->u.p.value, c, &r->arguments, &result));
    if (result == JSON_STREAM_MORE) {
        return QUIRE_OK;
    }
    if (result == JSON_STREAM_BROKEN) {
        return calls_python_break_off(r, c);
    }
    r->u.p.state = AFTER_VALUE;
    return result == JSON_STREAM_BEFORE ? calls_python_byte(r, c) : QUIRE_OK;
}

static quire_err calls_python_begin_value(call_reader *r) {
    python_calls *p = &r->u.p;
    str key = call_str(&r->text);
    if (!r->in_call) {
        TRY(call_begin(r));
    }
    TRY(strbuf_add_str(&r->arguments, p->has_members ? ", \"" : "{\""));
    TRY(escape_add(&r->arguments, key.p, key.n));
    TRY(strbuf_add_str(&r->arguments, "\": "));
    strbuf_clear(&r->text);
    p->has_members = true;
    p->state = VALUE;
    p->value = (python_literal){0};
    return QUIRE_OK;
}

/* ---- calls ---- */

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static quire_err end_call(call_reader *r) {
    if (!r->in_call) {
        TRY(call_begin(r));
    }
    return calls_python_finish_call(r);
}

/* Collects a name or a key in r->text. */
static quire_err calls_python_in_name(call_reader *r, char c) {
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
        return c == '=' ? calls_python_begin_value(r) : QUIRE_OK;
    }
    return calls_python_break_off(r, c);
}

static quire_err begin_word(call_reader *r, char c, uint8_t state) {
    if (!is_word(c) || isdigit((unsigned char)c)) {
        return calls_python_break_off(r, c);
    }
    r->u.p.state = state;
    strbuf_clear(&r->text);
    return strbuf_add_char(&r->text, c);
}

static quire_err close_list(call_reader *r) {
    call_leave(r);
    return QUIRE_OK;
}

/* Reads a byte between names and values; c is not white space. */
static quire_err calls_python_between(call_reader *r, char c) {
    python_calls *p = &r->u.p;
    bool in_lines = (r->flags & FORMAT_LINES) != 0;
    switch (p->state) {
    case LIST:
        p->state = CALL;
        p->in_list = true;
        return c == '[' ? QUIRE_OK : calls_python_break_off(r, c);
    case CALL:
        if (in_lines && c == '[' && !p->in_list) {
            p->in_list = true;
            return QUIRE_OK;
        }
        return c == ']' && p->in_list && !call_is_empty_list(r) ? close_list(r) : begin_word(r, c, NAME);
    case FIRST_KEY:
        return c == ')' ? end_call(r) : begin_word(r, c, KEY);
    case AFTER_KEY:
        return c == '=' ? calls_python_begin_value(r) : calls_python_break_off(r, c);
    case AFTER_VALUE:
        if (c == ',') {
            p->state = FIRST_KEY;
            return QUIRE_OK;
        }
        return c == ')' ? end_call(r) : calls_python_break_off(r, c);
    default: /* AFTER_CALL */
        if (c == ',') {
            p->state = CALL;
            return QUIRE_OK;
        }
        if (c == ']' && p->in_list) {
            return close_list(r);
        }
        return in_lines ? begin_word(r, c, NAME) : calls_python_break_off(r, c);
    }
}

static quire_err calls_python_byte(call_reader *r, char c) {
    switch (r->u.p.state) {
    case NAME:
    case KEY:
        TRY(calls_python_in_name(r, c));
        break;
    case VALUE:
        TRY(calls_python_in_value(r, c));
        break;
    default:
        if (!call_space(c)) {
            TRY(calls_python_between(r, c));
        }
    }
    return r->in_call ? call_flush_arguments(r) : QUIRE_OK;
}

static quire_err calls_python_end(call_reader *r, bool cut_off) {
    if (!r->in_call) {
        return QUIRE_OK;
    }
    return cut_off ? call_end(r) : close_call(r);
}

const call_machine python_machine = {calls_python_begin, calls_python_byte, calls_python_end, true};
