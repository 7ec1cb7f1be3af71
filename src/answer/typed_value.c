#include "answer/typed_value.h"

#include <assert.h>
#include <strings.h>

#include "answer/json_stream.h"

enum { MAX_SCHEMA_DEPTH = 16, MAX_SCHEMA_BRANCHES = 64, NULL_BYTES = 16 };

/* Resolves a local reference, "#" with or without a JSON pointer; NULL if it leads
 * nowhere. */
static const json_value *follow(const json_value *root, str pointer) {
    const json_value *at = root;
    char name[256];
    size_t n = 0;
    if (pointer.n == 0 || pointer.p[0] != '#' || (pointer.n > 1 && pointer.p[1] != '/')) {
        return NULL;
    }
    for (size_t i = 2; i <= pointer.n && pointer.n > 1; i++) {
        if (i < pointer.n && pointer.p[i] != '/') {
            char c = pointer.p[i];
            if (c == '~' && i + 1 < pointer.n) {
                c = pointer.p[++i] == '1' ? '/' : '~';
            }
            if (n + 1 == sizeof name) {
                return NULL;
            }
            name[n++] = c;
            continue;
        }
        name[n] = 0;
        n = 0;
        at = json_get(at, name);
    }
    return at;
}

static const json_value *resolve(const json_value *schema, const json_value *root) {
    for (int i = 0; i < MAX_SCHEMA_DEPTH && json_is(json_get(schema, "$ref"), JSON_KIND_TEXT); i++) {
        schema = follow(root, json_get_str(schema, "$ref"));
    }
    return schema;
}

static unsigned type_named(str name) {
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"string", TYPE_STRING}, {"null", TYPE_NULL},      {"boolean", TYPE_BOOLEAN},
                 {"number", TYPE_NUMBER}, {"integer", TYPE_NUMBER}, {"object", TYPE_OBJECT},
                 {"array", TYPE_ARRAY}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (str_is(name, types[i].name)) {
            return types[i].type;
        }
    }
    return 0;
}

static unsigned type_of(const json_value *v) {
    static const unsigned types[] = {
        [JSON_KIND_NULL] = TYPE_NULL,   [JSON_KIND_BOOL] = TYPE_BOOLEAN, [JSON_KIND_INT] = TYPE_NUMBER,
        [JSON_KIND_REAL] = TYPE_NUMBER, [JSON_KIND_WIDE] = TYPE_NUMBER,  [JSON_KIND_TEXT] = TYPE_STRING,
        [JSON_KIND_ARRAY] = TYPE_ARRAY, [JSON_KIND_OBJECT] = TYPE_OBJECT};
    return types[json_kind_of(v)];
}

static unsigned types_within(const json_value *schema, const json_value *root, int depth, int *budget);

static unsigned types_of_branches(const json_value *list, const json_value *root, int depth, int *budget) {
    unsigned types = 0;
    for (size_t i = 0; i < json_length(list) && *budget > 0; i++) {
        types |= types_within(json_at(list, i), root, depth + 1, budget);
    }
    return types;
}

static unsigned types_within(const json_value *schema, const json_value *root, int depth, int *budget) {
    unsigned types = 0;
    schema = resolve(schema, root);
    --*budget;
    if (depth > MAX_SCHEMA_DEPTH || !json_is(schema, JSON_KIND_OBJECT)) {
        return 0;
    }
    const json_value *type = json_get(schema, "type"), *values = json_get(schema, "enum");
    if (json_is(type, JSON_KIND_TEXT)) {
        types = type_named(json_str(type));
    }
    for (size_t i = 0; json_is(type, JSON_KIND_ARRAY) && i < json_length(type); i++) {
        types |= type_named(json_str(json_at(type, i)));
    }
    for (size_t i = 0; types == 0 && json_is(values, JSON_KIND_ARRAY) && i < json_length(values); i++) {
        types |= type_of(json_at(values, i));
    }
    if (types == 0 && json_has(schema, "const")) {
        types = type_of(json_get(schema, "const"));
    }
    static const char *const branches[] = {"anyOf", "oneOf", "allOf"};
    for (size_t i = 0; types == 0 && i < sizeof branches / sizeof *branches; i++) {
        types = types_of_branches(json_get(schema, branches[i]), root, depth, budget);
    }
    if (types == 0 && json_has(schema, "properties")) {
        types = TYPE_OBJECT;
    }
    return types;
}

unsigned schema_types(const json_value *schema, const json_value *root) {
    int budget = MAX_SCHEMA_BRANCHES;
    return types_within(schema, root, 0, &budget);
}

/* The first schema, of this one and its branches, that has the keyword; NULL: none. */
static const json_value *holder(const json_value *schema, const json_value *root, const char *keyword,
                                int depth, int *budget) {
    static const char *const branches[] = {"anyOf", "oneOf", "allOf"};
    schema = resolve(schema, root);
    --*budget;
    if (depth > MAX_SCHEMA_DEPTH || json_has(schema, keyword)) {
        return depth > MAX_SCHEMA_DEPTH ? NULL : schema;
    }
    for (size_t i = 0; i < sizeof branches / sizeof *branches; i++) {
        const json_value *list = json_get(schema, branches[i]);
        for (size_t k = 0; k < json_length(list) && *budget > 0; k++) {
            const json_value *found = holder(json_at(list, k), root, keyword, depth + 1, budget);
            if (found != NULL) {
                return found;
            }
        }
    }
    return NULL;
}

