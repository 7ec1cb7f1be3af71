#include "answer/call_grammar.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "answer/typed_value.h"
#include "base/turn.h"
#include "core/params.h"
#include "grammar/grammar_parts.h"
#include "sample/constraint.h"

/* ---- parts ---- */

static const grammar_part nothing = {.part = GRAMMAR_PART_TEXT, .text = {"", 0}};

/* The part that matches one of parts[0..n), which are copied. */
static grammar_part call_parts_one_of(call_parts *m, const grammar_part *parts, size_t n) {
    grammar_part all = part_sequence(&m->arena, parts, n);
    all.part = GRAMMAR_PART_ONE_OF;
    return all;
}

/* The regex that a hole of a writing matches. */
static const char *regex_of(char hole) {
    switch (hole) {
    case HOLE_SPACE:
        return " ?";
    case HOLE_LINE:
        return "\\n?";
    case HOLE_NUMBER:
        return "0|[1-9][0-9]{0,2}";
    case HOLE_ID:
        return "[a-zA-Z0-9]{9}";
    default: /* HOLE_WORD */
        return "[a-zA-Z0-9_.-]{1,64}";
    }
}

enum { MAX_PIECES = 32 };

/* Converts a writing's text and its holes to a grammar part. */
static grammar_part text_part(call_parts *m, str text) {
    grammar_part parts[MAX_PIECES];
    size_t n = 0;
    str literal;
    for (char hole; n < MAX_PIECES && writing_next(&text, &literal, &hole);) {
        parts[n++] = hole != 0 ? (grammar_part){.part = GRAMMAR_PART_RULE,
                                                .kind = GRAMMAR_REGEX,
                                                .text = str_of(regex_of(hole))}
                               : part_text(literal);
    }
    return n == 1 ? parts[0] : part_sequence(&m->arena, parts, n);
}

/* ---- arguments ---- */

/* The types to which the parser converts a value with this schema (GRAMMAR_READS_
 * bits). */
static unsigned call_grammar_reads(const void *user, const json_value *schema) {
    const output_tool *tool = user;
    unsigned types = schema_types(schema, tool->parameters), bits = 0;
    bits |= (types & TYPE_STRING) != 0 ? GRAMMAR_READS_STRING : types != 0 ? GRAMMAR_READS_JSON : 0u;
    bits |= (types & TYPE_NULL) != 0 ? GRAMMAR_READS_NULL : 0u;
    bits |= (types & TYPE_OBJECT) != 0 ? GRAMMAR_READS_OBJECT : 0u;
    return bits | ((types & TYPE_ARRAY) != 0 ? GRAMMAR_READS_ARRAY : 0u);
}

static const json_value *member_read(const void *user, const json_value *schema, str name) {
    const output_tool *tool = user;
    return schema_member(schema, tool->parameters, name);
}

static const json_value *properties_read(const void *user, const json_value *schema) {
    const output_tool *tool = user;
    return schema_properties(schema, tool->parameters);
}

static const json_value *items_read(const void *user, const json_value *schema) {
    const output_tool *tool = user;
    return schema_items(schema, tool->parameters);
}

/* Sets the texts that a value between tags cannot contain. */
static void set_never(call_parts *m, const format_shape *shape, grammar_arguments *a) {
    bool has_next = format_shape_mark(shape, ROLE_NEXT).n > 0;
    str *never = part_arena_new(&m->arena, FORMAT_MARKS, sizeof *never);
    for (int i = 0; never != NULL && i < shape->n; i++) {
        mark_role role = shape->marks[i].role;
        bool ends =
            role == ROLE_VALUE_END || role == ROLE_TAG || role == ROLE_NEXT || (has_next && role == ROLE_END);
        if (ends) {
            never[a->n_never++] = shape->marks[i].text;
        }
        if (role == ROLE_NEXT) { /* a newline has come already before the value */
            a->never_first = (str){shape->marks[i].text.p + 1, shape->marks[i].text.n - 1};
        }
    }
    a->never = never;
}

