/* Keywords of JSON Schema: the shape of one schema object.
 *
 * First come the keywords that say something about one value by themselves: they fill one part of each type. Then those that apply other
 * schemas to the same value, one after the other. */
#include <stdio.h>

#include "grammar/formats.h"
#include "grammar/value_shape.h"

typedef struct reader {
    schema *s;
    expr e;
    shape out;
    /* the parts that direct keywords fill */
    number_part number;
    string_part string;
    array_part array;
    object_part object;
    array_layer items;
    object_layer members;
    bool no_number, no_string, no_array, no_object; /* nothing of the type is possible */
} reader;

static void refuse(reader *r, const char *keyword, const char *why) {
    schema_refuse(r->s, r->e.path, keyword, why);
}

static void malformed(reader *r, const char *keyword, const char *what) {
    (void)build_fail(r->s->b, QUIRE_INVALID, -1, "%s at \"%s\" must be %s", keyword, r->e.path, what);
}

/* The expression of the schema v below this one. */
static uint32_t below(reader *r, const char *keyword, const char *token, const json_value *v) {
    const char *path = schema_path(r->s, r->e.path, keyword);
    return expr_schema(r->s, v, r->e.base, token != NULL ? schema_path(r->s, path, token) : path);
}

static uint32_t below_at(reader *r, const char *keyword, size_t i, const json_value *v) {
    char token[24];
    (void)snprintf(token, sizeof token, "%zu", i);
    return below(r, keyword, token, v);
}

/* A count of at least 0. */
static bool whole(reader *r, const char *keyword, const json_value *v, uint32_t *out) {
    int64_t n;
    if (!json_whole(v, &n) || n < 0) {
        double d = json_double(v);
        if (json_is(v, JSON_KIND_REAL) && d >= 4294967294.0) {
            n = NFA_NONE - 1;
        } else {
            malformed(r, keyword, "a whole number of at least 0");
            return false;
        }
    }
    *out = n >= NFA_NONE ? NFA_NONE - 1 : (uint32_t)n;
    return true;
}

/* ---- one value by itself ---- */

static void read_type(reader *r, const char *keyword, const json_value *v) {
    bool list = json_is(v, JSON_KIND_ARRAY), number = false, integer = false;
    shape *o = &r->out;
    o->null = o->yes = o->no = false;
    r->no_string = r->no_array = r->no_object = true;
    for (size_t i = 0; i < (list ? json_length(v) : 1); i++) {
        str t = json_str(list ? json_at(v, i) : v);
        if (str_is(t, "null")) {
            o->null = true;
        } else if (str_is(t, "boolean")) {
            o->yes = o->no = true;
        } else if (str_is(t, "string")) {
            r->no_string = false;
        } else if (str_is(t, "array")) {
            r->no_array = false;
        } else if (str_is(t, "object")) {
            r->no_object = false;
        } else if (str_is(t, "number")) {
            number = true;
        } else if (str_is(t, "integer")) {
            integer = true;
        } else if (!str_is(t, "any") || r->s->draft > 4) {
            malformed(r, keyword, "one or several of null, boolean, object, array, number, integer, string");
        } else {
            number = o->null = o->yes = o->no = true;
            r->no_string = r->no_array = r->no_object = false;
        }
    }
    r->no_number = !number && !integer;
    r->number.integer = integer && !number;
}

static void read_bound(reader *r, const char *keyword, const json_value *v) {
    bool low = strstr(keyword, "inimum") != NULL, exclusive = keyword[0] == 'e';
    number_part one;
    memset(&one, 0, sizeof one);
    if (json_is(v, JSON_KIND_BOOL)) { /* draft 4: says of minimum or maximum whether it is excluded; read there */
        return;
    }
    if (!json_is(v, JSON_KIND_INT) && !json_is(v, JSON_KIND_REAL)) {
        malformed(r, keyword, "a number");
        return;
    }
    exclusive = exclusive || json_truth(json_get(r->e.value, low ? "exclusiveMinimum" : "exclusiveMaximum"));
    decimal d;
    if (!decimal_of(v, &d)) {
        double x = json_double(v);
        bool huge = x > 1e30 || x < -1e30;
        if (huge && (x < 0) == low) {
            return; /* no number that is written out goes that far; nor does one need to */
        }
        refuse(r, keyword, "the bound has over 40 digits before or behind the point");
        return;
    }
    one.has_lo = low;
    one.has_hi = !low;
    one.lo_open = one.hi_open = exclusive;
    one.lo = one.hi = d;
    number_part both;
    r->no_number = !number_intersect(r->s->b, &r->number, &one, &both) || r->no_number;
    r->number = both;
}

