/* A run: a grammar's machine over a vocabulary, with masks. Private to this room. */
#ifndef GRAMMAR_GRAMMAR_RUN_H
#define GRAMMAR_GRAMMAR_RUN_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/err.h"
#include "base/str.h"
#include "grammar/area.h"
#include "grammar/grammar.h"
#include "grammar/machine.h"

/* ---- token_trie.c: the vocabulary as a trie ---- */

/* Tries over the bytes of tokens. Private to this room; immutable once built.
 *
 * Children of a node lie side by side, so that a walk which rejects most of them reads
 * few cache lines; each node knows which tokens are below it and of which groups of
 * characters these consist, so that a walk may take all of them at once. */

#define VOCAB_MAX_TOKEN 1024 /* bytes of a token; longer ones are never allowed */

typedef struct trie_node {
    uint32_t child; /* the first child */
    int32_t token;  /* that ends here, or -1; further ones with the same bytes: chained */
    uint16_t n;     /* children */
    uint8_t byte;
} trie_node;

/* What is at and below a node: tokens[first .. first + n), and if a character begins
 * after it, the groups of the characters below and how many of them a token has at
 * most. */
typedef struct trie_under {
    uint64_t groups : 48;
    uint64_t chars : 16;
    uint32_t first, n;
} trie_under;

typedef struct vocab_trie {
    trie_node *nodes; /* the root's children first */
    trie_under *under;
    int32_t *tokens; /* in the order of their bytes */
    uint32_t n, n_roots;
} vocab_trie;

typedef struct trie_key {
    str text;
    int32_t token;
} trie_key;

/* Characters in groups: control characters, then the others of ASCII in their order, sign
 * by sign except for digits and letters; all others together; and what is not UTF-8. */
#define TRIE_CONTROL 0u
#define TRIE_PRINTED 4u  /* the first one past control characters, tabs, newlines and returns */
#define TRIE_OTHER   43u /* group of characters past ASCII */
#define TRIE_WRONG   44u /* not UTF-8 */
typedef struct trie_groups {
    uint8_t of[128];    /* group of an ASCII character */
    uint8_t bytes[128]; /* ASCII characters by group: bytes[start[g] .. start[g + 1]) */
    uint8_t start[TRIE_OTHER + 1];
    uint64_t words; /* groups of letters and digits */
    uint64_t plain; /* those that a JSON string holds as they are */
} trie_groups;

#define VOCAB_PLAIN 16 /* characters up to which plain tokens are sorted by length */

typedef struct vocab_long {
    uint32_t chars;
    int32_t token;
} vocab_long;

struct grammar_vocab {
    _Atomic int32_t refs;
    int32_t n_tokens, n_ends;
    uint32_t longest; /* bytes of a token */
    int32_t *ends;
    int32_t *same;    /* [n_tokens] the next token with the same bytes, or -1 */
    uint32_t *starts; /* [n_tokens + 1] in bytes */
    uint8_t *bytes;
    trie_groups groups;
    vocab_trie all, rest; /* rest: without plain[VOCAB_PLAIN] */
    /* Of tokens inside a JSON string: body, those that stay inside whatever they begin
     * with; quoted, those that may leave it; tails, what these have from the closing
     * quote on, with the tokens of equal tails chained in same_tail; before, how many
     * characters stand before that quote, at most most_before. An escape is one
     * character. */
    uint64_t *body;
    vocab_trie quoted, odd, tails; /* odd: the part of quoted that only a walk can tell */
    int32_t *same_tail;
    uint8_t *before;
    uint32_t most_before;
    uint64_t *within[VOCAB_PLAIN + 1]; /* the part of body that has at most so many characters; */
    vocab_long *longer;                /* the others, shortest first */
    uint32_t n_longer;
    /* Tokens of JSON's white space alone, and a trie of the others. */
    int32_t *spaces, n_spaces;
    vocab_trie others;
    /* Tokens that may have a name in them: two quotes or more, three or more; a quote
     * with something after; a word between other characters. */
    vocab_trie quotes, thrice, begins, words;
    size_t n_words;
    /* masks: whole characters only, none of which JSON escapes, at most so many */
    uint64_t *plain[VOCAB_PLAIN + 1];
};

static inline str vocab_text(const grammar_vocab *v, int32_t token) {
    return (str){(const char *)v->bytes + v->starts[token], v->starts[token + 1] - v->starts[token]};
}

/* ---- running a grammar ---- */

/* A list of up to n_tokens / RUN_LIST_PART tokens takes at most half of a mask's bits. */
#define RUN_LIST_PART 64

/* Texts of characters of these groups (token_trie.c), of at most so many: all may
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