/* The text between a key and its value, with is_text ("true" or "false") in its hole. */
static str middle_of(call_parts *m, str middle, const char *is_text) {
    strbuf out = {0};
    str literal;
    quire_err e = QUIRE_OK;
    for (char hole; e == QUIRE_OK && writing_next(&middle, &literal, &hole);) {
        e = hole == HOLE_IS_TEXT ? strbuf_add_str(&out, is_text) : strbuf_add(&out, literal.p, literal.n);
    }
    m->arena.failed = m->arena.failed != QUIRE_OK ? m->arena.failed : e;
    return part_arena_take(&m->arena, &out);
}

static void set_tags(call_parts *m, const call_writing *w, const format_shape *shape, grammar_arguments *a) {
    char is_text[] = {HOLE_IS_TEXT, 0};
    a->before = w->tag_before;
    a->middle = middle_of(m, w->tag_middle, "false");
    a->behind = w->tag_behind;
    a->between = str_of("\n");
    a->string_middle =
        str_contains(w->tag_middle, str_of(is_text)) ? middle_of(m, w->tag_middle, "true") : (str){"", 0};
    a->has_elements = w->has_elements;
    a->between_may_miss = w->tag_between.p[0] == HOLE_LINE;
    set_never(m, shape, a);
}

void call_parts_forget(call_parts *m) {
    assert(m != NULL);
    memset(m->made, 0, m->c->n_tools * sizeof *m->made);
}

/* All writings of a format write arguments the same way. */
grammar_part call_parts_arguments(call_parts *m, const call_writing *w, size_t tool) {
    static const grammar_syntax syntaxes[] = {
        [SYNTAX_JSON] = GRAMMAR_SYNTAX_JSON,     [SYNTAX_TAGS] = GRAMMAR_SYNTAX_TAGS,
        [SYNTAX_ELEMENTS] = GRAMMAR_SYNTAX_TAGS, [SYNTAX_GEMMA] = GRAMMAR_SYNTAX_GEMMA,
        [SYNTAX_PYTHON] = GRAMMAR_SYNTAX_PYTHON, [SYNTAX_HARMONY] = GRAMMAR_SYNTAX_JSON};
    grammar_arguments *a = part_arena_new(&m->arena, 1, sizeof *a);
    char *where = part_arena_new(&m->arena, 64, 1);
    uint32_t *kept = part_arena_new(&m->arena, 1, sizeof *kept);
    if (a == NULL || where == NULL || kept == NULL) {
        return nothing;
    }
    format_shape shape;
    answer_format_shape(w->format, &shape);
    *a = (grammar_arguments){.syntax = syntaxes[w->format->syntax], .schema = m->schemas[tool]};
    a->kept = kept;
    a->reader = (grammar_reader){call_grammar_reads,           member_read,       items_read, properties_read,
                                 m->c->tools[tool].parameters, &m->c->tools[tool]};
    if (a->syntax == GRAMMAR_SYNTAX_TAGS) {
        set_tags(m, w, &shape, a);
    }
    a->quote = format_shape_mark(&shape, ROLE_QUOTE);
    a->reads_quoted = (shape.flags & FORMAT_TYPED_QUOTES) != 0;
    if (m->c->tools[tool].lark.n > 0) {
        a->member = str_of(OUTPUT_TOOL_INPUT);
        a->kind = GRAMMAR_LARK;
        a->rule = m->c->tools[tool].lark;
    }
    (void)snprintf(where, 64, a->member.n > 0 ? "the grammar of tools[%zu]" : "the parameters of tools[%zu]",
                   tool);
    const grammar_arguments *made = m->made[tool];
    m->made[tool] = made != NULL && made->syntax == a->syntax && str_eq(made->before, a->before) ? made : a;
    return (grammar_part){.part = GRAMMAR_PART_ARGUMENTS, .arguments = m->made[tool], .where = where};
}