static void read_multiple(reader *r, const char *keyword, const json_value *v) {
    decimal d;
    number_part one, both;
    memset(&one, 0, sizeof one);
    uint64_t m = 0;
    if ((!json_is(v, JSON_KIND_INT) && !json_is(v, JSON_KIND_REAL)) || json_double(v) <= 0) {
        malformed(r, keyword, "a number over 0");
        return;
    }
    bool ok = decimal_of(v, &d);
    for (int i = 0; ok && i < d.n_int + d.n_frac; i++) {
        m = m * 10 + (uint64_t)(d.digits[i] - '0');
        ok = m <= 100000000;
    }
    if (!ok) {
        refuse(r, keyword, "the number has too many digits");
        return;
    }
    one.n_multiples = 1;
    one.multiples[0] = (number_multiple){(uint32_t)m, d.n_frac, false};
    (void)number_intersect(r->s->b, &r->number, &one, &both);
    r->number = both;
}

static void read_length(reader *r, const char *keyword, const json_value *v) {
    uint32_t n;
    if (whole(r, keyword, v, &n)) {
        *(keyword[1] == 'i' ? &r->string.min : &r->string.max) = n;
    }
}

static void and_pattern(reader *r, str regex) {
    r->string.dfa = dfa_combine(&r->s->dfas, r->string.dfa, dfa_pattern(&r->s->dfas, regex), DFA_AND);
    r->no_string = r->no_string || dfa_is_empty(&r->s->dfas, r->string.dfa);
}

/* A regex that isn't supported refuses its keyword; other failures end the compilation. */
static bool pattern_ok(reader *r, const char *keyword) {
    build *b = r->s->b;
    if (b->failed != QUIRE_UNSUPPORTED && b->failed != QUIRE_INVALID) {
        return b->failed == QUIRE_OK;
    }
    char why[sizeof b->err->message];
    (void)snprintf(why, sizeof why, "%s", b->err != NULL ? b->err->message : "");
    b->failed = QUIRE_OK;
    refuse(r, keyword, why);
    return false;
}

static void read_pattern(reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_TEXT)) {
        malformed(r, keyword, "a string");
        return;
    }
    and_pattern(r, json_str(v));
    (void)pattern_ok(r, keyword);
}

static void read_format(reader *r, const char *keyword, const json_value *v) {
    const schema_format *f = json_is(v, JSON_KIND_TEXT) ? schema_format_find(json_str(v).p) : NULL;
    if (f == NULL) {
        schema_note(r->s, r->e.path, keyword, GRAMMAR_ANNOTATION, "the standard has no such format");
        return;
    }
    if (f->regex == NULL) {
        refuse(r, keyword, "this format is not regular, or needs tables of characters");
        return;
    }
    strbuf whole_text = {0};
    if (strbuf_addf(&whole_text, "^(?:%s)$", f->regex) != QUIRE_OK) {
        (void)build_fail(r->s->b, QUIRE_NO_MEMORY, -1, "out of memory for the schema");
    } else {
        and_pattern(r, (str){whole_text.p, whole_text.n});
        (void)pattern_ok(r, keyword);
    }
    strbuf_deinit(&whole_text);
}

/* ---- arrays ---- */

static void read_item_list(reader *r, const char *keyword, const json_value *v) {
    for (size_t i = 0; i < json_length(v); i++) {
        uint32_t x = below_at(r, keyword, i, json_at(v, i)), *item = PART_PUSH(r->s, r->items.prefix);
        if (item != NULL) {
            *item = x;
        }
    }
}

