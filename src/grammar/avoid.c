/* Restricts rules by an automaton: builds the product, which matches what both accept
 * (Bar-Hillel, Perles and Shamir 1961).
 *
 * A node is copied for each state in which it is reached and each state in which its rule
 * must end, and a rule for each pair of such states; only copies that are reached are
 * made. */
#include "grammar/avoid.h"

#include <assert.h>

#include "base/utf8.h"
#include "grammar/dfa.h"

/* Builds the product: finds the states in which each rule may end, then copies nodes. */

enum { AVOID_MAX_STATES = 256 };

/* The states in which a rule may end if it begins in a given state: bit q % 64 of ends[q
 * / 64]. */
typedef struct outcome {
    uint64_t ends[AVOID_MAX_STATES / 64];
    uint32_t callers; /* newest caller, plus 1 */
} outcome;

/* A call of the rule whose outcome lists it. */
typedef struct caller {
    uint32_t outcome, next; /* outcome of the calling rule; node after the call */
    uint32_t older;         /* next older caller, plus 1 */
} caller;

typedef struct pair {
    uint64_t key;
    uint32_t to;
} pair;

/* A map from keys to numbers. */
typedef struct table {
    NFA_VEC(pair) list;
    hash_index index; /* index of list */
} table;

typedef struct visit {
    uint32_t outcome, node, state;
} visit;

/* Some characters of a class, with the state that they lead to. */
typedef struct piece {
    nfa_range range;
    uint32_t to;
} piece;

typedef struct product {
    build *b;
    const dfa *d; /* its vectors do not move, since no dfa is made meanwhile */
    uint32_t n_states;
    NFA_VEC(outcome) outcomes;
    NFA_VEC(caller) callers;
    NFA_VEC(visit) work;
    NFA_VEC(uint32_t) todo; /* copies without successors so far: indices in nodes.list */
    table known, seen;      /* outcomes by rule and state; visits */
    table nodes, rules;     /* copies */
    NFA_VEC(piece) pieces;
    NFA_VEC(nfa_range) ranges;
    NFA_VEC(uint32_t) ways;
} product;

static inline bool has_end(const uint64_t *ends, uint32_t q) {
    return (ends[q / 64] >> (q % 64) & 1) != 0;
}

/* ---- tables ---- */

/* Finds the index of a key in a table's list. *is_new: it was added, without its `to`. */
static uint32_t product_find(product *p, table *c, uint64_t key, bool *is_new) {
    uint32_t hash = (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32);
    *is_new = false;
    HASH_INDEX_EACH(&c->index, hash, i) {
        if (c->list.p[i].key == key) {
            return i;
        }
    }
    pair *new = NFA_PUSH(p->b, c->list);
    if (new == NULL || !build_index(p->b, &c->index, hash, c->list.n - 1)) {
        return 0;
    }
    *new = (pair){key, 0};
    *is_new = true;
    return c->list.n - 1;
}

/* ---- characters ---- */

/* The state after a character; NFA_NONE: the dfa rejects it. */
static uint32_t avoid_ends_step_of(const product *p, uint32_t state, uint32_t c) {
    const nfa_dstate *s = &p->d->states.p[state];
    for (uint32_t i = 0; i < s->n; i++) {
        const dfa_edge *e = &p->d->edges.p[s->first + i];
        if (e->lo <= c && c <= e->hi) {
            return e->to;
        }
    }
    return s->other;
}

/* The state after a node's bytes; NFA_NONE: the dfa rejects them. */
static uint32_t product_after_bytes(product *p, const nfa_node *node, uint32_t state) {
    const char *bytes = (const char *)p->b->a.bytes.p + node->arg;
    if (node->n == UINT16_MAX) {
        (void)build_fail(p->b, QUIRE_TOO_LARGE, -1, "a text of the grammar is too long here");
        return NFA_NONE;
    }
    for (size_t at = 0, len; at < node->n && state != NFA_NONE && build_step(p->b, 1); at += len) {
        state = avoid_ends_step_of(p, state, (uint32_t)utf8_next(bytes + at, &len));
    }
    return state;
}

/* Adds a piece of a class to those that lead to the same state. */
static void avoid_ends_add_piece(product *p, uint32_t lo, uint32_t hi, uint32_t to) {
    if (to != NFA_NONE) {
        (void)NFA_ADD(p->b, p->pieces, (piece){{lo, hi}, to});
    }
}

