/* Keywords that apply other schemas, or constants, to the same value. */
#include <assert.h>
#include <stdio.h>

#include "grammar/schema_reader.h"

/* ---- constants ---- */

static void const_array(schema *s, const json_value *v, shape *out) {
    array_part a = {.min = (uint32_t)json_length(v), .max = (uint32_t)json_length(v)};
    array_layer l = {.rest = EXPR_NEVER, .has_rest = true, .silent = true};
    for (size_t i = 0; i < json_length(v); i++) {
        (void)PART_ADD(s, l.prefix, expr_const(s, json_at(v, i)));
    }
    (void)PART_ADD(s, a.layers, l);
    (void)PART_ADD(s, out->arrays, a);
}

static void const_object(schema *s, const json_value *v, shape *out) {
    object_part o = {.max = NFA_NONE};
    object_layer l = {.rest = EXPR_NEVER, .has_rest = true, .silent = true};
    for (json_member m = {0}; json_next(v, &m);) {
        (void)PART_ADD(s, l.names, (named_expr){str_of(m.name), expr_const(s, m.value)});
        (void)PART_ADD(s, o.required, str_of(m.name));
    }
    (void)PART_ADD(s, o.layers, l);
    (void)PART_ADD(s, out->objects, o);
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
        (void)PART_ADD(s, out->strings, (string_part){dfa_names(s->dfas, &text, 1), 0, NFA_NONE, false});
        return;
    }
    default: {
        number_part p = {.exact = true};
        if (!schema_decimal(s, v, &p.lo)) {
            (void)build_fail(s->b, QUIRE_UNSUPPORTED, -1,
                             "enum and const: a number has over %d digits before or after the point",
                             DECIMAL_DIGITS);
        }
        (void)PART_ADD(s, out->numbers, p);
    }
    }
}

/* ---- other schemas for the same value ---- */

static void and_shape(schema_reader *r, const shape *x) {
    shape both;
    shape_and(r->s, &r->out, x, &both);
    r->out = both;
}

void keyword_const(schema_reader *r, const char *keyword, const json_value *v) {
    assert(r != NULL);
    shape one;
    (void)keyword;
    schema_read_const(r->s, v, &one);
    and_shape(r, &one);
}

void keyword_enum(schema_reader *r, const char *keyword, const json_value *v) {
    shape all = {0};
    size_t n = json_length(v), n_texts = 0;
    if (!json_is(v, JSON_KIND_ARRAY)) {
        reader_malformed(r, keyword, "a list of values");
        return;
    }
    str *texts = schema_keep(r->s, n, sizeof *texts);
    for (size_t i = 0; i < n && texts != NULL && build_step(r->s->b, 1); i++) {
        shape one, sum;
        if (json_is(json_at(v, i), JSON_KIND_TEXT)) {
            texts[n_texts++] = json_str(json_at(v, i)); /* all strings become one automaton */
            continue;
        }
        schema_read_const(r->s, json_at(v, i), &one);
        shape_or(r->s, &all, &one, &sum);
        all = sum;
    }
    if (n_texts > 0) {
        uint32_t names = dfa_names(r->s->dfas, texts, (uint32_t)n_texts);
        (void)PART_ADD(r->s, all.strings, (string_part){names, 0, NFA_NONE, false});
    }
    and_shape(r, &all);
}

void keyword_ref(schema_reader *r, const char *keyword, const json_value *v) {
    uint32_t x;
    if (!json_is(v, JSON_KIND_TEXT)) {
        reader_malformed(r, keyword, "a string");
    } else if (schema_ref(r->s, &r->e, keyword, json_str(v), &x)) {
        and_shape(r, expr_shape(r->s, x));
    }
}

static bool is_list(schema_reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_ARRAY) || json_length(v) == 0) {
        reader_malformed(r, keyword, "a list of at least one schema");
        return false;
    }
    return true;
}

void keyword_all_of(schema_reader *r, const char *keyword, const json_value *v) {
    for (size_t i = 0; is_list(r, keyword, v) && i < json_length(v) && r->s->b->failed == QUIRE_OK; i++) {
        and_shape(r, expr_shape(r->s, reader_below_at(r, keyword, i, json_at(v, i))));
    }
}

