#include "answer/call_reader.h"

#include <assert.h>

enum { PENDING_BYTES = 4096, HELD_LEAST = 2 * MARK_BYTES, CHARACTER_BYTES = 4 };

static const call_machine *const machines[] = {
    [SYNTAX_JSON] = &json_machine,   [SYNTAX_TAGS] = &tag_machine,      [SYNTAX_ELEMENTS] = &element_machine,
    [SYNTAX_GEMMA] = &gemma_machine, [SYNTAX_PYTHON] = &python_machine, [SYNTAX_HARMONY] = &harmony_machine};

quire_err call_reader_init(call_reader *r, const answer_format *format, const output_options *options) {
    mark_test test = {options->is_special, options->special_context};
    *r = (call_reader){.format = format, .options = options};
    size_t max = options->max_held > 0 ? options->max_held : OUTPUT_MAX_HELD;
    r->held.max = r->value.text.max = r->max_text = max > HELD_LEAST ? max : HELD_LEAST;
    /* leaves room for the bytes that one step adds before is_full checks again */
    r->text.max = r->max_text + MARK_BYTES + CHARACTER_BYTES;
    if (format == NULL) {
        return QUIRE_OK;
    }
    format_shape shape;
    answer_format_shape(format, &shape);
    r->machine = machines[format->syntax];
    r->flags = shape.flags;
    for (int i = 0; i < shape.n; i++) {
        TRY(mark_set_add(&r->marks, (uint8_t)shape.marks[i].role, shape.marks[i].text, test));
    }
    if (format->syntax == SYNTAX_HARMONY || (r->flags & FORMAT_HEAD_FIRST) != 0) {
        r->inside = true;
        return r->machine->begin(r);
    }
    return QUIRE_OK;
}

void call_reader_deinit(call_reader *r) {
    strbuf *const all[] = {&r->held, &r->pending, &r->special,   &r->name,
                           &r->id,   &r->text,    &r->arguments, &r->value.text};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        strbuf_deinit(all[i]);
    }
}

/* ---- texts ---- */

str call_trim(str s) {
    while (s.n > 0 && call_space(s.p[s.n - 1])) {
        s.n--;
    }
    while (s.n > 0 && call_space(s.p[0])) {
        s.p++;
        s.n--;
    }
    return s;
}

quire_err call_set(strbuf *b, str s) {
    strbuf_clear(b);
    return strbuf_add(b, s.p, s.n);
}

static const output_tool *find_tool(const call_reader *r, str name) {
    for (size_t i = 0; i < r->options->n_tools; i++) {
        if (str_eq(r->options->tools[i].name, name)) {
            return &r->options->tools[i];
        }
    }
    return NULL;
}

bool call_is_offered(const call_reader *r, str name) {
    return find_tool(r, name) != NULL;
}

bool call_is_empty_list(const call_reader *r) {
    str held = call_str(&r->held);
    return held.n >= 2 && held.p[0] == '[' && call_trim((str){held.p + 1, held.n - 2}).n == 0;
}

bool call_names_first(const call_reader *r) {
    assert(r != NULL);
    return (r->flags & FORMAT_BARE) != 0 && (r->flags & FORMAT_IN_SECTION) == 0 &&
           (r->has_content || r->has_mark);
}

/* ---- events ---- */

static quire_err add_event(call_reader *r, output_kind kind, str text, str id) {
    return output_events_add(r->out, kind, r->n_calls, text, id);
}

quire_err call_text(call_reader *r, output_kind kind, const char *p, size_t n) {
    size_t from = 0;
    for (size_t i = 0; i <= n; i++) {
        bool is_edge = i < n && (p[i] == MARK_BEGIN || p[i] == MARK_END);
        if (i < n && !is_edge) {
            continue;
        }
        bool is_dropped = r->in_special && r->options->drops_specials;
        if (i > from && !is_dropped) {
            TRY(add_event(r, kind, (str){p + from, i - from}, (str){NULL, 0}));
        }
        from = i + 1;
        r->in_special = is_edge ? p[i] == MARK_BEGIN : r->in_special;
    }
    return QUIRE_OK;
}

static quire_err flush_pending(call_reader *r) {
    TRY(call_text(r, OUTPUT_CONTENT, r->pending.p, r->pending.n));
    strbuf_clear(&r->pending);
    r->section_is_new = false;
    return QUIRE_OK;
}

quire_err call_content(call_reader *r, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (call_space(p[i]) && r->pending.n < PENDING_BYTES) {
            TRY(strbuf_add_char(&r->pending, p[i]));
            continue;
        }
        TRY(flush_pending(r));
        TRY(call_text(r, OUTPUT_CONTENT, p + i, 1));
        r->has_content = true;
        r->after_call = false;
    }
    return QUIRE_OK;
}

/* ---- calls ---- */

