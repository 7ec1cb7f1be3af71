/* The arguments of a tool call: an object in the syntax of a model's format
 * (grammar_parts.h). */
#include <assert.h>

#include "grammar/avoid.h"
#include "grammar/compile.h"
#include "grammar/parts.h"
#include "grammar/value_shape.h"

enum { TAG_NAME_BYTES = 500 }; /* most bytes that all readers of tags accept */

/* A text in which special tokens are themselves, then next. */
static uint32_t marked_text(schema *s, str text, uint32_t next) {
    return parts_emit_text(s->parts, text, next);
}

/* ---- what values may not contain ---- */

static quire_err schema_arguments_add_quoted(strbuf *regex, str text) {
    for (size_t i = 0; i < text.n; i++) {
        if (strchr(".^$*+?()[]{}|\\/-", text.p[i]) != NULL) {
            TRY(strbuf_add_char(regex, '\\'));
        }
        TRY(strbuf_add_char(regex, text.p[i]));
    }
    return QUIRE_OK;
}

static quire_err write_never(const grammar_arguments *a, strbuf *regex) {
    for (size_t i = 0; i < a->n_never; i++) {
        TRY(strbuf_add_str(regex, regex->n > 0 ? "|" : ""));
        TRY(schema_arguments_add_quoted(regex, a->never[i]));
    }
    if (a->never_first.n > 0) {
        TRY(strbuf_add_str(regex, regex->n > 0 ? "|^" : "^"));
        TRY(schema_arguments_add_quoted(regex, a->never_first));
    }
    if (a->quote.n > 0) {
        TRY(strbuf_add_str(regex, regex->n > 0 ? "|" : ""));
        TRY(schema_arguments_add_quoted(regex, a->quote));
    }
    return QUIRE_OK;
}

/* The dfa of texts that values may contain. */
static uint32_t avoided(schema *s, const grammar_arguments *a) {
    strbuf regex = {0};
    uint32_t texts = DFA_ANY;
    if (write_never(a, &regex) != QUIRE_OK) {
        (void)build_fail(s->b, QUIRE_NO_MEMORY, -1, "out of memory for the schema");
    } else if (regex.n > 0) {
        texts = dfa_combine(s->dfas, DFA_ANY, dfa_pattern(s->dfas, (str){regex.p, regex.n}), DFA_AND_NOT);
    }
    strbuf_deinit(&regex);
    return texts;
}

/* ---- values whose text does not show their type ---- */

static const str unlisted_name = {"\0", 1}; /* no schema lists this name */

/* The reader's schema for a member. */
static const json_value *member_of(const schema *s, const json_value *of, str name) {
    const grammar_reader *r = &s->arguments->reader;
    return r->member != NULL ? r->member(r->user, of, name) : NULL;
}

/* How the reader interprets a value with its schema `of` (grammar_parts.h). */
static unsigned arguments_bits(const schema *s, const json_value *of) {
    const grammar_reader *r = &s->arguments->reader;
    return r->reads != NULL ? r->reads(r->user, of) : 0;
}

/* The texts that are read as strings, given these bits. */
static uint32_t read_as_strings(schema *s, unsigned bits) {
    /* no number, no word, and nothing that begins like a string, list or object */
    if ((bits & GRAMMAR_READS_STRING) == 0) {
        str other = str_of("^[ "
                           "\\n\\t\\r]*([\"'\\[{(]|(-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?|true|"
                           "false|null|True|False|None)[ \\n\\t\\r]*$)");
        return dfa_combine(s->dfas, DFA_ANY, dfa_pattern(s->dfas, other), DFA_AND_NOT);
    }
    if ((bits & GRAMMAR_READS_NULL) != 0) {
        uint32_t null = dfa_pattern(s->dfas, str_of("^[ \\n\\t\\r]*[nN][uU][lL][lL][ \\n\\t\\r]*$"));
        return dfa_combine(s->dfas, DFA_ANY, null, DFA_AND_NOT);
    }
    return DFA_ANY;
}

/* Adds the strings of a shape as raw texts, then next. */
static uint32_t raw_strings(schema *s, const shape *x, unsigned bits, uint32_t next) {
    uint32_t *ways = schema_keep(s, x->strings.n + 1, sizeof *ways);
    for (uint32_t i = 0; i < x->strings.n && ways != NULL; i++) {
        ways[i] = style_raw_string(s, &x->strings.p[i], read_as_strings(s, bits), next);
    }
    return ways != NULL && x->strings.n > 0 ? build_split(s->b, ways, x->strings.n) : NFA_FAIL_NODE;
}

