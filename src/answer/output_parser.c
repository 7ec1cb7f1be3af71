#include "answer/output_parser.h"

#include <assert.h>

#include "answer/call_reader.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { START, THINKING, AFTER, ANSWER };
enum { SPACE_BYTES = 4096 };

/* The reasoning part reads the text first, and passes the answer to the tool part. */
struct output_parser {
    output_options options;
    const answer_format *reasoning;
    uint8_t state;
    bool begins_inside, has_thought, wrote_mark;
    bool has_break; /* a special token with hidden text came before the answer began */
    mark_set marks;
    mark_match match;
    /* space: white space held back, dropped at the end of the reasoning; repaired: a
     * piece that was not UTF-8 */
    strbuf space, repaired;
    call_reader reader;
};

/* ---- opening ---- */

static quire_err find_formats(const output_options *o, const answer_format **calls,
                              const answer_format **reasoning, quire_error *err) {
    *calls = o->tools_format != NULL ? call_format_named(o->tools_format) : NULL;
    *reasoning = o->reasoning_format != NULL ? reasoning_format_named(o->reasoning_format) : NULL;
    if (*calls == NULL && o->tools_format != NULL) {
        return err_set(err, QUIRE_INVALID, -1,
                       "tool call format %s: there is no such format; docs/tools.md lists them",
                       o->tools_format);
    }
    if (*reasoning == NULL && o->reasoning_format != NULL) {
        return err_set(err, QUIRE_INVALID, -1,
                       "reasoning format %s: there is no such format; docs/tools.md lists them",
                       o->reasoning_format);
    }
    if (*reasoning != NULL && (*reasoning)->syntax == REASONING_HARMONY) {
        *calls = call_format_named("openai");
    }
    bool is_harmony = *calls != NULL && (*calls)->syntax == SYNTAX_HARMONY;
    if (is_harmony) {
        *reasoning = NULL;
    } else if (o->n_tools == 0 || o->choice == OUTPUT_CHOICE_NONE) {
        *calls = NULL;
    }
    return QUIRE_OK;
}

/* Adds each part's marks to the other: the tool part's special tokens end the reasoning,
 * and the reasoning's marks are dropped from content. */
static quire_err add_marks(output_parser *p, const answer_format *calls) {
    mark_test test = {p->options.is_special, p->options.special_context};
    mark_set *content = &p->reader.marks;
    reasoning_marks m;
    format_shape shape = {0};
    reasoning_format_marks(p->reasoning, &m);
    for (int i = 0; i < m.n; i++) {
        TRY(mark_set_add(&p->marks, ROLE_THINK, m.open[i], test));
        TRY(mark_set_add(&p->marks, ROLE_THINK_END, m.close[i], test));
        TRY(mark_set_add(content, ROLE_DROP, m.close[i], test));
        if (!content->marks[content->n - 1].is_special) {
            content->n--;
        }
    }
    for (int i = 0; i < REASONING_SPELLINGS; i++) {
        if (i < m.n_before) {
            TRY(mark_set_add(content, ROLE_DROP, m.before[i], test));
        }
        if (i < m.n_behind) {
            TRY(mark_set_add(content, ROLE_DROP, m.behind[i], test));
        }
    }
    if (calls != NULL) {
        answer_format_shape(calls, &shape);
    }
    for (int i = 0; i < shape.n; i++) {
        const format_mark *k = &shape.marks[i];
        if (k->role == ROLE_OPEN || k->role == ROLE_SECTION) {
            TRY(mark_set_add(&p->marks, (uint8_t)k->role, k->text, test));
        }
    }
    return QUIRE_OK;
}

static quire_err output_parser_begin(output_parser *p, quire_error *err) {
    const answer_format *calls;
    TRY(find_formats(&p->options, &calls, &p->reasoning, err));
    TRY(call_reader_init(&p->reader, calls, &p->options));
    p->state = p->reasoning == NULL ? ANSWER : p->options.start == OUTPUT_START_REASONING ? THINKING : START;
    if (p->reasoning == NULL) {
        return QUIRE_OK;
    }
    p->begins_inside = p->reasoning->syntax == REASONING_FIRST && p->options.start != OUTPUT_START_CONTENT &&
                       p->options.start != OUTPUT_START_MARKED;
    if (p->reasoning->syntax == REASONING_KEPT) {
        p->state = ANSWER;
        return QUIRE_OK;
    }
    return add_marks(p, calls);
}

quire_err output_parser_open(const output_options *o, output_parser **out, quire_error *err) {
    *out = NULL;
    output_parser *p = mem_new(1, sizeof *p);
    TRY(mem_check_for(p, "a parser of the answer", err));
    p->options = *o;
    quire_err e = output_parser_begin(p, err);
    if (e != QUIRE_OK) {
        output_parser_close(p);
        return e;
    }
    *out = p;
    return QUIRE_OK;
}

void output_parser_close(output_parser *p) {
    if (p != NULL) {
        call_reader_deinit(&p->reader);
        strbuf_deinit(&p->space);
        strbuf_deinit(&p->repaired);
        mem_free(p);
    }
}

/* ---- reasoning ---- */

static quire_err push_all(output_parser *p, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        TRY(call_reader_push(&p->reader, text[i]));
    }
    return QUIRE_OK;
}