quire_err call_begin(call_reader *r) {
    assert(r != NULL);
    const output_tool *tool = find_tool(r, call_str(&r->name));
    r->schema = tool != NULL ? tool->parameters : NULL;
    TRY(add_event(r, OUTPUT_CALL_BEGIN, call_str(&r->name), call_str(&r->id)));
    r->in_call = r->has_called = true;
    r->after_call = false;
    r->section_is_new = false;
    r->section_has_calls = true;
    strbuf_clear(&r->held);
    strbuf_clear(&r->pending);
    return QUIRE_OK;
}

quire_err call_flush_arguments(call_reader *r) {
    assert(r != NULL);
    if (r->arguments.n > 0) {
        TRY(add_event(r, OUTPUT_ARGUMENTS, call_str(&r->arguments), (str){NULL, 0}));
    }
    strbuf_clear(&r->arguments);
    return QUIRE_OK;
}

quire_err call_end(call_reader *r) {
    TRY(call_flush_arguments(r));
    TRY(add_event(r, OUTPUT_CALL_END, (str){NULL, 0}, (str){NULL, 0}));
    r->n_calls++;
    r->in_call = false;
    r->after_call = true;
    strbuf_clear(&r->name);
    strbuf_clear(&r->id);
    return QUIRE_OK;
}

static void leave(call_reader *r) {
    r->inside = false;
    r->match.n = 0;
    strbuf_clear(&r->name);
    strbuf_clear(&r->id);
    strbuf_clear(&r->text);
    strbuf_clear(&r->arguments);
}

void call_leave(call_reader *r) {
    leave(r);
    strbuf_clear(&r->held);
}

/* Ends a failed attempt: the held text without its last n bytes becomes content. */
static quire_err give_up(call_reader *r, size_t n) {
    size_t n_held = r->held.n > n ? r->held.n - n : 0;
    leave(r);
    TRY(call_content(r, r->held.p, n_held));
    strbuf_clear(&r->held);
    return QUIRE_OK;
}

static quire_err outside(call_reader *r, char c);

quire_err call_reject(call_reader *r, const char *p, size_t n) {
    TRY(give_up(r, n));
    for (size_t i = 0; i < n; i++) {
        TRY(call_reader_push(r, p[i]));
    }
    return QUIRE_OK;
}

quire_err call_reject_match(call_reader *r, const char *text, size_t n) {
    char bytes[2 * MARK_BYTES];
    memcpy(bytes, text, n);
    n += mark_take(&r->match, bytes + n);
    return call_reject(r, bytes, n);
}

/* ---- outside calls ---- */

static quire_err begin_attempt(call_reader *r, str held) {
    r->inside = true;
    r->has_called = false;
    TRY(call_set(&r->held, held));
    return r->machine->begin(r);
}

/* Whether this byte alone may begin a call. */
static bool is_bare(const call_reader *r, char c) {
    unsigned flags = r->flags;
    bool is_first = !r->has_content && r->n_calls == 0;
    bool is_forced =
        r->options->choice == OUTPUT_CHOICE_REQUIRED || r->options->choice == OUTPUT_CHOICE_NAMED;
    if (c != '[' && (c != '{' || r->format->syntax == SYNTAX_PYTHON)) {
        return false;
    }
    bool is_here = (flags & FORMAT_IN_SECTION) == 0 || r->in_section;
    return ((flags & FORMAT_BARE) != 0 && is_here) || (is_first && (flags & FORMAT_BARE_FIRST) != 0) ||
           (is_first && is_forced && (flags & FORMAT_FORCED_JSON) != 0);
}

static quire_err outside_byte(call_reader *r, char c) {
    if (is_bare(r, c)) {
        r->may_close = r->may_close && r->after_call;
        TRY(begin_attempt(r, (str){&c, 1}));
        return r->machine->byte(r, c);
    }
    if (c == ';' && r->after_call && (r->flags & FORMAT_SEMICOLON) != 0) {
        return strbuf_add_char(&r->pending, c);
    }
    return call_content(r, &c, 1);
}

static quire_err outside_mark(call_reader *r, const mark *m) {
    str text = {m->text, m->n};
    switch ((mark_role)m->role) {
    case ROLE_OPEN:
        r->has_mark = r->may_close = true;
        return begin_attempt(r, text);
    case ROLE_SECTION:
        r->in_section = true;
        r->section_is_new = true;
        r->section_has_calls = false;
        return r->pending.n < PENDING_BYTES ? strbuf_add(&r->pending, text.p, text.n)
                                            : call_content(r, text.p, text.n);
    case ROLE_SECTION_END:
        if (r->section_is_new) {
            strbuf_clear(&r->pending);
        } else if (!r->section_has_calls && !r->after_call) {
            TRY(call_content(r, text.p, text.n));
        }
        r->in_section = r->section_is_new = r->section_has_calls = false;
        return QUIRE_OK;
    case ROLE_CLOSE: /* closes a call that has ended */
        r->may_close = false;
        return QUIRE_OK;
    default:
        return QUIRE_OK; /* ROLE_DROP */
    }
}

/* Whether to search for closing marks. In formats in which a bare bracket begins a call,
 * the closing fence of a code block is a mark only once, after a call that the opening
 * fence began: other code blocks are content. */
static bool wants_close(const call_reader *r) {
    return r->after_call && (r->may_close || (r->flags & FORMAT_BARE) == 0);
}