/* Divides a class into p->pieces, ascending, each with the state that it leads to. */
static void product_cut(product *p, const nfa_node *node, uint32_t state) {
    const nfa *a = &p->b->a;
    const nfa_class *class = &a->classes.p[node->arg];
    const nfa_dstate *s = &p->d->states.p[state];
    p->pieces.n = 0;
    for (uint32_t i = 0; i < class->n && build_step(p->b, 1); i++) {
        nfa_range r = a->ranges.p[class->first + i];
        uint32_t at = r.lo;
        for (uint32_t k = 0; k < s->n && at <= r.hi; k++) {
            dfa_edge e = p->d->edges.p[s->first + k];
            if (e.hi < at || e.lo > r.hi) {
                continue;
            }
            if (e.lo > at) {
                avoid_ends_add_piece(p, at, e.lo - 1, s->other);
            }
            avoid_ends_add_piece(p, e.lo > at ? e.lo : at, e.hi < r.hi ? e.hi : r.hi, e.to);
            at = e.hi + 1;
        }
        if (at <= r.hi) {
            avoid_ends_add_piece(p, at, r.hi, s->other);
        }
    }
}

static void push_visit(product *p, uint32_t of, uint32_t node, uint32_t state) {
    bool is_new;
    (void)product_find(p, &p->seen, (uint64_t)of << 40 | (uint64_t)node << 8 | state, &is_new);
    if (is_new) {
        (void)NFA_ADD(p->b, p->work, (visit){of, node, state});
    }
}

/* The number of the outcome of a rule from a state; schedules a new one. */
static uint32_t product_outcome(product *p, uint32_t rule, uint32_t from) {
    bool is_new;
    uint32_t i = product_find(p, &p->known, (uint64_t)rule << 8 | from, &is_new);
    if (is_new && NFA_ADD(p->b, p->outcomes, (outcome){0})) {
        push_visit(p, i, p->b->a.rules.p[rule].start, from);
    }
    return i;
}

static void add_end(product *p, uint32_t of, uint32_t state) {
    outcome *o = &p->outcomes.p[of];
    if (has_end(o->ends, state)) {
        return;
    }
    o->ends[state / 64] |= (uint64_t)1 << (state % 64);
    for (uint32_t i = o->callers; i > 0 && build_step(p->b, 1); i = p->callers.p[i - 1].older) {
        push_visit(p, p->callers.p[i - 1].outcome, p->callers.p[i - 1].next, state);
    }
}

static void add_caller(product *p, uint32_t of, const nfa_node *call, uint32_t state) {
    uint32_t callee = product_outcome(p, call->arg, state);
    caller *c = NFA_PUSH(p->b, p->callers);
    if (c == NULL || p->b->failed != QUIRE_OK) {
        return;
    }
    *c = (caller){of, call->next, p->outcomes.p[callee].callers};
    p->outcomes.p[callee].callers = p->callers.n;
    for (uint32_t q = 0; q < p->n_states; q++) {
        if (has_end(p->outcomes.p[callee].ends, q)) {
            push_visit(p, of, call->next, q);
        }
    }
}

/* Visits the states after the characters of a class. */
static void push_characters(product *p, uint32_t of, const nfa_node *node, uint32_t state) {
    product_cut(p, node, state);
    for (uint32_t i = 0; i < p->pieces.n; i++) {
        push_visit(p, of, node->next, p->pieces.p[i].to);
    }
}

static void walk_one(product *p, visit v) {
    const nfa *a = &p->b->a;
    nfa_node node = a->nodes.p[v.node];
    switch ((nfa_op)node.op) {
    case NFA_RETURN:
        add_end(p, v.outcome, v.state);
        break;
    case NFA_SPLIT:
        for (uint32_t i = 0; i < node.n; i++) {
            push_visit(p, v.outcome, a->targets.p[node.arg + i], v.state);
        }
        break;
    case NFA_BYTES: {
        uint32_t to = product_after_bytes(p, &node, v.state);
        if (to != NFA_NONE) {
            push_visit(p, v.outcome, node.next, to);
        }
        break;
    }
    case NFA_CLASS:
        push_characters(p, v.outcome, &node, v.state);
        break;
    case NFA_CALL:
        add_caller(p, v.outcome, &node, v.state);
        break;
    default: /* NFA_FAIL */
        break;
    }
}

