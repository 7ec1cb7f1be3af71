/* Deterministic automata over characters while a schema is compiled: patterns, lists of
 * names, and what holds for both. Private to this room.
 *
 * What was made before is given again. A dfa's states are numbered from 0, which is its
 * start; edges are those of nfa.h. All live in one pool and are named by number; DFA_ANY
 * is the one that accepts every text. Each operation that fails leaves its error in the
 * build and returns DFA_ANY. */
#ifndef GRAMMAR_DFA_H
#define GRAMMAR_DFA_H

#include "grammar/ast.h"

typedef struct dfa_edge {
    uint32_t lo, hi, to; /* to: NFA_NONE where no character of the range may follow */
} dfa_edge;

/* The numbers of characters with which texts can be completed from each state: n_sets
 * sets of states, `words` words each, that come again from set `loop` on (nfa_text). */
typedef struct dfa_lengths {
    uint64_t *sets; /* mem_new'd; NULL: there are none */
    uint32_t words, n_sets, loop, far, rich;
} dfa_lengths;

typedef struct dfa {
    NFA_VEC(nfa_dstate) states;
    NFA_VEC(dfa_edge) edges;
    uint32_t placed;       /* number of the nfa's copy, plus 1; 0: none yet */
    bool merged, measured; /* dfa_merge, dfa_lengths_of have been */
    dfa_lengths lengths;
} dfa;

/* What an automaton was made of (dfa_search.c); its text begins at made_texts[text]. */
typedef struct dfa_made {
    uint32_t kind, x, y, text, n_text, dfa;
} dfa_made;

typedef struct dfa_pool {
    build *b;
    NFA_VEC(dfa) all;
    NFA_VEC(dfa_made) made;
    NFA_VEC(uint8_t) made_texts;
    hash_index index; /* of made */
} dfa_pool;

#define DFA_ANY        0u
#define DFA_MAX_STATES 20000

typedef enum dfa_op { DFA_AND, DFA_AND_NOT, DFA_OR } dfa_op;

void dfa_pool_init(dfa_pool *p, build *b);
void dfa_pool_deinit(dfa_pool *p);

/* Texts in which the regex matches somewhere, as JSON Schema's `pattern` has it. */
uint32_t dfa_pattern(dfa_pool *p, str regex);
/* Exactly these texts (valid UTF-8). */
uint32_t dfa_names(dfa_pool *p, const str *names, uint32_t n);
/* Texts of min to max characters; max may be NFA_NONE. */
uint32_t dfa_length(dfa_pool *p, uint32_t min, uint32_t max);
uint32_t dfa_combine(dfa_pool *p, uint32_t x, uint32_t y, dfa_op op);
/* What x accepts as it is written between two quotes `quote` of Python: that one, the
 * backslash and newlines, returns and tabs after a backslash, every other character as
 * itself; texts with other control characters are left out. */
uint32_t dfa_quoted(dfa_pool *p, uint32_t x, char quote);
bool dfa_is_empty(const dfa_pool *p, uint32_t x);
bool dfa_accepts(const dfa_pool *p, uint32_t x, str text);
/* The same of any bytes, and no further than *steps, which are counted down: below 0 it
 * says nothing. */
bool dfa_accepts_within(const dfa_pool *p, uint32_t x, str text, int64_t *steps);
/* Of texts that are counted (dfa_search.c): how x's texts can be completed from its
 * states, which dfa_merge may have changed before. NULL: they have too many states for
 * that, or the build failed. It stays the pool's. */
const dfa_lengths *dfa_lengths_of(dfa_pool *p, uint32_t x);
/* Whether some text of min to max characters is one of x; *all: whether every text of x
 * is. */
bool dfa_lengths_meet(const dfa_lengths *l, uint32_t min, uint32_t max, bool *all);

/* Makes it smaller without changing what it accepts (dfa_search.c). */
void dfa_merge(dfa_pool *p, uint32_t x);
/* Copies it into the nfa, once; returns its number there. It must not be empty. */
uint32_t dfa_place(dfa_pool *p, uint32_t x);

/* dfa_search.c: by where texts[0 .. n) occur, valid UTF-8 and not empty. */
typedef enum dfa_found {
    DFA_NEVER, /* none of them occurs; `wanted` is unused */
    DFA_FIRST, /* texts[wanted] ends the text, and none ended before */
    DFA_LAST   /* texts[wanted] ends the text */
} dfa_found;
uint32_t dfa_search(dfa_pool *p, const str *texts, uint32_t n, uint32_t wanted, dfa_found found);

/* What dfa_search.c calls where an automaton was not made before; each makes one as the
 * function of the same name. */
uint32_t dfa_make_pattern(dfa_pool *p, str regex);
uint32_t dfa_make_names(dfa_pool *p, const str *names, uint32_t n);
uint32_t dfa_make_length(dfa_pool *p, uint32_t min, uint32_t max);
uint32_t dfa_make_combined(dfa_pool *p, uint32_t x, uint32_t y, dfa_op op);
uint32_t dfa_make_quoted(dfa_pool *p, uint32_t x, char quote);

/* To build any other dfa: start with an empty one, add its states and edges in order, then
 * trim it, which removes states that cannot reach an accepting one. dfa_trim returns x, or
 * DFA_ANY if the grammar has failed. */
uint32_t dfa_new(dfa_pool *p);
void dfa_add_state(dfa_pool *p, uint32_t x, bool accepts);
/* Adds an edge to the newest state; ranges ascend. `other` is set by the last range of a
 * state where that reaches the last character. */
void dfa_add_edge(dfa_pool *p, uint32_t x, uint32_t lo, uint32_t hi, uint32_t to);
uint32_t dfa_trim(dfa_pool *p, uint32_t x);

#endif