static quire_err outside(call_reader *r, char c) {
    uint32_t roles = ROLE(SECTION) | ROLE(SECTION_END) | ROLE(DROP) | (wants_close(r) ? ROLE(CLOSE) : 0);
    roles |= r->in_section || (r->flags & FORMAT_IN_SECTION) == 0 ? ROLE(OPEN) : 0;
    char text[3 * MARK_BYTES];
    size_t n;
    if (r->format == NULL && r->marks.n == 0) {
        return call_content(r, &c, 1);
    }
    int found = mark_push(&r->match, &r->marks, call_roles(roles, 0), c, text, &n);
    for (size_t i = 0; i < n; i++) {
        TRY(r->format != NULL ? outside_byte(r, text[i]) : call_content(r, text + i, 1));
        if (!r->inside) {
            continue;
        }
        /* An attempt began at this byte: the text after it belongs to the attempt. */
        if (found >= 0) {
            memcpy(text + n, r->marks.marks[found].text, r->marks.marks[found].n);
            n += r->marks.marks[found].n;
        }
        n += mark_take(&r->match, text + n);
        for (i++; i < n; i++) {
            TRY(call_reader_push(r, text[i]));
        }
        return QUIRE_OK;
    }
    return found >= 0 ? outside_mark(r, &r->marks.marks[found]) : QUIRE_OK;
}

/* ---- inside ---- */

/* Whether an open call has collected more text than may be held. Checked at the first
 * byte of a character, so that no character is split. */
static bool is_full(const call_reader *r, char c) {
    return r->in_call && r->text.n > r->max_text && ((unsigned char)c & 0xC0) != 0x80;
}

/* Ends the call, then reads the held text of a mark, and c, as text outside calls. */
static quire_err end_full(call_reader *r, char c) {
    char bytes[MARK_BYTES + 1];
    size_t n = mark_take(&r->match, bytes);
    bytes[n++] = c;
    TRY(r->machine->end(r, false));
    return call_reject(r, bytes, n);
}

static quire_err call_reader_inside(call_reader *r, char c) {
    if (is_full(r, c)) {
        return end_full(r, c);
    }
    if (!r->in_call) {
        quire_err e = strbuf_add_char(&r->held, c);
        if (e == QUIRE_TOO_LARGE) {
            TRY(give_up(r, 0));
            return call_reader_push(r, c);
        }
        TRY(e);
    }
    quire_err e = r->machine->byte(r, c);
    if (e != QUIRE_TOO_LARGE || !r->inside) {
        return e;
    }
    if (r->in_call) { /* the call has more bytes of undecided kind than may be held */
        TRY(r->machine->end(r, false));
    }
    return call_reject(r, &c, 1);
}

/* Reads a byte of a special token inside a call: a mark of the format ends the attempt,
 * everything else is plain text. */
static quire_err inside_special(call_reader *r, char c) {
    if (c == MARK_BEGIN) {
        r->special_is_open = true;
        strbuf_clear(&r->special);
        return QUIRE_OK;
    }
    if (c != MARK_END) {
        return strbuf_add_char(&r->special, c);
    }
    r->special_is_open = false;
    uint32_t roles = ROLE(OPEN) | ROLE(CLOSE) | ROLE(SECTION) | ROLE(SECTION_END);
    bool is_mark = mark_find_special(&r->marks, roles, call_str(&r->special)) >= 0;
    if (is_mark) {
        TRY(r->machine->end(r, false));
        TRY(give_up(r, 0));
        TRY(call_reader_push(r, MARK_BEGIN));
    }
    for (size_t i = 0; i < r->special.n; i++) {
        TRY(call_reader_push(r, r->special.p[i]));
    }
    return is_mark ? call_reader_push(r, MARK_END) : QUIRE_OK;
}

quire_err call_reader_push(call_reader *r, char c) {
    if (!r->inside) {
        return outside(r, c);
    }
    bool is_special = r->machine->breaks_at_marks && (c == MARK_BEGIN || r->special_is_open);
    return is_special ? inside_special(r, c) : call_reader_inside(r, c);
}

quire_err call_reader_break(call_reader *r) {
    assert(r != NULL);
    char text[MARK_BYTES];
    if (r->inside) {
        bool has_begun = r->has_called || r->held.n == 0 || !r->machine->breaks_at_marks;
        return has_begun ? QUIRE_OK : call_reject(r, NULL, 0);
    }
    size_t n = mark_take(&r->match, text);
    TRY(call_content(r, text, n));
    r->has_content = true;
    return QUIRE_OK;
}

quire_err call_reader_finish(call_reader *r, bool cut_off) {
    assert(r != NULL);
    char text[MARK_BYTES];
    if (r->inside) {
        TRY(r->machine->end(r, cut_off));
        TRY(give_up(r, 0));
    }
    size_t n = mark_take(&r->match, text);
    TRY(call_content(r, text, n));
    if (!r->after_call) {
        TRY(flush_pending(r));
    }
    strbuf_clear(&r->pending);
    return QUIRE_OK;
}