/* Adds all of a shape but its strings, as a rule, then next. */
static uint32_t others(schema *s, const shape *x, unsigned bits, uint32_t next) {
    shape rest = *x;
    rest.strings.n = 0;
    if ((bits & GRAMMAR_READS_STRING) != 0) {
        rest = (shape){.null = x->null && (bits & GRAMMAR_READS_NULL) != 0};
    }
    return build_call(s->b, schema_shape_rule(s, &rest), next);
}

/* Adds a value as a text without quotes, read with these bits, then end. */
static uint32_t arguments_text(schema *s, const shape *x, unsigned bits, uint32_t end) {
    if ((bits & GRAMMAR_READS_JSON) != 0 && (bits & GRAMMAR_READS_STRING) == 0) {
        return build_call(s->b, schema_shape_rule(s, x), end);
    }
    uint32_t text = raw_strings(s, x, bits, end);
    return build_split2(s->b, text, others(s, x, bits, end));
}

/* Adds a value with the reader's schema `of` between its tags, then end. */
static uint32_t element_value(schema *s, uint32_t x, const json_value *of, uint32_t end);

/* Adds a value between `middle` and the node `end`. */
static uint32_t tagged_value(schema *s, uint32_t x, const json_value *of, uint32_t end) {
    const grammar_arguments *a = s->arguments;
    const shape *sh = expr_shape(s, x);
    unsigned bits = arguments_bits(s, of);
    if (a->has_elements) {
        return marked_text(s, a->middle, element_value(s, x, of, end));
    }
    if (a->string_middle.n > 0) {
        uint32_t text = raw_strings(s, sh, GRAMMAR_READS_STRING, end), other = others(s, sh, 0, end);
        return build_split2(s->b, text == NFA_FAIL_NODE ? text : marked_text(s, a->string_middle, text),
                            marked_text(s, a->middle, other));
    }
    return marked_text(s, a->middle, arguments_text(s, sh, bits, end));
}

/* Adds a value of Gemma's outermost object. */
static uint32_t gemma_value(schema *s, uint32_t x, unsigned bits) {
    const grammar_arguments *a = s->arguments;
    if (!a->reads_quoted || bits == GRAMMAR_READS_STRING) {
        return build_call(s->b, schema_rule(s, x), NFA_RETURN_NODE);
    }
    const shape *sh = expr_shape(s, x);
    uint32_t end = marked_text(s, a->quote, NFA_RETURN_NODE), text;
    /* a number or word, also in quotes */
    if ((bits & GRAMMAR_READS_STRING) == 0 && (bits & GRAMMAR_READS_JSON) != 0) {
        const shape scalars = {.null = sh->null, .yes = sh->yes, .no = sh->no, .numbers = sh->numbers};
        text = others(s, &scalars, 0, end);
    } else {
        text = raw_strings(s, sh, bits, end);
    }
    return build_split2(s->b, text == NFA_FAIL_NODE ? text : marked_text(s, a->quote, text),
                        others(s, sh, 0, NFA_RETURN_NODE));
}

/* ---- members ---- */

/* Whether a tag may contain the name. */
static bool is_tag_name(str name) {
    for (size_t i = 0; i < name.n; i++) {
        if ((uint8_t)name.p[i] <= ' ' || name.p[i] == 0x7F || strchr("\"'`<>=|\\", name.p[i]) != NULL) {
            return false;
        }
    }
    return name.n > 0 && name.n <= TAG_NAME_BYTES;
}

/* Adds a value in the syntax of the arguments. end: TAGS: what follows it. */
static uint32_t schema_arguments_value_of(schema *s, uint32_t x, const json_value *of, uint32_t end) {
    switch (s->arguments->syntax) {
    case GRAMMAR_SYNTAX_TAGS:
        return tagged_value(s, x, of, marked_text(s, s->arguments->behind, end));
    case GRAMMAR_SYNTAX_GEMMA:
        return marked_text(s, str_of(":"), schema_space(s, gemma_value(s, x, arguments_bits(s, of))));
    default:
        return marked_text(s, str_of("="), build_call(s->b, schema_rule(s, x), NFA_RETURN_NODE));
    }
}

static uint32_t value_after_name(schema *s, uint32_t x, const json_value *of, uint32_t end) {
    const char *around = s->writing;
    s->writing = schema_path_of(s, x);
    uint32_t node = schema_arguments_value_of(s, x, of, end);
    schema_name_failure(s, s->writing, "pattern", false);
    s->writing = around;
    return node;
}

