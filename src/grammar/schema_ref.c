/* Resolves $ref: resources with identifiers, anchors, JSON pointers. Only within the text
 * of the schema. */
#include <assert.h>
#include <stdio.h>

#include "grammar/schema_reader.h"
#include "grammar/value_shape.h"

#define MAX_REF 2000 /* bytes of the longest $ref */

/* Joins path and token by a slash; the result is kept. */
static const char *schema_path(schema *s, const char *path, const char *token) {
    size_t n = strlen(path), m = strlen(token), extra = 0;
    for (size_t i = 0; i < m; i++) {
        extra += token[i] == '/' || token[i] == '~';
    }
    char *out = schema_keep(s, n + m + extra + 2, 1), *to = out;
    if (out == NULL) {
        return "";
    }
    mem_copy(to, path, n);
    to += n;
    *to++ = '/';
    for (size_t i = 0; i < m; i++) {
        if (token[i] == '/' || token[i] == '~') {
            *to++ = '~';
            *to++ = token[i] == '/' ? '1' : '0';
        } else {
            *to++ = token[i];
        }
    }
    *to = 0;
    return out;
}

static bool has_scheme(str uri) {
    size_t i = 0;
    while (i < uri.n && uri.p[i] != ':' && uri.p[i] != '/' && uri.p[i] != '#') {
        i++;
    }
    return i > 0 && i < uri.n && uri.p[i] == ':';
}

static size_t schema_ref_find(str s, char c, size_t from) {
    while (from < s.n && s.p[from] != c) {
        from++;
    }
    return from;
}

/* Resolves ref, given without its fragment, against a base (RFC 3986, without dot
 * segments). */
static str schema_ref_resolve(schema *s, str base, str ref) {
    size_t keep = 0, scheme = schema_ref_find(base, ':', 0);
    if (ref.n == 0) {
        return base;
    }
    if (has_scheme(ref)) {
        return ref;
    }
    if (has_scheme(base)) {
        size_t authority = base.n - scheme > 2 && base.p[scheme + 1] == '/' && base.p[scheme + 2] == '/'
                               ? schema_ref_find(base, '/', scheme + 3)
                               : scheme + 1;
        keep = authority;
    }
    if (ref.p[0] != '/') { /* relative to the last slash of the path */
        size_t last = base.n;
        while (last > keep && base.p[last - 1] != '/') {
            last--;
        }
        keep = last > keep ? last : keep;
    }
    char *out = schema_keep(s, keep + ref.n + 1, 1);
    if (out == NULL) {
        return ref;
    }
    mem_copy(out, base.p, keep);
    mem_copy(out + keep, ref.p, ref.n);
    return (str){out, keep + ref.n};
}

bool schema_ref_alone(const schema *s, const json_value *v) {
    return s->draft <= 7 && json_is(json_get(v, "$ref"), JSON_KIND_TEXT);
}

static str identifier(const schema *s, const json_value *v) {
    if (s->draft <= 7 && json_has(v, "$ref")) {
        return (str){"", 0}; /* other keywords beside it do not count */
    }
    str id = json_get_str(v, s->draft == 4 ? "id" : "$id");
    return id;
}

static void add_anchor(schema *s, uint32_t resource, str name, const json_value *v, bool dynamic) {
    if (name.n > 0) {
        (void)NFA_ADD(s->b, s->anchors, (schema_anchor){resource, name, v, dynamic});
    }
}

/* Whether members with this name hold values instead of schemas. */
static bool holds_values(const char *name) {
    return strcmp(name, "enum") == 0 || strcmp(name, "const") == 0 || strcmp(name, "default") == 0 ||
           strcmp(name, "examples") == 0;
}

