/* A run: a grammar's machine over a vocabulary, with masks. Private to this room. */
#ifndef GRAMMAR_GRAMMAR_RUN_H
#define GRAMMAR_GRAMMAR_RUN_H

#include "grammar/area.h"
#include "grammar/grammar.h"
#include "grammar/machine.h"
#include "grammar/token_trie.h"
#include <pthread.h>
#include <stdatomic.h>

/* A list of up to n_tokens / RUN_LIST_PART tokens takes at most half of a mask's bits. */
#define RUN_LIST_PART 64

/* Texts of characters of these groups (token_trie.h), of at most so many: all may
 * follow. */
typedef struct run_texts {
    uint64_t groups;
    uint32_t chars;
} run_texts;
#define RUN_MAX_TEXTS 3

/* What may follow a state, whatever it is; and over which groups the state comes back to
 * itself, of those that are known. */
#define RUN_TAKEN 128u
typedef struct run_taken {
    run_texts texts[RUN_MAX_TEXTS];
    uint64_t known, over;
    uint32_t state, n;
} run_taken;

/* The position of a walk in a block of children: the state before them, and its row. */
typedef struct run_level {
    const uint32_t *row;
    uint32_t state, at, end;
} run_level;

typedef struct run_core run_core;

struct grammar {
    _Atomic int32_t refs;
    nfa a;
    pthread_mutex_t lock; /* of runs */
    run_core *runs;       /* open ones */
};

/* What all runs of a grammar over one vocabulary share. */
struct run_core {
    int32_t refs; /* guarded by the grammar's lock */
    grammar *g;
    grammar_vocab *v;
    run_core *next;
    size_t max_bytes;           /* for the states of each run; half of that for all masks */
    struct memory_share *share; /* of its tenant, a reference; NULL: none */
    /* Threads outside of steps that have the lock or want it: a step does not wait for
     * them. */
    _Atomic int32_t n_outside;
    pthread_mutex_t lock; /* of all below */
    machine m;
    area masks;
    area_budget mask_budget;
    uint32_t n_mask_words;
    size_t wants_masks;         /* bytes that `masks` had no addresses for; 0: none */
    run_level *path;            /* [longest + 1] along the trie */
    uint32_t *list;             /* [n_tokens / RUN_LIST_PART + 1] tokens of a mask */
    run_taken taken[RUN_TAKEN]; /* of a few states */
    uint64_t *scratch;          /* a mask */
    grammar_run_stats stats;
    _Atomic int64_t mask_ns; /* read without the lock */
};

/* One run. What of the machine he is the first to need counts against his own budget. */
struct grammar_run {
    _Atomic int32_t refs;
    run_core *core;
    size_t paid; /* bytes of states; guarded by the core's lock */
    grammar_state first;
    _Atomic(const char *) why; /* the last failure for want of room, or NULL */
};

/* grammar_run.c. Does an operation on r's core, under its lock, in which the machine may
 * grow by what is left of r's budget. Within a step QUIRE_BUSY where a thread outside has
 * the lock, or where op fails and may be tried again; elsewhere that is done, in slices
 * between which others have the lock and the thread takes turns. op: QUIRE_BUSY and other
 * errors as machine_error. */
typedef quire_err (*run_op)(run_core *r, void *context);
quire_err run_do(grammar_run *r, run_op op, void *context);

/* run_names.c: states of a run, which know names that came. From RUN_NAMED on they are
 * others than the machine's, of which run_base is the one that takes the same bytes but
 * for such names. */
#define RUN_NAMED 0x80000000u
uint32_t run_base(const run_core *r, uint32_t s);
/* run_walk of these. */
uint32_t run_go(run_core *r, uint32_t s, str text, size_t *n);
/* Takes the tokens that would name something twice out of run_base's mask. False: it
 * fails. */
bool run_forbid_names(run_core *r, uint32_t s, uint64_t *bits);

/* mask.c; the caller holds the lock. Writes the mask after state s. */
quire_err run_mask(run_core *r, uint32_t s, uint64_t *bits);
/* The only token that the mask after state s allows; -1: it allows another number of
 * them, or its budget is used up. */
int32_t run_only_token(run_core *r, uint32_t s);
/* A mask that is being filled: tokens beside its base go to the list too, as far as that
 * has room; n: how many there are. With `before` only tokens t are for which before[t] is
 * from least to most. */
typedef struct mask_out {
    uint64_t *bits;
    uint32_t *list, n, max;
    const uint8_t *before;
    uint32_t least, most;
} mask_out;

static inline void mask_set(mask_out *o, int32_t t) {
    if (o->before != NULL && (o->before[t] < o->least || o->before[t] > o->most)) {
        return;
    }
    o->bits[t / 64] |= (uint64_t)1 << (t % 64);
    if (o->n < o->max) {
        o->list[o->n] = (uint32_t)t;
    }
    o->n++;
}

/* trie_walk.c: sets the tokens of a trie that may follow state s. same: of the trie.
 * False: the budget is used up. */
bool run_walk_trie(run_core *r, const vocab_trie *t, const int32_t *same, uint32_t s, mask_out *o);
/* trie_walk.c: texts that may follow state s because one of its nodes takes them,
 * whatever else it is in; [RUN_MAX_TEXTS]. Returns how many there are: 0 where no node
 * takes characters. */
uint32_t run_find_texts(const run_core *r, uint32_t s, run_texts *out);
/* The machine's state after a text; MACHINE_DEAD, MACHINE_FULL. *n: bytes that were
 * taken. */
uint32_t run_walk(run_core *r, uint32_t s, str text, size_t *n);

/* Memory of runs by tenant. Private to this room; grammar.h has its public part. */

/* What a tenant's runs take. */
typedef struct memory_share {
    area_account account;
    grammar_memory *of;
    uint64_t tenant;
    int32_t refs; /* guarded by the lock of `of` */
    struct memory_share *next;
} memory_share;

/* The share of a tenant, with one reference more; each needs a memory_share_drop.
 * QUIRE_NO_MEMORY. */
quire_err memory_share_take(grammar_memory *m, uint64_t tenant, memory_share **out);
void memory_share_drop(memory_share *s);

#endif