/* ---- calls ---- */

bool call_grammar_takes(const call_grammar *c, const call_writing *w, size_t i) {
    assert(c != NULL);
    return (c->only.n == 0 || str_eq(c->only, c->tools[i].name)) && call_writing_takes(w, c->tools[i].name);
}

static size_t call_grammar_n_taken(const call_grammar *c, const call_writing *w) {
    size_t n = 0;
    for (size_t i = 0; i < c->n_tools; i++) {
        n += call_grammar_takes(c, w, i);
    }
    return n;
}

/* One call, from its name to the text after its arguments. */
static grammar_part call_parts_call(call_parts *m, const call_writing *w) {
    assert(m != NULL && w != NULL);
    size_t n = 0;
    grammar_part *calls = part_arena_new(&m->arena, call_grammar_n_taken(m->c, w), sizeof *calls),
                 end = text_part(m, w->end);
    for (size_t i = 0; calls != NULL && i < m->c->n_tools; i++) {
        if (call_grammar_takes(m->c, w, i)) {
            const grammar_part parts[] = {part_text(m->c->tools[i].name), text_part(m, w->name_end),
                                          call_parts_arguments(m, w, i), end};
            calls[n++] = part_sequence(&m->arena, parts, 4);
        }
    }
    return (grammar_part){.part = GRAMMAR_PART_ONE_OF, .parts = calls, .n_parts = n};
}

/* All of a writing's calls, without its opening text. */
static grammar_part call_parts_calls(call_parts *m, const call_writing *w) {
    assert(m != NULL);
    bool one = m->c->is_single || !w->repeats;
    const grammar_part between[] = {text_part(m, w->separator), text_part(m, w->again)};
    const grammar_part round[] = {call_parts_call(m, w), part_sequence(&m->arena, between, 2)};
    grammar_part calls = part_sequence(&m->arena, round, one ? 1 : 2), close = text_part(m, w->close);
    calls.part = GRAMMAR_PART_REPEAT;
    calls.min = 1;
    calls.max = one ? 1 : GRAMMAR_NO_MAX;
    if (w->format->syntax == SYNTAX_HARMONY) { /* harmony's end token may also end the answer */
        const grammar_part ends[] = {close, nothing};
        close = call_parts_one_of(m, ends, 2);
    }
    const grammar_part parts[] = {text_part(m, w->before), calls, close};
    return part_sequence(&m->arena, parts, 3);
}

bool call_grammar_next(const call_grammar *c, size_t *i, call_writing *out) {
    assert(c != NULL && i != NULL);
    while (call_written_at(c->format, *i, out)) {
        ++*i;
        if (call_grammar_n_taken(c, out) > 0) {
            return true;
        }
    }
    return false;
}

bool call_grammar_exists(const call_grammar *c) {
    assert(c != NULL);
    call_writing w;
    return c->format != NULL && call_grammar_next(c, &(size_t){0}, &w);
}

/* ---- the special tokens of a grammar ---- */

/* The longest special token that the text begins with; NULL: none. */
static const grammar_mark *mark_here(const grammar_marks *marks, str text) {
    const grammar_mark *best = NULL;
    for (size_t i = 0; i < marks->n; i++) {
        const grammar_mark *m = &marks->list[i];
        if (m->text.n > (best != NULL ? best->text.n : 0) && m->text.n <= text.n &&
            memcmp(m->text.p, text.p, m->text.n) == 0) {
            best = m;
        }
    }
    return best;
}

bool mark_scan_next(mark_scan *s, const grammar_marks *marks) {
    assert(s != NULL);
    s->found = NULL;
    while (s->at < s->text.n && s->found == NULL) {
        (void)turn_poll((uint32_t)marks->n); /* lets other jobs run */
        s->found = mark_here(marks, (str){s->text.p + s->at, s->text.n - s->at});
        s->at += s->found != NULL ? s->found->text.n : 1;
    }
    return s->found != NULL;
}

