#include "api/call_grammar.h"

#include <stdio.h>

#include "base/mem.h"
#include "chat/call_layout.h"
#include "chat/typed_value.h"
#include "grammar/grammar_arguments.h"
#include "json/json_out.h"

/* Memory that lives as long as one compilation. */
typedef struct kept {
    struct kept *next;
} kept;

typedef struct maker {
    const call_grammar *c;
    const grammar_marks *marks;
    const json_value **schemas; /* of the tools' arguments: their own, or what is enforced in its place */
    kept *blocks;
    bool failed; /* out of memory */
} maker;

static void *keep(maker *m, size_t n, size_t size) {
    kept *k = n < (SIZE_MAX - sizeof *k) / size ? mem_new(1, sizeof *k + n * size) : NULL;
    if (k == NULL) {
        m->failed = true;
        return NULL;
    }
    k->next = m->blocks;
    m->blocks = k;
    return k + 1;
}

static void free_kept(maker *m) {
    while (m->blocks != NULL) {
        kept *next = m->blocks->next;
        mem_free(m->blocks);
        m->blocks = next;
    }
}

/* ---- parts ---- */

static const grammar_part nothing = {.part = GRAMMAR_PART_TEXT, .text = {"", 0}};

static grammar_part text_part(str text) {
    return (grammar_part){.part = GRAMMAR_PART_TEXT, .text = text};
}

static grammar_part list_part(maker *m, grammar_part_kind kind, const grammar_part *parts, size_t n) {
    grammar_part *to = keep(m, n, sizeof *to);
    if (to == NULL) {
        return nothing;
    }
    mem_copy(to, parts, n * sizeof *to);
    return (grammar_part){.part = kind, .parts = to, .n_parts = n};
}

static const grammar_part *kept_part(maker *m, grammar_part part) {
    grammar_part *to = keep(m, 1, sizeof *to);
    if (to != NULL) {
        *to = part;
    }
    return to;
}

/* What a character of a layout's text stands for; NULL: itself. */
static const char *regex_of(char c) {
    switch (c) {
    case '~': return " ?";
    case '^': return "\\n?";
    case '#': return "0|[1-9][0-9]{0,2}";
    case '%': return "[a-zA-Z0-9]{9}";
    default: return NULL;
    }
}

enum { MAX_PIECES = 32 };

/* A layout's text. */
static grammar_part layout_part(maker *m, const char *text) {
    grammar_part parts[MAX_PIECES];
    size_t n = 0;
    while (*text != 0 && n < MAX_PIECES) {
        const char *regex = regex_of(*text);
        size_t length = regex != NULL ? 1 : strcspn(text, "~^#%");
        parts[n++] = regex != NULL ? (grammar_part){.part = GRAMMAR_PART_RULE, .kind = GRAMMAR_REGEX, .text = str_of(regex)}
                                   : text_part((str){text, length});
        text += length;
    }
    return n == 1 ? parts[0] : list_part(m, GRAMMAR_PART_SEQUENCE, parts, n);
}

/* ---- arguments ---- */

/* What the format's parser takes a value of that name for. */
static unsigned reads(const void *user, str name) {
    const output_tool *tool = user;
    unsigned types = schema_types(schema_member(tool->parameters, tool->parameters, name), tool->parameters);
    return ((types & TYPE_STRING) != 0 ? GRAMMAR_READS_STRING : 0u) | ((types & TYPE_NULL) != 0 ? GRAMMAR_READS_NULL : 0u) |
           (types != 0 && (types & TYPE_STRING) == 0 ? GRAMMAR_READS_JSON : 0u);
}