void keyword_any_of(schema_reader *r, const char *keyword, const json_value *v) {
    shape all = {0}, sum, both;
    for (size_t i = 0; is_list(r, keyword, v) && i < json_length(v) && r->s->b->failed == QUIRE_OK; i++) {
        const shape *one = expr_shape(r->s, reader_below_at(r, keyword, i, json_at(v, i)));
        shape_or(r->s, &all, one, &sum);
        if (r->s->annotations) { /* if several hold, all have evaluated members */
            shape_and(r->s, &all, one, &both);
            shape_or(r->s, &sum, &both, &all);
        } else {
            all = sum;
        }
    }
    and_shape(r, &all);
}

#define ONE_OF_DEPTH 4 /* levels of required members that are compared to tell alternatives apart */

/* Removes from x what y allows, unless they are disjoint. Returns NULL, or why that is
 * impossible. */
static const char *schema_applied_take_out(schema *s, shape *x, const shape *y) {
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

void keyword_one_of(schema_reader *r, const char *keyword, const json_value *v) {
    shape all = {0}, sum, one;
    size_t n = json_length(v);
    const char *why = NULL;
    if (!is_list(r, keyword, v)) {
        return;
    }
    for (size_t i = 0; i < n && why == NULL && r->s->b->failed == QUIRE_OK; i++) {
        shape_and(r->s, &r->out, expr_shape(r->s, reader_below_at(r, keyword, i, json_at(v, i))), &one);
        for (size_t k = 0; k < n && why == NULL && r->s->b->failed == QUIRE_OK; k++) {
            why = k != i ? schema_applied_take_out(
                               r->s, &one, expr_shape(r->s, reader_below_at(r, keyword, k, json_at(v, k))))
                         : NULL;
        }
        shape_or(r->s, &all, &one, &sum);
        all = sum;
    }
    if (why != NULL) {
        char text[200];
        (void)snprintf(text, sizeof text, "two alternatives may hold at once, and %s", why);
        reader_refuse(r, keyword, text);
        return;
    }
    r->out = all;
}

void keyword_not(schema_reader *r, const char *keyword, const json_value *v) {
    assert(r != NULL);
    shape not ;
    const char *why = shape_not(r->s, expr_shape(r->s, reader_below(r, keyword, NULL, v)), &not );
    if (why != NULL) {
        reader_refuse(r, keyword, why);
        return;
    }
    and_shape(r, &not );
}

void keyword_if(schema_reader *r, const char *keyword, const json_value *v) {
    assert(r != NULL);
    const json_value *then = json_get(r->e.value, "then"), *otherwise = json_get(r->e.value, "else");
    const shape *condition = expr_shape(r->s, reader_below(r, keyword, NULL, v));
    shape not, yes, no, all;
    bool seen = r->s->annotations; /* some unevaluated* may depend on what it evaluates */
    if (!json_has(r->e.value, "then") && !json_has(r->e.value, "else") && !seen) {
        return;
    }
    const char *why = shape_not(r->s, condition, &not );
    if (why != NULL) {
        reader_refuse(r, keyword, why);
        return;
    }
    shape_quiet(r->s, condition, false, &yes);
    no = not ;
    if (json_has(r->e.value, "then")) {
        shape holds = yes;
        shape_and(r->s, &holds, expr_shape(r->s, reader_below(r, "then", NULL, then)), &yes);
    }
    if (json_has(r->e.value, "else")) {
        shape_and(r->s, &not, expr_shape(r->s, reader_below(r, "else", NULL, otherwise)), &no);
    }
    shape_or(r->s, &yes, &no, &all);
    and_shape(r, &all);
}

/* Objects without the member, or with it and what it then requires: names or a schema. */
static void read_dependency(schema_reader *r, const char *keyword, const char *name, const json_value *v) {
    shape without = {0}, with, both;
    object_part o = {.max = NFA_NONE};
    object_layer l = {.rest = EXPR_ANY, .silent = true};
    (void)PART_ADD(r->s, l.names, (named_expr){str_of(name), EXPR_NEVER});
    (void)PART_ADD(r->s, o.layers, l);
    (void)PART_ADD(r->s, without.objects, o);
    shape_any(r->s, &with);
    if (r->s->b->failed != QUIRE_OK) {
        return;
    }
    without.null = without.yes = without.no = true; /* other types are unrestricted */
    without.numbers.p = with.numbers.p;
    without.strings.p = with.strings.p;
    without.arrays.p = with.arrays.p;
    without.numbers.n = without.strings.n = without.arrays.n = 1;
    shape needs = {0};
    object_part p = {.max = NFA_NONE};
    (void)PART_ADD(r->s, p.required, str_of(name));
    if (json_is(v, JSON_KIND_ARRAY)) {
        reader_add_required(r, keyword, v, &p);
    }
    (void)PART_ADD(r->s, needs.objects, p);
    if (!json_is(v, JSON_KIND_ARRAY)) {
        shape_and(r->s, &needs, expr_shape(r->s, reader_below(r, keyword, name, v)), &both);
        needs = both;
    }
    shape_or(r->s, &without, &needs, &both);
    and_shape(r, &both);
}

void keyword_dependencies(schema_reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_OBJECT)) {
        reader_malformed(r, keyword, "an object");
        return;
    }
    for (json_member m = {0}; json_next(v, &m) && r->s->b->failed == QUIRE_OK;) {
        bool one_name = json_is(m.value, JSON_KIND_TEXT); /* draft 3 */
        if (one_name) {
            reader_refuse(r, keyword, "a dependency must be a list of names or a schema");
            return;
        }
        read_dependency(r, keyword, m.name, m.value);
    }
}

