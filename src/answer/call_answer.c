/* The answer that a grammar of calls describes: free text in which the format's marks
 * begin calls, or calls alone. */
#include <stdio.h>
#include <string.h>

#include "answer/call_grammar.h"

static const grammar_part nothing = {.part = GRAMMAR_PART_TEXT, .text = {"", 0}};

enum { MAX_WRITINGS = FORMAT_WRITINGS };

/* The answer's calls as alternatives, of writings that may stand at any place (is_first
 * false), at the beginning of the answer only (true), or of all. */
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

/* Whether a writing begins its calls with this mark, or with a part of it. */
static bool is_written(const call_parts *m, str mark) {
    call_writing w;
    for (size_t i = 0; call_grammar_next(m->c, &i, &w);) {
        if (memcmp(mark.p, w.open.p, mark.n < w.open.n ? mark.n : w.open.n) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds the texts that free text must not contain: other marks that begin calls. */
static void add_never(call_parts *m, const format_shape *shape, str *never, size_t *n) {
    bool is_bare = (shape->flags & FORMAT_BARE) != 0; /* its marks are words of plain text, too */
    for (int i = 0; i < shape->n; i++) {
        const format_mark *k = &shape->marks[i];
        bool begins = (k->role == ROLE_OPEN || k->role == ROLE_SECTION) && !is_written(m, k->text);
        if (begins && (!is_bare || mark_id(m, k->text) >= 0)) {
            never[(*n)++] = k->text;
        }
    }
}

/* The content of a tag of the writing after its opening text. */
static grammar_part tag_rest(call_parts *m, const call_writing *w) {
    const grammar_part ways[] = {call_parts_calls(m, w), part_text(str_of("all\n"))};
    bool has_text = (w->format->flags & FORMAT_HEAD_FIRST) != 0 && !m->c->is_single;
    return has_text ? call_parts_one_of(m, ways, 2) : ways[0];
}

/* The first of the format's writings that begin with a bracket; false: there is none, or
 * a bracket in later text begins no call. */
static bool bracket_writing(const call_parts *m, const format_shape *shape, call_writing *w) {
    bool counts = (shape->flags & FORMAT_BARE) != 0 && (shape->flags & FORMAT_IN_SECTION) == 0;
    for (size_t i = 0; counts && call_grammar_next(m->c, &i, w);) {
        if (w->is_first) {
            return true;
        }
    }
    return false;
}

/* Adds to free text: an object whose first member names an offered function is a call at
 * any place. An object with another name is text. */
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
    if (p.part == GRAMMAR_PART_FREE) { /* nothing begins a call there */
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

/* An answer that may begin with a bracket, which is a call then, or with anything
 * else. */
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

/* An answer that begins after a writing's opening text: a call, or a line that says that
 * text follows. */
static grammar_part head_part(call_parts *m, const call_writing *w) {
    grammar_part tags = tags_part(m);
    const grammar_part text[] = {part_text(str_of("all\n")), tags};
    const grammar_part calls[] = {call_parts_calls(m, w), m->c->is_single ? nothing : tags};
    const grammar_part ways[] = {nothing, part_sequence(&m->arena, text, 2),
                                 part_sequence(&m->arena, calls, 2)};
    return m->c->is_required ? calls[0] : call_parts_one_of(m, ways, 3);
}

/* Harmony: messages, then a call to functions or none. */
static grammar_part harmony_messages(call_parts *m, const reasoning_marks *r, grammar_part calls) {
    enum { N_HEADERS = 3 };
    const str headers[N_HEADERS] = {r->open[0], r->before[0], r->before[1]};
    grammar_tag *tags = part_arena_new(&m->arena, N_HEADERS, sizeof *tags);
    str *texts = part_arena_new(&m->arena, 2, sizeof *texts);
    call_writing w;
    if (tags == NULL || texts == NULL || !call_written_at(m->c->format, 0, &w)) {
        return nothing;
    }
    const char *to = memchr(w.before.p, ' ', w.before.n); /* " to=functions." */
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

/* The same where a call must come: at most one message of reasoning stands before it. */
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

/* The same after the reasoning; harmony's messages are the answer's own. */
grammar_part call_parts_answer(call_parts *m, const reasoning_frame *frame) {
    grammar_part answer = calls_or_text(m);
    bool is_bare = frame == NULL || m->c->format->syntax == SYNTAX_HARMONY;
    return is_bare ? answer : reasoning_frame_around(&m->arena, frame, m->marks, &answer);
}
