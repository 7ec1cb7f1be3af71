/* The answer that a grammar of calls describes: free text in which the format's marks
 * begin calls, or calls alone. */
#include <stdio.h>
#include <string.h>

#include "answer/call_grammar.h"

static const grammar_part nothing = {.part = GRAMMAR_PART_TEXT, .text = {"", 0}};

enum { MAX_LAYOUTS = 8 };

/* The answer's calls as alternatives, of layouts that the flags allow: at any place, or
 * at the beginning of the answer only. */
static grammar_part one_of_layouts(call_parts *m, unsigned flags, bool with_others) {
    grammar_part ways[MAX_LAYOUTS];
    const call_layout *l;
    size_t n = 0;
    for (size_t i = 0; (l = call_layout_at(i)) != NULL && n < MAX_LAYOUTS; i++) {
        if (call_grammar_has(m->c, l) && (with_others || (l->flags & LAYOUT_FIRST) == flags)) {
            const grammar_part parts[] = {part_text(str_of(l->open)), call_parts_calls(m, l)};
            ways[n++] = part_sequence(&m->arena, parts, 2);
        }
    }
    return call_parts_one_of(m, ways, n);
}

/* ---- free text ---- */

static int32_t mark_id(const call_parts *m, const char *text) {
    for (size_t i = 0; i < m->marks->n; i++) {
        if (str_is(m->marks->list[i].text, text)) {
            return m->marks->list[i].id;
        }
    }
    return -1;
}

/* Adds what free text must not contain: other marks that begin calls. */
static void add_never(call_parts *m, const call_format *f, str *never, size_t *n) {
    for (int k = 0; k < FORMAT_MARKS && f->marks[k].text != NULL; k++) {
        const call_layout *l;
        str mark = str_of(f->marks[k].text);
        bool begins = f->marks[k].role == ROLE_OPEN || f->marks[k].role == ROLE_SECTION;
        bool is_bare = (f->flags & FORMAT_BARE) != 0; /* its marks are words of plain text, too */
        for (size_t i = 0; begins && (l = call_layout_at(i)) != NULL; i++) {
            str open = str_of(l->open);
            begins =
                !call_grammar_has(m->c, l) || memcmp(mark.p, open.p, mark.n < open.n ? mark.n : open.n) != 0;
        }
        if (begins && (!is_bare || mark_id(m, f->marks[k].text) >= 0)) {
            never[(*n)++] = mark;
        }
    }
    if (f->syntax == SYNTAX_HARMONY) {
        never[(*n)++] = str_of(" to=functions.");
    }
}

/* What a tag of the layout holds behind its opening text. */
static grammar_part tag_rest(call_parts *m, const call_layout *l) {
    const grammar_part ways[] = {call_parts_calls(m, l), part_text(str_of("all\n"))};
    return (l->flags & LAYOUT_HEAD_FIRST) != 0 && !m->c->is_single ? call_parts_one_of(m, ways, 2) : ways[0];
}

/* The first of the format's layouts that begin with a bracket; NULL: there is none, or a
 * bracket in later text begins no call. */
static const call_layout *bracket_layout(const call_parts *m) {
    unsigned flags = call_format_named(m->c->format)->flags;
    const call_layout *l = NULL;
    bool counts = (flags & FORMAT_BARE) != 0 && (flags & FORMAT_IN_SECTION) == 0;
    for (size_t i = 0; counts && (l = call_layout_at(i)) != NULL; i++) {
        if (call_grammar_has(m->c, l) && (l->flags & LAYOUT_FIRST) != 0) {
            return l;
        }
    }
    return NULL;
}

/* Adds to free text: an object whose first member names an offered function is a call,
 * wherever it stands. Any other name is text. */