/* Finds the states in which a rule that begins in state 0 may end, and those of the rules
 * it calls (by summaries of calls: Reps, Horwitz and Sagiv 1995). */
static uint32_t product_find_ends(product *p, uint32_t rule) {
    uint32_t of = product_outcome(p, rule, 0);
    while (p->work.n > 0 && build_step(p->b, 1)) {
        walk_one(p, p->work.p[--p->work.n]);
    }
    return of;
}

/* ---- repeats ---- */

/* Adds one round of a repeat, then next: a character, or a call of the body. */
static uint32_t one_round(build *b, const nfa_repeat *r, uint32_t rule, uint32_t next) {
    nfa_node body = b->a.nodes.p[r->body];
    bool is_character = body.op == NFA_CLASS && body.next == NFA_RETURN_NODE;
    return is_character ? build_node(b, NFA_CLASS, NFA_RAW, body.arg, 0, next) : build_call(b, rule, next);
}

/* Expands a repeat. */
static void unroll(build *b, uint32_t i) {
    nfa_node node = b->a.nodes.p[i];
    nfa_repeat r = b->a.repeats.p[node.arg];
    uint32_t rule = build_rule(b), next = node.next, rounds = r.max == NFA_NONE ? r.min : r.max;
    build_rule_set(b, rule, r.body);
    if (rounds > AVOID_MAX_ROUNDS) {
        (void)build_fail(b, QUIRE_TOO_LARGE, -1,
                         "a repeat of over %d rounds in a text that must not contain its own end",
                         AVOID_MAX_ROUNDS);
    }
    if (r.max == NFA_NONE) {
        uint32_t loop = build_loop(b);
        build_patch(b, loop, one_round(b, &r, rule, loop), next);
        next = loop;
    }
    for (uint32_t k = r.min; r.max != NFA_NONE && k < r.max && build_step(b, 1); k++) {
        next = build_split2(b, one_round(b, &r, rule, next), next);
    }
    for (uint32_t k = 0; k < r.min && build_step(b, 1); k++) {
        next = one_round(b, &r, rule, next);
    }
    uint32_t split = build_split2(b, next, NFA_FAIL_NODE);
    if (b->failed == QUIRE_OK) {
        b->a.nodes.p[i] = b->a.nodes.p[split];
    }
}

/* ---- copies ---- */

static uint64_t avoid_key_of(uint32_t x, uint32_t state, uint32_t end) {
    return (uint64_t)x << 16 | (uint64_t)state << 8 | end;
}

/* The copy of a node reached in `state` whose rule ends in `end`. */
static uint32_t node_copy(product *p, uint32_t node, uint32_t state, uint32_t end) {
    bool is_new;
    if (node == NFA_RETURN_NODE) {
        return state == end ? NFA_RETURN_NODE : NFA_FAIL_NODE;
    }
    uint32_t i = product_find(p, &p->nodes, avoid_key_of(node, state, end), &is_new);
    if (is_new) {
        p->nodes.list.p[i].to = build_node(p->b, NFA_FAIL, NFA_RAW, 0, 0, NFA_FAIL_NODE);
        (void)NFA_ADD(p->b, p->todo, i);
    }
    return p->b->failed == QUIRE_OK ? p->nodes.list.p[i].to : NFA_FAIL_NODE;
}

static uint32_t rule_copy(product *p, uint32_t rule, uint32_t state, uint32_t end) {
    bool is_new;
    uint32_t i = product_find(p, &p->rules, avoid_key_of(rule, state, end), &is_new);
    if (is_new) {
        uint32_t to = build_rule(p->b);
        p->rules.list.p[i].to = to;
        build_rule_set(p->b, to, node_copy(p, p->b->a.rules.p[rule].start, state, end));
    }
    return p->b->failed == QUIRE_OK ? p->rules.list.p[i].to : 0;
}

static void avoid_push_way(product *p, uint32_t node) {
    (void)NFA_ADD(p->b, p->ways, node);
}

/* Removes the pieces that lead to the same state as the first one left, into p->ranges.
 * Returns that state; NFA_NONE: no pieces are left. */
