#include "api/call_grammar.h"

#include <stdio.h>
#include <string.h>

#include "chat/typed_value.h"
#include "grammar/grammar_arguments.h"

/* ---- parts ---- */

static const grammar_part nothing = {.part = GRAMMAR_PART_TEXT, .text = {"", 0}};

static grammar_part one_of(call_parts *m, const grammar_part *parts, size_t n) {
    grammar_part all = part_sequence(&m->arena, parts, n);
    all.part = GRAMMAR_PART_ONE_OF;
    return all;
}

/* What a character of a layout's text stands for; NULL: itself. */
static const char *regex_of(char c) {
    switch (c) {
    case '~':
        return " ?";
    case '^':
        return "\\n?";
    case '#':
        return "0|[1-9][0-9]{0,2}";
    case '%':
        return "[a-zA-Z0-9]{9}";
    default:
        return NULL;
    }
}

enum { MAX_PIECES = 32 };

/* A layout's text. */
static grammar_part layout_part(call_parts *m, const char *text) {
    grammar_part parts[MAX_PIECES];
    size_t n = 0;
    while (*text != 0 && n < MAX_PIECES) {
        const char *regex = regex_of(*text);
        size_t length = regex != NULL ? 1 : strcspn(text, "~^#%");
        parts[n++] = regex != NULL ? (grammar_part){.part = GRAMMAR_PART_RULE, .kind = GRAMMAR_REGEX, .text = str_of(regex)}
                                   : part_text((str){text, length});
        text += length;
    }
    return n == 1 ? parts[0] : part_sequence(&m->arena, parts, n);
}

/* ---- arguments ---- */

/* What the format's parser takes a value of that name for. */
static unsigned reads(const void *user, str name) {
    const output_tool *tool = user;
    unsigned types = schema_types(schema_member(tool->parameters, tool->parameters, name), tool->parameters);
    return ((types & TYPE_STRING) != 0 ? GRAMMAR_READS_STRING : 0u) | ((types & TYPE_NULL) != 0 ? GRAMMAR_READS_NULL : 0u) |
           (types != 0 && (types & TYPE_STRING) == 0 ? GRAMMAR_READS_JSON : 0u);
}

static void set_never(call_parts *m, const call_format *f, grammar_arguments *a) {
    const char *text;
    size_t n = 0;
    bool first;
    while (call_layout_never(f, n, &first) != NULL) {
        n++;
    }
    str *never = part_arena_new(&m->arena, n + 1, sizeof *never);
    for (size_t i = 0; never != NULL && (text = call_layout_never(f, i, &first)) != NULL; i++) {
        if (first) {
            a->never_first = str_of(text);
        } else {
            never[a->n_never++] = str_of(text);
        }
    }
    a->never = never;
}

static str quote_of(const call_format *f) {
    for (int i = 0; i < FORMAT_MARKS && f->marks[i].text != NULL; i++) {
        if (f->marks[i].role == ROLE_QUOTE) {
            return str_of(f->marks[i].text);
        }
    }
    return (str){"", 0};
}

grammar_part call_parts_arguments(call_parts *m, const call_layout *l, size_t tool) {
    static const grammar_syntax syntaxes[] = {[LAYOUT_JSON] = GRAMMAR_SYNTAX_JSON,
                                              [LAYOUT_TAGS] = GRAMMAR_SYNTAX_TAGS,
                                              [LAYOUT_GEMMA] = GRAMMAR_SYNTAX_GEMMA,
                                              [LAYOUT_PYTHON] = GRAMMAR_SYNTAX_PYTHON};
    const call_format *f = call_format_named(l->format);
    grammar_arguments *a = part_arena_new(&m->arena, 1, sizeof *a);
    char *where = part_arena_new(&m->arena, 64, 1);
    if (a == NULL || where == NULL) {
        return nothing;
    }
    *a = (grammar_arguments){.syntax = syntaxes[l->arguments], .schema = m->schemas[tool], .reads = reads, .user = &m->c->tools[tool]};
    if (l->tag != NULL) {
        a->before = str_of(l->tag->before);
        a->middle = str_of(l->tag->middle);
        a->behind = str_of(l->tag->behind);
        a->between = str_of(l->tag->between);
        a->string_middle = str_of(l->tag->string_middle != NULL ? l->tag->string_middle : "");
        a->between_may_miss = (l->flags & LAYOUT_GAPS) != 0;
        set_never(m, f, a);
    }
    a->quote = l->arguments == LAYOUT_GEMMA ? quote_of(f) : a->quote;
    a->reads_quoted = (f->flags & FORMAT_TYPED_QUOTES) != 0;
    (void)snprintf(where, 64, "the parameters of tools[%zu]", tool);
    return (grammar_part){.part = GRAMMAR_PART_ARGUMENTS, .arguments = a, .where = where};
}

