/* Objects that are closed although their schema does not close them
 * (GRAMMAR_ADDITIONAL_CLOSED): `properties` lists what is allowed.
 *
 * An object is closed when it is written, with all that applies to it joined: so the
 * names of allOf, of a $ref and of an alternative count, and the answer is valid under
 * the schema itself. Within `if`, `contains` and `not` nothing closes: these shapes are
 * quiet. */
#include "grammar/value_shape.h"

#include <assert.h>

/* ---- what closes nothing ---- */

static void quiet_layer(schema *s, object_layer *l, bool silent) {
    PARTS(named_expr) names = {0};
    PARTS(pattern_expr) patterns = {0};
    PARTS_JOIN(s, names, l->names);
    PARTS_JOIN(s, patterns, l->patterns);
    for (uint32_t i = 0; i < names.n; i++) {
        names.p[i].expr = expr_quiet(s, names.p[i].expr);
    }
    for (uint32_t i = 0; i < patterns.n; i++) {
        patterns.p[i].expr = expr_quiet(s, patterns.p[i].expr);
    }
    l->names.p = names.p;
    l->names.n = names.n;
    l->patterns.p = patterns.p;
    l->patterns.n = patterns.n;
    l->rest = expr_quiet(s, l->rest);
    l->silent = l->silent || silent;
    l->closes = false;
}

static void quiet_object(schema *s, object_part *o, bool silent) {
    PARTS(object_layer) layers = {0};
    PARTS_JOIN(s, layers, o->layers);
    for (uint32_t i = 0; i < layers.n; i++) {
        quiet_layer(s, &layers.p[i], silent);
    }
    o->layers.p = layers.p;
    o->layers.n = layers.n;
}

static void quiet_array(schema *s, array_part *a) {
    PARTS(array_layer) layers = {0};
    PARTS_JOIN(s, layers, a->layers);
    for (uint32_t i = 0; i < layers.n; i++) {
        array_layer *l = &layers.p[i];
        PARTS(uint32_t) prefix = {0};
        PARTS_JOIN(s, prefix, l->prefix);
        for (uint32_t k = 0; k < prefix.n; k++) {
            prefix.p[k] = expr_quiet(s, prefix.p[k]);
        }
        l->prefix.p = prefix.p;
        l->prefix.n = prefix.n;
        l->rest = expr_quiet(s, l->rest);
    }
    a->layers.p = layers.p;
    a->layers.n = layers.n;
}

void shape_quiet(schema *s, const shape *x, bool silent, shape *out) {
    PARTS(object_part) objects = {0};
    PARTS(array_part) arrays = {0};
    *out = *x;
    if (s->b->options->additional != GRAMMAR_ADDITIONAL_CLOSED) {
        return;
    }
    PARTS_JOIN(s, objects, x->objects);
    PARTS_JOIN(s, arrays, x->arrays);
    for (uint32_t i = 0; i < objects.n; i++) {
        quiet_object(s, &objects.p[i], silent);
    }
    for (uint32_t i = 0; i < arrays.n; i++) {
        quiet_array(s, &arrays.p[i]);
    }
    out->objects.p = objects.p;
    out->objects.n = objects.n;
    out->arrays.p = arrays.p;
    out->arrays.n = arrays.n;
}

/* ---- what is closed ---- */

bool object_holds(schema *s, const object_part *o, str name) {
    assert(o != NULL);
    for (uint32_t i = 0; i < o->layers.n; i++) {
        const object_layer *l = &o->layers.p[i];
        for (uint32_t k = 0; k < l->names.n && !l->silent && build_step(s->b, 1); k++) {
            if (str_eq(l->names.p[k].name, name)) {
                return true;
            }
        }
        for (uint32_t k = 0; k < l->patterns.n && !l->silent && build_step(s->b, 1); k++) {
            if (dfa_accepts(s->dfas, l->patterns.p[k].dfa, name)) {
                return true;
            }
        }
    }
    return false;
}

#define HELD_DEPTH 4 /* of values in a member that are looked at to see that nothing satisfies it */

/* How many of the listed names, or of the required ones, are allowed with a value of
 * `rule` (NULL: any); counts of `most` and over are not distinguished. */
static uint32_t count_held(schema *s, const object_part *o, const member_rule *rule, uint32_t most) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->layers.n; i++) {
        const object_layer *l = &o->layers.p[i];
        for (uint32_t k = 0; k < l->names.n && !l->silent && n < most; k++) {
            str name = l->names.p[k].name;
            bool again = false;
            /* a name that an earlier layer lists was counted there */
            for (uint32_t j = 0; j < i && !again; j++) {
                const object_layer *before = &o->layers.p[j];
                for (uint32_t m = 0; m < before->names.n && !before->silent && !again && build_step(s->b, 1);
                     m++) {
                    again = str_eq(before->names.p[m].name, name);
                }
            }
            uint32_t x = again ? EXPR_NEVER : object_member(s, o, name);
            n += rule == NULL
                     ? !expr_is_empty(s, x, HELD_DEPTH)
                     : dfa_accepts(s->dfas, rule->dfa, name) && expr_and(s, x, rule->expr) != EXPR_NEVER;
        }
    }
    for (uint32_t i = 0; i < o->required.n && n < most; i++) {
        str name = o->required.p[i];
        bool fits = rule == NULL || (dfa_accepts(s->dfas, rule->dfa, name) &&
                                     expr_and(s, object_member(s, o, name), rule->expr) != EXPR_NEVER);
        n += fits && !object_holds(s, o, name);
    }
    return n;
}

bool object_is_closed(schema *s, const object_part *o) {
    assert(o != NULL);
    bool closes = false, has_patterns = false;
    for (uint32_t i = 0; i < o->layers.n; i++) {
        if (o->layers.p[i].has_rest) {
            return false;
        }
        closes = closes || o->layers.p[i].closes;
        has_patterns = has_patterns || (o->layers.p[i].patterns.n > 0 && !o->layers.p[i].silent);
    }
    if (!closes || s->b->options->additional != GRAMMAR_ADDITIONAL_CLOSED) {
        return false;
    }
    /* an object that needs more members than are listed stays open */
    bool holds = has_patterns || o->min <= o->required.n || count_held(s, o, NULL, o->min) >= o->min;
    for (uint32_t i = 0; i < o->rules.n && holds; i++) {
        holds = has_patterns || count_held(s, o, &o->rules.p[i], 1) > 0;
    }
    return holds;
}
