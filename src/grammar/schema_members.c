/* Members of objects: listed names in order, and names that the schema does not list. */
#include <assert.h>

#include "grammar/value_shape.h"

#define MAX_PATTERNS 12

/* Makes the nodes after a member's name. */
static uint32_t member_value(schema *s, uint32_t x) {
    uint32_t value = build_call(s->b, schema_rule(s, x), schema_space(s, NFA_RETURN_NODE));
    return schema_space(s, schema_literal(s, ":", schema_space(s, value)));
}

/* The listed names in order, then required names that are not listed. */
typedef struct name_list {
    PARTS(str) names;
    hash_index index;
} name_list;

static void schema_members_add_name(schema *s, name_list *l, str name) {
    uint32_t hash = (uint32_t)str_hash(STR_HASH_START, name);
    HASH_INDEX_EACH(&l->index, hash, i) {
        if (!build_step(s->b, 1) || str_eq(l->names.p[i], name)) {
            return;
        }
    }
    if (PART_ADD(s, l->names, name)) {
        (void)build_index(s->b, &l->index, hash, l->names.n - 1);
    }
}

/* The expression for values of unlisted names that match the patterns in `matched` (bits,
 * in the order of the layers). */
static uint32_t open_expr(schema *s, const object_part *o, uint64_t matched) {
    uint32_t all = EXPR_ANY, bit = 0;
    for (uint32_t i = 0; i < o->layers.n; i++) {
        const object_layer *l = &o->layers.p[i];
        bool found = false;
        for (uint32_t k = 0; k < l->patterns.n; k++, bit++) {
            if ((matched >> bit & 1) != 0) {
                all = expr_and(s, all, l->patterns.p[k].expr);
                found = true;
            }
        }
        all = found ? all : expr_and(s, all, l->rest);
    }
    return all;
}

/* Names that are not listed, with what their values must be: disjoint sets, split by
 * pattern. */
typedef struct open_names {
    const object_part *o;
    bool closed; /* only names that match a pattern which counts as evaluated are allowed */
    const pattern_expr *patterns[MAX_PATTERNS];
    bool counts[MAX_PATTERNS];
    uint32_t n;
    PARTS(pattern_expr) sets;
} open_names;

/* Adds sets for the names in `names`, split by the patterns from `at` on. */
static void add_open(schema *s, open_names *open, uint32_t names, uint32_t at, uint64_t matched) {
    if (dfa_is_empty(s->dfas, names) || !build_step(s->b, 1)) {
        return;
    }
    if (at < open->n) {
        uint32_t pattern = open->patterns[at]->dfa;
        add_open(s, open, dfa_combine(s->dfas, names, pattern, DFA_AND), at + 1, matched | (uint64_t)1 << at);
        add_open(s, open, dfa_combine(s->dfas, names, pattern, DFA_AND_NOT), at + 1, matched);
        return;
    }
    bool may = !open->closed;
    for (uint32_t i = 0; i < open->n; i++) {
        may = may || (open->counts[i] && (matched >> i & 1) != 0);
    }
    uint32_t x = may ? open_expr(s, open->o, matched) : EXPR_NEVER;
    if (x != EXPR_NEVER && s->b->failed == QUIRE_OK) {
        (void)PART_ADD(s, open->sets, (pattern_expr){names, x});
    }
}

static uint32_t schema_members_without(schema *s, uint32_t names, const name_list *listed, uint32_t from) {
    if (listed->names.n <= from) {
        return names;
    }
    uint32_t known = dfa_names(s->dfas, listed->names.p + from, listed->names.n - from);
    return dfa_combine(s->dfas, names, known, DFA_AND_NOT);
}

/* Finds the open names of an object. writable: a dfa of names that can be written. */
static void schema_members_find_open(schema *s, open_names *open, const name_list *listed,
                                     uint32_t writable) {
    const object_part *o = open->o;
    uint32_t only;
    for (uint32_t i = 0; i < o->layers.n; i++) {
        for (uint32_t k = 0; k < o->layers.p[i].patterns.n; k++) {
            if (open->n == MAX_PATTERNS) {
                schema_refuse(s, s->writing, "patternProperties", "over 12 patterns apply to one object");
                return;
            }
            open->counts[open->n] = !o->layers.p[i].silent;
            open->patterns[open->n++] = &o->layers.p[i].patterns.p[k];
        }
    }
    if (open->n == 0 && (open->closed || open_expr(s, o, 0) == EXPR_NEVER)) {
        return;
    }
    uint32_t names = schema_members_without(s, writable, listed, 0);
    for (uint32_t i = 0; i < o->name_exprs.n; i++) {
        if (!shape_strings(s, expr_shape(s, o->name_exprs.p[i]), &only)) {
            return;
        }
        names = dfa_combine(s->dfas, names, only, DFA_AND);
    }
    add_open(s, open, names, 0, 0);
}