/* ---- calls ---- */

bool call_grammar_takes(const call_grammar *c, const call_layout *l, size_t i) {
    return (c->only.n == 0 || str_eq(c->only, c->tools[i].name)) && call_layout_takes(l, c->tools[i].name);
}

static size_t n_taken(const call_grammar *c, const call_layout *l) {
    size_t n = 0;
    for (size_t i = 0; i < c->n_tools; i++) {
        n += call_grammar_takes(c, l, i);
    }
    return n;
}

/* One call, from the name to what stands behind the arguments. */
static grammar_part call_part(call_parts *m, const call_layout *l) {
    size_t n = 0;
    grammar_part *calls = part_arena_new(&m->arena, n_taken(m->c, l), sizeof *calls), end = layout_part(m, l->end);
    for (size_t i = 0; calls != NULL && i < m->c->n_tools; i++) {
        if (call_grammar_takes(m->c, l, i)) {
            const grammar_part parts[] = {part_text(m->c->tools[i].name), layout_part(m, l->name_end), call_parts_arguments(m, l, i), end};
            calls[n++] = part_sequence(&m->arena, parts, 4);
        }
    }
    return (grammar_part){.part = GRAMMAR_PART_ONE_OF, .parts = calls, .n_parts = n};
}

/* All of a layout but its opening text. */
static grammar_part calls_part(call_parts *m, const call_layout *l) {
    bool one = m->c->is_single || l->between == NULL;
    const grammar_part round[] = {call_part(m, l), one ? nothing : layout_part(m, l->between)};
    grammar_part calls = part_sequence(&m->arena, round, one ? 1 : 2), close = layout_part(m, l->close);
    calls.part = GRAMMAR_PART_REPEAT;
    calls.min = 1;
    calls.max = one ? 1 : GRAMMAR_NO_MAX;
    if ((l->flags & LAYOUT_ENDS_EARLY) != 0) {
        const grammar_part ends[] = {close, nothing};
        close = one_of(m, ends, 2);
    }
    const grammar_part parts[] = {layout_part(m, l->before), calls, close};
    return part_sequence(&m->arena, parts, 3);
}

static bool is_layout(const call_grammar *c, const call_layout *l) {
    return strcmp(l->format, c->format) == 0 && n_taken(c, l) > 0;
}

const call_layout *call_grammar_layout(const call_grammar *c) {
    const call_layout *l = NULL;
    for (size_t i = 0; (l = call_layout_at(i)) != NULL && !is_layout(c, l); i++) {
    }
    return l;
}

enum { MAX_LAYOUTS = 8 };