/* Begins the answer with the white space that was held. */
static quire_err begin_answer(output_parser *p) {
    p->state = ANSWER;
    if (p->has_break) {
        TRY(call_reader_break(&p->reader));
    }
    TRY(push_all(p, p->space.p, p->space.n));
    strbuf_clear(&p->space);
    return QUIRE_OK;
}

static quire_err think(output_parser *p, char c) {
    bool is_first = p->state == START;
    p->state = THINKING;
    if (!is_first) {
        TRY(call_text(&p->reader, OUTPUT_REASONING, p->space.p, p->space.n));
    }
    strbuf_clear(&p->space);
    p->has_thought = true;
    return call_text(&p->reader, OUTPUT_REASONING, &c, 1);
}

static quire_err output_parser_text_byte(output_parser *p, char c) {
    if (p->state == ANSWER) {
        return call_reader_push(&p->reader, c);
    }
    if (call_space(c) && p->space.n < SPACE_BYTES) {
        bool is_dropped = p->state == AFTER || (p->state == THINKING && !p->has_thought);
        return is_dropped ? QUIRE_OK : strbuf_add_char(&p->space, c);
    }
    if (p->state == THINKING || (p->state == START && p->begins_inside)) {
        return think(p, c);
    }
    TRY(begin_answer(p));
    return call_reader_push(&p->reader, c);
}

static quire_err output_parser_at_mark(output_parser *p, const mark *m) {
    switch ((mark_role)m->role) {
    case ROLE_THINK:
        if (p->state == THINKING && !m->is_special) { /* the model mentions the mark in its reasoning */
            for (uint8_t i = 0; i < m->n; i++) {
                TRY(output_parser_text_byte(p, m->text[i]));
            }
            return QUIRE_OK;
        }
        if (p->state == START) {
            strbuf_clear(&p->space);
        }
        p->has_break = false;
        p->state = THINKING;
        return QUIRE_OK;
    case ROLE_THINK_END:
        strbuf_clear(&p->space);
        p->state = AFTER;
        return QUIRE_OK;
    default: /* ROLE_OPEN, ROLE_SECTION: may begin a call */
        if (p->state != START) {
            strbuf_clear(&p->space);
        }
        TRY(begin_answer(p));
        return push_all(p, m->text, m->n);
    }
}

static quire_err push(output_parser *p, char c) {
    if (p->state == ANSWER) {
        return call_reader_push(&p->reader, c);
    }
    char text[MARK_BYTES];
    size_t n;
    uint32_t roles = p->state == AFTER ? 0 : ROLE(THINK) | ROLE(THINK_END);
    /* an answer that begins with a call has no reasoning */
    roles |= p->state == START ? ROLE(OPEN) | ROLE(SECTION) : 0;
    int found = mark_push(&p->match, &p->marks, call_roles(roles, ROLE(OPEN) | ROLE(SECTION)), c, text, &n);
    for (size_t i = 0; i < n; i++) {
        TRY(output_parser_text_byte(p, text[i]));
    }
    if (p->state == ANSWER) { /* text that might have become a mark belongs to the answer */
        n = mark_take(&p->match, text);
        TRY(push_all(p, text, n));
        return found >= 0 ? push_all(p, p->marks.marks[found].text, p->marks.marks[found].n) : QUIRE_OK;
    }
    return found >= 0 ? output_parser_at_mark(p, &p->marks.marks[found]) : QUIRE_OK;
}

/* ---- feeding ---- */

/* In a format that keeps the reasoning, emits its opening mark, which was in the prompt,
 * before everything else. */
static quire_err write_mark(output_parser *p) {
    if (p->wrote_mark || p->reasoning == NULL || p->reasoning->syntax != REASONING_KEPT) {
        return QUIRE_OK;
    }
    p->wrote_mark = true;
    reasoning_marks m;
    reasoning_format_marks(p->reasoning, &m);
    return call_content(&p->reader, m.open[0].p, m.open[0].n);
}

quire_err output_parser_feed(output_parser *p, str piece, bool is_special, output_events *out) {
    assert(p != NULL);
    p->reader.out = out;
    if (!utf8_is_valid(piece)) {
        strbuf_clear(&p->repaired);
        TRY(utf8_add_lossy(&p->repaired, piece));
        piece = (str){p->repaired.p, p->repaired.n};
    }
    TRY(write_mark(p));
    if (is_special) {
        TRY(push(p, MARK_BEGIN));
    }
    for (size_t i = 0; i < piece.n; i++) {
        TRY(push(p, piece.p[i]));
    }
    return is_special ? push(p, MARK_END) : QUIRE_OK;
}

quire_err output_parser_break(output_parser *p, output_events *out) {
    assert(p != NULL);
    char text[MARK_BYTES];
    p->reader.out = out;
    size_t n = mark_take(&p->match, text);
    for (size_t i = 0; i < n; i++) {
        TRY(output_parser_text_byte(p, text[i]));
    }
    p->has_break = p->state == START;
    return p->state == AFTER || p->state == ANSWER ? call_reader_break(&p->reader) : QUIRE_OK;
}

quire_err output_parser_finish(output_parser *p, bool cut_off, output_events *out) {
    assert(p != NULL);
    char text[MARK_BYTES];
    p->reader.out = out;
    TRY(write_mark(p));
    size_t n = mark_take(&p->match, text);
    for (size_t i = 0; i < n; i++) {
        TRY(output_parser_text_byte(p, text[i]));
    }
    if (p->state == START) { /* the answer was only white space */
        TRY(begin_answer(p));
    }
    return call_reader_finish(&p->reader, cut_off);
}