static void read_items(reader *r, const char *keyword, const json_value *v) {
    if (json_is(v, JSON_KIND_ARRAY)) {
        if (r->items.prefix.n > 0) {
            malformed(r, keyword, "a schema beside prefixItems");
        }
        read_item_list(r, keyword, v);
        const json_value *rest = json_get(r->e.value, "additionalItems");
        if (rest != NULL) {
            r->items.rest = below(r, "additionalItems", NULL, rest);
            r->items.has_rest = true;
        }
        return;
    }
    r->items.rest = below(r, keyword, NULL, v);
    r->items.has_rest = true;
}

static void read_item_count(reader *r, const char *keyword, const json_value *v) {
    uint32_t n;
    if (whole(r, keyword, v, &n)) {
        *(keyword[1] == 'i' ? &r->array.min : &r->array.max) = n;
    }
}

static void read_contains(reader *r, const char *keyword, const json_value *v) {
    contains_rule c = {below(r, keyword, NULL, v), 1, NFA_NONE};
    const json_value *min = json_get(r->e.value, "minContains"), *max = json_get(r->e.value, "maxContains");
    if (r->s->draft >= 2019 &&
        ((min != NULL && !whole(r, "minContains", min, &c.min)) || (max != NULL && !whole(r, "maxContains", max, &c.max)))) {
        return;
    }
    if (c.min == 0 && c.max == NFA_NONE) {
        return;
    }
    contains_rule *to = PART_PUSH(r->s, r->array.contains);
    if (to != NULL) {
        *to = c;
    }
}

static void read_unique(reader *r, const char *keyword, const json_value *v) {
    (void)keyword;
    r->array.unique = json_truth(v);
}

/* ---- objects ---- */

static void read_properties(reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_OBJECT)) {
        malformed(r, keyword, "an object");
        return;
    }
    for (json_member m = {0}; json_next(v, &m);) {
        uint32_t x = below(r, keyword, m.name, m.value);
        named_expr *n = PART_PUSH(r->s, r->members.names);
        if (n != NULL) {
            *n = (named_expr){str_of(m.name), x};
        }
    }
}

static void read_patterns(reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_OBJECT)) {
        malformed(r, keyword, "an object");
        return;
    }
    for (json_member m = {0}; json_next(v, &m);) {
        pattern_expr p = {dfa_pattern(&r->s->dfas, str_of(m.name)), below(r, keyword, m.name, m.value)};
        if (!pattern_ok(r, keyword)) {
            return;
        }
        pattern_expr *to = PART_PUSH(r->s, r->members.patterns);
        if (to != NULL) {
            *to = p;
        }
    }
}

static void read_additional(reader *r, const char *keyword, const json_value *v) {
    r->members.rest = below(r, keyword, NULL, v);
    r->members.has_rest = true;
}

static bool is_listed(const object_part *o, str name) {
    for (uint32_t i = 0; i < o->required.n; i++) {
        if (str_eq(o->required.p[i], name)) {
            return true;
        }
    }
    return false;
}

static void add_required(reader *r, const char *keyword, const json_value *list, object_part *o) {
    if (!json_is(list, JSON_KIND_ARRAY)) {
        malformed(r, keyword, "a list of names");
        return;
    }
    for (size_t i = 0; i < json_length(list) && build_step(r->s->b, 1 + o->required.n); i++) {
        const json_value *name = json_at(list, i);
        str *to = json_is(name, JSON_KIND_TEXT) && !is_listed(o, json_str(name)) ? PART_PUSH(r->s, o->required) : NULL;
        if (to != NULL) {
            *to = json_str(name);
        } else if (!json_is(name, JSON_KIND_TEXT)) {
            malformed(r, keyword, "a list of names");
            return;
        }
    }
}

static void read_required(reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_BOOL) || r->s->draft > 4) { /* draft 3 has it beside each property */
        add_required(r, keyword, v, &r->object);
    }
}

static void read_member_count(reader *r, const char *keyword, const json_value *v) {
    uint32_t n;
    if (whole(r, keyword, v, &n)) {
        *(keyword[1] == 'i' ? &r->object.min : &r->object.max) = n;
    }
}

