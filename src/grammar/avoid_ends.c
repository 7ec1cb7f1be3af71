/* In which states of the automaton the rules of a product may end. */
#include "base/utf8.h"
#include "grammar/avoid_product.h"

/* ---- tables ---- */

/* The number of a key in the list; a new one, whose `to` is not set, where *is_new. */
uint32_t product_find(product *p, table *c, uint64_t key, bool *is_new) {
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

/* The state after a character; NFA_NONE: the dfa accepts nothing there. */
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

/* The state after the bytes of a node. */
uint32_t product_behind(product *p, const nfa_node *node, uint32_t state) {
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

/* Adds a piece of a class to the others that lead to the same state. */
static void avoid_ends_add_piece(product *p, uint32_t lo, uint32_t hi, uint32_t to) {
    piece *x = to != NFA_NONE ? NFA_PUSH(p->b, p->pieces) : NULL;
    if (x != NULL) {
        *x = (piece){{lo, hi}, to};
    }
}

/* Cuts a class into pieces, ascending, each with the state that its characters lead
 * to. */
void product_cut(product *p, const nfa_node *node, uint32_t state) {
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

/* ---- where rules end ---- */

static void push_visit(product *p, uint32_t of, uint32_t node, uint32_t state) {
    bool is_new;
    (void)product_find(p, &p->seen, (uint64_t)of << 40 | (uint64_t)node << 8 | state, &is_new);
    visit *v = is_new ? NFA_PUSH(p->b, p->work) : NULL;
    if (v != NULL) {
        *v = (visit){of, node, state};
    }
}

/* The number of an outcome, which begins to be walked where it is new. */
uint32_t product_outcome(product *p, uint32_t rule, uint32_t from) {
    bool is_new;
    uint32_t i = product_find(p, &p->known, (uint64_t)rule << 8 | from, &is_new);
    outcome *o = is_new ? NFA_PUSH(p->b, p->outcomes) : NULL;
    if (o != NULL) {
        *o = (outcome){.rule = rule, .from = from};
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

/* Visits what characters of a class lead to. */
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
        uint32_t to = product_behind(p, &node, v.state);
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

/* Finds the ends of a rule that begins in state 0, and of all that it calls (summaries of
 * calls: Reps, Horwitz and Sagiv 1995). */
uint32_t product_find_ends(product *p, uint32_t rule) {
    uint32_t of = product_outcome(p, rule, 0);
    while (p->work.n > 0 && build_step(p->b, 1)) {
        walk_one(p, p->work.p[--p->work.n]);
    }
    return of;
}