/* ---- what the request bans ---- */

static bool is_bad_word(const sampling_params *p, int32_t id) {
    const token_seqs *words = p->lists != NULL ? &p->lists->bad_words : NULL;
    for (int32_t i = 0; words != NULL && i < words->n; i++) {
        if (words->starts[i + 1] - words->starts[i] == 1 && words->tokens[words->starts[i]] == id) {
            return true;
        }
    }
    return false;
}

static bool call_marks_is_left_out(const sampling_params *p, int32_t id) {
    const sampling_lists *l = p->lists;
    return l != NULL && l->has_allowed && !end_token_is_one_of(id, l->allowed, l->n_allowed);
}

typedef struct checker {
    const grammar_marks *marks;
    const sampling_params *p;
    const model_desc *d;
    quire_error *err;
} checker;

/* Whether bad_words and allowed_token_ids allow all special tokens in a text. */
static bool can_come(const checker *k, str text) {
    for (mark_scan scan = {.text = text}; mark_scan_next(&scan, k->marks);) {
        if (is_bad_word(k->p, scan.found->id) || call_marks_is_left_out(k->p, scan.found->id)) {
            return false;
        }
    }
    return true;
}

static quire_err call_marks_check_text(const checker *k, str text, bool is_last) {
    for (mark_scan scan = {.text = text}; mark_scan_next(&scan, k->marks);) {
        int32_t id = scan.found->id;
        bool ends = end_token_kind(k->p, k->d, id) == END_STOP_TOKEN && !(is_last && scan.at == scan.text.n);
        const char *field = is_bad_word(k->p, id)              ? "bad_words"
                            : call_marks_is_left_out(k->p, id) ? "allowed_token_ids"
                            : ends                             ? "stop_token_ids"
                                                               : NULL;
        if (field != NULL) {
            return err_set_param(k->err, QUIRE_BAD_REQUEST, field,
                                 "%s: tool calls contain %.*s, token %d, which %s", field,
                                 (int)scan.found->text.n, scan.found->text.p, (int)id,
                                 is_bad_word(k->p, id) ? "is banned"
                                 : ends                ? "would end the answer inside the call"
                                                       : "is not allowed");
        }
    }
    return QUIRE_OK;
}

static quire_err check_writing(const checker *k, const call_writing *w, bool is_single) {
    const str texts[] = {w->open, w->before, w->name_end, w->tag_before, w->tag_middle, w->tag_behind};
    bool is_tags = w->format->syntax == SYNTAX_TAGS || w->format->syntax == SYNTAX_ELEMENTS;
    for (size_t i = 0; i < (is_tags ? 6 : 3); i++) {
        TRY(call_marks_check_text(k, texts[i], false));
    }
    TRY(call_marks_check_text(k, w->end, w->close.n == 0));
    if (!is_single && w->repeats) {
        TRY(call_marks_check_text(k, w->separator, false));
        TRY(call_marks_check_text(k, w->again, false));
    }
    return call_marks_check_text(k, w->close, true);
}

quire_err call_marks_check(const call_grammar *c, const grammar_marks *marks, const sampling_params *p,
                           const model_desc *d, quire_error *err) {
    const checker k = {marks, p, d, err};
    call_writing w;
    for (size_t i = 0; call_grammar_next(c, &i, &w);) {
        if (c->is_required || can_come(&k, w.open)) {
            TRY(check_writing(&k, &w, c->is_single));
        }
    }
    return QUIRE_OK;
}

/* The part of an answer: free text in which the format's marks begin calls, or only
 * calls. */

enum { MAX_WRITINGS = FORMAT_WRITINGS };

/* The answer's calls as alternatives: all writings if with_others, else those whose
 * is_first equals the argument. */