static void read_names(reader *r, const char *keyword, const json_value *v) {
    uint32_t x = below(r, keyword, NULL, v), *to = x != EXPR_ANY ? PART_PUSH(r->s, r->object.name_exprs) : NULL;
    if (to != NULL) {
        *to = x;
    }
}

/* ---- constants ---- */

static void const_array(schema *s, const json_value *v, shape *out) {
    array_part *a = PART_PUSH(s, out->arrays);
    if (a == NULL) {
        return;
    }
    *a = (array_part){.min = (uint32_t)json_length(v), .max = (uint32_t)json_length(v)};
    array_layer *l = PART_PUSH(s, a->layers);
    if (l == NULL) {
        return;
    }
    *l = (array_layer){.rest = EXPR_NEVER, .has_rest = true};
    for (size_t i = 0; i < json_length(v); i++) {
        uint32_t x = expr_const(s, json_at(v, i)), *item = PART_PUSH(s, l->prefix);
        if (item != NULL) {
            *item = x;
        }
    }
}

static void const_object(schema *s, const json_value *v, shape *out) {
    object_part *o = PART_PUSH(s, out->objects);
    if (o == NULL) {
        return;
    }
    *o = (object_part){.max = NFA_NONE};
    object_layer *l = PART_PUSH(s, o->layers);
    if (l == NULL) {
        return;
    }
    *l = (object_layer){.rest = EXPR_NEVER, .has_rest = true};
    for (json_member m = {0}; json_next(v, &m);) {
        uint32_t x = expr_const(s, m.value);
        named_expr *n = PART_PUSH(s, l->names);
        str *q = PART_PUSH(s, o->required);
        if (n != NULL && q != NULL) {
            *n = (named_expr){str_of(m.name), x};
            *q = str_of(m.name);
        }
    }
}

void schema_read_const(schema *s, const json_value *v, shape *out) {
    *out = (shape){0};
    switch (json_kind_of(v)) {
    case JSON_KIND_NULL:
        out->null = true;
        return;
    case JSON_KIND_BOOL:
        *(json_truth(v) ? &out->yes : &out->no) = true;
        return;
    case JSON_KIND_ARRAY:
        const_array(s, v, out);
        return;
    case JSON_KIND_OBJECT:
        const_object(s, v, out);
        return;
    case JSON_KIND_TEXT: {
        str text = json_str(v);
        string_part *p = PART_PUSH(s, out->strings);
        if (p != NULL) {
            *p = (string_part){dfa_names(&s->dfas, &text, 1), 0, NFA_NONE};
        }
        return;
    }
    default: {
        number_part *p = PART_PUSH(s, out->numbers);
        if (p != NULL) {
            *p = (number_part){.exact = true};
            if (!decimal_of(v, &p->lo)) {
                (void)build_fail(s->b, QUIRE_UNSUPPORTED, -1, "enum and const: a number has over 40 digits before or behind the point");
            }
        }
    }
    }
}

/* ---- other schemas for the same value ---- */

static void and_shape(reader *r, const shape *x) {
    shape both;
    shape_and(r->s, &r->out, x, &both);
    r->out = both;
}

static void read_const(reader *r, const char *keyword, const json_value *v) {
    shape one;
    (void)keyword;
    schema_read_const(r->s, v, &one);
    and_shape(r, &one);
}

static void read_enum(reader *r, const char *keyword, const json_value *v) {
    shape all = {0};
    size_t n = json_length(v), n_texts = 0;
    if (!json_is(v, JSON_KIND_ARRAY)) {
        malformed(r, keyword, "a list of values");
        return;
    }
    str *texts = schema_keep(r->s, n, sizeof *texts);
    for (size_t i = 0; i < n && texts != NULL && build_step(r->s->b, 1); i++) {
        shape one, sum;
        if (json_is(json_at(v, i), JSON_KIND_TEXT)) {
            texts[n_texts++] = json_str(json_at(v, i)); /* all strings are one automaton */
            continue;
        }
        schema_read_const(r->s, json_at(v, i), &one);
        shape_or(r->s, &all, &one, &sum);
        all = sum;
    }
    string_part *p = n_texts > 0 ? PART_PUSH(r->s, all.strings) : NULL;
    if (p != NULL) {
        *p = (string_part){dfa_names(&r->s->dfas, texts, (uint32_t)n_texts), 0, NFA_NONE};
    }
    and_shape(r, &all);
}