static void add_brackets(call_parts *m, grammar_part *p) {
    const call_layout *l = bracket_layout(m);
    grammar_part *ways = l != NULL ? part_arena_new(&m->arena, 2, sizeof *ways) : NULL;
    str *names = l != NULL ? part_arena_new(&m->arena, m->c->n_tools, sizeof *names) : NULL;
    size_t n = 0;
    if (ways == NULL || names == NULL) {
        return;
    }
    for (size_t i = 0; i < m->c->n_tools; i++) {
        if (call_grammar_takes(m->c, l, i)) {
            names[n++] = m->c->tools[i].name;
        }
    }
    const grammar_part other[] = {{.part = GRAMMAR_PART_OTHER,
                                   .text = str_of("(?:[^\"\\\\\\x00-\\x1f]|\\\\[^\\x00-\\x1f])*"),
                                   .texts = names,
                                   .n_texts = n},
                                  part_text(str_of("\""))};
    ways[0] = call_parts_call(m, l);
    ways[1] = part_sequence(&m->arena, other, 2);
    p->pattern = str_of("\\{[ \\n\\t\\r]*\"name\"[ \\n\\t\\r]*:[ \\n\\t\\r]*\"");
    p->behind = &ways[0];
    p->other = &ways[1];
}

/* Free text in which the format's marks begin calls. */
static grammar_part tags_part(call_parts *m) {
    enum { MAX_TAGS = 16 };
    const call_format *f = call_format_named(m->c->format);
    grammar_tag *tags = part_arena_new(&m->arena, MAX_TAGS, sizeof *tags);
    str *texts = part_arena_new(&m->arena, MAX_TAGS + FORMAT_MARKS + 1, sizeof *texts);
    const call_layout *l;
    size_t n = 0, n_never = 0;
    if (tags == NULL || texts == NULL) {
        return nothing;
    }
    grammar_part p = {
        .part = GRAMMAR_PART_TAGS, .specials = GRAMMAR_SPECIALS_ALL, .stop_after_first = m->c->is_single};
    for (size_t i = 0; (l = call_layout_at(i)) != NULL; i++) {
        if (!call_grammar_has(m->c, l) || (l->flags & LAYOUT_FIRST) != 0 || n == MAX_LAYOUTS) {
            continue;
        }
        p.stop_after_first = p.stop_after_first || (l->flags & LAYOUT_ONCE) != 0;
        texts[n] = str_of(l->open);
        grammar_part *rest = part_arena_new(&m->arena, 1, sizeof *rest);
        if (rest != NULL) {
            *rest = tag_rest(m, l);
            tags[n++] = (grammar_tag){str_of(l->open), rest};
        }
    }
    p.texts = texts;
    p.n_texts = p.n_tags = n;
    p.tags = tags;
    p.never = texts + n;
    add_never(m, f, texts + n, &n_never);
    p.n_never = n_never;
    add_brackets(m, &p);
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
    const call_layout *l;
    grammar_part space = regex_part("[ \\n\\t\\r]{0,8}"), tags = tags_part(m);
    int32_t *ids = part_arena_new(&m->arena, MAX_LAYOUTS, sizeof *ids);
    char *other = part_arena_new(&m->arena, 64, 1);
    size_t n = 0;
    if (ids == NULL || other == NULL) {
        return nothing;
    }
    (void)snprintf(other, 64, "[^ \\n\\t\\r{\\[");
    for (size_t i = 0; (l = call_layout_at(i)) != NULL && n < MAX_LAYOUTS; i++) {
        bool opens = call_grammar_has(m->c, l) && (l->flags & LAYOUT_FIRST) == 0;
        if (opens && mark_id(m, l->open) >= 0) {
            ids[n++] = mark_id(m, l->open);
        } else if (opens) {
            (void)snprintf(other + strlen(other), 64 - strlen(other), "%c", l->open[0]);
        }
    }
    (void)snprintf(other + strlen(other), 64 - strlen(other), "]");
    const grammar_part begins[] = {regex_part(other),
                                   {.part = GRAMMAR_PART_MARKS, .ids = ids, .n_ids = n, .negated = true},
                                   one_of_layouts(m, 0, false)};
    const grammar_part text[] = {call_parts_one_of(m, begins, tags.n_tags > 0 ? 3 : 2), tags};
    const grammar_part ways[] = {one_of_layouts(m, LAYOUT_FIRST, false), part_sequence(&m->arena, text, 2),
                                 nothing};
    const grammar_part parts[] = {space, call_parts_one_of(m, ways, 3)};
    return part_sequence(&m->arena, parts, 2);
}