static uint32_t avoid_take_pieces(product *p) {
    uint32_t to = NFA_NONE;
    p->ranges.n = 0;
    for (uint32_t i = 0; i < p->pieces.n; i++) {
        piece *x = &p->pieces.p[i];
        to = to == NFA_NONE ? x->to : to;
        if (x->to == NFA_NONE || x->to != to) {
            continue;
        }
        nfa_range *last = p->ranges.n > 0 ? &p->ranges.p[p->ranges.n - 1] : NULL;
        nfa_range *r = last != NULL && last->hi + 1 == x->range.lo ? last : NFA_PUSH(p->b, p->ranges);
        if (r != NULL) {
            *r = (nfa_range){r == last ? r->lo : x->range.lo, x->range.hi};
        }
        x->to = NFA_NONE;
    }
    return to;
}

/* Adds a node that reads like `reads` and continues at the copy of `next`. That copy gets
 * a higher number, so the passes of build_finish see chains in one go. */
static void push_reader(product *p, nfa_node reads, uint32_t next, uint32_t state, uint32_t end) {
    uint32_t node = build_node(p->b, (nfa_op)reads.op, NFA_RAW, reads.arg, reads.n, NFA_FAIL_NODE);
    avoid_push_way(p, node);
    next = node_copy(p, next, state, end);
    if (p->b->failed == QUIRE_OK) {
        p->b->a.nodes.p[node].next = next;
    }
}

/* Copies a class: an alternative for each state that it leads to. */
static void copy_class(product *p, const nfa_node *node, uint32_t state, uint32_t end) {
    product_cut(p, node, state);
    for (uint32_t to; (to = avoid_take_pieces(p)) != NFA_NONE && build_step(p->b, 1);) {
        uint32_t class = build_class(p->b, p->ranges.p, p->ranges.n);
        push_reader(p, (nfa_node){.op = NFA_CLASS, .arg = class}, node->next, to, end);
    }
}

static void copy_call(product *p, const nfa_node *node, uint32_t state, uint32_t end) {
    uint32_t of = product_outcome(p, node->arg, state);
    if (p->b->failed != QUIRE_OK) {
        return;
    }
    const outcome o = p->outcomes.p[of];
    for (uint32_t q = 0; q < p->n_states; q++) {
        if (has_end(o.ends, q)) {
            uint32_t rule = rule_copy(p, node->arg, state, q);
            push_reader(p, (nfa_node){.op = NFA_CALL, .n = node->n, .arg = rule}, node->next, q, end);
        }
    }
}

/* Fills copy i, as a split of its alternatives. */
static void avoid_fill(product *p, uint32_t i) {
    build *b = p->b;
    pair c = p->nodes.list.p[i];
    uint32_t state = (uint32_t)(c.key >> 8 & 0xFF), end = (uint32_t)(c.key & 0xFF);
    nfa_node node = b->a.nodes.p[c.key >> 16];
    p->ways.n = 0;
    switch ((nfa_op)node.op) {
    case NFA_SPLIT:
        for (uint32_t k = 0; k < node.n; k++) {
            avoid_push_way(p, node_copy(p, b->a.targets.p[node.arg + k], state, end));
        }
        break;
    case NFA_BYTES: {
        uint32_t to = product_after_bytes(p, &node, state);
        if (to != NFA_NONE) {
            push_reader(p, node, node.next, to, end);
        }
        break;
    }
    case NFA_CLASS:
        copy_class(p, &node, state, end);
        break;
    case NFA_CALL:
        copy_call(p, &node, state, end);
        break;
    default:
        break;
    }
    if (p->ways.n > 0 && b->failed == QUIRE_OK) {
        avoid_push_way(p, NFA_FAIL_NODE); /* with two or more targets, the split is a node of its own */
        uint32_t split = build_split(b, p->ways.p, p->ways.n);
        b->a.nodes.p[c.to] = b->a.nodes.p[split];
    }
}

static bool open_product(product *p, uint32_t first, uint32_t dfa_number, dfa_pool *pool) {
    *p = (product){.b = pool->b, .d = &pool->all.p[dfa_number]};
    p->n_states = p->d->states.n;
    if (p->n_states > AVOID_MAX_STATES) {
        (void)build_fail(p->b, QUIRE_TOO_LARGE, -1, "what ends a value of this format takes over %d states",
                         AVOID_MAX_STATES);
        return false;
    }
    for (uint32_t i = first, n = p->b->a.nodes.n; i < n && build_step(p->b, 1); i++) {
        if (p->b->a.nodes.p[i].op == NFA_REPEAT) {
            unroll(p->b, i);
        }
    }
    return p->b->failed == QUIRE_OK;
}