/* Applies to names (and items) that no other keyword of this schema, or of those it
 * applies, covers. */
void keyword_unevaluated_properties(schema_reader *r, const char *keyword, const json_value *v) {
    assert(r != NULL);
    uint32_t x = reader_below(r, keyword, NULL, v);
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
                (void)PART_ADD(r->s, l.names, (named_expr){from->names.p[j].name, EXPR_ANY});
            }
            for (uint32_t j = 0; j < from->patterns.n; j++) {
                (void)PART_ADD(r->s, l.patterns, (pattern_expr){from->patterns.p[j].dfa, EXPR_ANY});
            }
        }
        PARTS_JOIN(r->s, o.layers, ((PARTS(object_layer)){&l, 1}));
        r->out.objects.p[i] = o;
    }
}

void keyword_unevaluated_items(schema_reader *r, const char *keyword, const json_value *v) {
    assert(r != NULL);
    uint32_t x = reader_below(r, keyword, NULL, v);
    for (uint32_t i = 0; i < r->out.arrays.n; i++) {
        array_part a = r->out.arrays.p[i];
        array_layer l = {.rest = x, .has_rest = true};
        uint32_t n_prefix = 0;
        /* an item that counts is evaluated */
        for (uint32_t k = 0; k < a.contains.n && r->s->draft >= 2020; k++) {
            l.rest = a.contains.p[k].silent ? l.rest : expr_or(r->s, l.rest, a.contains.p[k].expr);
        }
        for (uint32_t k = 0; k < a.layers.n; k++) {
            const array_layer *from = &a.layers.p[k];
            if (!from->silent) {
                l.rest = from->has_rest ? EXPR_ANY : l.rest;
                n_prefix = from->prefix.n > n_prefix ? from->prefix.n : n_prefix;
            }
        }
        for (uint32_t k = 0; k < n_prefix; k++) {
            (void)PART_ADD(r->s, l.prefix, EXPR_ANY);
        }
        PARTS_JOIN(r->s, a.layers, ((PARTS(array_layer)){&l, 1}));
        r->out.arrays.p[i] = a;
    }
}

void keyword_refused(schema_reader *r, const char *keyword, const json_value *v) {
    (void)v;
    reader_refuse(r, keyword, "its target depends on the path by which it is reached");
}