/* An answer that begins behind a layout's opening text: a call, or a line that says that
 * text follows. */
static grammar_part head_part(call_parts *m, const call_layout *l) {
    grammar_part tags = tags_part(m);
    const grammar_part text[] = {part_text(str_of("all\n")), tags};
    const grammar_part calls[] = {call_parts_calls(m, l), m->c->is_single ? nothing : tags};
    const grammar_part ways[] = {nothing, part_sequence(&m->arena, text, 2),
                                 part_sequence(&m->arena, calls, 2)};
    return m->c->is_required ? calls[0] : call_parts_one_of(m, ways, 3);
}

/* Harmony: messages, then a call to functions or none. */
static grammar_part harmony_part(call_parts *m) {
    static const char *const headers[] = {"<|channel|>analysis<|message|>", "<|channel|>final<|message|>",
                                          "<|channel|>commentary<|message|>"};
    enum { N_HEADERS = sizeof headers / sizeof *headers };
    grammar_part calls = one_of_layouts(m, 0, true);
    grammar_tag *tags = part_arena_new(&m->arena, N_HEADERS, sizeof *tags);
    str *texts = part_arena_new(&m->arena, 2, sizeof *texts);
    if (tags == NULL || texts == NULL) {
        return nothing;
    }
    texts[0] = str_of("<|channel|>");
    texts[1] = str_of(" to=functions.");
    for (size_t i = 0; i < N_HEADERS; i++) {
        tags[i] = (grammar_tag){str_of(headers[i]), &nothing};
    }
    if (m->c->is_required) {
        str *end = part_arena_new(&m->arena, 1, sizeof *end);
        if (end == NULL) {
            return nothing;
        }
        *end = str_of("<|end|>");
        const grammar_part thought[] = {
            part_text(str_of(headers[0])),
            {.part = GRAMMAR_PART_UNTIL, .texts = end, .n_texts = 1, .specials = GRAMMAR_SPECIALS_NONE},
            part_text(str_of("<|start|>assistant"))};
        const grammar_part maybe[] = {nothing, part_sequence(&m->arena, thought, 3)};
        const grammar_part parts[] = {call_parts_one_of(m, maybe, 2), calls};
        return part_sequence(&m->arena, parts, 2);
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

static grammar_part calls_or_text(call_parts *m) {
    bool is_first = false;
    const call_layout *l;
    for (size_t i = 0; (l = call_layout_at(i)) != NULL; i++) {
        is_first = is_first || (call_grammar_has(m->c, l) && (l->flags & LAYOUT_FIRST) != 0);
    }
    if (call_format_named(m->c->format)->syntax == SYNTAX_HARMONY) {
        return harmony_part(m);
    }
    l = call_grammar_layout(m->c);
    if (l != NULL && (l->flags & LAYOUT_HEAD_FIRST) != 0) {
        return head_part(m, l);
    }
    return m->c->is_required ? one_of_layouts(m, 0, true) : is_first ? bracket_part(m) : tags_part(m);
}

/* The same behind the reasoning; harmony's messages are the answer's own. */
grammar_part call_parts_answer(call_parts *m, const reasoning_frame *frame) {
    grammar_part answer = calls_or_text(m);
    bool is_bare = frame == NULL || call_format_named(m->c->format)->syntax == SYNTAX_HARMONY;
    return is_bare ? answer : reasoning_frame_around(&m->arena, frame, m->marks, &answer);
}
