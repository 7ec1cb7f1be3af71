/* Calls as tags: a name, then parameters with plain text as values, typed by the schema.
 *
 *   <function=NAME> <parameter=KEY>VALUE</parameter> .. </function>
 *
 * Other formats have attributes, or tags with other names. A value ends at its closing
 * tag, the only tag that it cannot contain. */
#include "answer/call_reader.h"

enum { NAME, BODY, KEY, GAP, VALUE };
enum { TEXT_BYTES = 512 };

static quire_err calls_tags_begin(call_reader *r) {
    r->u.t = (tag_calls){.state = NAME};
    strbuf_clear(&r->text);
    return QUIRE_OK;
}

/* Completes the arguments and ends the call. */
static quire_err calls_tags_finish_call(call_reader *r) {
    TRY(strbuf_add_str(&r->arguments, r->u.t.has_members ? "}" : "{}"));
    return call_end(r);
}

static quire_err end_value(call_reader *r) {
    r->u.t.state = BODY;
    return typed_end(&r->value, &r->arguments);
}

/* Ends the call at invalid text, which it then reads as text outside calls. */
static quire_err calls_tags_break_off(call_reader *r, const char *text, size_t n) {
    if (r->in_call) {
        TRY(calls_tags_finish_call(r));
    }
    return call_reject_match(r, text, n);
}

/* ---- names ---- */

/* The name without its quotes, if it has any. *rest: the text after it. */
static str unquoted(str s, str *rest) {
    s = call_trim(s);
    *rest = (str){s.p + s.n, 0};
    if (s.n == 0 || (s.p[0] != '"' && s.p[0] != '\'')) {
        return s;
    }
    const char *close = memchr(s.p + 1, s.p[0], s.n - 1);
    if (close == NULL) {
        return s;
    }
    *rest = (str){close + 1, (size_t)(s.p + s.n - close) - 1};
    return (str){s.p + 1, (size_t)(close - s.p) - 1};
}

static quire_err calls_tags_end_name(call_reader *r) {
    str rest, name = unquoted(call_str(&r->text), &rest);
    if (!call_is_name(name)) {
        return call_reject(r, NULL, 0);
    }
    TRY(call_set(&r->name, name));
    strbuf_clear(&r->text);
    r->u.t.state = BODY;
    return QUIRE_OK;
}

static quire_err calls_tags_begin_value(call_reader *r) {
    tag_calls *t = &r->u.t;
    str rest, key = unquoted(call_str(&r->text), &rest);
    unsigned types = schema_types(schema_member(r->schema, r->schema, key), r->schema);
    types = str_contains(rest, str_of("string=\"true\""))    ? TYPE_STRING
            : str_contains(rest, str_of("string=\"false\"")) ? TYPE_NUMBER
                                                             : types;
    TRY(strbuf_add_str(&r->arguments, t->has_members ? ", \"" : "{\""));
    TRY(escape_add(&r->arguments, key.p, key.n));
    TRY(strbuf_add_str(&r->arguments, "\": "));
    typed_begin(&r->value, types);
    strbuf_clear(&r->text);
    *t = (tag_calls){.state = VALUE, .has_members = true};
    return typed_add(&r->value, NULL, 0, &r->arguments);
}

/* ---- text and marks ---- */

static quire_err value_text(call_reader *r, char c) {
    tag_calls *t = &r->u.t;
    bool has_lines = (r->flags & FORMAT_VALUE_LINES) != 0;
    if (has_lines && !t->has_text && c == '\n') {
        t->has_text = t->has_newline = true;
        return QUIRE_OK;
    }
    t->has_text = true;
    if (t->waits_newline) {
        TRY(typed_add(&r->value, "\n", 1, &r->arguments));
    }
    t->waits_newline = t->has_newline && c == '\n';
    return t->waits_newline ? QUIRE_OK : typed_add(&r->value, &c, 1, &r->arguments);
}

/* Reads a byte outside values, which may be of a name. *fits false: it is not valid. */
static quire_err other_text(call_reader *r, char c, bool *fits) {
    uint8_t state = r->u.t.state;
    *fits = state == NAME || state == KEY ? r->text.n < TEXT_BYTES : call_space(c);
    if (*fits && (state == NAME || state == KEY)) {
        TRY(strbuf_add_char(&r->text, c));
    }
    if (state == NAME && (r->flags & FORMAT_NAME_TO_TAG) != 0) {
        str name = call_trim(call_str(&r->text));
        *fits = name.n == 0 || call_is_name(name);
    }
    return QUIRE_OK;
}

