/* Negates shapes: for each type all alternatives must fail; one fails if any of its
 * constraints does. */

#include "grammar/value_shape.h"
#include "json/json_out.h"
#include <assert.h>

/* Each function appends to *out the alternatives in which one part fails. Returns NULL,
 * or why that is impossible. */

static const char *number_not(schema *s, const number_part *p, shape *out) {
    number_part one[2 + NUMBER_MULTIPLES];
    uint32_t n = 0;
    memset(one, 0, sizeof one);
    if (p->exact || p->has_lo) {
        one[n++] = (number_part){.has_hi = true, .hi = p->lo, .hi_open = p->exact || !p->lo_open};
    }
    if (p->exact || p->has_hi) {
        one[n++] =
            (number_part){.has_lo = true, .lo = p->exact ? p->lo : p->hi, .lo_open = p->exact || !p->hi_open};
    }
    for (uint32_t i = 0; i < p->n_multiples && !p->exact; i++) {
        one[n] = (number_part){.n_multiples = 1, .multiples = {p->multiples[i]}};
        one[n++].multiples[0].negated = !p->multiples[i].negated;
    }
    if (p->integer && !p->exact) {
        (void)PART_ADD(s, out->numbers, (number_part){.n_multiples = 1, .multiples = {{1, 0, true}}});
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)PART_ADD(s, out->numbers, one[i]);
    }
    return NULL;
}

static void push_string(schema *s, shape *out, string_part p) {
    (void)PART_ADD(s, out->strings, p);
}

/* The texts that the dfa rejects, without those that it rejects wrongly. */
static uint32_t value_shape_not_outside(schema *s, uint32_t texts, bool is_loose) {
    uint32_t not = dfa_combine(s->dfas, DFA_ANY, texts, DFA_AND_NOT);
    return is_loose ? dfa_combine(s->dfas, not, dfa_pattern(s->dfas, str_of(FORMAT_LEAP)), DFA_AND_NOT)
                    : not ;
}

/* The texts that are certainly none of the shape's strings. texts: the dfa of
 * shape_strings. */
static uint32_t strings_outside(schema *s, const shape *x, uint32_t texts) {
    assert(x != NULL);
    bool is_loose = false;
    for (uint32_t i = 0; i < x->strings.n; i++) {
        is_loose = is_loose || x->strings.p[i].is_loose;
    }
    return value_shape_not_outside(s, texts, is_loose);
}

static const char *string_not(schema *s, const string_part *p, shape *out) {
    if (p->min > 0) {
        push_string(s, out, (string_part){DFA_ANY, 0, p->min - 1, false});
    }
    if (p->max != NFA_NONE) {
        push_string(s, out, (string_part){DFA_ANY, p->max + 1, NFA_NONE, false});
    }
    if (p->dfa != DFA_ANY) {
        uint32_t not = value_shape_not_outside(s, p->dfa, p->is_loose);
        if (p->is_loose || !dfa_is_empty(s->dfas, not )) {
            push_string(s, out, (string_part){not, 0, NFA_NONE, p->is_loose});
        }
    }
    return NULL;
}

static void push_array(schema *s, shape *out, uint32_t min, uint32_t max) {
    (void)PART_ADD(s, out->arrays, (array_part){.min = min, .max = max});
}

static void push_contains(schema *s, shape *out, contains_rule c) {
    array_part to = {.max = NFA_NONE};
    (void)PART_ADD(s, to.contains, c);
    (void)PART_ADD(s, out->arrays, to);
}

/* Adds arrays whose item i fails. */
static void push_item(schema *s, shape *out, uint32_t i, uint32_t failing) {
    array_part to = {.min = i + 1, .max = NFA_NONE};
    array_layer l = {.rest = EXPR_ANY, .silent = true};
    for (uint32_t k = 0; k <= i; k++) {
        (void)PART_ADD(s, l.prefix, k < i ? EXPR_ANY : failing);
    }
    (void)PART_ADD(s, to.layers, l);
    (void)PART_ADD(s, out->arrays, to);
}

