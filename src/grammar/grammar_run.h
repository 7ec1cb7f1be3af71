/* A run: a grammar's machine over a vocabulary, with masks. Private to this room. */
#ifndef GRAMMAR_GRAMMAR_RUN_H
#define GRAMMAR_GRAMMAR_RUN_H

#include <pthread.h>
#include <stdatomic.h>

#include "grammar/machine.h"
#include "grammar/token_trie.h"

/* A list of up to n_tokens / RUN_LIST_PART tokens takes at most half of a mask's bits. */
#define RUN_LIST_PART 64

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
    uint32_t *path;    /* [longest + 1] states along the trie */
    uint32_t *list;    /* tokens of a mask */
    uint64_t *scratch; /* a mask */
    grammar_run_stats stats;
};

/* mask.c; the caller holds the lock. Writes the mask behind state s. */
quire_err run_mask(grammar_run *r, uint32_t s, uint64_t *bits);
/* The state behind a text; MACHINE_DEAD, MACHINE_FULL. *n: bytes that were taken. */
uint32_t run_walk(grammar_run *r, uint32_t s, str text, size_t *n);

#endif