/* names whose closing tags end more than a member */
static const char *const outer_names[] = {"invoke", "tool_call"};

/* Whether this syntax can write the name. */
static bool arguments_take(const schema *s, str name) {
    assert(s != NULL);
    const grammar_arguments *a = s->arguments;
    if (a->has_elements && name.n > 0 &&
        (name.p[0] == '/' || str_is(name, outer_names[0]) || str_is(name, outer_names[1]))) {
        return false;
    }
    return a->syntax == GRAMMAR_SYNTAX_TAGS    ? is_tag_name(name)
           : a->syntax == GRAMMAR_SYNTAX_GEMMA ? style_is_word(name, "-.")
                                               : style_is_word(name, "");
}

static uint32_t listed(schema *s, str name, uint32_t x) {
    if (!arguments_take(s, name)) {
        return NFA_FAIL_NODE;
    }
    uint32_t end = s->arguments->has_elements
                       ? marked_text(s, name, marked_text(s, str_of(">"), NFA_RETURN_NODE))
                       : NFA_RETURN_NODE;
    uint32_t node = marked_text(s, name, value_after_name(s, x, member_of(s, s->reading, name), end));
    return s->arguments->syntax == GRAMMAR_SYNTAX_TAGS ? marked_text(s, s->arguments->before, node) : node;
}

/* Whether the reader tells an object from an array by the name of the first element. */
static bool is_told_by_name(const schema *s) {
    return s->reading != s->arguments->reader.schema &&
           (arguments_bits(s, s->reading) & GRAMMAR_READS_OBJECT) == 0;
}

/* Removes from `open` the names that the reader's schema lists and reads differently from
 * unlisted ones: another branch may list what is open here. */
static uint32_t read_alike(schema *s, uint32_t open) {
    const grammar_reader *r = &s->arguments->reader;
    const json_value *all = r->properties != NULL ? r->properties(r->user, s->reading) : NULL;
    const unsigned bits = arguments_bits(s, member_of(s, s->reading, unlisted_name));
    str *names = schema_keep(s, json_length(all) + 1, sizeof *names);
    uint32_t n = 0;
    for (json_member m = {0}; names != NULL && json_next(all, &m);) {
        if (arguments_bits(s, m.value) != bits) {
            names[n++] = str_of(m.name);
        }
    }
    return n > 0 ? dfa_combine(s->dfas, open, dfa_names(s->dfas, names, n), DFA_AND_NOT) : open;
}

/* The names that unlisted members may have. */
static uint32_t open_names(schema *s) {
    uint32_t names = dfa_pattern(s->dfas, str_of(STYLE_WORDS));
    if (s->arguments->has_elements) {
        const str outer[] = {str_of(outer_names[0]), str_of(outer_names[1]), str_of("item")};
        names =
            dfa_combine(s->dfas, names, dfa_names(s->dfas, outer, is_told_by_name(s) ? 3 : 2), DFA_AND_NOT);
    }
    return read_alike(s, names);
}

/* Never gets w->named (looks_at_names in arguments_members). */
static uint32_t schema_arguments_open_member(schema *s, const open_way *w) {
    uint32_t end = NFA_RETURN_NODE;
    if (s->arguments->has_elements) { /* the reader does not compare both names */
        end = build_node(s->b, NFA_STRING, NFA_RAW, dfa_place(s->dfas, w->names), 0,
                         marked_text(s, str_of(">"), end));
    }
    uint32_t value = value_after_name(s, w->value, member_of(s, s->reading, unlisted_name), end);
    uint32_t node = schema_open_name(s, w, w->names, NFA_RAW, value);
    return s->arguments->syntax == GRAMMAR_SYNTAX_TAGS ? marked_text(s, s->arguments->before, node) : node;
}

/* Adds what separates two members. */
static uint32_t separator(schema *s) {
    const grammar_arguments *a = s->arguments;
    if (a->syntax != GRAMMAR_SYNTAX_TAGS) {
        return marked_text(s, str_of(","), schema_space(s, NFA_RETURN_NODE));
    }
    return marked_text(s, a->between, NFA_RETURN_NODE);
}

/* Adds the members of an object, then next. */
static uint32_t arguments_members(schema *s, const object_part *o, const json_value *of, uint32_t next) {
    assert(s != NULL);
    s->reading = of;
    const member_writer w = {.listed = listed,
                             .open = schema_arguments_open_member,
                             .names = open_names,
                             .comma = separator(s),
                             .comma_may_miss = s->arguments->between_may_miss,
                             .leaves_out = true,
                             .has_words = true};
    return schema_members(s, o, &w, next);
}

