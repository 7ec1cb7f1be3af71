/* From shapes to nodes: a rule for each expression that some value must satisfy. */
#include <assert.h>

#include "base/utf8.h"
#include "grammar/regex_syntax.h"
#include "grammar/value_shape.h"

/* ---- tokens of JSON ---- */

uint32_t schema_literal(schema *s, const char *text, uint32_t next) {
    assert(s != NULL);
    return build_bytes(s->b, str_of(text), next);
}

/* Makes the rule of a regex, once. */
static uint32_t regex_rule(schema *s, uint32_t *rule, str regex) {
    if (*rule == 0) {
        ast t;
        ast_init(&t, s->b);
        t.only_space = rule == &s->space_rule;
        uint32_t root = regex_parse(&t, regex);
        *rule = build_rule(s->b) + 1;
        build_rule_set(s->b, *rule - 1, ast_emit(&t, root, NFA_RETURN_NODE, 3));
        ast_deinit(&t);
    }
    return *rule - 1;
}

_Static_assert(GRAMMAR_SPACE_MAX == 20, "as LINES has it");
#define LINES "( |\\n{1,2}[ \\t]{0,20})?"

uint32_t schema_space(schema *s, uint32_t next) {
    assert(s != NULL);
    const grammar_options *o = s->b->options;
    if (o->whitespace_pattern.n > 0) {
        return build_call(s->b, regex_rule(s, &s->space_rule, o->whitespace_pattern), next);
    }
    if (o->space == GRAMMAR_SPACE_LINES) {
        return build_call(s->b, regex_rule(s, &s->space_rule, str_of(LINES)), next);
    }
    return o->space == GRAMMAR_SPACE_ANY ? build_node(s->b, NFA_SPACE, NFA_RAW, 0, 0, next) : next;
}

uint32_t schema_rule(schema *s, uint32_t x) {
    assert(s != NULL);
    if (s->b->failed != QUIRE_OK) {
        return 0;
    }
    if (s->exprs.p[x].rule == 0) {
        s->exprs.p[x].rule = build_rule(s->b) + 1;
        (void)NFA_ADD(s->b, s->queue, x);
    }
    return s->exprs.p[x].rule - 1;
}

uint32_t schema_comma(schema *s) {
    return schema_literal(s, ",", schema_space(s, NFA_RETURN_NODE));
}

/* ---- strings, numbers ---- */

/* A name as a JSON string: printable ASCII as itself, others raw or escaped. */
uint32_t schema_json_name(schema *s, str name, uint32_t next) {
    uint32_t *ends = schema_keep(s, name.n + 1, sizeof *ends), n = 0;
    for (size_t i = 0, len; ends != NULL && i < name.n; i += len) { /* finds where characters begin */
        (void)utf8_next(name.p + i, &len);
        ends[n++] = (uint32_t)i;
    }
    next = schema_literal(s, "\"", next);
    size_t end = name.n;
    while (n > 0 && ends != NULL && build_step(s->b, 1)) {
        size_t len, from = end;
        while (n > 0) { /* characters without another spelling become bytes */
            char c = name.p[ends[n - 1]];
            if (c < 0x20 || c > 0x7E || c == '"' || c == '\\') {
                break;
            }
            from = ends[--n];
        }
        next = build_bytes(s->b, (str){name.p + from, end - from}, next);
        end = from;
        if (n > 0) {
            uint32_t c = (uint32_t)utf8_next(name.p + ends[n - 1], &len);
            next = build_node(s->b, NFA_CLASS, NFA_PLAIN, build_class(s->b, &(nfa_range){c, c}, 1), 0, next);
            end = ends[--n];
        }
    }
    return schema_literal(s, "\"", next);
}

/* A quoted JSON string of min to max characters. */
static uint32_t schema_counted(schema *s, uint32_t min, uint32_t max, uint32_t next) {
    assert(s != NULL);
    if (!NFA_ADD(s->b, s->b->a.counts, (nfa_count){min, max})) {
        return NFA_FAIL_NODE;
    }
    return schema_literal(
        s, "\"",
        build_node(s->b, NFA_COUNTED, NFA_JSON, s->b->a.counts.n - 1, 0, schema_literal(s, "\"", next)));
}