static void read_ref(reader *r, const char *keyword, const json_value *v) {
    uint32_t x;
    if (!json_is(v, JSON_KIND_TEXT)) {
        malformed(r, keyword, "a string");
    } else if (schema_ref(r->s, &r->e, keyword, json_str(v), &x)) {
        and_shape(r, expr_shape(r->s, x));
    }
}

static bool is_list(reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_ARRAY) || json_length(v) == 0) {
        malformed(r, keyword, "a list of at least one schema");
        return false;
    }
    return true;
}

static void read_all_of(reader *r, const char *keyword, const json_value *v) {
    for (size_t i = 0; is_list(r, keyword, v) && i < json_length(v) && r->s->b->failed == QUIRE_OK; i++) {
        and_shape(r, expr_shape(r->s, below_at(r, keyword, i, json_at(v, i))));
    }
}

static void read_any_of(reader *r, const char *keyword, const json_value *v) {
    shape all = {0}, sum, both;
    for (size_t i = 0; is_list(r, keyword, v) && i < json_length(v) && r->s->b->failed == QUIRE_OK; i++) {
        const shape *one = expr_shape(r->s, below_at(r, keyword, i, json_at(v, i)));
        shape_or(r->s, &all, one, &sum);
        if (r->s->annotations) { /* where several hold, all have evaluated */
            shape_and(r->s, &all, one, &both);
            shape_or(r->s, &sum, &both, &all);
        } else {
            all = sum;
        }
    }
    and_shape(r, &all);
}

#define ONE_OF_DEPTH 4 /* of required members that are looked at to tell alternatives apart */

/* x without what y allows, unless they are apart already; NULL or why it can't be said. */
static const char *take_out(schema *s, shape *x, const shape *y) {
    shape both, not ;
    shape_and(s, x, y, &both);
    if (s->b->failed != QUIRE_OK || shape_is_empty(s, &both, ONE_OF_DEPTH)) {
        return NULL;
    }
    const char *why = shape_not(s, y, &not );
    if (why == NULL) {
        shape_and(s, x, &not, &both);
        *x = both;
    }
    return why;
}

static void read_one_of(reader *r, const char *keyword, const json_value *v) {
    shape all = {0}, sum, one;
    size_t n = json_length(v);
    const char *why = NULL;
    if (!is_list(r, keyword, v)) {
        return;
    }
    for (size_t i = 0; i < n && why == NULL && r->s->b->failed == QUIRE_OK; i++) {
        shape_and(r->s, &r->out, expr_shape(r->s, below_at(r, keyword, i, json_at(v, i))), &one);
        for (size_t k = 0; k < n && why == NULL && r->s->b->failed == QUIRE_OK; k++) {
            why = k != i ? take_out(r->s, &one, expr_shape(r->s, below_at(r, keyword, k, json_at(v, k)))) : NULL;
        }
        shape_or(r->s, &all, &one, &sum);
        all = sum;
    }
    if (why != NULL) {
        char text[200];
        (void)snprintf(text, sizeof text, "two alternatives may hold at once, and %s", why);
        refuse(r, keyword, text);
        return;
    }
    r->out = all;
}

static void read_not(reader *r, const char *keyword, const json_value *v) {
    shape not ;
    const char *why = shape_not(r->s, expr_shape(r->s, below(r, keyword, NULL, v)), &not );
    if (why != NULL) {
        refuse(r, keyword, why);
        return;
    }
    and_shape(r, &not );
}