/* The answer's calls as alternatives, of layouts that the flags allow: at any place, or at the beginning of the answer only. */
static grammar_part one_of_layouts(call_parts *m, unsigned flags, bool with_others) {
    grammar_part ways[MAX_LAYOUTS];
    const call_layout *l;
    size_t n = 0;
    for (size_t i = 0; (l = call_layout_at(i)) != NULL && n < MAX_LAYOUTS; i++) {
        if (is_layout(m->c, l) && (with_others || (l->flags & LAYOUT_FIRST) == flags)) {
            const grammar_part parts[] = {part_text(str_of(l->open)), calls_part(m, l)};
            ways[n++] = part_sequence(&m->arena, parts, 2);
        }
    }
    return one_of(m, ways, n);
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
            begins = !is_layout(m->c, l) || memcmp(mark.p, open.p, mark.n < open.n ? mark.n : open.n) != 0;
        }
        if (begins && (!is_bare || mark_id(m, f->marks[k].text) >= 0)) {
            never[(*n)++] = mark;
        }
    }
    if (f->syntax == SYNTAX_HARMONY) {
        never[(*n)++] = str_of(" to=functions.");
    }
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
    grammar_part p = {.part = GRAMMAR_PART_TAGS, .specials = GRAMMAR_SPECIALS_ALL, .stop_after_first = m->c->is_single};
    for (size_t i = 0; (l = call_layout_at(i)) != NULL; i++) {
        if (!is_layout(m->c, l) || (l->flags & LAYOUT_FIRST) != 0 || n == MAX_LAYOUTS) {
            continue;
        }
        p.stop_after_first = p.stop_after_first || (l->flags & LAYOUT_ONCE) != 0;
        texts[n] = str_of(l->open);
        grammar_part *rest = part_arena_new(&m->arena, 1, sizeof *rest);
        if (rest != NULL) {
            *rest = calls_part(m, l);
            tags[n++] = (grammar_tag){str_of(l->open), rest};
        }
    }
    p.texts = texts;
    p.n_texts = p.n_tags = n;
    p.tags = tags;
    p.never = texts + n;
    add_never(m, f, texts + n, &n_never);
    p.n_never = n_never;
    p.part = n > 0 ? GRAMMAR_PART_TAGS : GRAMMAR_PART_FREE;
    if (n == 0) { /* nothing begins a call there */
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

/* An answer that may begin with a bracket, which is a call then, or with anything else. */
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
        bool opens = is_layout(m->c, l) && (l->flags & LAYOUT_FIRST) == 0;
        if (opens && mark_id(m, l->open) >= 0) {
            ids[n++] = mark_id(m, l->open);
        } else if (opens) {
            (void)snprintf(other + strlen(other), 64 - strlen(other), "%c", l->open[0]);
        }
    }
    (void)snprintf(other + strlen(other), 64 - strlen(other), "]");
    const grammar_part begins[] = {
        regex_part(other), {.part = GRAMMAR_PART_MARKS, .ids = ids, .n_ids = n, .negated = true}, one_of_layouts(m, 0, false)};
    const grammar_part text[] = {one_of(m, begins, tags.part == GRAMMAR_PART_TAGS ? 3 : 2), tags};
    const grammar_part ways[] = {one_of_layouts(m, LAYOUT_FIRST, false), part_sequence(&m->arena, text, 2), nothing};
    const grammar_part parts[] = {space, one_of(m, ways, 3)};
    return part_sequence(&m->arena, parts, 2);
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
        const grammar_part thought[] = {part_text(str_of(headers[0])),
                                        {.part = GRAMMAR_PART_UNTIL, .texts = end, .n_texts = 1, .specials = GRAMMAR_SPECIALS_NONE},
                                        part_text(str_of("<|start|>assistant"))};
        const grammar_part maybe[] = {nothing, part_sequence(&m->arena, thought, 3)};
        const grammar_part parts[] = {one_of(m, maybe, 2), calls};
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
                                  one_of(m, ends, 2)};
    return part_sequence(&m->arena, parts, 2);
}

static grammar_part calls_or_text(call_parts *m) {
    bool is_first = false;
    const call_layout *l;
    for (size_t i = 0; (l = call_layout_at(i)) != NULL; i++) {
        is_first = is_first || (is_layout(m->c, l) && (l->flags & LAYOUT_FIRST) != 0);
    }
    if (call_format_named(m->c->format)->syntax == SYNTAX_HARMONY) {
        return harmony_part(m);
    }
    return m->c->is_required ? one_of_layouts(m, 0, true) : is_first ? bracket_part(m) : tags_part(m);
}

/* The same behind the reasoning; harmony's messages are the answer's own. */
grammar_part call_parts_answer(call_parts *m, const reasoning_frame *frame) {
    grammar_part answer = calls_or_text(m);
    bool is_bare = frame == NULL || call_format_named(m->c->format)->syntax == SYNTAX_HARMONY;
    return is_bare ? answer : reasoning_frame_around(&m->arena, frame, m->marks, &answer);
}