static grammar_part one_of_writings(call_parts *m, bool is_first, bool with_others) {
    grammar_part ways[MAX_WRITINGS];
    call_writing w;
    size_t n = 0;
    for (size_t i = 0; n < MAX_WRITINGS && call_grammar_next(m->c, &i, &w);) {
        if (with_others || w.is_first == is_first) {
            const grammar_part parts[] = {part_text(w.open), call_parts_calls(m, &w)};
            ways[n++] = part_sequence(&m->arena, parts, 2);
        }
    }
    return call_parts_one_of(m, ways, n);
}

/* ---- free text ---- */

static int32_t mark_id(const call_parts *m, str text) {
    for (size_t i = 0; i < m->marks->n; i++) {
        if (str_eq(m->marks->list[i].text, text)) {
            return m->marks->list[i].id;
        }
    }
    return -1;
}

/* Whether this mark equals or begins the opening text of a writing, or begins with it. */
static bool is_written(const call_parts *m, str mark) {
    call_writing w;
    for (size_t i = 0; call_grammar_next(m->c, &i, &w);) {
        if (memcmp(mark.p, w.open.p, mark.n < w.open.n ? mark.n : w.open.n) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds to never[] the texts that free text must not contain: marks that begin calls, but
 * not in a writing of the grammar. */
static void add_never(call_parts *m, const format_shape *shape, str *never, size_t *n) {
    bool is_bare = (shape->flags & FORMAT_BARE) != 0; /* the marks may also be plain text */
    for (int i = 0; i < shape->n; i++) {
        const format_mark *k = &shape->marks[i];
        bool begins = (k->role == ROLE_OPEN || k->role == ROLE_SECTION) && !is_written(m, k->text);
        if (begins && (!is_bare || mark_id(m, k->text) >= 0)) {
            never[(*n)++] = k->text;
        }
    }
}

/* The part after a writing's opening text, where that begins calls in free text. */
static grammar_part tag_rest(call_parts *m, const call_writing *w) {
    const grammar_part ways[] = {call_parts_calls(m, w), part_text(str_of("all\n"))};
    bool has_text = (w->format->flags & FORMAT_HEAD_FIRST) != 0 && !m->c->is_single;
    return has_text ? call_parts_one_of(m, ways, 2) : ways[0];
}

/* Finds the format's first writing that begins with a bracket. False if there is none, or
 * if a bracket in later text begins no call. */
static bool bracket_writing(const call_parts *m, const format_shape *shape, call_writing *w) {
    bool counts = (shape->flags & FORMAT_BARE) != 0 && (shape->flags & FORMAT_IN_SECTION) == 0;
    for (size_t i = 0; counts && call_grammar_next(m->c, &i, w);) {
        if (w->is_first) {
            return true;
        }
    }
    return false;
}

/* Adds a rule to free text: an object whose first member names an offered function is a
 * call, wherever it is. An object with another name is text. */
static void add_brackets(call_parts *m, const format_shape *shape, grammar_part *p) {
    call_writing w;
    if (!bracket_writing(m, shape, &w)) {
        return;
    }
    grammar_part *ways = part_arena_new(&m->arena, 2, sizeof *ways);
    str *names = part_arena_new(&m->arena, m->c->n_tools, sizeof *names);
    size_t n = 0;
    if (ways == NULL || names == NULL) {
        return;
    }
    for (size_t i = 0; i < m->c->n_tools; i++) {
        if (call_grammar_takes(m->c, &w, i)) {
            names[n++] = m->c->tools[i].name;
        }
    }
    const grammar_part other[] = {{.part = GRAMMAR_PART_OTHER,
                                   .text = str_of("(?:[^\"\\\\\\x00-\\x1f]|\\\\[^\\x00-\\x1f])*"),
                                   .texts = names,
                                   .n_texts = n},
                                  part_text(str_of("\""))};
    ways[0] = call_parts_call(m, &w);
    ways[1] = part_sequence(&m->arena, other, 2);
    p->pattern = str_of("\\{[ \\n\\t\\r]*\"name\"[ \\n\\t\\r]*:[ \\n\\t\\r]*\"");
    p->behind = &ways[0];
    p->other = &ways[1];
}

/* Free text in which the format's marks begin calls. */
static grammar_part tags_part(call_parts *m) {
    grammar_tag *tags = part_arena_new(&m->arena, MAX_WRITINGS, sizeof *tags);
    str *texts = part_arena_new(&m->arena, MAX_WRITINGS + FORMAT_MARKS, sizeof *texts);
    call_writing w;
    format_shape shape;
    size_t n = 0, n_never = 0;
    if (tags == NULL || texts == NULL) {
        return nothing;
    }
    answer_format_shape(m->c->format, &shape);
    grammar_part p = {
        .part = GRAMMAR_PART_TAGS, .specials = GRAMMAR_SPECIALS_ALL, .stop_after_first = m->c->is_single};
    for (size_t i = 0; call_grammar_next(m->c, &i, &w);) {
        grammar_part *rest = w.is_first ? NULL : part_arena_new(&m->arena, 1, sizeof *rest);
        if (rest != NULL) {
            texts[n] = w.open;
            *rest = tag_rest(m, &w);
            tags[n++] = (grammar_tag){w.open, rest};
        }
    }
    p.texts = texts;
    p.n_texts = p.n_tags = n;
    p.tags = tags;
    p.never = texts + n;
    add_never(m, &shape, texts + n, &n_never);
    p.n_never = n_never;
    add_brackets(m, &shape, &p);
    p.part = n > 0 || p.pattern.n > 0 ? GRAMMAR_PART_TAGS : GRAMMAR_PART_FREE;
    if (p.part == GRAMMAR_PART_FREE) { /* no mark begins a call */
        p.texts = p.never;
        p.n_texts = n_never;
        p.n_never = 0;
    }
    return p;
}

/* ---- the answer ---- */

static grammar_part regex_part(const char *regex) {
    return (grammar_part){.part = GRAMMAR_PART_RULE, .kind = GRAMMAR_REGEX, .text = str_of(regex)};
}

/* An answer that begins with a bracket, and then is a call, or with anything else. */
static grammar_part bracket_part(call_parts *m) {
    call_writing w;
    grammar_part space = regex_part("[ \\n\\t\\r]{0,8}"), tags = tags_part(m);
    int32_t *ids = part_arena_new(&m->arena, MAX_WRITINGS, sizeof *ids);
    char *other = part_arena_new(&m->arena, 64, 1);
    size_t n = 0;
    if (ids == NULL || other == NULL) {
        return nothing;
    }
    (void)snprintf(other, 64, "[^ \\n\\t\\r{\\[");
    for (size_t i = 0; n < MAX_WRITINGS && call_grammar_next(m->c, &i, &w);) {
        if (!w.is_first && mark_id(m, w.open) >= 0) {
            ids[n++] = mark_id(m, w.open);
        } else if (!w.is_first) {
            (void)snprintf(other + strlen(other), 64 - strlen(other), "%c", w.open.p[0]);
        }
    }
    (void)snprintf(other + strlen(other), 64 - strlen(other), "]");
    const grammar_part begins[] = {regex_part(other),
                                   {.part = GRAMMAR_PART_MARKS, .ids = ids, .n_ids = n, .negated = true},
                                   one_of_writings(m, false, false)};
    const grammar_part text[] = {call_parts_one_of(m, begins, tags.n_tags > 0 ? 3 : 2), tags};
    const grammar_part ways[] = {one_of_writings(m, true, false), part_sequence(&m->arena, text, 2), nothing};
    const grammar_part parts[] = {space, call_parts_one_of(m, ways, 3)};
    return part_sequence(&m->arena, parts, 2);
}

/* An answer that begins after a writing's opening text: with a call, or with "all" and a
 * newline, after which text follows. */
static grammar_part head_part(call_parts *m, const call_writing *w) {
    grammar_part tags = tags_part(m);
    const grammar_part text[] = {part_text(str_of("all\n")), tags};
    const grammar_part calls[] = {call_parts_calls(m, w), m->c->is_single ? nothing : tags};
    const grammar_part ways[] = {nothing, part_sequence(&m->arena, text, 2),
                                 part_sequence(&m->arena, calls, 2)};
    return m->c->is_required ? calls[0] : call_parts_one_of(m, ways, 3);
}

/* Builds the part of harmony's messages, then an optional call. */
static grammar_part harmony_messages(call_parts *m, const reasoning_marks *r, grammar_part calls) {
    enum { N_HEADERS = 3 };
    const str headers[N_HEADERS] = {r->open[0], r->before[0], r->before[1]};
    grammar_tag *tags = part_arena_new(&m->arena, N_HEADERS, sizeof *tags);
    str *texts = part_arena_new(&m->arena, 2, sizeof *texts);
    call_writing w;
    if (tags == NULL || texts == NULL || !call_written_at(m->c->format, 0, &w)) {
        return nothing;
    }
    const char *to = memchr(w.before.p, ' ', w.before.n); /* at " to=functions." */
    texts[0] = w.open;
    texts[1] = (str){to, (size_t)(w.before.p + w.before.n - to)};
    for (size_t i = 0; i < N_HEADERS; i++) {
        tags[i] = (grammar_tag){headers[i], &nothing};
    }
    const grammar_part ends[] = {nothing, calls};
    const grammar_part parts[] = {{.part = GRAMMAR_PART_TAGS,
                                   .texts = texts,
                                   .n_texts = 1,
                                   .never = texts + 1,
                                   .n_never = 1,
                                   .tags = tags,
                                   .n_tags = N_HEADERS,
                                   .specials = GRAMMAR_SPECIALS_ALL},
                                  call_parts_one_of(m, ends, 2)};
    return part_sequence(&m->arena, parts, 2);
}

/* An answer in harmony. If a call is required, one message of reasoning may precede
 * it. */
static grammar_part harmony_part(call_parts *m) {
    reasoning_marks r;
    reasoning_format_marks(reasoning_format_named("openai_gptoss"), &r);
    grammar_part calls = one_of_writings(m, false, true);
    str *end = part_arena_new(&m->arena, 1, sizeof *end);
    if (end == NULL) {
        return nothing;
    }
    if (!m->c->is_required) {
        return harmony_messages(m, &r, calls);
    }
    *end = r.close[0];
    const grammar_part thought[] = {
        part_text(r.open[0]),
        {.part = GRAMMAR_PART_UNTIL, .texts = end, .n_texts = 1, .specials = GRAMMAR_SPECIALS_NONE},
        part_text(r.next)};
    const grammar_part maybe[] = {nothing, part_sequence(&m->arena, thought, 3)};
    const grammar_part parts[] = {call_parts_one_of(m, maybe, 2), calls};
    return part_sequence(&m->arena, parts, 2);
}

static grammar_part calls_or_text(call_parts *m) {
    call_writing w;
    bool is_first = false;
    for (size_t i = 0; call_grammar_next(m->c, &i, &w);) {
        is_first = is_first || w.is_first;
    }
    if (m->c->format->syntax == SYNTAX_HARMONY) {
        return harmony_part(m);
    }
    if ((m->c->format->flags & FORMAT_HEAD_FIRST) != 0 && call_grammar_next(m->c, &(size_t){0}, &w)) {
        return head_part(m, &w);
    }
    return m->c->is_required ? one_of_writings(m, false, true) : is_first ? bracket_part(m) : tags_part(m);
}

/* In harmony the messages are part of the answer, so there is no frame. */
grammar_part call_parts_answer(call_parts *m, const reasoning_frame *frame) {
    grammar_part answer = calls_or_text(m);
    bool is_bare = frame == NULL || m->c->format->syntax == SYNTAX_HARMONY;
    return is_bare ? answer : reasoning_frame_around(&m->arena, frame, m->marks, &answer);
}