uint32_t schema_text(schema *s, uint32_t texts, const string_part *p, nfa_mode mode, uint32_t next) {
    assert(p != NULL);
    nfa *a = &s->b->a;
    bool is_limited = p->min > 0 || p->max != NFA_NONE, all = false;
    const dfa_lengths *l =
        is_limited && !dfa_is_empty(s->dfas, texts) ? dfa_lengths_of(s->dfas, texts) : NULL;
    if (is_limited && l == NULL) { /* the lengths are too irregular for a table */
        texts = dfa_combine(s->dfas, texts, dfa_length(s->dfas, p->min, p->max), DFA_AND);
    }
    if (dfa_is_empty(s->dfas, texts) || (l != NULL && !dfa_lengths_meet(l, p->min, p->max, &all))) {
        return NFA_FAIL_NODE;
    }
    uint32_t placed = dfa_place(s->dfas, texts), n = s->dfas->all.p[texts].states.n, most = NFA_NONE / n - 1;
    if (l == NULL || all) {
        return build_node(s->b, NFA_STRING, mode, placed, 0, next);
    }
    nfa_text *t = NFA_PUSH(s->b, a->texts);
    if (t == NULL || p->min > most) {
        (void)build_fail(s->b, QUIRE_TOO_LARGE, -1, "a string of at least %u characters", p->min);
        return NFA_FAIL_NODE;
    }
    *t = (nfa_text){.first = a->dfas.p[placed],
                    .n = n,
                    .min = p->min,
                    .max = p->max == NFA_NONE || p->max < most ? p->max : most};
    t->sets = a->text_sets.n;
    t->n_sets = l->n_sets;
    t->loop = l->loop;
    t->far = l->far;
    t->rich = l->rich;
    for (uint32_t i = 0; i < l->n_sets * l->words; i++) {
        if (!NFA_ADD(s->b, a->text_sets, l->sets[i])) {
            return NFA_FAIL_NODE;
        }
    }
    return build_node(s->b, NFA_TEXT, mode, a->texts.n - 1, 0, next);
}

static uint32_t string_node(schema *s, const string_part *p) {
    if (!style_is_plain(s)) {
        return style_string(s, p, NFA_RETURN_NODE);
    }
    if (p->dfa != DFA_ANY) {
        uint32_t text = schema_text(s, p->dfa, p, NFA_PLAIN, schema_literal(s, "\"", NFA_RETURN_NODE));
        return text == NFA_FAIL_NODE ? text : schema_literal(s, "\"", text);
    }
    if (p->min > 0 || p->max != NFA_NONE) {
        return schema_counted(s, p->min, p->max, NFA_RETURN_NODE);
    }
    if (s->string_rule == 0) {
        s->string_rule = build_rule(s->b) + 1;
        build_rule_set(s->b, s->string_rule - 1, schema_counted(s, 0, NFA_NONE, NFA_RETURN_NODE));
    }
    return build_call(s->b, s->string_rule - 1, NFA_RETURN_NODE);
}

static uint32_t number_node(schema *s, const number_part *n) {
    /* integers of draft 4 have no point */
    grammar_numbers spelling = n->integer && s->draft <= 4 ? GRAMMAR_NUMBERS_SHORT : s->b->options->numbers;
    bool is_short = spelling == GRAMMAR_NUMBERS_SHORT;
    if (n->exact && is_short) {
        strbuf text = {0};
        if (decimal_write(&n->lo, &text) != QUIRE_OK) {
            (void)build_fail(s->b, QUIRE_NO_MEMORY, -1, "out of memory for the schema");
        }
        uint32_t node = build_bytes(s->b, (str){text.p, text.n}, NFA_RETURN_NODE);
        strbuf_deinit(&text);
        return node;
    }
    if (number_is_free(n)) {
        str regex = str_of("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?");
        return build_call(s->b, regex_rule(s, &s->number_rule, regex), NFA_RETURN_NODE);
    }
    if (!n->has_lo && !n->has_hi && !n->exact && n->n_multiples == 0) {
        str regex = str_of(is_short ? "-?(0|[1-9][0-9]*)" : "-?(0|[1-9][0-9]*)(\\.0+)?");
        return build_call(s->b, regex_rule(s, &s->integer_rule, regex), NFA_RETURN_NODE);
    }
    const number_part one = {.has_lo = true, .has_hi = true, .lo = n->lo, .hi = n->lo};
    uint32_t digits = number_dfa(s->dfas, n->exact ? &one : n, spelling);
    return dfa_is_empty(s->dfas, digits)
               ? NFA_FAIL_NODE
               : build_node(s->b, NFA_STRING, NFA_RAW, dfa_place(s->dfas, digits), 0, NFA_RETURN_NODE);
}