static uint32_t object(schema *s, const object_part *o) {
    bool has_braces = s->arguments->syntax == GRAMMAR_SYNTAX_GEMMA;
    uint32_t end = has_braces ? marked_text(s, str_of("}"), NFA_RETURN_NODE) : NFA_RETURN_NODE;
    uint32_t node = arguments_members(s, o, s->arguments->reader.schema, end);
    return has_braces && node != NFA_FAIL_NODE ? marked_text(s, str_of("{"), node) : node;
}

static uint32_t objects(schema *s, const shape *x) {
    shape only = {.objects = x->objects};
    if (s->arguments->syntax == GRAMMAR_SYNTAX_JSON) {
        return schema_value(s, &only);
    }
    uint32_t *ways = schema_keep(s, only.objects.n + 1, sizeof *ways);
    for (uint32_t i = 0; ways != NULL && i < only.objects.n; i++) {
        ways[i] = object(s, &only.objects.p[i]);
    }
    return ways != NULL && only.objects.n > 0 ? build_split(s->b, ways, only.objects.n) : NFA_FAIL_NODE;
}

/* The arguments of a custom tool: one member with a text that a grammar describes, in the
 * syntax of a model's format. */

/* Makes the rule of the text, spelled as the syntax requires. */
static uint32_t text_rule(schema *s) {
    const grammar_arguments *a = s->arguments;
    uint32_t rule = s->b->a.rules.n, first = s->b->a.nodes.n;
    compile_rule(s->b, a->kind, a->rule);
    if (s->b->failed != QUIRE_OK) {
        return rule;
    }
    switch (a->syntax) {
    case GRAMMAR_SYNTAX_JSON:
        respell_json(s->b, first);
        return rule;
    case GRAMMAR_SYNTAX_PYTHON:
        respell_python(s->b, first);
        return rule;
    default:
        return s->avoid == DFA_ANY ? rule : avoid_rule(s->dfas, rule, first, s->avoid);
    }
}

static uint32_t json(schema *s, uint32_t rule) {
    uint32_t end = schema_literal(s, "\"", schema_space(s, schema_literal(s, "}", NFA_RETURN_NODE)));
    uint32_t value = schema_space(s, schema_literal(s, "\"", build_call(s->b, rule, end)));
    uint32_t name = schema_json_name(s, s->arguments->member, schema_space(s, schema_literal(s, ":", value)));
    return schema_literal(s, "{", schema_space(s, name));
}

static uint32_t tagged(schema *s, uint32_t rule) {
    const grammar_arguments *a = s->arguments;
    uint32_t end = a->has_elements ? marked_text(s, a->member, schema_literal(s, ">", NFA_RETURN_NODE))
                                   : NFA_RETURN_NODE;
    uint32_t value = build_call(s->b, rule, marked_text(s, a->behind, end));
    uint32_t node = marked_text(s, a->string_middle.n > 0 ? a->string_middle : a->middle, value);
    return marked_text(s, a->before, marked_text(s, a->member, node));
}

static uint32_t gemma(schema *s, uint32_t rule) {
    const grammar_arguments *a = s->arguments;
    uint32_t end = marked_text(s, a->quote, schema_literal(s, "}", NFA_RETURN_NODE));
    uint32_t value = marked_text(s, a->quote, build_call(s->b, rule, end));
    return schema_literal(s, "{", marked_text(s, a->member, schema_literal(s, ":", schema_space(s, value))));
}

static uint32_t python(schema *s, uint32_t rule) {
    uint32_t value = build_call(s->b, rule, schema_literal(s, "\"", NFA_RETURN_NODE));
    return marked_text(s, s->arguments->member, schema_literal(s, "=\"", value));
}

/* The arguments as one text of a grammar; the node ends in RETURN. */
static uint32_t argument_text(schema *s) {
    uint32_t rule = text_rule(s);
    if (s->b->failed != QUIRE_OK) {
        return NFA_FAIL_NODE;
    }
    switch (s->arguments->syntax) {
    case GRAMMAR_SYNTAX_TAGS:
        return tagged(s, rule);
    case GRAMMAR_SYNTAX_GEMMA:
        return gemma(s, rule);
    case GRAMMAR_SYNTAX_PYTHON:
        return python(s, rule);
    default:
        return json(s, rule);
    }
}

