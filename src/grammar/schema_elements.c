/* Values between tags that may hold elements: each member of an object between tags of
 * its name, each item of an array between tags that are called "item"
 * (GRAMMAR_SYNTAX_TAGS with has_elements).
 *
 * The reader's schema decides what elements inside are; if it does not, the first one's
 * name does. Objects and arrays that it would take for something else, or whose values it
 * would type by another schema than theirs, are written as JSON. */
#include "grammar/parts.h"

#include "grammar/value_shape.h"
#include <assert.h>

static const char item_name[] = "item";

static uint32_t schema_elements_literal(schema *s, str text, uint32_t next) {
    return parts_emit_text(s->parts, text, next);
}

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
    /* else names would have to be distinguished */
    nests = nests && o->max > 0 && o->rules.n == 0 && o->min <= o->required.n + 1;
    for (uint32_t i = 0; i < o->layers.n; i++) {
        nests = nests && o->layers.p[i].patterns.n == 0;
    }
    nests = nests && bits != GRAMMAR_READS_STRING; /* a reader of strings alone looks for no elements */
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

/* ---- a value ---- */

static uint32_t schema_elements_rule_of(schema *s, uint32_t x, const json_value *of) {
    for (uint32_t i = 0; i < s->elements.n && build_step(s->b, 1); i++) {
        if (s->elements.p[i].x == x && s->elements.p[i].of == of) {
            return s->elements.p[i].rule;
        }
    }
    element_rule *to = NFA_PUSH(s->b, s->elements);
    uint32_t rule = to != NULL ? build_rule(s->b) : 0;
    if (to != NULL) {
        *to = (element_rule){x, rule, of};
    }
    return rule;
}

/* What of a shape is written as a text: all but what nests. *nests: something does;
 * *is_empty: so it does, and may be empty, which is read as such if nothing is between
 * the tags. */
static shape text_shape(schema *s, const shape *x, unsigned bits, bool *nests, bool *is_empty) {
    shape text = *x;
    text.objects.n = text.arrays.n = 0;
    *nests = *is_empty = false;
    for (uint32_t i = 0; i < x->objects.n; i++) {
        const object_part *o = &x->objects.p[i];
        bool in = object_nests(s, o, bits), by_name = (bits & GRAMMAR_READS_OBJECT) == 0;
        object_part *to = !in || (by_name && o->min == 0) ? PART_PUSH(s, text.objects) : NULL;
        if (to != NULL) {
            *to = *o;
            to->max = in ? 0 : o->max;
        }
        *nests = *nests || in;
        *is_empty = *is_empty || (in && !by_name && o->min == 0 && o->required.n == 0);
    }
    for (uint32_t i = 0; i < x->arrays.n; i++) {
        const array_part *a = &x->arrays.p[i];
        bool in = array_nests(a, bits), by_name = (bits & GRAMMAR_READS_ARRAY) == 0;
        array_part *to = !in || (by_name && a->min == 0) ? PART_PUSH(s, text.arrays) : NULL;
        if (to != NULL) {
            *to = *a;
            to->max = in ? 0 : a->max;
        }
        *nests = *nests || in;
        *is_empty = *is_empty || (in && !by_name && a->min == 0 && a->contains.n == 0);
    }
    *is_empty = *is_empty && (bits & GRAMMAR_READS_STRING) == 0;
    return text;
}

/* An object or array with nothing in it, which takes a level as every other. */
static uint32_t nothing_inside(schema *s, uint32_t end) {
    nfa_object *o = NFA_PUSH(s->b, s->b->a.objects);
    if (o == NULL) {
        return NFA_FAIL_NODE;
    }
    *o = (nfa_object){.comma = NFA_FAIL_NODE};
    return build_node(s->b, NFA_OBJECT, NFA_RAW, s->b->a.objects.n - 1, 0, end);
}

uint32_t element_value(schema *s, uint32_t x, const json_value *of, uint32_t end) {
    bool nests, is_empty;
    unsigned bits = arguments_bits(s, of);
    const shape text = text_shape(s, expr_shape(s, x), bits, &nests, &is_empty);
    uint32_t node = arguments_text(s, &text, bits, end);
    node = is_empty ? build_split2(s->b, nothing_inside(s, end), node) : node;
    return nests ? build_split2(s->b, build_call(s->b, schema_elements_rule_of(s, x, of), end), node) : node;
}

/* ---- objects and arrays ---- */

static uint32_t schema_elements_item(schema *s, uint32_t x) {
    const grammar_arguments *a = s->arguments;
    const grammar_reader *r = &a->reader;
    const json_value *of = r->items != NULL ? r->items(r->user, s->reading) : NULL;
    uint32_t end = schema_elements_literal(
        s, a->behind,
        schema_elements_literal(s, str_of(item_name),
                                schema_elements_literal(s, str_of(">"), NFA_RETURN_NODE)));
    uint32_t value = element_value(s, x, of, end);
    return schema_elements_literal(
        s, a->before,
        schema_elements_literal(s, str_of(item_name), schema_elements_literal(s, a->middle, value)));
}

/* The objects and arrays of at least one member or item. */
static uint32_t containers(schema *s, const element_rule *e) {
    const shape *x = expr_shape(s, e->x);
    unsigned bits = arguments_bits(s, e->of);
    const item_writer w = {.item = schema_elements_item,
                           .comma = schema_elements_literal(s, s->arguments->between, NFA_RETURN_NODE),
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

void element_write_rest(schema *s) {
    assert(s != NULL);
    for (uint32_t i = 0; i < s->elements.n && s->b->failed == QUIRE_OK; i++) {
        element_rule e = s->elements.p[i]; /* the list may move */
        s->writing = schema_path_of(s, e.x);
        build_rule_set(s->b, e.rule, containers(s, &e));
    }
}