/* ---- arrays ---- */

uint32_t array_item(schema *s, const array_part *a, uint32_t item) {
    assert(a != NULL);
    uint32_t all = EXPR_ANY;
    for (uint32_t i = 0; i < a->layers.n; i++) {
        const array_layer *l = &a->layers.p[i];
        all = expr_and(s, all, item < l->prefix.n ? l->prefix.p[item] : l->rest);
    }
    return all;
}

/* Adds a part that reads x to the last slot. */
static void schema_write_add_item(schema *s, const item_writer *w, nfa_slot *slot, uint32_t x,
                                  uint32_t rules) {
    if (x == EXPR_NEVER || s->b->failed != QUIRE_OK) {
        return;
    }
    uint32_t entry = w->item(s, x);
    if (NFA_ADD(s->b, s->b->a.parts, (nfa_part){.entry = entry, .rules = (uint8_t)rules})) {
        slot->n++;
    }
}

/* The finite list of values in an expression, from an enum or const; NULL: there is
 * none. */
static const json_value *finite_values(const schema *s, uint32_t x, bool *one) {
    const expr *e = &s->exprs.p[x];
    const json_value *list = NULL;
    for (uint32_t i = 0; e->kind == EXPR_IS_AND && i < e->n && list == NULL; i++) {
        list = finite_values(s, e->children[i], one);
    }
    if (e->kind == EXPR_IS_SCHEMA && !schema_ref_alone(s, e->value)) {
        *one = !json_has(e->value, "enum");
        list = *one ? json_get(e->value, "const") : json_get(e->value, "enum");
    }
    return list;
}

/* Adds items that may not repeat: one part per value. */
static void add_unique(schema *s, const item_writer *w, nfa_array *r, nfa_slot *slot, uint32_t x) {
    bool one = false, yes_no = false;
    const shape *sh = expr_shape(s, x);
    const json_value *values = finite_values(s, x, &one);
    yes_no = sh->numbers.n == 0 && sh->strings.n == 0 && sh->arrays.n == 0 && sh->objects.n == 0;
    if (!yes_no && (values == NULL || one || json_length(values) > NFA_MAX_MEMBERS)) {
        schema_refuse(s, s->writing, "uniqueItems",
                      "the items have no enum, so all earlier items would have to be remembered");
        return;
    }
    r->unique = true;
    if (yes_no) {
        const char *texts[] = {sh->null ? style_word(s, "null") : NULL,
                               sh->yes ? style_word(s, "true") : NULL,
                               sh->no ? style_word(s, "false") : NULL};
        for (size_t i = 0; i < 3; i++) {
            if (texts[i] != NULL) {
                uint32_t entry = schema_literal(s, texts[i], schema_space(s, NFA_RETURN_NODE));
                if (NFA_ADD(s->b, s->b->a.parts, (nfa_part){.entry = entry})) {
                    slot->n++;
                }
            }
        }
        return;
    }
    for (size_t i = 0; i < json_length(values); i++) {
        bool again = false;
        for (size_t k = 0; k < i && !again && build_step(s->b, 1); k++) {
            again = schema_equal(s, json_at(values, k), json_at(values, i));
        }
        if (!again) {
            schema_write_add_item(s, w, slot, expr_and(s, x, expr_const(s, json_at(values, i))), 0);
        }
    }
}

typedef PARTS(contains_rule) contains_rules;

/* The expression for item number `item` that counts for the rules in `set`, but for no
 * other rule with a maximum. */
static uint32_t counted_item(schema *s, const contains_rules *rules, uint32_t set, uint32_t item,
                             uint32_t x) {
    for (uint32_t i = 0; i < rules->n; i++) {
        const contains_rule *c = &rules->p[i];
        if ((set >> i & 1) != 0) {
            x = expr_and(s, x, c->expr);
        } else if (c->max != NFA_NONE && c->from <= item) {
            x = expr_and(s, x, expr_not(s, c->expr));
        }
    }
    return x;
}