static void read_if(reader *r, const char *keyword, const json_value *v) {
    const json_value *then = json_get(r->e.value, "then"), *otherwise = json_get(r->e.value, "else");
    const shape *condition = expr_shape(r->s, below(r, keyword, NULL, v));
    shape not, yes, no, all;
    bool seen = json_has(r->e.value, "unevaluatedProperties") || json_has(r->e.value, "unevaluatedItems"); /* they see what it evaluates */
    if (!json_has(r->e.value, "then") && !json_has(r->e.value, "else") && !seen) {
        return;
    }
    const char *why = shape_not(r->s, condition, &not );
    if (why != NULL) {
        refuse(r, keyword, why);
        return;
    }
    yes = *condition;
    no = not ;
    if (json_has(r->e.value, "then")) {
        shape_and(r->s, condition, expr_shape(r->s, below(r, "then", NULL, then)), &yes);
    }
    if (json_has(r->e.value, "else")) {
        shape_and(r->s, &not, expr_shape(r->s, below(r, "else", NULL, otherwise)), &no);
    }
    shape_or(r->s, &yes, &no, &all);
    and_shape(r, &all);
}

/* Objects without the member, or with it and what it asks for: other names, or a schema. */
static void read_dependency(reader *r, const char *keyword, const char *name, const json_value *v) {
    shape without = {0}, with, both;
    object_part *o = PART_PUSH(r->s, without.objects);
    object_layer *l = NULL;
    if (o != NULL) {
        *o = (object_part){.max = NFA_NONE};
        l = PART_PUSH(r->s, o->layers);
    }
    named_expr *n = NULL;
    if (l != NULL) {
        *l = (object_layer){.rest = EXPR_ANY, .silent = true};
        n = PART_PUSH(r->s, l->names);
    }
    shape_any(r->s, &with);
    if (n == NULL || r->s->b->failed != QUIRE_OK) {
        return;
    }
    *n = (named_expr){str_of(name), EXPR_NEVER};
    without.null = without.yes = without.no = true; /* of other types nothing is asked */
    without.numbers.p = with.numbers.p;
    without.strings.p = with.strings.p;
    without.arrays.p = with.arrays.p;
    without.numbers.n = without.strings.n = without.arrays.n = 1;
    shape needs = {0};
    object_part *p = PART_PUSH(r->s, needs.objects);
    str *required = NULL;
    if (p != NULL) {
        *p = (object_part){.max = NFA_NONE};
        required = PART_PUSH(r->s, p->required);
    }
    if (required == NULL) {
        return;
    }
    *required = str_of(name);
    if (json_is(v, JSON_KIND_ARRAY)) {
        add_required(r, keyword, v, p);
    } else {
        shape_and(r->s, &needs, expr_shape(r->s, below(r, keyword, name, v)), &both);
        needs = both;
    }
    shape_or(r->s, &without, &needs, &both);
    and_shape(r, &both);
}

static void read_dependencies(reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_OBJECT)) {
        malformed(r, keyword, "an object");
        return;
    }
    for (json_member m = {0}; json_next(v, &m) && r->s->b->failed == QUIRE_OK;) {
        bool one_name = json_is(m.value, JSON_KIND_TEXT); /* draft 3 */
        if (one_name) {
            refuse(r, keyword, "a dependency must be a list of names or a schema");
            return;
        }
        read_dependency(r, keyword, m.name, m.value);
    }
}

/* Names and items that other keywords of this schema, and of those that it applies, say nothing about. */
static void read_unevaluated_properties(reader *r, const char *keyword, const json_value *v) {
    uint32_t x = below(r, keyword, NULL, v);
    for (uint32_t i = 0; i < r->out.objects.n; i++) {
        object_part o = r->out.objects.p[i];
        object_layer l = {.rest = x, .has_rest = true};
        for (uint32_t k = 0; k < o.layers.n; k++) {
            const object_layer *from = &o.layers.p[k];
            if (from->silent) {
                continue;
            }
            l.rest = from->has_rest ? EXPR_ANY : l.rest;
            for (uint32_t j = 0; j < from->names.n; j++) {
                named_expr *n = PART_PUSH(r->s, l.names);
                if (n != NULL) {
                    *n = (named_expr){from->names.p[j].name, EXPR_ANY};
                }
            }
            for (uint32_t j = 0; j < from->patterns.n; j++) {
                pattern_expr *p = PART_PUSH(r->s, l.patterns);
                if (p != NULL) {
                    *p = (pattern_expr){from->patterns.p[j].dfa, EXPR_ANY};
                }
            }
        }
        PARTS_JOIN(r->s, o.layers, ((PARTS(object_layer)){&l, 1}));
        r->out.objects.p[i] = o;
    }
}