/* ---- rules that some member must satisfy, and names that are told apart ---- */

/* The part of `names` that can satisfy the rules in `set`. Next: the expression for their
 * values. */
static uint32_t rule_names(schema *s, const object_part *o, uint32_t set, uint32_t names) {
    for (uint32_t i = 0; i < o->rules.n; i++) {
        names = (set >> i & 1) != 0 ? dfa_combine(s->dfas, names, o->rules.p[i].dfa, DFA_AND) : names;
    }
    return names;
}
static uint32_t rule_value(schema *s, const object_part *o, uint32_t set, uint32_t x) {
    for (uint32_t i = 0; i < o->rules.n; i++) {
        x = (set >> i & 1) != 0 ? expr_and(s, x, o->rules.p[i].expr) : x;
    }
    return x;
}

/* Lists the open names of sets that have only a few, so that the remaining ones never run
 * out. */
static void list_few(schema *s, open_names *open, name_list *listed) {
    str texts[SCHEMA_FEW];
    uint32_t n, before = listed->names.n;
    for (uint32_t i = 0; i < open->sets.n; i++) {
        for (uint32_t set = 0; set < 1u << open->o->rules.n && build_step(s->b, 1); set++) {
            bool few = schema_few_texts(s, rule_names(s, open->o, set, open->sets.p[i].dfa), texts, &n);
            for (uint32_t k = 0; few && k < n; k++) {
                schema_members_add_name(s, listed, texts[k]);
            }
        }
    }
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < open->sets.n; i++) {
        pattern_expr set = open->sets.p[i];
        set.dfa = schema_members_without(s, set.dfa, listed, before);
        if (!dfa_is_empty(s->dfas, set.dfa)) {
            open->sets.p[n_left++] = set;
        }
    }
    open->sets.n = n_left;
}

/* Adds a listed member: one part for each set of rules that it may satisfy. */
static void add_listed(schema *s, const object_part *o, const member_writer *w, str name, uint32_t x,
                       nfa_part part) {
    uint32_t values[1 << NFA_MAX_RULES], all = (1u << o->rules.n) - 1;
    for (uint32_t set = all + 1; set-- > 0;) {
        uint32_t value = rule_value(s, o, set, x);
        bool may = value != EXPR_NEVER;
        for (uint32_t i = 0; i < o->rules.n && may; i++) {
            may = (set >> i & 1) == 0 || dfa_accepts(s->dfas, o->rules.p[i].dfa, name);
        }
        /* subsumed by a part that satisfies more rules */
        for (uint32_t more = set + 1; more <= all && may; more++) {
            may = values[more] != value || (more & set) != set;
        }
        values[set] = may ? value : EXPR_NEVER;
        if (may) {
            part.rules = (uint8_t)set;
            part.entry = w->listed(s, name, value);
            (void)NFA_ADD(s->b, s->b->a.parts, part);
        }
    }
}

/* Whether open names may not repeat. They may if the object has rules, as the last value
 * counts and few names may satisfy a rule; and if a pattern describes names without
 * quotes. */
static bool comes_once(const open_names *open, const member_writer *w) {
    return open->o->rules.n == 0 && (!w->has_words || (open->n == 0 && open->o->name_exprs.n == 0));
}

/* Adds the nodes of open members; with `named`, records their names. */
static uint32_t write_open(schema *s, const open_names *open, const member_writer *w, bool named) {
    uint32_t first = s->b->a.parts.n;
    for (uint32_t i = 0; i < open->sets.n; i++) {
        for (uint32_t set = 0; set < 1u << (named ? open->o->rules.n : 0) && build_step(s->b, 1); set++) {
            open_way way = {
                .rules = set, .named = named, .once = comes_once(open, w), .is_word = w->has_words};
            way.names = rule_names(s, open->o, set, open->sets.p[i].dfa);
            way.value = rule_value(s, open->o, set, open->sets.p[i].expr);
            if (way.value != EXPR_NEVER && !dfa_is_empty(s->dfas, way.names)) {
                uint32_t most = way.once ? schema_count_texts(s, way.names) : NFA_NONE;
                uint32_t entry = w->open(s, &way);
                (void)NFA_ADD(
                    s->b, s->b->a.parts,
                    (nfa_part){.entry = entry, .rules = (uint8_t)set, .remembers = named, .most = most});
            }
        }
    }
    return s->b->a.parts.n - first;
}