static void add_slot(schema *s, const item_writer *w, const array_part *a, const contains_rules *rules,
                     nfa_array *r, uint32_t item, bool unique) {
    nfa_slot slot = {s->b->a.parts.n, 0};
    uint32_t x = array_item(s, a, item), values[1 << NFA_MAX_ITEM_RULES];
    for (uint32_t set = 1u << rules->n; set-- > 0 && !unique;) {
        bool may = true, same = false;
        for (uint32_t i = 0; i < rules->n; i++) {
            may = may && ((set >> i & 1) == 0 || rules->p[i].from <= item);
        }
        values[set] = may ? counted_item(s, rules, set, item, x) : EXPR_NEVER;
        /* subsumed by one that counts for more */
        for (uint32_t more = set + 1; more < 1u << rules->n; more++) {
            same = same || ((more & set) == set && values[more] == values[set]);
        }
        if (!same) {
            schema_write_add_item(s, w, &slot, values[set], set);
        }
    }
    if (unique) {
        add_unique(s, w, r, &slot, x);
    }
    (void)NFA_ADD(s->b, s->b->a.slots, slot);
}

/* Collects the effective rules of an array: rules for the same items are merged, those
 * for all items become its length. */
static void gather_rules(schema *s, const array_part *a, contains_rules *rules, nfa_array *r) {
    for (uint32_t i = 0; i < a->contains.n; i++) {
        contains_rule c = a->contains.p[i], *same = NULL;
        if (c.expr == EXPR_ANY && c.from == 0) {
            r->min = c.min > r->min ? c.min : r->min;
            r->max = c.max < r->max ? c.max : r->max;
            continue;
        }
        for (uint32_t k = 0; k < rules->n; k++) {
            same = rules->p[k].expr == c.expr && rules->p[k].from == c.from ? &rules->p[k] : same;
        }
        if (same != NULL) {
            same->min = c.min > same->min ? c.min : same->min;
            same->max = c.max < same->max ? c.max : same->max;
        } else if ((c.min > 0 || c.max != NFA_NONE) && (same = PART_PUSH(s, *rules)) != NULL) {
            *same = c;
        }
    }
}

/* Whether the rules can be counted together. */
static bool set_rules(const contains_rules *rules, nfa_array *r) {
    uint64_t counts = 1;
    r->n_rules = rules->n;
    r->rules[0].max = NFA_NONE;
    for (uint32_t i = 0; i < rules->n && i < NFA_MAX_ITEM_RULES; i++) {
        const contains_rule *c = &rules->p[i];
        r->rules[i] = (nfa_count){c->min, c->max};
        r->n = c->from > r->n ? c->from : r->n;
        counts *= 1 + (uint64_t)(c->max != NFA_NONE ? c->max : c->min);
        counts = counts > NFA_MAX_COUNTS ? NFA_MAX_COUNTS + 1 : counts;
    }
    return rules->n <= 1 || (rules->n <= NFA_MAX_ITEM_RULES && counts <= NFA_MAX_COUNTS);
}

uint32_t schema_items_of(schema *s, const array_part *a, const item_writer *w, uint32_t next) {
    nfa_array r = {.min = a->min, .max = a->max, .comma = w->comma, .comma_may_miss = w->comma_may_miss};
    contains_rules rules = {0};
    gather_rules(s, a, &rules, &r);
    bool unique = a->unique && r.max > 1;
    for (uint32_t i = 0; i < a->layers.n; i++) {
        r.n = a->layers.p[i].prefix.n > r.n ? a->layers.p[i].prefix.n : r.n;
    }
    if (!set_rules(&rules, &r)) {
        schema_refuse(s, s->writing, "contains",
                      "one array allows at most 3 of them, with counts that multiply to at most 256");
        return NFA_FAIL_NODE;
    }
    if (unique && (r.n > 0 || rules.n > 0)) {
        schema_refuse(s, s->writing, "uniqueItems",
                      "together with prefixItems or contains, all items would have to be remembered");
        return NFA_FAIL_NODE;
    }
    r.first = s->b->a.slots.n;
    for (uint32_t i = 0; i <= r.n && build_step(s->b, 1); i++) {
        add_slot(s, w, a, &rules, &r, i, unique);
    }
    if (!NFA_ADD(s->b, s->b->a.arrays, r)) {
        return NFA_FAIL_NODE;
    }
    return build_node(s->b, NFA_ARRAY, NFA_RAW, s->b->a.arrays.n - 1, 0, next);
}