/* Values between tags that may contain elements: a tag per member of an object, by name,
 * and a tag "item" per item of an array (GRAMMAR_SYNTAX_TAGS with has_elements).
 *
 * The reader's schema decides what elements are, else the first one's name. Objects and
 * arrays that the reader would misinterpret, or whose values it would type by another
 * schema, are written as JSON. */

static const char item_name[] = "item";

/* ---- which values are elements ---- */

static bool lists_item(const object_part *o) {
    bool lists = false;
    for (uint32_t i = 0; i < o->layers.n; i++) {
        for (uint32_t k = 0; k < o->layers.p[i].names.n; k++) {
            lists = lists || str_is(o->layers.p[i].names.p[k].name, item_name);
        }
    }
    return lists;
}

static bool object_nests(const schema *s, const object_part *o, unsigned bits) {
    bool is_said = (bits & GRAMMAR_READS_OBJECT) != 0,
         nests = is_said || ((bits & GRAMMAR_READS_ARRAY) == 0 && !lists_item(o));
    /* otherwise names would have to be told apart */
    nests = nests && o->max > 0 && o->rules.n == 0 && o->min <= o->required.n + 1;
    for (uint32_t i = 0; i < o->layers.n; i++) {
        nests = nests && o->layers.p[i].patterns.n == 0;
    }
    /* a reader that takes all as strings looks for no elements */
    nests = nests && bits != GRAMMAR_READS_STRING;
    for (uint32_t i = 0; i < o->required.n; i++) {
        nests =
            nests && arguments_take(s, o->required.p[i]) && (is_said || !str_is(o->required.p[i], item_name));
    }
    return nests;
}

static bool array_nests(const array_part *a, unsigned bits) {
    bool nests =
        (bits & GRAMMAR_READS_OBJECT) == 0 && bits != GRAMMAR_READS_STRING && a->max > 0 && !a->unique;
    for (uint32_t i = 0; i < a->layers.n; i++) {
        nests = nests && a->layers.p[i].prefix.n == 0;
    }
    return nests;
}

static uint32_t schema_elements_rule_of(schema *s, uint32_t x, const json_value *of) {
    for (uint32_t i = 0; i < s->elements.n && build_step(s->b, 1); i++) {
        if (s->elements.p[i].x == x && s->elements.p[i].of == of) {
            return s->elements.p[i].rule;
        }
    }
    uint32_t rule = build_rule(s->b);
    (void)NFA_ADD(s->b, s->elements, (element_rule){x, rule, of});
    return rule;
}

/* The part of a shape that is written as text: all but what nests. *nests: whether
 * something does. *is_empty: that may be empty, which is how the reader takes nothing
 * between the tags. */
static shape text_shape(schema *s, const shape *x, unsigned bits, bool *nests, bool *is_empty) {
    shape text = *x;
    text.objects.n = text.arrays.n = 0;
    *nests = *is_empty = false;
    for (uint32_t i = 0; i < x->objects.n; i++) {
        const object_part *o = &x->objects.p[i];
        bool in = object_nests(s, o, bits), by_name = (bits & GRAMMAR_READS_OBJECT) == 0;
        if ((!in || (by_name && o->min == 0)) && PART_ADD(s, text.objects, *o)) {
            text.objects.p[text.objects.n - 1].max = in ? 0 : o->max;
        }
        *nests = *nests || in;
        *is_empty = *is_empty || (in && !by_name && o->min == 0 && o->required.n == 0);
    }
    for (uint32_t i = 0; i < x->arrays.n; i++) {
        const array_part *a = &x->arrays.p[i];
        bool in = array_nests(a, bits), by_name = (bits & GRAMMAR_READS_ARRAY) == 0;
        if ((!in || (by_name && a->min == 0)) && PART_ADD(s, text.arrays, *a)) {
            text.arrays.p[text.arrays.n - 1].max = in ? 0 : a->max;
        }
        *nests = *nests || in;
        *is_empty = *is_empty || (in && !by_name && a->min == 0 && a->contains.n == 0);
    }
    *is_empty = *is_empty && (bits & GRAMMAR_READS_STRING) == 0;
    return text;
}

/* An object or array that is empty, which takes a level like any other. */
static uint32_t nothing_inside(schema *s, uint32_t end) {
    if (!NFA_ADD(s->b, s->b->a.objects, (nfa_object){.comma = NFA_FAIL_NODE})) {
        return NFA_FAIL_NODE;
    }
    return build_node(s->b, NFA_OBJECT, NFA_RAW, s->b->a.objects.n - 1, 0, end);
}