static uint32_t write_all_open(schema *s, const open_names *open, const member_writer *w, nfa_object *r) {
    bool counted = r->distinct, looked_at = counted || r->rules != 0;
    if (open->sets.n == 0) {
        r->distinct = false;
        return 0;
    }
    if (looked_at && !w->looks_at_names) {
        schema_refuse(s, s->writing, counted ? "minProperties" : "not",
                      "this format cannot tell unlisted member names apart");
    } else if (counted && open->o->min > NFA_MAX_KEPT - NFA_MAX_RULES) {
        schema_refuse(s, s->writing, "minProperties",
                      "more than 44 unlisted names would have to be told apart");
    }
    uint32_t first = s->b->a.parts.n, n = looked_at ? write_open(s, open, w, true) : 0;
    n += r->rules == 0 ? write_open(s, open, w, false) : 0;
    r->few = n > 0;
    for (uint32_t i = first; i < s->b->a.parts.n; i++) {
        r->few = r->few && s->b->a.parts.p[i].most != NFA_NONE;
    }
    return n;
}

/* ---- an object ---- */

static uint32_t listed_member(schema *s, str name, uint32_t x) {
    uint32_t value = member_value(s, x);
    return style_is_plain(s) ? schema_json_name(s, name, value) : style_name(s, name, value);
}

uint32_t schema_open_name(schema *s, const open_way *w, uint32_t names, nfa_mode mode, uint32_t next) {
    assert(w != NULL);
    nfa *a = &s->b->a;
    const uint16_t bits =
        (uint16_t)((w->named ? NFA_KEPT : 0) | (w->once ? NFA_ONCE : 0) | (w->is_word ? NFA_WORD : 0));
    a->has_names = a->has_names || w->once;
    a->has_words = a->has_words || (w->once && w->is_word);
    if (names == DFA_ANY && !w->named) {
        (void)NFA_ADD(s->b, a->counts, (nfa_count){0, NFA_NONE});
        return build_node(s->b, NFA_COUNTED, mode, a->counts.n - 1, bits, next);
    }
    if (dfa_is_empty(s->dfas, names)) {
        return NFA_FAIL_NODE;
    }
    uint32_t placed = dfa_place(s->dfas, names);
    bool is_roomy = s->b->failed != QUIRE_OK || a->dstates.p[a->dfas.p[placed]].roomy;
    a->has_tight = a->has_tight || (w->once && !w->is_word && !is_roomy);
    return build_node(s->b, NFA_STRING, mode, placed, bits, next);
}

static uint32_t schema_members_open_member(schema *s, const open_way *w) {
    uint32_t value = member_value(s, w->value);
    return style_open_name(s, w, w->named ? build_node(s->b, NFA_NAMED, NFA_RAW, w->rules, 0, value) : value);
}

/* Whether the schema describes unlisted members. */
static bool says_rest(const object_part *o) {
    bool says = o->layers.n == 0;
    for (uint32_t i = 0; i < o->layers.n && !says; i++) {
        says = o->layers.p[i].has_rest || o->layers.p[i].patterns.n > 0;
    }
    return says;
}