static const char *array_not(schema *s, const array_part *p, shape *out) {
    if (p->unique) {
        return "uniqueItems cannot be negated";
    }
    if (p->min > 0) {
        push_array(s, out, 0, p->min - 1);
    }
    if (p->max != NFA_NONE) {
        push_array(s, out, p->max + 1, NFA_NONE);
    }
    for (uint32_t i = 0; i < p->contains.n; i++) {
        contains_rule c = p->contains.p[i];
        if (c.min > 0) {
            push_contains(s, out, (contains_rule){c.expr, 0, c.min - 1, c.from, true});
        }
        if (c.max < NFA_NONE - 1) { /* a larger number is never written */
            push_contains(s, out, (contains_rule){c.expr, c.max + 1, NFA_NONE, c.from, true});
        }
    }
    for (uint32_t i = 0; i < p->layers.n; i++) {
        const array_layer *l = &p->layers.p[i];
        for (uint32_t k = 0; k < l->prefix.n; k++) {
            if (l->prefix.p[k] != EXPR_ANY) {
                push_item(s, out, k, expr_not(s, l->prefix.p[k]));
            }
        }
        if (l->rest == EXPR_NEVER) {
            push_array(s, out, l->prefix.n + 1, NFA_NONE);
        } else if (l->rest != EXPR_ANY) {
            push_contains(s, out, (contains_rule){expr_not(s, l->rest), 1, NFA_NONE, l->prefix.n, true});
        }
    }
    return NULL;
}

static void push_member(schema *s, shape *out, str name, uint32_t value, bool required) {
    object_part to = {.max = NFA_NONE};
    object_layer l = {.rest = EXPR_ANY, .silent = true};
    (void)PART_ADD(s, l.names, (named_expr){name, value});
    (void)PART_ADD(s, to.layers, l);
    if (required) {
        (void)PART_ADD(s, to.required, name);
    }
    (void)PART_ADD(s, out->objects, to);
}

/* Adds objects with some member that has such a name and value. */
static void push_rule(schema *s, shape *out, uint32_t names, uint32_t value) {
    if (value == EXPR_NEVER || dfa_is_empty(s->dfas, names)) {
        return;
    }
    object_part to = {.min = 1, .max = NFA_NONE};
    (void)PART_ADD(s, to.rules, (member_rule){names, value});
    (void)PART_ADD(s, out->objects, to);
}

/* The names to which a layer's `rest` applies. */
static uint32_t rest_names(schema *s, const object_layer *l) {
    uint32_t names = DFA_ANY;
    str *listed = schema_keep(s, l->names.n + 1, sizeof *listed);
    for (uint32_t k = 0; k < l->names.n && listed != NULL; k++) {
        listed[k] = l->names.p[k].name;
    }
    if (listed != NULL && l->names.n > 0) {
        names = dfa_combine(s->dfas, names, dfa_names(s->dfas, listed, l->names.n), DFA_AND_NOT);
    }
    for (uint32_t k = 0; k < l->patterns.n; k++) {
        names = dfa_combine(s->dfas, names, l->patterns.p[k].dfa, DFA_AND_NOT);
    }
    return names;
}

static const char *object_not(schema *s, const object_part *p, shape *out) {
    if (p->min > 0) {
        (void)PART_ADD(s, out->objects, (object_part){.max = p->min - 1});
    }
    if (p->max != NFA_NONE) {
        (void)PART_ADD(s, out->objects, (object_part){.min = p->max + 1, .max = NFA_NONE});
    }
    for (uint32_t i = 0; i < p->required.n; i++) {
        push_member(s, out, p->required.p[i], EXPR_NEVER, false);
    }
    for (uint32_t i = 0; i < p->layers.n; i++) {
        const object_layer *l = &p->layers.p[i];
        for (uint32_t k = 0; k < l->names.n; k++) {
            if (l->names.p[k].expr != EXPR_ANY) {
                push_member(s, out, l->names.p[k].name, expr_not(s, l->names.p[k].expr), true);
            }
        }
        for (uint32_t k = 0; k < l->patterns.n; k++) {
            if (l->patterns.p[k].expr != EXPR_ANY) {
                push_rule(s, out, l->patterns.p[k].dfa, expr_not(s, l->patterns.p[k].expr));
            }
        }
        if (l->rest != EXPR_ANY) {
            push_rule(s, out, rest_names(s, l), expr_not(s, l->rest));
        }
    }
    for (uint32_t i = 0; i < p->name_exprs.n; i++) {
        uint32_t names;
        const shape *x = expr_shape(s, p->name_exprs.p[i]);
        push_rule(s, out, shape_strings(s, x, &names) ? strings_outside(s, x, names) : DFA_ANY, EXPR_ANY);
    }
    for (uint32_t i = 0; i < p->rules.n; i++) { /* all members with these names fail */
        object_part fails = {.max = NFA_NONE};
        object_layer l = {.rest = EXPR_ANY, .silent = true};
        (void)PART_ADD(s, l.patterns, (pattern_expr){p->rules.p[i].dfa, expr_not(s, p->rules.p[i].expr)});
        (void)PART_ADD(s, fails.layers, l);
        (void)PART_ADD(s, out->objects, fails);
    }
    return NULL;
}