static uint32_t item_node(schema *s, uint32_t x) {
    return build_call(s->b, schema_rule(s, x), schema_space(s, NFA_RETURN_NODE));
}

static uint32_t array_node(schema *s, const array_part *a) {
    const item_writer w = {.item = item_node, .comma = schema_comma(s)};
    uint32_t items = schema_items_of(s, a, &w, schema_literal(s, "]", NFA_RETURN_NODE));
    return items == NFA_FAIL_NODE ? items : schema_literal(s, "[", schema_space(s, items));
}

/* ---- rules ---- */

uint32_t schema_value(schema *s, const shape *x) {
    PARTS(uint32_t) ways = {0};
#define WAY(node, keyword)                                                                                   \
    do {                                                                                                     \
        uint32_t way_ = (node);                                                                              \
        schema_name_failure(s, s->writing, keyword, false);                                                  \
        (void)PART_ADD(s, ways, way_);                                                                       \
    } while (0)
    if (x->null) {
        WAY(schema_literal(s, style_word(s, "null"), NFA_RETURN_NODE), "type");
    }
    if (x->yes) {
        WAY(schema_literal(s, style_word(s, "true"), NFA_RETURN_NODE), "type");
    }
    if (x->no) {
        WAY(schema_literal(s, style_word(s, "false"), NFA_RETURN_NODE), "type");
    }
    for (uint32_t i = 0; i < x->numbers.n; i++) {
        WAY(number_node(s, &x->numbers.p[i]), "multipleOf");
    }
    for (uint32_t i = 0; i < x->strings.n; i++) {
        WAY(string_node(s, &x->strings.p[i]), "pattern");
    }
    for (uint32_t i = 0; i < x->arrays.n; i++) {
        WAY(array_node(s, &x->arrays.p[i]), "items");
    }
    for (uint32_t i = 0; i < x->objects.n; i++) {
        WAY(schema_object(s, &x->objects.p[i]), "properties");
    }
#undef WAY
    return ways.n > 0 ? build_split(s->b, ways.p, ways.n) : NFA_FAIL_NODE;
}

uint32_t schema_shape_rule(schema *s, const shape *x) {
    assert(s != NULL);
    uint32_t rule = build_rule(s->b);
    (void)NFA_ADD(s->b, s->shapes, (shape_rule){*x, rule, s->writing});
    return rule;
}

const char *schema_path_of(const schema *s, uint32_t x) {
    assert(x < s->exprs.n);
    const expr *e = &s->exprs.p[x];
    const char *path = e->path;
    for (uint32_t i = 0; i < e->n && path == NULL; i++) {
        const expr *child = &s->exprs.p[e->children[i]];
        path = child->kind == EXPR_IS_QUIET ? s->exprs.p[child->children[0]].path : child->path;
    }
    return path != NULL ? path : "";
}

void schema_write_rest(schema *s) {
    assert(s != NULL);
    for (uint32_t i = 0; i < s->shapes.n && s->b->failed == QUIRE_OK; i++) {
        s->writing = s->shapes.p[i].path;
        build_rule_set(s->b, s->shapes.p[i].rule, schema_value(s, &s->shapes.p[i].shape));
    }
    while (s->queue.n > 0 && s->b->failed == QUIRE_OK) {
        uint32_t x = s->queue.p[--s->queue.n];
        s->writing = schema_path_of(s, x);
        build_rule_set(s->b, s->exprs.p[x].rule - 1, schema_value(s, expr_shape(s, x)));
    }
}

void schema_write(schema *s, uint32_t root) {
    (void)schema_rule(s, root);
    schema_write_rest(s);
}

/* The texts of an automaton, and their number, if there are few. */

/* A text that was read up to a state. */
typedef struct partial {
    str text;
    uint32_t state;
} partial;

typedef struct partials {
    partial p[SCHEMA_FEW];
    uint32_t n;
} partials;

