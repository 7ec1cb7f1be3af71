#include "answer/call_grammar.h"

#include <stdio.h>
#include <string.h>

#include "answer/typed_value.h"
#include "grammar/grammar_arguments.h"

/* ---- parts ---- */

static const grammar_part nothing = {.part = GRAMMAR_PART_TEXT, .text = {"", 0}};

grammar_part call_parts_one_of(call_parts *m, const grammar_part *parts, size_t n) {
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
    case '$':
        return "[a-zA-Z0-9_.-]{1,64}";
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
        size_t length = regex != NULL ? 1 : strcspn(text, "~^#%$");
        parts[n++] =
            regex != NULL
                ? (grammar_part){.part = GRAMMAR_PART_RULE, .kind = GRAMMAR_REGEX, .text = str_of(regex)}
                : part_text((str){text, length});
        text += length;
    }
    return n == 1 ? parts[0] : part_sequence(&m->arena, parts, n);
}

/* ---- arguments ---- */

/* How the format's parser types the values of a tool. */
static unsigned reads(const void *user, const json_value *schema) {
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

void call_parts_forget(call_parts *m) {
    memset(m->made, 0, m->c->n_tools * sizeof *m->made);
}

/* Layouts of one format write arguments alike. */
grammar_part call_parts_arguments(call_parts *m, const call_layout *l, size_t tool) {
    static const grammar_syntax syntaxes[] = {[LAYOUT_JSON] = GRAMMAR_SYNTAX_JSON,
                                              [LAYOUT_TAGS] = GRAMMAR_SYNTAX_TAGS,
                                              [LAYOUT_GEMMA] = GRAMMAR_SYNTAX_GEMMA,
                                              [LAYOUT_PYTHON] = GRAMMAR_SYNTAX_PYTHON};
    const call_format *f = call_format_named(l->format);
    grammar_arguments *a = part_arena_new(&m->arena, 1, sizeof *a);
    char *where = part_arena_new(&m->arena, 64, 1);
    uint32_t *kept = part_arena_new(&m->arena, 1, sizeof *kept);
    if (a == NULL || where == NULL || kept == NULL) {
        return nothing;
    }
    *a = (grammar_arguments){.syntax = syntaxes[l->arguments], .schema = m->schemas[tool]};
    a->kept = kept;
    a->reader = (grammar_reader){
        reads, member_read, items_read, properties_read, m->c->tools[tool].parameters, &m->c->tools[tool]};
    if (l->tag != NULL) {
        a->before = str_of(l->tag->before);
        a->middle = str_of(l->tag->middle);
        a->behind = str_of(l->tag->behind);
        a->between = str_of(l->tag->between);
        a->string_middle = str_of(l->tag->string_middle != NULL ? l->tag->string_middle : "");
        a->has_elements = (l->flags & LAYOUT_ELEMENTS) != 0;
        a->between_may_miss = (l->flags & LAYOUT_GAPS) != 0;
        set_never(m, f, a);
    }
    a->quote = l->arguments == LAYOUT_GEMMA ? quote_of(f) : a->quote;
    a->reads_quoted = (f->flags & FORMAT_TYPED_QUOTES) != 0;
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

grammar_part call_parts_call(call_parts *m, const call_layout *l) {
    size_t n = 0;
    grammar_part *calls = part_arena_new(&m->arena, n_taken(m->c, l), sizeof *calls),
                 end = layout_part(m, l->end);
    for (size_t i = 0; calls != NULL && i < m->c->n_tools; i++) {
        if (call_grammar_takes(m->c, l, i)) {
            const grammar_part parts[] = {part_text(m->c->tools[i].name), layout_part(m, l->name_end),
                                          call_parts_arguments(m, l, i), end};
            calls[n++] = part_sequence(&m->arena, parts, 4);
        }
    }
    return (grammar_part){.part = GRAMMAR_PART_ONE_OF, .parts = calls, .n_parts = n};
}

grammar_part call_parts_calls(call_parts *m, const call_layout *l) {
    bool one = m->c->is_single || l->between == NULL;
    const grammar_part round[] = {call_parts_call(m, l), one ? nothing : layout_part(m, l->between)};
    grammar_part calls = part_sequence(&m->arena, round, one ? 1 : 2), close = layout_part(m, l->close);
    calls.part = GRAMMAR_PART_REPEAT;
    calls.min = 1;
    calls.max = one ? 1 : GRAMMAR_NO_MAX;
    if ((l->flags & LAYOUT_ENDS_EARLY) != 0) {
        const grammar_part ends[] = {close, nothing};
        close = call_parts_one_of(m, ends, 2);
    }
    const grammar_part parts[] = {layout_part(m, l->before), calls, close};
    return part_sequence(&m->arena, parts, 3);
}

bool call_grammar_has(const call_grammar *c, const call_layout *l) {
    return strcmp(l->format, c->format) == 0 && n_taken(c, l) > 0;
}

const call_layout *call_grammar_layout(const call_grammar *c) {
    const call_layout *l = NULL;
    for (size_t i = 0; (l = call_layout_at(i)) != NULL && !call_grammar_has(c, l); i++) {
    }
    return l;
}