static bool holds_schemas(const char *name) {
    static const char *const names[] = {"properties",
                                        "patternProperties",
                                        "$defs",
                                        "definitions",
                                        "dependentSchemas",
                                        "dependencies",
                                        "items",
                                        "not",
                                        "if",
                                        "then",
                                        "else",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "additionalProperties",
                                        "additionalItems",
                                        "prefixItems",
                                        "contains",
                                        "propertyNames",
                                        "unevaluatedProperties",
                                        "unevaluatedItems"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void schema_ref_walk(schema *s, const json_value *v, uint32_t resource, bool is_schema,
                            bool is_stray) {
    if (!build_step(s->b, 1)) {
        return;
    }
    if (json_is(v, JSON_KIND_ARRAY)) {
        for (size_t i = 0; i < json_length(v); i++) {
            schema_ref_walk(s, json_at(v, i), resource, true, is_stray);
        }
        return;
    }
    if (!json_is(v, JSON_KIND_OBJECT)) {
        return;
    }
    str id = is_schema ? identifier(s, v) : (str){"", 0};
    size_t hash = schema_ref_find(id, '#', 0);
    if (hash > 0 && v != s->resources.p[0].root) {
        if (!NFA_ADD(s->b, s->resources,
                     (schema_resource){schema_ref_resolve(s, s->resources.p[resource].uri, (str){id.p, hash}),
                                       v, is_stray})) {
            return;
        }
        resource = s->resources.n - 1;
    }
    if (is_schema) {
        if (hash == 0 && id.n > 1) {
            add_anchor(s, resource, (str){id.p + 1, id.n - 1}, v, false);
        }
        if (s->draft >= 2019) {
            add_anchor(s, resource, json_get_str(v, "$anchor"), v, false);
        }
        if (s->draft >= 2020) {
            add_anchor(s, resource, json_get_str(v, "$dynamicAnchor"), v, true);
        }
    }
    for (json_member m = {0}; json_next(v, &m);) {
        s->annotations =
            s->annotations || (is_schema && s->draft >= 2019 && strncmp(m.name, "unevaluated", 11) == 0);
        bool names = strcmp(m.name, "properties") == 0 || strcmp(m.name, "patternProperties") == 0 ||
                     strcmp(m.name, "$defs") == 0 || strcmp(m.name, "definitions") == 0 ||
                     strcmp(m.name, "dependentSchemas") == 0 || strcmp(m.name, "dependencies") == 0;
        if (!is_schema || !holds_values(m.name)) {
            schema_ref_walk(s, m.value, resource, !(is_schema && names),
                            is_stray || (is_schema && !holds_schemas(m.name)));
        }
    }
}

void schema_find_resources(schema *s, const json_value *root) {
    assert(s != NULL);
    str id = identifier(s, root);
    if (NFA_ADD(s->b, s->resources, (schema_resource){{id.p, schema_ref_find(id, '#', 0)}, root, false})) {
        schema_ref_walk(s, root, 0, true, false);
    }
}

uint32_t schema_resource_of(const schema *s, const json_value *v, uint32_t base) {
    if (identifier(s, v).n > 0) {
        for (uint32_t i = 0; i < s->resources.n; i++) {
            if (s->resources.p[i].root == v) {
                return i;
            }
        }
    }
    return base;
}

/* Decodes percent escapes in a fragment; the result is kept and ends with a 0 byte.
 * False: it has a 0 byte, which no name has. */
static bool schema_ref_decode(schema *s, str fragment, str *out) {
    char *to = schema_keep(s, fragment.n + 1, 1);
    size_t n = 0;
    for (size_t i = 0; to != NULL && i < fragment.n; i++) {
        char c = fragment.p[i];
        if (c == '%' && i + 2 < fragment.n && hex_digit(fragment.p[i + 1]) >= 0 &&
            hex_digit(fragment.p[i + 2]) >= 0) {
            c = (char)(hex_digit(fragment.p[i + 1]) << 4 | hex_digit(fragment.p[i + 2]));
            i += 2;
        }
        to[n++] = c;
    }
    *out = (str){to, n};
    return to != NULL && (n == 0 || memchr(to, 0, n) == NULL);
}

/* Follows one step of a JSON pointer; buffer is for the unescaped token. */
static const json_value *step_into(const json_value *v, str token, char *buffer) {
    size_t n = 0;
    for (size_t i = 0; i < token.n && n < MAX_REF; i++) {
        char c = token.p[i];
        if (c == '~' && i + 1 < token.n && (token.p[i + 1] == '0' || token.p[i + 1] == '1')) {
            c = token.p[++i] == '0' ? '~' : '/';
        }
        buffer[n++] = c;
    }
    buffer[n] = 0;
    if (json_is(v, JSON_KIND_ARRAY)) {
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
            if (buffer[i] < '0' || buffer[i] > '9' || at > 1000000) {
                return NULL;
            }
            at = at * 10 + (size_t)(buffer[i] - '0');
        }
        return n > 0 ? json_at(v, at) : NULL;
    }
    return json_get(v, buffer);
}

static bool follow_pointer(schema *s, uint32_t resource, str pointer, uint32_t *out) {
    char buffer[MAX_REF + 1];
    const json_value *v = s->resources.p[resource].root;
    const char *path = "";
    for (size_t at = 0; at < pointer.n && v != NULL;) {
        size_t end = schema_ref_find(pointer, '/', at + 1);
        v = step_into(v, (str){pointer.p + at + 1, end - at - 1}, buffer);
        path = schema_path(s, path, buffer);
        at = end;
        if (v != NULL && at < pointer.n && json_is(v, JSON_KIND_OBJECT)) {
            resource = schema_resource_of(s, v, resource);
        }
    }
    if (v == NULL || (!json_is(v, JSON_KIND_OBJECT) && !json_is(v, JSON_KIND_BOOL))) {
        return false;
    }
    *out = expr_schema(s, v, resource, path);
    return true;
}

static bool follow_anchor(schema *s, uint32_t resource, str name, bool dynamic, const char **why,
                          uint32_t *out) {
    const schema_anchor *found = NULL;
    uint32_t n_dynamic = 0;
    for (uint32_t i = 0; i < s->anchors.n; i++) {
        const schema_anchor *a = &s->anchors.p[i];
        bool same = str_eq(a->name, name);
        n_dynamic += same && a->dynamic;
        found = same && a->resource == resource ? a : found;
    }
    if (found != NULL && dynamic && found->dynamic && n_dynamic > 1) {
        *why = "its target depends on the path by which it is reached";
        return false;
    }
    *why = "nothing has this anchor";
    if (found != NULL) {
        *out = expr_schema(s, found->value, resource, schema_path(s, "#", name.p));
    }
    return found != NULL;
}

bool schema_ref(schema *s, const expr *from, const char *keyword, str ref, uint32_t *out) {
    size_t hash = schema_ref_find(ref, '#', 0);
    str fragment = hash < ref.n ? (str){ref.p + hash + 1, ref.n - hash - 1} : (str){"", 0};
    const char *why = "it names another document, and none is fetched";
    uint32_t resource = from->base, found = UINT32_MAX;
    if (ref.n > MAX_REF) {
        why = "it is longer than 2000 bytes";
    } else if (hash == 0) {
        found = resource;
    } else {
        str uri = schema_ref_resolve(s, s->resources.p[resource].uri, (str){ref.p, hash});
        for (uint32_t i = 0; i < s->resources.n; i++) {
            const schema_resource *r = &s->resources.p[i];
            bool better = found == UINT32_MAX || (s->resources.p[found].is_stray && !r->is_stray);
            found = better && str_eq(r->uri, uri) ? i : found;
        }
    }
    if (found != UINT32_MAX) {
        why = "it points to nothing";
        /* decoded before it is split (RFC 6901, section 6) */
        bool decoded = schema_ref_decode(s, fragment, &fragment);
        bool pointer = fragment.n == 0 || fragment.p[0] == '/';
        if (!decoded) {
            why = "it contains a 0 byte";
        } else if (pointer
                       ? follow_pointer(s, found, fragment, out)
                       : follow_anchor(s, found, fragment, strcmp(keyword, "$dynamicRef") == 0, &why, out)) {
            return true;
        }
    }
    schema_refuse(s, from->path, keyword, why);
    return false;
}

/* The keywords of JSON Schema as a table, and the shape of a schema object. */

void reader_refuse(schema_reader *r, const char *keyword, const char *why) {
    schema_refuse(r->s, r->e.path, keyword, why);
}

void reader_malformed(schema_reader *r, const char *keyword, const char *what) {
    (void)build_fail(r->s->b, QUIRE_INVALID, -1, "%s at \"%s\" must be %s", keyword, r->e.path, what);
}

/* The expression for the subschema v. */
uint32_t reader_below(schema_reader *r, const char *keyword, const char *token, const json_value *v) {
    const char *path = schema_path(r->s, r->e.path, keyword);
    return expr_schema(r->s, v, r->e.base, token != NULL ? schema_path(r->s, path, token) : path);
}

uint32_t reader_below_at(schema_reader *r, const char *keyword, size_t i, const json_value *v) {
    char token[24];
    (void)snprintf(token, sizeof token, "%zu", i);
    return reader_below(r, keyword, token, v);
}

/* Reads a count of at least 0. */
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
    int since; /* first draft that has it; ignored in earlier ones */
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
    {"minLength", 4, DIRECT, keyword_count, "characters are counted"},
    {"maxLength", 4, DIRECT, keyword_count, "characters are counted"},
    {"pattern", 4, DIRECT, keyword_pattern, "an automaton over the characters"},
    {"format", 4, DIRECT, keyword_format, "an automaton over the characters"},
    {"prefixItems", 2020, DIRECT, keyword_item_list, "items are counted"},
    {"items", 4, DIRECT, keyword_items, "each item's own grammar"},
    {"additionalItems", 4, BESIDE, NULL, "each item's own grammar"},
    {"minItems", 4, DIRECT, keyword_count, "items are counted"},
    {"maxItems", 4, DIRECT, keyword_count, "items are counted"},
    {"contains", 6, DIRECT, keyword_contains, "matching items are counted"},
    {"minContains", 2019, BESIDE, NULL, "matching items are counted"},
    {"maxContains", 2019, BESIDE, NULL, "matching items are counted"},
    {"uniqueItems", 4, DIRECT, keyword_unique, "each of finitely many values once"},
    {"properties", 4, DIRECT, keyword_properties, "each member's own grammar"},
    {"patternProperties", 4, DIRECT, keyword_patterns, "an automaton over the names"},
    {"additionalProperties", 4, DIRECT, keyword_additional, "names that are not listed"},
    {"required", 4, DIRECT, keyword_required, "the object ends when they have been"},
    {"minProperties", 4, DIRECT, keyword_count, "members are counted"},
    {"maxProperties", 4, DIRECT, keyword_count, "members are counted"},
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

/* Joins the parts of direct keywords with the shape. */
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
    shape_and(s, &any, &one, &joined); /* drops empty alternatives, and copies */
    r->out = joined;
}

/* The keyword to blame if joining direct keywords takes too much: the one with the
 * largest automaton. */
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
