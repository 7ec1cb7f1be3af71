/* Calls as nested elements (MiniMax M3): a mark precedes every tag, and objects and lists
 * are elements within elements.
 *
 *   MARK<invoke name="NAME">
 *   MARK<KEY>VALUEMARK</KEY>
 *   MARK<LIST>MARK<item>VALUEMARK</item>MARK</LIST>
 *   MARK</invoke>
 *
 * The schema gives the type of a text or an empty element. */
#include "answer/call_reader.h"

enum { NAME, BODY, TAG };
enum { UNKNOWN, LEAF, OBJECT, ARRAY };
enum { TEXT_BYTES = 512 };

static quire_err calls_elements_begin(call_reader *r) {
    r->u.e = (element_calls){.state = NAME};
    strbuf_clear(&r->text);
    return QUIRE_OK;
}

static unsigned types_at(const call_reader *r) {
    return schema_types(r->u.e.open[r->u.e.depth - 1].schema, r->schema);
}

static quire_err begin_leaf(call_reader *r) {
    r->u.e.open[r->u.e.depth - 1].kind = LEAF;
    typed_begin(&r->value, types_at(r));
    TRY(typed_add(&r->value, r->text.p, r->text.n, &r->arguments));
    strbuf_clear(&r->text);
    return QUIRE_OK;
}

static quire_err close_element(call_reader *r) {
    element_calls *e = &r->u.e;
    if (e->open[e->depth - 1].kind == UNKNOWN) {
        TRY(begin_leaf(r));
    }
    uint8_t kind = e->open[e->depth - 1].kind;
    e->depth--;
    return kind == LEAF ? typed_end(&r->value, &r->arguments)
                        : strbuf_add_char(&r->arguments, kind == OBJECT ? '}' : ']');
}

static quire_err calls_elements_finish_call(call_reader *r) {
    while (r->u.e.depth > 0) {
        TRY(close_element(r));
    }
    return call_end(r);
}

static quire_err calls_elements_break_off(call_reader *r, const char *text, size_t n) {
    if (r->in_call) {
        TRY(calls_elements_finish_call(r));
    }
    return call_reject_match(r, text, n);
}

/* Begins the value of the innermost element at its first child, whose name decides
 * between an object and a list. */
static quire_err begin_container(call_reader *r, str child) {
    element_calls *e = &r->u.e;
    unsigned types = types_at(r);
    bool is_list = (types & TYPE_ARRAY) != 0 && (types & TYPE_OBJECT) == 0;
    is_list = is_list || ((types & TYPE_OBJECT) == 0 && str_is(child, "item"));
    e->open[e->depth - 1].kind = is_list ? ARRAY : OBJECT;
    strbuf_clear(&r->text);
    return strbuf_add_char(&r->arguments, is_list ? '[' : '{');
}

/* Whether the format writes calls or sections as elements of this name; their end tags
 * also follow a mark. */
static bool element_is_call(const call_reader *r, str name) {
    call_writing w;
    bool is_call = false;
    (void)call_writing_at(r->format, 0, &w);
    const str ends[] = {writing_first(w.end), writing_first(w.close)};
    for (size_t i = 0; i < 2; i++) { /* </NAME> */
        str end = ends[i];
        size_t n = end.n > name.n + 3 ? end.n - name.n - 1 : 0;
        is_call = is_call || (n > 0 && end.p[n - 1] == '/' && memcmp(end.p + n, name.p, name.n) == 0);
    }
    return is_call;
}

static quire_err open_element(call_reader *r, str name) {
    element_calls *e = &r->u.e;
    if (e->open[e->depth - 1].kind == UNKNOWN) {
        TRY(begin_container(r, name));
    }
    const json_value *schema = e->open[e->depth - 1].schema;
    bool is_object = e->open[e->depth - 1].kind == OBJECT;
    if (e->open[e->depth - 1].has_items) {
        TRY(strbuf_add_str(&r->arguments, ", "));
    }
    e->open[e->depth - 1].has_items = true;
    if (is_object) {
        TRY(strbuf_add_char(&r->arguments, '"'));
        TRY(escape_add(&r->arguments, name.p, name.n));
        TRY(strbuf_add_str(&r->arguments, "\": "));
    }
    e->open[e->depth].kind = UNKNOWN;
    e->open[e->depth].has_items = false;
    e->open[e->depth].is_homonym = element_is_call(r, name);
    e->open[e->depth].schema =
        is_object ? schema_member(schema, r->schema, name) : schema_items(schema, r->schema);
    e->depth++;
    strbuf_clear(&r->text);
    return schema_types(e->open[e->depth - 1].schema, r->schema) == TYPE_STRING ? begin_leaf(r) : QUIRE_OK;
}

