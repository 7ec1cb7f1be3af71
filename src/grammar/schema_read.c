/* Keywords of JSON Schema: the table of them, and the shape of one schema object. */
#include <stdio.h>

#include "grammar/formats.h"
#include "grammar/schema_reader.h"

void reader_refuse(schema_reader *r, const char *keyword, const char *why) {
    schema_refuse(r->s, r->e.path, keyword, why);
}

void reader_malformed(schema_reader *r, const char *keyword, const char *what) {
    (void)build_fail(r->s->b, QUIRE_INVALID, -1, "%s at \"%s\" must be %s", keyword, r->e.path, what);
}

/* The expression of the schema v below this one. */
uint32_t reader_below(schema_reader *r, const char *keyword, const char *token, const json_value *v) {
    const char *path = schema_path(r->s, r->e.path, keyword);
    return expr_schema(r->s, v, r->e.base, token != NULL ? schema_path(r->s, path, token) : path);
}

uint32_t reader_below_at(schema_reader *r, const char *keyword, size_t i, const json_value *v) {
    char token[24];
    (void)snprintf(token, sizeof token, "%zu", i);
    return reader_below(r, keyword, token, v);
}

/* A count of at least 0. */
bool reader_count(schema_reader *r, const char *keyword, const json_value *v, uint32_t *out) {
    int64_t n;
    if (!json_whole(v, &n) || n < 0) {
        double d = json_double(v);
        if (json_numeric(v) && d >= 4294967294.0) {
            n = NFA_NONE - 1;
        } else {
            reader_malformed(r, keyword, "a whole number of at least 0");
            return false;
        }
    }
    *out = n >= NFA_NONE ? NFA_NONE - 1 : (uint32_t)n;
    return true;
}

/* ---- the table ---- */

typedef enum phase { DIRECT, APPLIED, BESIDE, NOTHING } phase; /* BESIDE: read by another keyword */

typedef struct keyword_rule {
    const char *name;
    int since; /* the first draft that has it; in earlier ones it means nothing */
    phase phase;
    void (*read)(schema_reader *r, const char *keyword, const json_value *v);
    const char *how;
} keyword_rule;

static const keyword_rule keywords[] = {
    {"$schema", 4, DIRECT, keyword_dialect, NULL},
    {"type", 4, DIRECT, keyword_type, "only texts of these types"},
    {"minimum", 4, DIRECT, keyword_bound, "an automaton over the digits"},
    {"maximum", 4, DIRECT, keyword_bound, "an automaton over the digits"},
    {"exclusiveMinimum", 4, DIRECT, keyword_bound, "an automaton over the digits"},
    {"exclusiveMaximum", 4, DIRECT, keyword_bound, "an automaton over the digits"},
    {"multipleOf", 4, DIRECT, keyword_multiple, "an automaton over the digits with their remainder"},
    {"minLength", 4, DIRECT, keyword_length, "characters are counted"},
    {"maxLength", 4, DIRECT, keyword_length, "characters are counted"},
    {"pattern", 4, DIRECT, keyword_pattern, "an automaton over the characters"},
    {"format", 4, DIRECT, keyword_format, "an automaton over the characters"},
    {"prefixItems", 2020, DIRECT, keyword_item_list, "items are counted"},
    {"items", 4, DIRECT, keyword_items, "each item's own grammar"},
    {"additionalItems", 4, BESIDE, NULL, "each item's own grammar"},
    {"minItems", 4, DIRECT, keyword_item_count, "items are counted"},
    {"maxItems", 4, DIRECT, keyword_item_count, "items are counted"},
    {"contains", 6, DIRECT, keyword_contains, "matching items are counted"},
    {"minContains", 2019, BESIDE, NULL, "matching items are counted"},
    {"maxContains", 2019, BESIDE, NULL, "matching items are counted"},
    {"uniqueItems", 4, DIRECT, keyword_unique, "each of finitely many values once"},
    {"properties", 4, DIRECT, keyword_properties, "each member's own grammar"},
    {"patternProperties", 4, DIRECT, keyword_patterns, "an automaton over the names"},
    {"additionalProperties", 4, DIRECT, keyword_additional, "names that are not listed"},
    {"required", 4, DIRECT, keyword_required, "the object ends when they have been"},
    {"minProperties", 4, DIRECT, keyword_member_count, "members are counted"},
    {"maxProperties", 4, DIRECT, keyword_member_count, "members are counted"},
    {"propertyNames", 6, DIRECT, keyword_names, "an automaton over the names"},
    {"enum", 4, APPLIED, keyword_enum, "only these texts"},
    {"const", 6, APPLIED, keyword_const, "only this text"},
    {"$ref", 4, APPLIED, keyword_ref, "the grammar of what it names"},
    {"$dynamicRef", 2020, APPLIED, keyword_ref, "the grammar of what it names"},
    {"$recursiveRef", 2019, APPLIED, keyword_refused, NULL},
    {"allOf", 4, APPLIED, keyword_all_of, "constraints are joined"},
    {"anyOf", 4, APPLIED, keyword_any_of, "alternatives side by side"},
    {"oneOf", 4, APPLIED, keyword_one_of, "alternatives without what others allow"},
    {"not", 4, APPLIED, keyword_not, "the negated constraints"},
    {"if", 7, APPLIED, keyword_if, "alternatives with and without it"},
    {"then", 7, BESIDE, NULL, "alternatives with and without it"},
    {"else", 7, BESIDE, NULL, "alternatives with and without it"},
    {"dependentRequired", 2019, APPLIED, keyword_dependencies, "alternatives with and without the member"},
    {"dependentSchemas", 2019, APPLIED, keyword_dependencies, "alternatives with and without the member"},
    {"dependencies", 4, APPLIED, keyword_dependencies, "alternatives with and without the member"},
    {"unevaluatedProperties", 2019, APPLIED, keyword_unevaluated_properties, "names that are not listed"},
    {"unevaluatedItems", 2019, APPLIED, keyword_unevaluated_items, "items that are not listed"},
    {"$defs", 2019, NOTHING, NULL, "schemas that others name"},
    {"definitions", 4, NOTHING, NULL, "schemas that others name"},
    {"$id", 6, NOTHING, NULL, "a name"},
    {"$anchor", 2019, NOTHING, NULL, "a name"},
    {"$dynamicAnchor", 2020, NOTHING, NULL, "a name"},
};