/* Whether a closed object may have this name, which some layer lists. */
static bool object_holds(schema *s, const object_part *o, str name) {
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

static void schema_members_list_names(schema *s, const object_part *o, bool closed, name_list *l) {
    for (uint32_t i = 0; i < o->layers.n; i++) {
        for (uint32_t k = 0; k < o->layers.p[i].names.n; k++) {
            str name = o->layers.p[i].names.p[k].name;
            if (!closed || !o->layers.p[i].silent || object_holds(s, o, name)) {
                schema_members_add_name(s, l, name);
            }
        }
    }
    for (uint32_t i = 0; i < o->required.n; i++) {
        schema_members_add_name(s, l, o->required.p[i]);
    }
}

/* Adds parts for the listed members. False: a required one cannot be satisfied. */
static bool write_listed(schema *s, const object_part *o, const member_writer *w, const name_list *l,
                         nfa_object *r) {
    for (uint32_t i = 0; i < l->names.n && build_step(s->b, 1 + o->required.n); i++) {
        uint32_t x = object_member(s, o, l->names.p[i]), before = s->b->a.parts.n;
        bool required = object_requires(o, l->names.p[i]);
        if (x == EXPR_NEVER && required) {
            return false;
        }
        if (x != EXPR_NEVER && r->n_names < NFA_MAX_MEMBERS) {
            add_listed(s, o, w, l->names.p[i], x,
                       (nfa_part){.name = (uint16_t)r->n_names, .required = required});
            r->n_names += s->b->a.parts.n > before;
        } else if (x != EXPR_NEVER) {
            (void)build_fail(s->b, QUIRE_TOO_LARGE, -1, "an object lists over %d members", NFA_MAX_MEMBERS);
        }
    }
    r->n = s->b->a.parts.n - r->first;
    return true;
}

#define MOST_RULED 384 /* most parts in an object with rules, since a mask visits all of them */

static uint32_t schema_members_write(schema *s, const object_part *o, const member_writer *w, name_list *l,
                                     uint32_t next) {
    nfa_object r = {.min = o->min, .max = o->max, .any_order = s->b->options->order == GRAMMAR_ORDER_ANY};
    open_names open = {.o = o, .closed = object_is_closed(s, o)};
    if (o->rules.n > NFA_MAX_RULES) {
        schema_refuse(s, s->writing, "not",
                      "more than 4 rules about unlisted names are negated for one object");
        return NFA_FAIL_NODE;
    }
    r.rules = (uint8_t)((1u << o->rules.n) - 1);
    /* otherwise one more open member makes no difference */
    r.distinct = o->min > 1 && o->min > o->required.n + 1;
    schema_members_list_names(s, o, open.closed, l);
    if (!w->leaves_out || says_rest(o)) {
        schema_members_find_open(s, &open, l, w->names(s));
    }
    if (r.rules != 0 || r.distinct) {
        list_few(s, &open, l);
    }
    r.comma = w->comma;
    r.comma_may_miss = w->comma_may_miss;
    r.first = s->b->a.parts.n;
    if (!write_listed(s, o, w, l, &r)) {
        return NFA_FAIL_NODE;
    }
    r.n_open = write_all_open(s, &open, w, &r);
    if (r.rules != 0 && r.n + r.n_open > MOST_RULED) {
        (void)build_fail(s->b, QUIRE_TOO_LARGE, -1,
                         "an object with negated rules about its members lists too many of them");
        return NFA_FAIL_NODE;
    }
    if (!NFA_ADD(s->b, s->b->a.objects, r)) {
        return NFA_FAIL_NODE;
    }
    return build_node(s->b, NFA_OBJECT, NFA_RAW, s->b->a.objects.n - 1, 0, next);
}

uint32_t schema_members(schema *s, const object_part *o, const member_writer *w, uint32_t next) {
    name_list l = {0};
    uint32_t node = schema_members_write(s, o, w, &l, next);
    hash_index_deinit(&l.index);
    return node;
}

uint32_t schema_object(schema *s, const object_part *o) {
    const member_writer w = {.listed = listed_member,
                             .open = schema_members_open_member,
                             .names = style_open_names,
                             .comma = schema_comma(s),
                             .looks_at_names = s->style == STYLE_JSON,
                             .has_words = s->style == STYLE_GEMMA};
    uint32_t members = schema_members(s, o, &w, schema_literal(s, "}", NFA_RETURN_NODE));
    return members == NFA_FAIL_NODE ? members : schema_literal(s, "{", schema_space(s, members));
}

/* Objects that are closed although their schema leaves them open
 * (GRAMMAR_ADDITIONAL_CLOSED): `properties` lists what is allowed.
 *
 * An object is closed when it is written, after all that applies to it was joined. So
 * names in allOf, in a $ref and in an alternative count, and the answer is valid under
 * the schema itself. Nothing closes within `if`, `contains` and `not`: these shapes are
 * quiet. */

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

#define HELD_DEPTH 4 /* levels of a member's value that are searched for a proof that nothing satisfies it */

/* How many listed names, or required ones, may have a value of `rule` (NULL: any); stops
 * at `most`. */
static uint32_t count_held(schema *s, const object_part *o, const member_rule *rule, uint32_t most) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->layers.n; i++) {
        const object_layer *l = &o->layers.p[i];
        for (uint32_t k = 0; k < l->names.n && !l->silent && n < most; k++) {
            str name = l->names.p[k].name;
            bool again = false;
            /* an earlier layer listed it */
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
