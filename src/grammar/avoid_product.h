/* A product of rules with an automaton, under construction: what avoid.c and avoid_ends.c
 * share. Private to them.
 *
 * First it is found in which states each rule may end (avoid_ends.c), then nodes are
 * copied (avoid.c). */
#ifndef GRAMMAR_AVOID_PRODUCT_H
#define GRAMMAR_AVOID_PRODUCT_H

#include "grammar/dfa.h"

enum { AVOID_MAX_STATES = 256 };

/* The states in which a rule may end that begins in state `from`: bit q % 64 of ends[q /
 * 64]. */
typedef struct outcome {
    uint32_t rule, from;
    uint64_t ends[AVOID_MAX_STATES / 64];
    uint32_t callers; /* the newest one, plus 1 */
} outcome;

/* A call whose rule has the outcome that lists it. */
typedef struct caller {
    uint32_t outcome, next; /* of the calling rule; the node after the call */
    uint32_t older;         /* plus 1 */
} caller;

typedef struct pair {
    uint64_t key;
    uint32_t to;
} pair;

/* A table of numbers by key. */
typedef struct table {
    NFA_VEC(pair) list;
    hash_index index; /* of list */
} table;

typedef struct visit {
    uint32_t outcome, node, state;
} visit;

/* Characters of a class, and the state that they lead to. */
typedef struct piece {
    nfa_range range;
    uint32_t to;
} piece;

typedef struct product {
    build *b;
    const dfa *d; /* its vectors do not move: no dfa is made meanwhile */
    uint32_t n_states;
    NFA_VEC(outcome) outcomes;
    NFA_VEC(caller) callers;
    NFA_VEC(visit) work;
    NFA_VEC(uint32_t) todo; /* copies whose successors are to be made: numbers in nodes.list */
    table known, seen;      /* outcomes by rule and state; visits */
    table nodes, rules;     /* copies */
    NFA_VEC(piece) pieces;
    NFA_VEC(nfa_range) ranges;
    NFA_VEC(uint32_t) ways;
} product;

static inline bool has_end(const uint64_t *ends, uint32_t q) {
    return (ends[q / 64] >> (q % 64) & 1) != 0;
}

/* The number of a key in a table's list; a new one, whose `to` is not set, where
 * *is_new. */
uint32_t product_find(product *p, table *t, uint64_t key, bool *is_new);
/* The state after the bytes of a node; NFA_NONE: the dfa accepts nothing there. */
uint32_t product_behind(product *p, const nfa_node *node, uint32_t state);
/* Cuts a class into p->pieces, ascending, each with the state that its characters lead
 * to. */
void product_cut(product *p, const nfa_node *node, uint32_t state);
/* The number of the outcome of a rule that begins in `from`. */
uint32_t product_outcome(product *p, uint32_t rule, uint32_t from);
/* Finds the ends of a rule that begins in state 0, and of all that it calls; the number
 * of its outcome. */
uint32_t product_find_ends(product *p, uint32_t rule);

#endif
