/* A run: a grammar's machine over a vocabulary, and its masks. Private to this room. */
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
 * The children of a node are adjacent, so that a walk that rejects most of them reads few
 * cache lines. Each node knows the tokens below it, and the groups of characters in their
 * texts, so that a walk may accept all of them at once. */

#define VOCAB_MAX_TOKEN 1024 /* bytes of the longest token that may be allowed */

typedef struct trie_node {
    uint32_t child; /* index of the first child */
    int32_t token;  /* token that ends here, -1: none; others with the same bytes are chained */
    uint16_t n;     /* number of children */
    uint8_t byte;
} trie_node;

/* The tokens at and below a node: tokens[first .. first + n). If a character begins after
 * the node: the groups of the characters below it, and the most characters of any token
 * there. */
typedef struct trie_under {
    uint64_t groups : 48;
    uint64_t chars : 16;
    uint32_t first, n;
} trie_under;

typedef struct vocab_trie {
    trie_node *nodes; /* the root's children first */
    trie_under *under;
    int32_t *tokens; /* sorted by their bytes */
    uint32_t n, n_roots;
} vocab_trie;

typedef struct trie_key {
    str text;
    int32_t token;
} trie_key;

/* Groups of characters: control characters (4 groups); the rest of ASCII in order, with a
 * group per sign, but one for adjacent digits or letters; all other characters; bytes
 * that are not UTF-8. */
#define TRIE_CONTROL 0u
#define TRIE_PRINTED 4u  /* first group after control characters, tabs, newlines and returns */
#define TRIE_OTHER   43u /* group of characters beyond ASCII */
#define TRIE_WRONG   44u /* group of bytes that are not UTF-8 */
typedef struct trie_groups {
    uint8_t of[128];    /* group of each ASCII character */
    uint8_t bytes[128]; /* ASCII characters sorted by group: bytes[start[g] .. start[g + 1]) */
    uint8_t start[TRIE_OTHER + 1];
    uint64_t words; /* set of groups: letters and digits */
    uint64_t plain; /* set of groups: characters that need no escape in a JSON string */
} trie_groups;

#define VOCAB_PLAIN 16 /* most characters of plain tokens that are kept by length */

typedef struct vocab_long {
    uint32_t chars;
    int32_t token;
} vocab_long;

struct grammar_vocab {
    _Atomic int32_t refs;
    int32_t n_tokens, n_ends;
    uint32_t longest; /* bytes of the longest token */
    int32_t *ends;
    int32_t *same;    /* [n_tokens] next token with the same bytes; -1: none */
    uint32_t *starts; /* [n_tokens + 1] offsets in `bytes` */
    uint8_t *bytes;
    trie_groups groups;
    vocab_trie all, rest; /* rest: all tokens but those in plain[VOCAB_PLAIN] */
    /* Tokens inside a JSON string, where an escape counts as one character:
     *   body     mask of those that stay inside, whatever comes before
     *   quoted   those that may leave the string
     *   tails    their text from the closing quote on; same_tail chains equal ones
     *   before   number of characters before that quote, at most most_before */
    uint64_t *body;
    vocab_trie quoted, odd, tails; /* odd: those of quoted that need a walk to tell */
    int32_t *same_tail;
    uint8_t *before;
    uint32_t most_before;
    uint64_t *within[VOCAB_PLAIN + 1]; /* within[n]: mask of the tokens in body with up to n characters */
    vocab_long *longer;                /* the rest of body, shortest first */
    uint32_t n_longer;
    /* Tokens that are only JSON white space, and a trie of the others. */
    int32_t *spaces, n_spaces;
    vocab_trie others;
    /* Tokens that may contain a name: with two or more quotes; with three or more; with
     * text after a quote; with a word between other characters. */
    vocab_trie quotes, thrice, begins, words;
    size_t n_words;
    /* plain[n]: mask of tokens of up to n whole characters, none of them escaped in
     * JSON */
    uint64_t *plain[VOCAB_PLAIN + 1];
};

/* Whether the token is one of the vocabulary's end tokens. */
static inline bool vocab_is_end(const grammar_vocab *v, int32_t token) {
    for (int32_t i = 0; i < v->n_ends; i++) {
        if (v->ends[i] == token) {
            return true;
        }
    }
    return false;
}

static inline str vocab_text(const grammar_vocab *v, int32_t token) {
    return (str){(const char *)v->bytes + v->starts[token], v->starts[token + 1] - v->starts[token]};
}

/* ---- running a grammar over a vocabulary ---- */

/* A list of n_tokens / RUN_LIST_PART tokens takes at most half as many bits as a mask. */
#define RUN_LIST_PART 64

/* Texts of up to `chars` characters from these groups (token_trie.c), all of which may
 * follow. */
typedef struct run_texts {
    uint64_t groups;
    uint32_t chars;
} run_texts;
#define RUN_MAX_TEXTS 3