static void read_unevaluated_items(reader *r, const char *keyword, const json_value *v) {
    uint32_t x = below(r, keyword, NULL, v);
    for (uint32_t i = 0; i < r->out.arrays.n; i++) {
        array_part a = r->out.arrays.p[i];
        array_layer l = {.rest = x, .has_rest = true};
        uint32_t n_prefix = 0;
        if ((a.contains.n > 0 || json_has(r->e.value, "contains")) && x != EXPR_ANY && r->s->draft >= 2020) {
            refuse(r, keyword, "which items `contains` has evaluated is not known in advance");
            return;
        }
        for (uint32_t k = 0; k < a.layers.n; k++) {
            const array_layer *from = &a.layers.p[k];
            if (!from->silent) {
                l.rest = from->has_rest ? EXPR_ANY : l.rest;
                n_prefix = from->prefix.n > n_prefix ? from->prefix.n : n_prefix;
            }
        }
        for (uint32_t k = 0; k < n_prefix; k++) {
            uint32_t *item = PART_PUSH(r->s, l.prefix);
            if (item != NULL) {
                *item = EXPR_ANY;
            }
        }
        PARTS_JOIN(r->s, a.layers, ((PARTS(array_layer)){&l, 1}));
        r->out.arrays.p[i] = a;
    }
}

static void read_refused(reader *r, const char *keyword, const json_value *v) {
    (void)v;
    refuse(r, keyword, "its target depends on how it is reached");
}

/* ---- the table ---- */

typedef enum phase { DIRECT, APPLIED, BESIDE, NOTHING } phase; /* BESIDE: read by another keyword */

typedef struct keyword_rule {
    const char *name;
    phase phase;
    void (*read)(reader *r, const char *keyword, const json_value *v);
    const char *how;
} keyword_rule;

static const keyword_rule keywords[] = {
    {"type", DIRECT, read_type, "only texts of these types"},
    {"minimum", DIRECT, read_bound, "an automaton over the digits"},
    {"maximum", DIRECT, read_bound, "an automaton over the digits"},
    {"exclusiveMinimum", DIRECT, read_bound, "an automaton over the digits"},
    {"exclusiveMaximum", DIRECT, read_bound, "an automaton over the digits"},
    {"multipleOf", DIRECT, read_multiple, "an automaton over the digits with their remainder"},
    {"minLength", DIRECT, read_length, "characters are counted"},
    {"maxLength", DIRECT, read_length, "characters are counted"},
    {"pattern", DIRECT, read_pattern, "an automaton over the characters"},
    {"format", DIRECT, read_format, "an automaton over the characters"},
    {"prefixItems", DIRECT, read_item_list, "items are counted"},
    {"items", DIRECT, read_items, "each item's own grammar"},
    {"additionalItems", BESIDE, NULL, "each item's own grammar"},
    {"minItems", DIRECT, read_item_count, "items are counted"},
    {"maxItems", DIRECT, read_item_count, "items are counted"},
    {"contains", DIRECT, read_contains, "matching items are counted"},
    {"minContains", BESIDE, NULL, "matching items are counted"},
    {"maxContains", BESIDE, NULL, "matching items are counted"},
    {"uniqueItems", DIRECT, read_unique, "each of finitely many values once"},
    {"properties", DIRECT, read_properties, "each member's own grammar"},
    {"patternProperties", DIRECT, read_patterns, "an automaton over the names"},
    {"additionalProperties", DIRECT, read_additional, "names that are not listed"},
    {"required", DIRECT, read_required, "the object ends when they have been"},
    {"minProperties", DIRECT, read_member_count, "members are counted"},
    {"maxProperties", DIRECT, read_member_count, "members are counted"},
    {"propertyNames", DIRECT, read_names, "an automaton over the names"},
    {"enum", APPLIED, read_enum, "only these texts"},
    {"const", APPLIED, read_const, "only this text"},
    {"$ref", APPLIED, read_ref, "the grammar of what it names"},
    {"$dynamicRef", APPLIED, read_ref, "the grammar of what it names"},
    {"$recursiveRef", APPLIED, read_refused, NULL},
    {"allOf", APPLIED, read_all_of, "constraints are joined"},
    {"anyOf", APPLIED, read_any_of, "alternatives side by side"},
    {"oneOf", APPLIED, read_one_of, "alternatives without what others allow"},
    {"not", APPLIED, read_not, "the negated constraints"},
    {"if", APPLIED, read_if, "alternatives with and without it"},
    {"then", BESIDE, NULL, "alternatives with and without it"},
    {"else", BESIDE, NULL, "alternatives with and without it"},
    {"dependentRequired", APPLIED, read_dependencies, "alternatives with and without the member"},
    {"dependentSchemas", APPLIED, read_dependencies, "alternatives with and without the member"},
    {"dependencies", APPLIED, read_dependencies, "alternatives with and without the member"},
    {"unevaluatedProperties", APPLIED, read_unevaluated_properties, "names that are not listed"},
    {"unevaluatedItems", APPLIED, read_unevaluated_items, "items that are not listed"},
    {"$defs", NOTHING, NULL, "schemas that others name"},
    {"definitions", NOTHING, NULL, "schemas that others name"},
    {"$id", NOTHING, NULL, "a name"},
    {"$anchor", NOTHING, NULL, "a name"},
    {"$dynamicAnchor", NOTHING, NULL, "a name"},
    {"$schema", NOTHING, NULL, "chooses the draft"},
};