const char *shape_not(schema *s, const shape *x, shape *out) {
    shape all;
    const char *why = NULL;
    shape_any(s, &all);
    all.null = !x->null;
    all.yes = !x->yes;
    all.no = !x->no;
    /* For one type: the alternatives in which one part fails, joined with those left from
     * the parts before. */
#define FAIL_EACH(list, negate)                                                                              \
    for (uint32_t i = 0; i < x->list.n && why == NULL && s->b->failed == QUIRE_OK; i++) {                    \
        shape left = {0}, both, rest = {0};                                                                  \
        why = negate(s, &x->list.p[i], &left);                                                               \
        rest.list.p = all.list.p;                                                                            \
        rest.list.n = all.list.n;                                                                            \
        shape_and(s, &rest, &left, &both);                                                                   \
        all.list.p = both.list.p;                                                                            \
        all.list.n = both.list.n;                                                                            \
    }
    FAIL_EACH(numbers, number_not)
    FAIL_EACH(strings, string_not)
    FAIL_EACH(arrays, array_not)
    FAIL_EACH(objects, object_not)
#undef FAIL_EACH
    *out = all;
    return why;
}

/* Numbers of a schema as they are written, and equality of values. */

static bool read_decimal(const schema *s, const json_value *v, char room[DECIMAL_ROOM], decimal *out) {
    str written = json_is(v, JSON_KIND_WIDE) ? json_wide_str(v) : json_digits_of(s->digits, v);
    if (written.n > 0) {
        return decimal_read(written, room, out);
    }
    strbuf text = {0};
    json_out o = {.to = &text};
    if (json_is(v, JSON_KIND_INT)) {
        json_int(&o, json_int64(v));
    } else {
        json_exact(&o, json_double(v));
    }
    bool ok = o.err == QUIRE_OK && decimal_read((str){text.p, text.n}, room, out);
    strbuf_deinit(&text);
    return ok;
}

bool schema_decimal(schema *s, const json_value *v, decimal *out) {
    char room[DECIMAL_ROOM];
    if (!read_decimal(s, v, room, out)) {
        return false;
    }
    size_t n = (size_t)out->n_int + out->n_frac;
    char *kept = schema_keep(s, n, 1);
    if (kept == NULL) {
        *out = (decimal){.n_int = 1, .digits = "0"}; /* the build has failed */
        return true;
    }
    memcpy(kept, out->digits, n);
    out->digits = kept;
    return true;
}

static bool equal_numbers(const schema *s, const json_value *x, const json_value *y) {
    char rooms[2][DECIMAL_ROOM];
    decimal a, b;
    if (json_is(x, JSON_KIND_INT) && json_is(y, JSON_KIND_INT)) {
        return json_int64(x) == json_int64(y);
    }
    if (json_is(x, JSON_KIND_WIDE) && json_is(y, JSON_KIND_WIDE)) {
        return str_eq(json_wide_str(x), json_wide_str(y));
    }
    return read_decimal(s, x, rooms[0], &a) && read_decimal(s, y, rooms[1], &b) &&
           decimal_compare(&a, &b) == 0;
}

/* Recurses as deep as JSON may nest. */
bool schema_equal(const schema *s, const json_value *x, const json_value *y) {
    bool same = json_length(x) == json_length(y);
    if (json_numeric(x) && json_numeric(y)) {
        return equal_numbers(s, x, y);
    }
    if (json_kind_of(x) != json_kind_of(y)) {
        return false;
    }
    if (json_is(x, JSON_KIND_ARRAY)) {
        for (size_t i = 0; i < json_length(x) && same; i++) {
            same = build_step(s->b, 1) && schema_equal(s, json_at(x, i), json_at(y, i));
        }
        return same;
    }
    if (json_is(x, JSON_KIND_OBJECT)) {
        for (json_member m = {0}; same && json_next(x, &m);) {
            same =
                build_step(s->b, 1) && json_has(y, m.name) && schema_equal(s, m.value, json_get(y, m.name));
        }
        return same;
    }
    return json_same(x, y);
}
