/* A run: a grammar's machine over a vocabulary, with masks. Private to this room. */
#ifndef GRAMMAR_GRAMMAR_RUN_H
#define GRAMMAR_GRAMMAR_RUN_H

#include <pthread.h>
#include <stdatomic.h>

#include "grammar/machine.h"
#include "grammar/token_trie.h"

/* A list of up to n_tokens / RUN_LIST_PART tokens takes at most half of a mask's bits. */
#define RUN_LIST_PART 64

/* Groups of characters (byte_trie.h) over which a state comes back to itself: over, of those that are known. */
#define RUN_LOOPS 64u
typedef struct run_loops {
    uint64_t known, over;
    uint32_t state;
} run_loops;

/* Where a walk stands in a block of children: the state before them, and its row. */
typedef struct run_level {
    const uint32_t *row;
    uint32_t state, at, end;
} run_level;

struct grammar {
    _Atomic int32_t refs;
    nfa a;
    pthread_mutex_t lock; /* of runs */
    grammar_run *runs;    /* open ones */
};

struct grammar_run {
    int32_t refs; /* guarded by the grammar's lock */
    grammar *g;
    grammar_vocab *v;
    grammar_run *next;
    pthread_mutex_t lock; /* of all below */
    machine m;
    area masks;
    uint32_t n_mask_words;
    run_level *path; /* [longest + 1] along the trie */
    uint32_t *list;  /* [n_tokens / RUN_LIST_PART + 1] tokens of a mask */
    run_loops loops[RUN_LOOPS];
    uint64_t *scratch; /* a mask */
    grammar_run_stats stats;
};

/* mask.c; the caller holds the lock. Writes the mask behind state s. */
quire_err run_mask(grammar_run *r, uint32_t s, uint64_t *bits);
/* A mask that is being filled: tokens beside its base go to the list too, as far as that has room; n: how many there are. */
typedef struct mask_out {
    uint64_t *bits;
    uint32_t *list, n, max;
} mask_out;

static inline void mask_set(mask_out *o, int32_t t) {
    o->bits[t / 64] |= (uint64_t)1 << (t % 64);
    if (o->n < o->max) {
        o->list[o->n] = (uint32_t)t;
    }
    o->n++;
}

/* trie_walk.c: sets the tokens of a trie that may follow state s. same: of the trie. False: the budget is used up. */
bool run_walk_trie(grammar_run *r, const vocab_trie *t, const int32_t *same, uint32_t s, mask_out *o);
/* The state behind a text; MACHINE_DEAD, MACHINE_FULL. *n: bytes that were taken. */
uint32_t run_walk(grammar_run *r, uint32_t s, str text, size_t *n);

#endif