static void set_never(maker *m, const call_format *f, grammar_arguments *a) {
    const char *text;
    size_t n = 0;
    bool first;
    while (call_layout_never(f, n, &first) != NULL) {
        n++;
    }
    str *never = keep(m, n + 1, sizeof *never);
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

static grammar_part arguments_part(maker *m, const call_layout *l, size_t tool) {
    static const grammar_syntax syntaxes[] = {[LAYOUT_JSON] = GRAMMAR_SYNTAX_JSON,
                                              [LAYOUT_TAGS] = GRAMMAR_SYNTAX_TAGS,
                                              [LAYOUT_GEMMA] = GRAMMAR_SYNTAX_GEMMA,
                                              [LAYOUT_PYTHON] = GRAMMAR_SYNTAX_PYTHON};
    const call_format *f = call_format_named(l->format);
    grammar_arguments *a = keep(m, 1, sizeof *a);
    char *where = keep(m, 64, 1);
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

static bool takes(const call_grammar *c, const call_layout *l, size_t i) {
    return (c->only.n == 0 || str_eq(c->only, c->tools[i].name)) && call_layout_takes(l, c->tools[i].name);
}

static size_t n_taken(const call_grammar *c, const call_layout *l) {
    size_t n = 0;
    for (size_t i = 0; i < c->n_tools; i++) {
        n += takes(c, l, i);
    }
    return n;
}

/* One call, from the name to what stands behind the arguments. */
static grammar_part call_part(maker *m, const call_layout *l) {
    size_t n = 0;
    grammar_part *calls = keep(m, n_taken(m->c, l), sizeof *calls), end = layout_part(m, l->end);
    for (size_t i = 0; calls != NULL && i < m->c->n_tools; i++) {
        if (takes(m->c, l, i)) {
            const grammar_part parts[] = {text_part(m->c->tools[i].name), layout_part(m, l->name_end), arguments_part(m, l, i), end};
            calls[n++] = list_part(m, GRAMMAR_PART_SEQUENCE, parts, 4);
        }
    }
    return (grammar_part){.part = GRAMMAR_PART_ONE_OF, .parts = calls, .n_parts = n};
}

/* All of a layout but its opening text. */
static grammar_part calls_part(maker *m, const call_layout *l) {
    bool one = m->c->is_single || l->between == NULL;
    const grammar_part round[] = {call_part(m, l), one ? nothing : layout_part(m, l->between)};
    grammar_part calls = list_part(m, GRAMMAR_PART_REPEAT, round, one ? 1 : 2), close = layout_part(m, l->close);
    calls.min = 1;
    calls.max = one ? 1 : GRAMMAR_NO_MAX;
    if ((l->flags & LAYOUT_ENDS_EARLY) != 0) {
        const grammar_part ends[] = {close, nothing};
        close = list_part(m, GRAMMAR_PART_ONE_OF, ends, 2);
    }
    const grammar_part parts[] = {layout_part(m, l->before), calls, close};
    return list_part(m, GRAMMAR_PART_SEQUENCE, parts, 3);
}

static bool is_layout(const call_grammar *c, const call_layout *l) {
    return strcmp(l->format, c->format) == 0 && n_taken(c, l) > 0;
}

bool call_grammar_has(const call_grammar *c) {
    const call_layout *l = NULL;
    for (size_t i = 0; (l = call_layout_at(i)) != NULL && !is_layout(c, l); i++) {
    }
    return l != NULL;
}

enum { MAX_LAYOUTS = 8 };

/* The answer's calls as alternatives, of layouts that the flags allow: at any place, or at the beginning of the answer only. */
static grammar_part one_of_layouts(maker *m, unsigned flags, bool with_others) {
    grammar_part ways[MAX_LAYOUTS];
    const call_layout *l;
    size_t n = 0;
    for (size_t i = 0; (l = call_layout_at(i)) != NULL && n < MAX_LAYOUTS; i++) {
        if (is_layout(m->c, l) && (with_others || (l->flags & LAYOUT_FIRST) == flags)) {
            const grammar_part parts[] = {text_part(str_of(l->open)), calls_part(m, l)};
            ways[n++] = list_part(m, GRAMMAR_PART_SEQUENCE, parts, 2);
        }
    }
    return list_part(m, GRAMMAR_PART_ONE_OF, ways, n);
}

/* ---- free text ---- */

static int32_t mark_id(const maker *m, const char *text) {
    for (size_t i = 0; m->marks != NULL && i < m->marks->n; i++) {
        if (str_is(m->marks->list[i].text, text)) {
            return m->marks->list[i].id;
        }
    }
    return -1;
}

/* Adds what free text must not contain: other marks that begin calls. */
static void add_never(maker *m, const call_format *f, str *never, size_t *n) {
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
static grammar_part tags_part(maker *m) {
    enum { MAX_TAGS = 16 };
    const call_format *f = call_format_named(m->c->format);
    grammar_tag *tags = keep(m, MAX_TAGS, sizeof *tags);
    str *texts = keep(m, MAX_TAGS + FORMAT_MARKS + 1, sizeof *texts);
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
        tags[n++] = (grammar_tag){str_of(l->open), kept_part(m, calls_part(m, l))};
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
static grammar_part bracket_part(maker *m) {
    const call_layout *l;
    grammar_part space = regex_part("[ \\n\\t\\r]{0,8}"), tags = tags_part(m);
    int32_t *ids = keep(m, MAX_LAYOUTS, sizeof *ids);
    char *other = keep(m, 64, 1);
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
    const grammar_part begins[] = {regex_part(other), {.part = GRAMMAR_PART_MARKS, .ids = ids, .n_ids = n, .negated = true},
                                   one_of_layouts(m, 0, false)};
    const grammar_part text[] = {list_part(m, GRAMMAR_PART_ONE_OF, begins, tags.part == GRAMMAR_PART_TAGS ? 3 : 2), tags};
    const grammar_part ways[] = {one_of_layouts(m, LAYOUT_FIRST, false), list_part(m, GRAMMAR_PART_SEQUENCE, text, 2), nothing};
    const grammar_part parts[] = {space, list_part(m, GRAMMAR_PART_ONE_OF, ways, 3)};
    return list_part(m, GRAMMAR_PART_SEQUENCE, parts, 2);
}

/* Harmony: messages, then a call to functions or none. */
static grammar_part harmony_part(maker *m) {
    static const char *const headers[] = {"<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "<|channel|>commentary<|message|>"};
    enum { N_HEADERS = sizeof headers / sizeof *headers };
    grammar_part calls = one_of_layouts(m, 0, true);
    grammar_tag *tags = keep(m, N_HEADERS, sizeof *tags);
    str *texts = keep(m, 2, sizeof *texts);
    if (tags == NULL || texts == NULL) {
        return nothing;
    }
    texts[0] = str_of("<|channel|>");
    texts[1] = str_of(" to=functions.");
    for (size_t i = 0; i < N_HEADERS; i++) {
        tags[i] = (grammar_tag){str_of(headers[i]), &nothing};
    }
    if (m->c->is_required) {
        str *end = keep(m, 1, sizeof *end);
        if (end == NULL) {
            return nothing;
        }
        *end = str_of("<|end|>");
        const grammar_part thought[] = {text_part(str_of(headers[0])),
                                        {.part = GRAMMAR_PART_UNTIL, .texts = end, .n_texts = 1, .specials = GRAMMAR_SPECIALS_NONE},
                                        text_part(str_of("<|start|>assistant"))};
        const grammar_part maybe[] = {nothing, list_part(m, GRAMMAR_PART_SEQUENCE, thought, 3)};
        const grammar_part parts[] = {list_part(m, GRAMMAR_PART_ONE_OF, maybe, 2), calls};
        return list_part(m, GRAMMAR_PART_SEQUENCE, parts, 2);
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
                                  list_part(m, GRAMMAR_PART_ONE_OF, ends, 2)};
    return list_part(m, GRAMMAR_PART_SEQUENCE, parts, 2);
}

static grammar_part answer_part(maker *m) {
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

/* ---- schemas that cannot be enforced ---- */

/* Writes what is enforced in place of a tool's schema: its properties with their types, and which of them are required. */
static void write_types(const output_tool *tool, json_out *o) {
    static const char *const names[] = {"string", "null", "boolean", "number", "object", "array"};
    const json_value *properties = json_get(tool->parameters, "properties"), *required = json_get(tool->parameters, "required");
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), "object");
    json_begin(json_name(o, "properties"), '{');
    for (json_member p = {0}; json_next(properties, &p);) {
        unsigned types = schema_types(p.value, tool->parameters);
        json_begin(json_name(o, p.name), '{');
        if (types != 0) {
            json_begin(json_name(o, "type"), '[');
            for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
                if ((types >> i & 1) != 0) {
                    json_cstr(json_item(o), names[i]);
                }
            }
            json_end(o, ']');
        }
        json_end(o, '}');
    }
    json_end(o, '}');
    json_begin(json_name(o, "required"), '[');
    for (size_t i = 0; i < json_length(required); i++) {
        if (json_is(json_at(required, i), JSON_KIND_TEXT)) {
            json_add(json_item(o), json_at(required, i));
        }
    }
    json_end(o, ']');
    json_end(o, '}');
}

/* Replaces the schema of tool i; *owned has the new one. */
static quire_err loosen(maker *m, size_t i, json_value **owned, quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text};
    json_fault fault;
    json_limits limits = {.max_depth = 200, .max_values = 200000, .max_containers = 200000, .max_names = 200000, .names = JSON_NAMES_LAST};
    write_types(&m->c->tools[i], &o);
    quire_err e = o.err == QUIRE_OK ? json_read((str){text.p, text.n}, &limits, JSON_WIDE_REAL, owned, &fault) : o.err;
    strbuf_deinit(&text);
    m->schemas[i] = *owned;
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory for a request's tools");
}

static quire_err compile_part(maker *m, grammar_part part, const grammar_options *options, grammar **out, quire_error *err) {
    return m->failed ? err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request's tools")
                     : grammar_compile_parts(&part, m->marks, options, out, err);
}

/* Finds the tools whose schemas cannot be enforced in a layout, and loosens them. */
static quire_err loosen_refused(maker *m, const grammar_options *options, json_value **owned, quire_error *err) {
    const call_layout *l = NULL;
    for (size_t i = 0; (l = call_layout_at(i)) != NULL && !is_layout(m->c, l); i++) {
    }
    for (size_t i = 0; l != NULL && i < m->c->n_tools; i++) {
        grammar *g = NULL;
        quire_error why = {0};
        quire_err e = takes(m->c, l, i) ? compile_part(m, arguments_part(m, l, i), options, &g, &why) : QUIRE_OK;
        grammar_drop(g);
        if (e != QUIRE_OK && m->c->tools[i].is_strict) {
            *err = why;
            return e;
        }
        TRY(e == QUIRE_OK ? e : loosen(m, i, &owned[i], err));
    }
    return QUIRE_OK;
}

/* ---- compiling ---- */

static quire_err compile(maker *m, const grammar_options *options, json_value **owned, grammar **out, quire_error *err) {
    quire_err e = compile_part(m, answer_part(m), options, out, err);
    if (e == QUIRE_OK || e == QUIRE_NO_MEMORY || m->c->is_required) {
        return e;
    }
    TRY(loosen_refused(m, options, owned, err));
    return compile_part(m, answer_part(m), options, out, err);
}

quire_err call_grammar_compile(const call_grammar *c, const grammar_marks *marks, const grammar_options *options, grammar **out,
                               quire_error *err) {
    grammar_options own = options != NULL ? *options : (grammar_options){0};
    maker m = {.c = c, .marks = marks, .schemas = mem_new(c->n_tools, sizeof *m.schemas)};
    json_value **owned = mem_new(c->n_tools, sizeof *owned);
    if (own.space == GRAMMAR_SPACE_COMPACT && own.whitespace_pattern.n == 0) {
        own.whitespace_pattern = str_of(" ?"); /* as models write JSON */
    }
    quire_err e = m.schemas != NULL && owned != NULL ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request's tools");
    for (size_t i = 0; e == QUIRE_OK && i < c->n_tools; i++) {
        m.schemas[i] = c->tools[i].parameters;
    }
    e = e == QUIRE_OK ? compile(&m, &own, owned, out, err) : e;
    for (size_t i = 0; owned != NULL && i < c->n_tools; i++) {
        json_drop(owned[i]);
    }
    mem_free(owned);
    mem_free(m.schemas);
    free_kept(&m);
    return e;
}