/* Adds the texts with one more character. False: there are too many. */
static bool add_longer(schema *s, const partial *at, uint32_t c, uint32_t state, partials *to) {
    char bytes[4];
    size_t n = utf8_encode((int32_t)c, bytes);
    char *text = to->n < SCHEMA_FEW ? schema_keep(s, at->text.n + n, 1) : NULL;
    if (text != NULL) {
        mem_copy(text, at->text.p, at->text.n);
        memcpy(text + at->text.n, bytes, n);
        to->p[to->n++] = (partial){{text, at->text.n + n}, state};
    }
    return text != NULL;
}

static bool add_all_longer(schema *s, const dfa *d, const partial *at, partials *to) {
    const nfa_dstate *q = &d->states.p[at->state];
    bool few = q->other == NFA_NONE; /* otherwise almost every character is allowed */
    for (uint32_t i = 0; few && i < q->n; i++) {
        const dfa_edge *e = &d->edges.p[q->first + i];
        for (uint32_t c = e->lo; few && e->to != NFA_NONE && c <= e->hi; c++) {
            few = (c >= 0xD800 && c <= 0xDFFF) || add_longer(s, at, c, e->to, to);
        }
    }
    return few;
}

bool schema_few_texts(schema *s, uint32_t x, str texts[SCHEMA_FEW], uint32_t *n) {
    partials two[2] = {{.p = {{{"", 0}, 0}}, .n = 1}, {.n = 0}};
    bool few = true;
    *n = 0;
    for (uint32_t length = 0; few && two[length % 2].n > 0; length++) {
        const dfa *d = &s->dfas->all.p[x];
        const partials *from = &two[length % 2];
        partials *to = &two[(length + 1) % 2];
        to->n = 0;
        /* a longer text passes some state twice, so there is no end */
        few = length < d->states.n && build_step(s->b, from->n);
        for (uint32_t i = 0; i < from->n && few; i++) {
            if (d->states.p[from->p[i].state].accepts && (few = *n < SCHEMA_FEW)) {
                texts[(*n)++] = from->p[i].text;
            }
            few = few && add_all_longer(s, d, &from->p[i], to);
        }
    }
    return few;
}

static uint32_t n_surrogates(uint32_t lo, uint32_t hi) {
    lo = lo < 0xD800 ? 0xD800 : lo;
    hi = hi > 0xDFFF ? 0xDFFF : hi;
    return lo <= hi ? hi - lo + 1 : 0;
}

/* Counts the texts from state q by the known counts of its successors; 0: not known yet.
 * More than NFA_FEW_NAMES count as NFA_FEW_NAMES + 1. */
static uint32_t schema_texts_count_from(const dfa *d, uint32_t q, const uint32_t *known) {
    const nfa_dstate *s = &d->states.p[q];
    uint64_t n = s->accepts, others = NFA_MAX_CHAR + 1u - 0x800u;
    for (uint32_t k = 0; k <= s->n; k++) {
        const dfa_edge *e = k < s->n ? &d->edges.p[s->first + k] : NULL;
        uint32_t to = e != NULL ? e->to : s->other;
        uint64_t chars = e != NULL ? (uint64_t)e->hi - e->lo + 1 - n_surrogates(e->lo, e->hi) : others;
        others -= e != NULL ? chars : 0;
        if (to != NFA_NONE && known[to] == 0) {
            return 0;
        }
        n += to != NFA_NONE ? chars * known[to] : 0;
    }
    return n > NFA_FEW_NAMES ? NFA_FEW_NAMES + 1 : (uint32_t)n;
}

uint32_t schema_count_texts(schema *s, uint32_t x) {
    const dfa *d = &s->dfas->all.p[x];
    uint32_t *known = schema_keep(s, d->states.n, sizeof *known);
    /* states on a cycle never become known */
    for (bool changed = known != NULL; changed && known[0] == 0;) {
        changed = false;
        for (uint32_t q = d->states.n; q-- > 0 && build_step(s->b, 1 + d->states.p[q].n);) {
            bool is_new = known[q] == 0 && (known[q] = schema_texts_count_from(d, q, known)) != 0;
            changed = changed || is_new;
        }
    }
    return known == NULL || known[0] == 0 || known[0] > NFA_FEW_NAMES ? NFA_NONE : known[0];
}