#define N_KEYWORDS (sizeof keywords / sizeof *keywords)

static const keyword_rule *find_keyword(const schema *s, const char *name) {
    for (size_t i = 0; i < N_KEYWORDS; i++) {
        if (keywords[i].since <= s->draft && strcmp(keywords[i].name, name) == 0) {
            return &keywords[i];
        }
    }
    return NULL;
}

static void schema_read_report(schema_reader *r) {
    bool alone = schema_ref_alone(r->s, r->e.value);
    for (json_member m = {0}; r->s->b->options->keyword != NULL && json_next(r->e.value, &m);) {
        const keyword_rule *k = find_keyword(r->s, m.name);
        if (alone && strcmp(m.name, "$ref") != 0) {
            schema_note(r->s, r->e.path, m.name, GRAMMAR_ANNOTATION,
                        "in this draft all keywords beside $ref are ignored");
        } else if (k == NULL) {
            schema_note(r->s, r->e.path, m.name, GRAMMAR_ANNOTATION, "says nothing about the value");
        } else if (k->phase != NOTHING && k->how != NULL &&
                   !(k->read == keyword_format && schema_format_find(json_str(m.value).p) == NULL)) {
            schema_note(r->s, r->e.path, m.name, GRAMMAR_ENFORCED, k->how);
        }
    }
}

static void read_phase(schema_reader *r, phase p) {
    bool alone = schema_ref_alone(r->s, r->e.value);
    for (size_t i = 0; i < N_KEYWORDS && r->s->b->failed == QUIRE_OK; i++) {
        const keyword_rule *k = &keywords[i];
        if (k->phase == p && k->since <= r->s->draft && json_has(r->e.value, k->name) &&
            (!alone || k->read == keyword_ref || k->read == keyword_dialect)) {
            k->read(r, k->name, json_get(r->e.value, k->name));
            schema_name_failure(r->s, r->e.path, k->name, false);
        }
    }
}

/* Puts the parts of direct keywords into the shape. */
static void join_direct(schema_reader *r) {
    schema *s = r->s;
    shape any = {0}, given = r->out, one = {0}, joined;
    shape_any(s, &any);
    if (r->items.prefix.n > 0 || r->items.has_rest) {
        PARTS_JOIN(s, r->array.layers, ((PARTS(array_layer)){&r->items, 1}));
    }
    if (r->members.names.n > 0 || r->members.patterns.n > 0 || r->members.has_rest) {
        PARTS_JOIN(s, r->object.layers, ((PARTS(object_layer)){&r->members, 1}));
    }
    one = (shape){.null = given.null, .yes = given.yes, .no = given.no};
    one.numbers.p = &r->number;
    one.numbers.n = !r->no_number;
    one.strings.p = &r->string;
    one.strings.n = !r->no_string;
    one.arrays.p = &r->array;
    one.arrays.n = !r->no_array;
    one.objects.p = &r->object;
    one.objects.n = !r->no_object;
    shape_and(s, &any, &one, &joined); /* leaves out what is empty, and copies */
    r->out = joined;
}

/* The keyword that is named where joining the direct ones takes too much: the one whose
 * automaton is the largest. */
static const char *schema_read_largest_of(const json_value *v) {
    static const char *const names[] = {"pattern", "format", "multipleOf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (json_has(v, names[i])) {
            return names[i];
        }
    }
    return "type";
}

void schema_read(schema *s, uint32_t x, shape *out) {
    schema_reader r = {.s = s, .e = s->exprs.p[x]};
    r.out.null = r.out.yes = r.out.no = true;
    r.string = (string_part){DFA_ANY, 0, NFA_NONE, false};
    r.array.max = r.object.max = NFA_NONE;
    r.items.rest = r.members.rest = EXPR_ANY;
    schema_read_report(&r);
    read_phase(&r, DIRECT);
    join_direct(&r);
    schema_name_failure(s, r.e.path, schema_read_largest_of(r.e.value), false);
    read_phase(&r, APPLIED);
    *out = r.out;
}