static void close_table(build *b, table *t) {
    NFA_FREE(b, t->list);
    hash_index_deinit(&t->index);
}

static void close_product(product *p) {
    NFA_FREE(p->b, p->outcomes);
    NFA_FREE(p->b, p->callers);
    NFA_FREE(p->b, p->work);
    NFA_FREE(p->b, p->todo);
    close_table(p->b, &p->known);
    close_table(p->b, &p->seen);
    close_table(p->b, &p->nodes);
    close_table(p->b, &p->rules);
    NFA_FREE(p->b, p->pieces);
    NFA_FREE(p->b, p->ranges);
    NFA_FREE(p->b, p->ways);
}

uint32_t avoid_rule(dfa_pool *pool, uint32_t rule, uint32_t first, uint32_t x) {
    assert(pool != NULL);
    product p;
    build *b = pool->b;
    uint32_t made = build_rule(b);
    if (b->failed != QUIRE_OK) {
        return made;
    }
    if (open_product(&p, first, x, pool)) {
        uint32_t of = product_find_ends(&p, rule);
        outcome ends = b->failed == QUIRE_OK ? p.outcomes.p[of] : (outcome){0};
        uint32_t start = NFA_FAIL_NODE;
        for (uint32_t q = 0; q < p.n_states && b->failed == QUIRE_OK; q++) {
            if (has_end(ends.ends, q) && p.d->states.p[q].accepts) {
                start = build_split2(b, build_call(b, rule_copy(&p, rule, 0, q), NFA_RETURN_NODE), start);
            }
        }
        if (start == NFA_FAIL_NODE && b->failed == QUIRE_OK) {
            (void)build_fail(b, QUIRE_INVALID, -1,
                             "every string that it allows contains the end of a value of this format");
        }
        while (p.todo.n > 0 && build_step(b, 1)) {
            avoid_fill(&p, p.todo.p[--p.todo.n]);
        }
        build_rule_set(b, made, start);
    }
    close_product(&p);
    return made;
}

/* Rewrites the characters of rules for strings: each node that reads characters becomes
 * nodes that read their spellings. */

/* ---- JSON ---- */

static bool respell_is_plain(char c) {
    return c >= 0x20 && c <= 0x7E && c != '"' && c != '\\';
}

/* A copy of a node's bytes, which may move while nodes are added. */
static char *copy_bytes(build *b, const nfa_node *node) {
    char *bytes = build_new(b, node->n, 1);
    if (node->n == UINT16_MAX) { /* a character may continue in another node */
        (void)build_fail(b, QUIRE_TOO_LARGE, -1, "a text of the grammar is too long for a string");
    }
    for (uint16_t i = 0; bytes != NULL && i < node->n; i++) {
        bytes[i] = (char)b->a.bytes.p[node->arg + i];
    }
    return bytes;
}

static void respell_replace(build *b, uint32_t i, uint32_t with) {
    if (b->failed == QUIRE_OK) {
        b->a.nodes.p[i] = b->a.nodes.p[with];
    }
}

static void respell_bytes_json(build *b, uint32_t i) {
    nfa_node node = b->a.nodes.p[i];
    uint32_t next = node.next;
    char *bytes = copy_bytes(b, &node);
    size_t at = node.n, len;
    while (bytes != NULL && at > 0 && build_step(b, 1)) {
        size_t from = at;
        while (from > 0 && respell_is_plain(bytes[from - 1])) {
            from--;
        }
        next = build_bytes(b, (str){bytes + from, at - from}, next);
        at = from;
        /* at a character that is escaped */
        while (from > 0 && !respell_is_plain(bytes[from - 1]) && build_step(b, 1)) {
            from--;
            while (from > 0 && ((uint8_t)bytes[from] & 0xC0u) == 0x80u) {
                from--;
            }
            uint32_t c = (uint32_t)utf8_next(bytes + from, &len);
            next = build_node(b, NFA_CLASS, NFA_PLAIN, build_class(b, &(nfa_range){c, c}, 1), 0, next);
            at = from;
        }
    }
    mem_free(bytes);
    respell_replace(b, i, next);
}