static quire_err calls_tags_start_call(call_reader *r) {
    return r->in_call ? QUIRE_OK : call_begin(r);
}

static quire_err calls_tags_at_mark(call_reader *r, const mark *m) {
    tag_calls *t = &r->u.t;
    if (t->state == NAME) {
        TRY(calls_tags_end_name(r));
        if (!r->inside || m->role == ROLE_NAME_END) {
            return QUIRE_OK;
        }
    }
    switch ((mark_role)m->role) {
    case ROLE_NAME_END:
        t->state = GAP;
        return (r->flags & FORMAT_VALUE_APART) != 0 ? QUIRE_OK : calls_tags_begin_value(r);
    case ROLE_VALUE:
        return calls_tags_begin_value(r);
    case ROLE_PARAMETER:
        t->state = KEY;
        strbuf_clear(&r->text);
        return calls_tags_start_call(r);
    case ROLE_VALUE_END:
        return end_value(r);
    case ROLE_NEXT: /* the mark begins with the newline that ends the value */
        if (t->waits_newline) {
            TRY(typed_add(&r->value, "\n", 1, &r->arguments));
        }
        TRY(end_value(r));
        t->state = KEY;
        return QUIRE_OK;
    default: /* the end of the call or the section */
        if (t->state == VALUE) {
            TRY(end_value(r));
        }
        TRY(calls_tags_start_call(r));
        TRY(calls_tags_finish_call(r));
        call_leave(r);
        for (uint8_t i = 0; m->role != ROLE_END && i < m->n; i++) {
            TRY(call_reader_push(r, m->text[i]));
        }
        return QUIRE_OK;
    }
}

static mark_roles roles_of(const call_reader *r) {
    uint32_t special = ROLE(END) | ROLE(SECTION_END) | ROLE(CLOSE);
    switch (r->u.t.state) {
    case NAME:
        return call_roles((r->flags & FORMAT_NAME_TO_TAG) != 0 ? ROLE(PARAMETER) | ROLE(END) : ROLE(NAME_END),
                          0);
    case BODY:
        return call_roles(ROLE(PARAMETER) | ROLE(END) | (r->in_call ? ROLE(SECTION_END) : 0), 0);
    case KEY:
        return call_roles(ROLE(NAME_END), special);
    case GAP:
        return call_roles(ROLE(VALUE) | ROLE(END), special);
    default:
        return call_roles(
            ROLE(VALUE_END) | ROLE(NEXT) | ((r->flags & FORMAT_VALUE_LINES) != 0 ? ROLE(END) : 0), special);
    }
}

static quire_err calls_tags_byte(call_reader *r, char c) {
    char text[MARK_BYTES];
    size_t n;
    int found = mark_push(&r->match, &r->marks, roles_of(r), c, text, &n);
    for (size_t i = 0; i < n; i++) {
        bool fits = true;
        TRY(r->u.t.state == VALUE ? value_text(r, text[i]) : other_text(r, text[i], &fits));
        if (!fits) {
            return calls_tags_break_off(r, text + i, n - i);
        }
    }
    if (found >= 0) {
        TRY(calls_tags_at_mark(r, &r->marks.marks[found]));
    }
    return r->in_call ? call_flush_arguments(r) : QUIRE_OK;
}

static quire_err calls_tags_end(call_reader *r, bool cut_off) {
    char text[MARK_BYTES];
    if (!r->in_call) {
        return QUIRE_OK;
    }
    size_t n = mark_take(&r->match, text);
    for (size_t i = 0; r->u.t.state == VALUE && i < n; i++) {
        TRY(value_text(r, text[i]));
    }
    if (cut_off) {
        return call_end(r);
    }
    if (r->u.t.state == VALUE) {
        TRY(end_value(r));
    }
    return calls_tags_finish_call(r);
}

const call_machine tag_machine = {calls_tags_begin, calls_tags_byte, calls_tags_end, false};