const json_value *schema_properties(const json_value *schema, const json_value *root) {
    int budget = MAX_SCHEMA_BRANCHES;
    return json_get(holder(schema, root, "properties", 0, &budget), "properties");
}

const json_value *schema_member(const json_value *schema, const json_value *root, str name) {
    int budget = MAX_SCHEMA_BRANCHES;
    char key[256];
    const json_value *listed = schema_properties(schema, root);
    if (listed != NULL && name.n < sizeof key && memchr(name.p, 0, name.n) == NULL) {
        memcpy(key, name.p, name.n);
        key[name.n] = 0;
        const json_value *member = json_get(listed, key);
        if (member != NULL) {
            return member;
        }
    }
    const json_value *at = holder(schema, root, "additionalProperties", 0, &budget);
    at = json_get(at, "additionalProperties");
    return json_is(at, JSON_KIND_OBJECT) ? at : NULL;
}

const json_value *schema_items(const json_value *schema, const json_value *root) {
    int budget = MAX_SCHEMA_BRANCHES;
    const json_value *at = holder(schema, root, "items", 0, &budget);
    return json_get(at, "items");
}

/* ---- values ---- */

void typed_begin(typed_value *v, unsigned types) {
    assert(v != NULL);
    v->types = types;
    v->is_streaming = false;
    strbuf_clear(&v->text);
}

/* Makes the value a string, and writes the text so far. */
static quire_err typed_value_stream(typed_value *v, strbuf *out) {
    v->is_streaming = true;
    TRY(strbuf_add_char(out, '"'));
    TRY(escape_add(out, v->text.p, v->text.n));
    strbuf_clear(&v->text);
    return QUIRE_OK;
}

quire_err typed_add(typed_value *v, const char *p, size_t n, strbuf *out) {
    assert(v != NULL);
    bool is_string =
        (v->types & TYPE_STRING) != 0 && ((v->types & TYPE_NULL) == 0 || v->text.n + n > NULL_BYTES);
    if (!v->is_streaming && is_string) {
        TRY(typed_value_stream(v, out));
    }
    if (!v->is_streaming) {
        quire_err e = strbuf_add(&v->text, p, n);
        if (e != QUIRE_TOO_LARGE) {
            return e;
        }
        TRY(typed_value_stream(v, out));
    }
    return escape_add(out, p, n);
}

static str typed_value_trimmed(str s) {
    while (s.n > 0 && strchr(" \n\t\r", s.p[s.n - 1]) != NULL) {
        s.n--;
    }
    while (s.n > 0 && strchr(" \n\t\r", s.p[0]) != NULL) {
        s.p++;
        s.n--;
    }
    return s;
}

static bool typed_value_reads(str s, const char *word) {
    return s.n == strlen(word) && strncasecmp(s.p, word, s.n) == 0;
}

static void take_back(strbuf *out, size_t n) {
    out->n = n;
    if (out->p != NULL) {
        out->p[n] = 0;
    }
}

/* Appends the text if it is JSON. *done false: it is not, and nothing was appended. */
static quire_err add_json(const typed_value *v, str s, strbuf *out, bool *done) {
    json_stream json = {0};
    json_stream_result result;
    size_t before = out->n, n_read;
    if ((v->types & TYPE_BOOLEAN) != 0 && (typed_value_reads(s, "true") || typed_value_reads(s, "false"))) {
        *done = true;
        return strbuf_add_str(out, typed_value_reads(s, "true") ? "true" : "false");
    }
    if (s.n == 0 && (v->types & (TYPE_OBJECT | TYPE_ARRAY)) != 0) {
        *done = true;
        return strbuf_add_str(out, (v->types & TYPE_OBJECT) != 0 ? "{}" : "[]");
    }
    TRY(json_stream_add(&json, s, out, &result, &n_read));
    if (result == JSON_STREAM_MORE) { /* a number or word has no closing character: end it */
        TRY(json_stream_push(&json, ' ', out, &result));
    }
    *done = n_read == s.n && (result == JSON_STREAM_DONE || result == JSON_STREAM_BEFORE);
    if (!*done || (v->types == 0 && s.p[0] == '"')) {
        *done = false;
        take_back(out, before);
    }
    return QUIRE_OK;
}

/* Appends a list or object that is written as a Python literal; *done as add_json. */
static quire_err add_python(str s, strbuf *out, bool *done) {
    python_literal literal = {0};
    json_stream_result result = JSON_STREAM_MORE;
    size_t before = out->n, i = 0;
    for (; i < s.n && result == JSON_STREAM_MORE; i++) {
        TRY(python_literal_push(&literal, s.p[i], out, &result));
    }
    *done = i == s.n && result == JSON_STREAM_DONE;
    if (!*done) {
        take_back(out, before);
    }
    return QUIRE_OK;
}

quire_err typed_end(typed_value *v, strbuf *out) {
    str s = typed_value_trimmed((str){v->text.p, v->text.n});
    bool done = false;
    if (v->is_streaming) {
        return strbuf_add_char(out, '"');
    }
    if ((v->types & TYPE_NULL) != 0 && typed_value_reads(s, "null")) {
        return strbuf_add_str(out, "null");
    }
    if ((v->types & TYPE_STRING) == 0) {
        TRY(add_json(v, s, out, &done));
    }
    if (!done && (v->types & (TYPE_OBJECT | TYPE_ARRAY)) != 0) {
        TRY(add_python(s, out, &done));
    }
    if (done) {
        return QUIRE_OK;
    }
    TRY(typed_value_stream(v, out));
    return strbuf_add_char(out, '"');
}