void respell_json(build *b, uint32_t first) {
    assert(b != NULL);
    uint32_t n = b->a.nodes.n;
    for (uint32_t i = first; i < n && build_step(b, 1); i++) {
        nfa_node *node = &b->a.nodes.p[i];
        if (node->op == NFA_CLASS) {
            node->mode = NFA_PLAIN;
        } else if (node->op == NFA_BYTES) {
            respell_bytes_json(b, i);
        }
    }
}

/* ---- Python ---- */

static const struct {
    uint32_t c;
    const char *spelt;
} escapes[] = {{'\t', "\\t"}, {'\n', "\\n"}, {'\r', "\\r"}, {'"', "\\\""}, {'\\', "\\\\"}};
enum { N_ESCAPES = sizeof escapes / sizeof *escapes };

/* How c is escaped; NULL: it is not. */
static const char *escape_of(uint32_t c) {
    for (size_t i = 0; i < N_ESCAPES; i++) {
        if (escapes[i].c == c) {
            return escapes[i].spelt;
        }
    }
    return NULL;
}

static void respell_bytes_python(build *b, uint32_t i) {
    nfa_node node = b->a.nodes.p[i];
    char *bytes = copy_bytes(b, &node);
    strbuf text = {0};
    quire_err e = QUIRE_OK;
    bool fits = true;
    for (uint16_t k = 0; bytes != NULL && k < node.n && e == QUIRE_OK; k++) {
        const char *spelt = escape_of((uint8_t)bytes[k]);
        fits = fits && (spelt != NULL || (uint8_t)bytes[k] >= 0x20);
        e = spelt != NULL ? strbuf_add_str(&text, spelt) : strbuf_add_char(&text, bytes[k]);
    }
    if (e != QUIRE_OK) {
        (void)build_fail(b, e, -1, "out of memory for the grammar");
    }
    uint32_t with = fits ? build_bytes(b, (str){text.p, text.n}, node.next) : NFA_FAIL_NODE;
    strbuf_deinit(&text);
    mem_free(bytes);
    respell_replace(b, i, with);
}

/* Adds the part of a range that needs no escape: without control characters, quotes and
 * backslashes. */
static void add_plain(build *b, nfa_range r, nfa_range *to, uint32_t *n) {
    static const uint32_t cuts[] = {0x20, '"', '\\', NFA_MAX_CHAR + 1};
    for (size_t i = 0; i + 1 < sizeof cuts / sizeof *cuts && build_step(b, 1); i++) {
        uint32_t lo = i == 0 ? cuts[0] : cuts[i] + 1, hi = cuts[i + 1] - 1;
        lo = lo > r.lo ? lo : r.lo;
        hi = hi < r.hi ? hi : r.hi;
        if (lo <= hi) {
            to[(*n)++] = (nfa_range){lo, hi};
        }
    }
}

static void respell_class_python(build *b, uint32_t i) {
    nfa_node node = b->a.nodes.p[i];
    nfa_class class = b->a.classes.p[node.arg];
    nfa_range *plain = build_new(b, (size_t) class.n * 3 + 1, sizeof *plain);
    uint32_t ways[N_ESCAPES + 1], n = 0, n_plain = 0;
    if (plain == NULL) {
        return;
    }
    for (uint32_t k = 0; k < class.n; k++) {
        add_plain(b, b->a.ranges.p[class.first + k], plain, &n_plain);
    }
    for (size_t e = 0; e < N_ESCAPES; e++) {
        bool has = false;
        for (uint32_t k = 0; k < class.n; k++) {
            const nfa_range *r = &b->a.ranges.p[class.first + k];
            has = has || (r->lo <= escapes[e].c && escapes[e].c <= r->hi);
        }
        if (has) {
            ways[n++] = build_bytes(b, str_of(escapes[e].spelt), node.next);
        }
    }
    if (n_plain > 0) {
        ways[n++] = build_node(b, NFA_CLASS, NFA_RAW, build_class(b, plain, n_plain), 0, node.next);
    }
    mem_free(plain);
    respell_replace(b, i, n > 0 ? build_split(b, ways, n) : NFA_FAIL_NODE);
}

void respell_python(build *b, uint32_t first) {
    assert(b != NULL);
    uint32_t n = b->a.nodes.n;
    for (uint32_t i = first; i < n && build_step(b, 1); i++) {
        nfa_op op = (nfa_op)b->a.nodes.p[i].op;
        if (op == NFA_BYTES) {
            respell_bytes_python(b, i);
        } else if (op == NFA_CLASS) {
            respell_class_python(b, i);
        }
    }
}
