/* Walks a trie of the vocabulary through the machine.
 *
 * Where a node of a state takes any text of some groups of characters (a string under a
 * pattern, say), or the state comes back to itself over them, a subtree of only such
 * characters is taken at once. Which these are is found as far as it is needed, and
 * remembered for a few states. */
#include "grammar/grammar_run.h"

/* ---- what a state comes back to itself over ---- */

static bool loops_over_ascii(run_core *r, uint32_t s, uint32_t group) {
    const trie_groups *g = &r->v->groups;
    for (uint32_t i = g->start[group]; i < g->start[group + 1]; i++) {
        if (machine_next(&r->m, s, g->bytes[i]) != s) {
            return false;
        }
    }
    return true;
}

/* Whether configuration c does the same at all characters past ASCII, or nothing. */
static bool is_even(const run_core *r, const machine_config *c) {
    const nfa *a = r->m.a;
    const nfa_node *node = &a->nodes.p[c->node];
    if (c->value != 0) {
        return false;
    }
    if (node->op == NFA_BYTES) {
        return a->bytes.p[node->arg + c->at] < 0x80;
    }
    if (node->op == NFA_STRING || node->op == NFA_TEXT) {
        const nfa_text *t = node->op == NFA_TEXT ? &a->texts.p[node->arg] : NULL;
        const nfa_dstate *d = &a->dstates.p[t != NULL ? t->first + c->at % t->n : c->at];
        return d->n == 0 || a->dedges.p[d->first + d->n - 1].hi < 0x80;
    }
    return node->op == NFA_COUNTED || node->op == NFA_SPACE || node->op == NFA_RETURN;
}

static bool loops_over_others(run_core *r, uint32_t s) {
    static const str samples[] = {{"\xC3\xA9", 2}, {"\xE2\x82\xAC", 3}, {"\xF0\x9F\x98\x80", 4}};
    const machine_state *state = machine_state_at(&r->m, s);
    for (uint32_t i = 0; i < state->n; i++) {
        if (!is_even(r, machine_configs(&r->m, s) + i)) {
            return false;
        }
    }
    size_t n;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        if (run_walk(r, s, samples[i], &n) != s) {
            return false;
        }
    }
    return true;
}

enum { FEW = 8 }; /* tokens for which it is not worth while to look at a state */

/* What is known of state s; NULL: nothing, and it is for few tokens. */
static run_taken *taken_by(run_core *r, uint32_t s, uint32_t n_tokens) {
    run_taken *l = &r->taken[s % RUN_TAKEN];
    if (l->state != s && n_tokens < FEW) {
        return NULL;
    }
    if (l->state != s && !work_add(&r->m.meter, machine_state_at(&r->m, s)->n)) {
        machine_fail(&r->m, MACHINE_LATER);
        return NULL;
    }
    if (l->state != s) {
        *l = (run_taken){.state = s, .known = (uint64_t)1 << TRIE_WRONG};
        l->n = run_find_texts(r, s, l->texts);
    }
    return l;
}

/* Whether s comes back to itself over all these groups. */
static bool loops_over(run_core *r, uint32_t s, uint64_t groups, run_taken *l) {
    if ((groups & l->known & ~l->over) != 0) {
        return false;
    }
    for (uint64_t left = groups & ~l->known; left != 0; left &= left - 1) {
        uint32_t g = (uint32_t)__builtin_ctzll(left);
        bool over = g < TRIE_OTHER ? loops_over_ascii(r, s, g) : loops_over_others(r, s);
        if (r->m.why != MACHINE_FINE) {
            return false; /* it is not known */
        }
        l->known |= (uint64_t)1 << g;
        l->over |= (uint64_t)over << g;
        if (!over) {
            return false;
        }
    }
    return true;
}

/* Whether all that is below a node may follow state s, which its byte leads to from state
 * `from`. */
static bool takes_all(run_core *r, uint32_t from, uint32_t s, const trie_under *u) {
    run_taken *l = taken_by(r, s, u->n);
    for (uint32_t i = 0; l != NULL && i < l->n; i++) {
        if ((u->groups & ~l->texts[i].groups) == 0 && u->chars <= l->texts[i].chars) {
            return true;
        }
    }
    return l != NULL && l->n == 0 && (s == from || l->over != 0) && loops_over(r, s, u->groups, l);
}

/* ---- the walk ---- */

static void set_tokens(mask_out *o, const int32_t *same, int32_t token) {
    for (; token >= 0; token = same[token]) {
        mask_set(o, token);
    }
}

static void set_under(mask_out *o, const vocab_trie *t, const trie_under *u) {
    const int32_t *tokens = t->tokens + u->first;
    if (o->before != NULL || o->n + u->n <= o->max) {
        for (uint32_t i = 0; i < u->n; i++) {
            mask_set(o, tokens[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < u->n; i++) {
        o->bits[tokens[i] / 64] |= (uint64_t)1 << (tokens[i] % 64);
    }
    o->n += u->n;
}

#define NODES_A_LOOK 64 /* nodes of a trie between two reads of the clock; */
#define NODES_A_UNIT 16 /* that take as long as a configuration */

/* Counts another node of a walk. */
static bool count_node(run_core *r, uint32_t *n) {
    if (++*n % NODES_A_LOOK == 0 && !work_add(&r->m.meter, NODES_A_LOOK / NODES_A_UNIT)) {
        machine_fail(&r->m, MACHINE_LATER);
    }
    return r->m.why == MACHINE_FINE;
}

bool run_walk_trie(run_core *r, const vocab_trie *t, const int32_t *same, uint32_t s, mask_out *o) {
    const uint8_t *class = r->m.a->byte_class;
    run_level *l = r->path;
    uint32_t n_nodes = 0;
    *l = (run_level){.state = s, .row = machine_row(&r->m, s), .at = 0, .end = t->n_roots};
    if (l->row == NULL) {
        return false;
    }
    for (;;) {
        if (l->at == l->end) {
            if (l == r->path) {
                return true;
            }
            l--;
            continue;
        }
        const trie_node *node = &t->nodes[l->at++];
        if (!count_node(r, &n_nodes)) {
            return false;
        }
        uint32_t to = l->row[class[node->byte]];
        to = to != MACHINE_UNKNOWN ? to : machine_next(&r->m, l->state, node->byte);
        if (to < MACHINE_FIRST) {
            if (to == MACHINE_FULL) {
                return false;
            }
            continue;
        }
        const trie_under *under = &t->under[node - t->nodes];
        if (node->n > 0 && takes_all(r, l->state, to, under)) {
            set_under(o, t, under);
            continue;
        }
        set_tokens(o, same, node->token);
        if (node->n > 0) {
            const uint32_t *row = machine_row(&r->m, to);
            if (row == NULL) {
                return false;
            }
            *++l = (run_level){.state = to, .row = row, .at = node->child, .end = node->child + node->n};
        }
    }
}