static uint32_t element_value(schema *s, uint32_t x, const json_value *of, uint32_t end) {
    bool nests, is_empty;
    unsigned bits = arguments_bits(s, of);
    const shape text = text_shape(s, expr_shape(s, x), bits, &nests, &is_empty);
    uint32_t node = arguments_text(s, &text, bits, end);
    node = is_empty ? build_split2(s->b, nothing_inside(s, end), node) : node;
    return nests ? build_split2(s->b, build_call(s->b, schema_elements_rule_of(s, x, of), end), node) : node;
}

static uint32_t schema_elements_item(schema *s, uint32_t x) {
    const grammar_arguments *a = s->arguments;
    const grammar_reader *r = &a->reader;
    const json_value *of = r->items != NULL ? r->items(r->user, s->reading) : NULL;
    uint32_t end = marked_text(
        s, a->behind, marked_text(s, str_of(item_name), marked_text(s, str_of(">"), NFA_RETURN_NODE)));
    uint32_t value = element_value(s, x, of, end);
    return marked_text(s, a->before, marked_text(s, str_of(item_name), marked_text(s, a->middle, value)));
}

/* Objects and arrays with at least one member or item. */
static uint32_t containers(schema *s, const element_rule *e) {
    const shape *x = expr_shape(s, e->x);
    unsigned bits = arguments_bits(s, e->of);
    const item_writer w = {.item = schema_elements_item,
                           .comma = marked_text(s, s->arguments->between, NFA_RETURN_NODE),
                           .comma_may_miss = s->arguments->between_may_miss};
    uint32_t *ways = schema_keep(s, (size_t)x->objects.n + x->arrays.n + 1, sizeof *ways), n = 0;
    for (uint32_t i = 0; ways != NULL && i < x->objects.n; i++) {
        object_part o = x->objects.p[i];
        if (object_nests(s, &o, bits)) {
            o.min = o.min > 0 ? o.min : 1;
            ways[n++] = arguments_members(s, &o, e->of, NFA_RETURN_NODE);
        }
    }
    for (uint32_t i = 0; ways != NULL && i < x->arrays.n; i++) {
        array_part a = x->arrays.p[i];
        if (array_nests(&a, bits)) {
            a.min = a.min > 0 ? a.min : 1;
            s->reading = e->of;
            ways[n++] = schema_items_of(s, &a, &w, NFA_RETURN_NODE);
        }
    }
    return n > 0 ? build_split(s->b, ways, n) : NFA_FAIL_NODE;
}

/* Writes the rules of objects and arrays that element_value has met. */
static void element_write_rest(schema *s) {
    for (uint32_t i = 0; i < s->elements.n && s->b->failed == QUIRE_OK; i++) {
        element_rule e = s->elements.p[i]; /* the list may move */
        s->writing = schema_path_of(s, e.x);
        build_rule_set(s->b, e.rule, containers(s, &e));
    }
}

/* ---- the part ---- */

void compile_arguments(parts *p, const grammar_arguments *a) {
    static const value_style styles[] = {[GRAMMAR_SYNTAX_JSON] = STYLE_JSON,
                                         [GRAMMAR_SYNTAX_TAGS] = STYLE_JSON,
                                         [GRAMMAR_SYNTAX_GEMMA] = STYLE_GEMMA,
                                         [GRAMMAR_SYNTAX_PYTHON] = STYLE_PYTHON};
    schema s;
    build *b = p->b;
    uint32_t rule = build_rule(b);
    schema_open(&s, b, &p->dfas, a->schema);
    s.parts = p;
    s.style = styles[a->syntax];
    s.arguments = a;
    s.avoid = a->syntax != GRAMMAR_SYNTAX_JSON ? avoided(&s, a) : DFA_ANY;
    if (a->member.n > 0) {
        uint32_t text = argument_text(&s);
        build_rule_set(b, rule, text);
        schema_close(&s);
        return;
    }
    const shape none = {.objects = {&(object_part){.max = 0}, 1}};
    const shape *x = a->schema == NULL ? &none : expr_shape(&s, expr_schema(&s, a->schema, 0, ""));
    build_rule_set(b, rule, b->failed == QUIRE_OK ? objects(&s, x) : NFA_FAIL_NODE);
    element_write_rest(&s);
    schema_write_rest(&s);
    schema_name_failure(&s, s.writing, "properties", false);
    schema_close(&s);
}
