/* Members of objects: listed names in order, and names that the schema does not list. */
#include "grammar/value_shape.h"

static uint32_t literal(schema *s, const char *text, uint32_t next) {
    return build_bytes(s->b, str_of(text), next);
}

/* Nodes behind a member's name. */
static uint32_t member_value(schema *s, uint32_t x) {
    uint32_t value = build_call(s->b, schema_rule(s, x), schema_space(s, NFA_RETURN_NODE));
    return schema_space(s, literal(s, ":", schema_space(s, value)));
}

static void add_member(schema *s, uint32_t entry, bool required) {
    nfa_part *p = NFA_PUSH(s->b, s->b->a.parts);
    if (p != NULL) {
        *p = (nfa_part){.entry = entry, .required = required};
    }
}

/* Names in the order in which members come: as listed, then required ones that nothing lists. */
typedef struct name_list {
    PARTS(str) names;
    uint32_t n_slots, *slots;
} name_list;

static void add_name(schema *s, name_list *l, str name) {
    if ((l->names.n + 1) * 2 > l->n_slots) {
        uint32_t n = l->n_slots > 0 ? l->n_slots * 2 : 16;
        l->slots = schema_keep(s, n, sizeof *l->slots);
        l->n_slots = l->slots != NULL ? n : 0;
        for (uint32_t i = 0; i < l->names.n && l->slots != NULL; i++) {
            uint32_t at = (uint32_t)str_hash(STR_HASH_START, l->names.p[i]) & (n - 1);
            while (l->slots[at] != 0) {
                at = (at + 1) & (n - 1);
            }
            l->slots[at] = i + 1;
        }
    }
    if (l->slots == NULL) {
        return;
    }
    uint32_t at = (uint32_t)str_hash(STR_HASH_START, name) & (l->n_slots - 1);
    for (; l->slots[at] != 0 && build_step(s->b, 1); at = (at + 1) & (l->n_slots - 1)) {
        if (str_eq(l->names.p[l->slots[at] - 1], name)) {
            return;
        }
    }
    str *to = PART_PUSH(s, l->names);
    if (to != NULL) {
        *to = name;
        l->slots[at] = l->names.n;
    }
}

static bool is_required(const object_part *o, str name) {
    for (uint32_t i = 0; i < o->required.n; i++) {
        if (str_eq(o->required.p[i], name)) {
            return true;
        }
    }
    return false;
}

/* What names must be that the dfa accepts, which match the patterns of `matched` (bits, in the order of layers) and no listed name. */
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

typedef struct open_names {
    const object_part *o;
    const member_writer *w;
    const pattern_expr *patterns[64];
    uint32_t n, n_parts;
} open_names;

/* Adds the open members whose names `names` accepts, split by pattern from `at` on. */
static void add_open(schema *s, open_names *open, uint32_t names, uint32_t at, uint64_t matched) {
    if (dfa_is_empty(&s->dfas, names) || !build_step(s->b, 1)) {
        return;
    }
    if (at < open->n) {
        uint32_t pattern = open->patterns[at]->dfa;
        add_open(s, open, dfa_combine(&s->dfas, names, pattern, DFA_AND), at + 1, matched | (uint64_t)1 << at);
        add_open(s, open, dfa_combine(&s->dfas, names, pattern, DFA_AND_NOT), at + 1, matched);
        return;
    }
    uint32_t x = open_expr(s, open->o, matched);
    if (x == EXPR_NEVER || s->b->failed != QUIRE_OK) {
        return;
    }
    add_member(s, open->w->open(s, names, x), false);
    open->n_parts++;
}