#define N_KEYWORDS (sizeof keywords / sizeof *keywords)

static const keyword_rule *find_keyword(const char *name) {
    for (size_t i = 0; i < N_KEYWORDS; i++) {
        if (strcmp(keywords[i].name, name) == 0) {
            return &keywords[i];
        }
    }
    return NULL;
}

/* In drafts up to 7 nothing beside a $ref counts. */
static bool ref_alone(const reader *r) {
    return r->s->draft <= 7 && json_is(json_get(r->e.value, "$ref"), JSON_KIND_TEXT);
}

static void report(reader *r) {
    for (json_member m = {0}; r->s->b->options->keyword != NULL && json_next(r->e.value, &m);) {
        const keyword_rule *k = find_keyword(m.name);
        if (ref_alone(r) && strcmp(m.name, "$ref") != 0) {
            schema_note(r->s, r->e.path, m.name, GRAMMAR_ANNOTATION, "in this draft nothing beside $ref counts");
        } else if (k == NULL) {
            schema_note(r->s, r->e.path, m.name, GRAMMAR_ANNOTATION, "says nothing about the value");
        } else if (k->phase != NOTHING && k->how != NULL && !(k->read == read_format && schema_format_find(json_str(m.value).p) == NULL)) {
            schema_note(r->s, r->e.path, m.name, GRAMMAR_ENFORCED, k->how);
        }
    }
}

static void read_phase(reader *r, phase p) {
    for (size_t i = 0; i < N_KEYWORDS && r->s->b->failed == QUIRE_OK; i++) {
        const keyword_rule *k = &keywords[i];
        if (k->phase == p && json_has(r->e.value, k->name) && (!ref_alone(r) || k->read == read_ref)) {
            k->read(r, k->name, json_get(r->e.value, k->name));
        }
    }
}

/* Puts the parts of direct keywords into the shape. */
static void join_direct(reader *r) {
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

void schema_read(schema *s, uint32_t x, shape *out) {
    reader r = {.s = s, .e = s->exprs.p[x]};
    r.out.null = r.out.yes = r.out.no = true;
    r.string = (string_part){DFA_ANY, 0, NFA_NONE};
    r.array.max = r.object.max = NFA_NONE;
    r.items.rest = r.members.rest = EXPR_ANY;
    report(&r);
    read_phase(&r, DIRECT);
    join_direct(&r);
    read_phase(&r, APPLIED);
    *out = r.out;
}