/* What is known of a state: texts that may follow it; and of the groups in `known`, those
 * in `over` lead from the state back to it. */
#define RUN_TAKEN 128u
typedef struct run_taken {
    run_texts texts[RUN_MAX_TEXTS];
    uint64_t known, over;
    uint32_t state, n;
} run_taken;

/* A position of a walk in a block of siblings, with the state before them and its row. */
typedef struct run_level {
    const uint32_t *row;
    uint32_t state, at, end;
} run_level;

typedef struct run_core run_core;

struct grammar {
    _Atomic int32_t refs;
    nfa a;
    pthread_mutex_t lock; /* guards `runs` */
    run_core *runs;       /* the open ones */
};

/* State that all runs of a grammar over one vocabulary share. */
struct run_core {
    int32_t refs; /* guarded by the grammar's lock */
    grammar *g;
    grammar_vocab *v;
    run_core *next;
    size_t max_bytes;           /* limit for the states of each run; half of it for all masks */
    struct memory_share *share; /* share of its tenant, holding a reference; NULL: none */
    /* Threads outside of steps that hold the lock or wait for it; a step does not wait
     * then. */
    _Atomic int32_t n_outside;
    pthread_mutex_t lock; /* guards all members below */
    machine m;
    area masks;
    area_budget mask_budget;
    uint32_t n_mask_words;
    size_t wants_masks;         /* bytes for which `masks` lacked addresses; 0: none */
    run_level *path;            /* [longest + 1] path of a walk in the trie */
    uint32_t *list;             /* [n_tokens / RUN_LIST_PART + 1] tokens of a mask under construction */
    run_taken taken[RUN_TAKEN]; /* cache for a few states */
    uint64_t *scratch;          /* room for a mask */
    grammar_run_stats stats;
    _Atomic int64_t mask_ns; /* read without the lock */
};

/* One run. States of the machine that it is the first to need count against its
 * budget. */
struct grammar_run {
    _Atomic int32_t refs;
    run_core *core;
    size_t paid; /* bytes of states paid for; guarded by the core's lock */
    grammar_state first;
    _Atomic(const char *) why; /* the last failure for lack of room; NULL: none */
};

/* grammar_run.c: executes op on r's core under the lock. The machine may grow by what is
 * left of r's budget. Within a step QUIRE_BUSY if a thread outside of steps has the lock,
 * or if op must be retried. Outside it is retried, in slices between which the thread
 * releases the lock and yields. Other errors are op's (machine_error). */
typedef quire_err (*run_op)(run_core *r, void *context);
quire_err run_do(grammar_run *r, run_op op, void *context);

/* run_names.c: states of a run that know which names came. Those from RUN_NAMED on are
 * not the machine's; run_base gives the machine's state for one, which accepts the same
 * bytes, but also names that came already. */
#define RUN_NAMED 0x80000000u
uint32_t run_base(const run_core *r, uint32_t s);
/* Like run_walk, for states of a run. */
uint32_t run_go(run_core *r, uint32_t s, str text, size_t *n);
/* Removes the tokens that would repeat a name from run_base's mask. False: it fails. */
bool run_forbid_names(run_core *r, uint32_t s, uint64_t *bits);

/* mask.c: writes the mask of state s; the lock is held. Errors as in machine_error. */
quire_err run_mask(run_core *r, uint32_t s, uint64_t *bits);
/* A mask under construction: tokens added to its base are also listed, while there is
 * room; n counts them. If `before` is not NULL, only tokens t with least <= before[t] <=
 * most are added. */
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

/* trie_walk.c: adds the tokens of a trie that may follow state s. same: chains the trie's
 * tokens with equal bytes. False: the budget is used up. */
bool run_walk_trie(run_core *r, const vocab_trie *t, const int32_t *same, uint32_t s, mask_out *o);
/* trie_walk.c: finds texts [RUN_MAX_TEXTS] that may follow state s because one of its
 * nodes accepts them. Returns how many; 0 if no node reads characters. */
uint32_t run_find_texts(const run_core *r, uint32_t s, run_texts *out);
/* The machine's state after a text, or MACHINE_DEAD, MACHINE_FULL. *n: number of bytes
 * read. */
uint32_t run_walk(run_core *r, uint32_t s, str text, size_t *n);

/* Memory of runs by tenant; grammar.h has the public part. Private to this room. */

/* The memory that a tenant's runs take. */
typedef struct memory_share {
    area_account account;
    grammar_memory *of;
    uint64_t tenant;
    int32_t refs; /* guarded by the lock of `of` */
    struct memory_share *next;
} memory_share;

/* The share of a tenant, with a reference that needs a memory_share_drop.
 * QUIRE_NO_MEMORY. */
quire_err memory_share_take(grammar_memory *m, uint64_t tenant, memory_share **out);
void memory_share_drop(memory_share *s);

#endif