static uint32_t open_members(schema *s, const object_part *o, const member_writer *w, const name_list *listed) {
    open_names open = {.o = o, .w = w};
    uint32_t names = DFA_ANY, only;
    for (uint32_t i = 0; i < o->layers.n; i++) {
        for (uint32_t k = 0; k < o->layers.p[i].patterns.n; k++) {
            if (open.n == 12) {
                schema_refuse(s, "", "patternProperties", "over 12 patterns apply to one object");
                return 0;
            }
            open.patterns[open.n++] = &o->layers.p[i].patterns.p[k];
        }
    }
    if (open.n == 0 && open_expr(s, o, 0) == EXPR_NEVER) {
        return 0;
    }
    if (listed->names.n > 0) {
        uint32_t known = dfa_names(&s->dfas, listed->names.p, listed->names.n);
        names = dfa_combine(&s->dfas, DFA_ANY, known, DFA_AND_NOT);
    }
    for (uint32_t i = 0; i < o->name_exprs.n; i++) {
        if (!shape_strings(s, expr_shape(s, o->name_exprs.p[i]), &only)) {
            return 0;
        }
        names = dfa_combine(&s->dfas, names, only, DFA_AND);
    }
    add_open(s, &open, names, 0, 0);
    return open.n_parts;
}

static uint32_t listed_member(schema *s, str name, uint32_t x) {
    uint32_t value = member_value(s, x);
    return style_is_plain(s) ? schema_json_name(s, name, value) : style_name(s, name, value);
}

static uint32_t open_member(schema *s, uint32_t names, uint32_t x) {
    uint32_t value = member_value(s, x);
    return !style_is_plain(s) ? style_open_name(s, names, value)
           : names == DFA_ANY ? schema_counted(s, 0, NFA_NONE, value)
                              : schema_string(s, names, NFA_JSON, value);
}

/* Whether the schema says what members may be that it does not list. */
static bool says_rest(const object_part *o) {
    bool says = o->layers.n == 0;
    for (uint32_t i = 0; i < o->layers.n && !says; i++) {
        says = o->layers.p[i].has_rest || o->layers.p[i].patterns.n > 0;
    }
    return says;
}

uint32_t schema_members(schema *s, const object_part *o, const member_writer *w, uint32_t next) {
    nfa_object r = {.min = o->min, .max = o->max, .any_order = s->b->options->order == GRAMMAR_ORDER_ANY};
    name_list l = {0};
    for (uint32_t i = 0; i < o->layers.n; i++) {
        for (uint32_t k = 0; k < o->layers.p[i].names.n; k++) {
            add_name(s, &l, o->layers.p[i].names.p[k].name);
        }
    }
    for (uint32_t i = 0; i < o->required.n; i++) {
        add_name(s, &l, o->required.p[i]);
    }
    r.comma = w->comma;
    r.comma_may_miss = w->comma_may_miss;
    r.first = s->b->a.parts.n;
    for (uint32_t i = 0; i < l.names.n && build_step(s->b, 1 + o->required.n); i++) {
        uint32_t x = object_member(s, o, l.names.p[i]);
        bool required = is_required(o, l.names.p[i]);
        if (x == EXPR_NEVER && required) {
            return NFA_FAIL_NODE;
        }
        if (x != EXPR_NEVER) {
            add_member(s, w->listed(s, l.names.p[i], x), required);
        }
    }
    r.n = s->b->a.parts.n - r.first;
    if (r.n > NFA_MAX_MEMBERS) {
        (void)build_fail(s->b, QUIRE_TOO_LARGE, -1, "an object lists over %d members", NFA_MAX_MEMBERS);
    }
    r.n_open = !w->leaves_out || says_rest(o) ? open_members(s, o, w, &l) : 0;
    nfa_object *to = NFA_PUSH(s->b, s->b->a.objects);
    if (to == NULL) {
        return NFA_FAIL_NODE;
    }
    *to = r;
    return build_node(s->b, NFA_OBJECT, NFA_RAW, s->b->a.objects.n - 1, 0, next);
}

uint32_t schema_object(schema *s, const object_part *o) {
    const member_writer w = {listed_member, open_member, schema_comma(s), false, false};
    uint32_t members = schema_members(s, o, &w, literal(s, "}", NFA_RETURN_NODE));
    return members == NFA_FAIL_NODE ? members : literal(s, "{", schema_space(s, members));
}