/* Handles a whole tag after its mark, "<NAME>" or "</NAME>", which is in r->name. */
static quire_err end_tag(call_reader *r) {
    element_calls *e = &r->u.e;
    str tag = call_str(&r->name);
    bool closes = tag.n > 2 && tag.p[1] == '/';
    str name = closes ? (str){tag.p + 2, tag.n - 3} : (str){tag.p + 1, tag.n - 2};
    e->state = BODY;
    if (closes && element_is_call(r, name) && !(e->depth > 1 && e->open[e->depth - 1].is_homonym)) {
        TRY(calls_elements_finish_call(r));
        call_leave(r);
        return QUIRE_OK;
    }
    if (closes) {
        return e->depth > 1 ? close_element(r) : calls_elements_break_off(r, tag.p, 0);
    }
    if (e->open[e->depth - 1].kind == LEAF || e->depth == ELEMENT_DEPTH || name.n == 0) {
        return calls_elements_break_off(r, tag.p, 0);
    }
    return open_element(r, name);
}

static quire_err calls_elements_end_name(call_reader *r) {
    element_calls *e = &r->u.e;
    str name = call_trim(call_str(&r->text));
    if (name.n > 2 && (name.p[0] == '"' || name.p[0] == '\'') && name.p[name.n - 1] == name.p[0]) {
        name = (str){name.p + 1, name.n - 2};
    }
    if (!call_is_name(name)) {
        return call_reject(r, NULL, 0);
    }
    TRY(call_set(&r->name, name));
    strbuf_clear(&r->text);
    TRY(call_begin(r));
    e->state = BODY;
    e->depth = 1;
    e->open[0].kind = OBJECT;
    e->open[0].has_items = false;
    e->open[0].schema = r->schema;
    return strbuf_add_char(&r->arguments, '{');
}

/* Reads a byte of text in a call's body. *fits false: it is not valid here. */
static quire_err body_text(call_reader *r, char c, bool *fits) {
    uint8_t kind = r->u.e.open[r->u.e.depth - 1].kind;
    *fits = kind == LEAF || kind == UNKNOWN || call_space(c);
    if (!*fits || kind == OBJECT || kind == ARRAY) {
        return QUIRE_OK;
    }
    if (kind == UNKNOWN && call_space(c) && r->text.n < TEXT_BYTES) {
        return strbuf_add_char(&r->text, c);
    }
    if (kind == UNKNOWN) {
        TRY(begin_leaf(r));
    }
    return typed_add(&r->value, &c, 1, &r->arguments);
}

static quire_err tag_byte(call_reader *r, char c, bool *fits) {
    bool is_first = r->name.n == 0;
    *fits = is_first ? c == '<' : r->name.n < TEXT_BYTES;
    if (!*fits) {
        return QUIRE_OK;
    }
    TRY(strbuf_add_char(&r->name, c));
    return c == '>' ? end_tag(r) : QUIRE_OK;
}

static quire_err calls_elements_byte(call_reader *r, char c) {
    element_calls *e = &r->u.e;
    char text[MARK_BYTES];
    size_t n;
    bool fits = true;
    if (e->state == NAME) {
        if (c == '>') {
            return calls_elements_end_name(r);
        }
        return r->text.n < TEXT_BYTES ? strbuf_add_char(&r->text, c) : call_reject(r, &c, 1);
    }
    int found = mark_push(&r->match, &r->marks, call_roles(e->state == BODY ? ROLE(TAG) : 0, 0), c, text, &n);
    for (size_t i = 0; i < n; i++) {
        TRY(e->state == TAG ? tag_byte(r, text[i], &fits) : body_text(r, text[i], &fits));
        if (!fits) {
            return calls_elements_break_off(r, text + i, n - i);
        }
    }
    if (found >= 0) {
        e->state = TAG;
        strbuf_clear(&r->name);
    }
    return r->in_call ? call_flush_arguments(r) : QUIRE_OK;
}

static quire_err calls_elements_end(call_reader *r, bool cut_off) {
    char text[MARK_BYTES];
    bool fits = true;
    if (!r->in_call) {
        return QUIRE_OK;
    }
    size_t n = mark_take(&r->match, text);
    for (size_t i = 0; r->u.e.state == BODY && fits && i < n; i++) {
        TRY(body_text(r, text[i], &fits));
    }
    return cut_off ? call_end(r) : calls_elements_finish_call(r);
}

const call_machine element_machine = {calls_elements_begin, calls_elements_byte, calls_elements_end, false};
