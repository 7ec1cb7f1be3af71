/* Deterministic automata over characters, used while a schema is compiled: for patterns,
 * lists of names, and their combinations. Private to this room.
 *
 * Results are memoised. A dfa's states are numbered from its start, 0; edges are as in
 * nfa.h. Automata are in a pool and known by number; DFA_ANY accepts every text. An
 * operation that fails records its error in the build and returns DFA_ANY. */
#ifndef GRAMMAR_DFA_H
#define GRAMMAR_DFA_H

#include "grammar/ast.h"

typedef struct dfa_edge {
    uint32_t lo, hi, to; /* to: NFA_NONE if no character of the range may follow */
} dfa_edge;

/* With how many more characters texts can be completed from each state: set i has the
 * states from which exactly i characters can. n_sets sets of `words` words each; after
 * the last one they repeat from set `loop` on (nfa_text). */
typedef struct dfa_lengths {
    uint64_t *sets; /* owned; NULL: not computed, or none */
    uint32_t words, n_sets, loop, far, rich;
} dfa_lengths;

typedef struct dfa {
    NFA_VEC(nfa_dstate) states;
    NFA_VEC(dfa_edge) edges;
    uint32_t placed;       /* number of the copy in the nfa, plus 1; 0: none yet */
    bool merged, measured; /* dfa_merge was called; dfa_lengths_of was called */
    dfa_lengths lengths;
} dfa;

/* Key of a memoised automaton (dfa_search.c); its text is at made_texts[text]. */
typedef struct dfa_made {
    uint32_t kind, x, y, text, n_text, dfa;
} dfa_made;

typedef struct dfa_pool {
    build *b;
    NFA_VEC(dfa) all;
    NFA_VEC(dfa_made) made;
    NFA_VEC(uint8_t) made_texts;
    hash_index index; /* index of `made` */
} dfa_pool;

#define DFA_ANY        0u
#define DFA_MAX_STATES 20000

typedef enum dfa_op { DFA_AND, DFA_AND_NOT, DFA_OR } dfa_op;

void dfa_pool_init(dfa_pool *p, build *b);
void dfa_pool_deinit(dfa_pool *p);

/* Texts in which the regex matches somewhere, as for `pattern` in JSON Schema. */
uint32_t dfa_pattern(dfa_pool *p, str regex);
/* Exactly these texts, which are valid UTF-8. */
uint32_t dfa_names(dfa_pool *p, const str *names, uint32_t n);
/* Texts of min to max characters; max NFA_NONE: unlimited. */
uint32_t dfa_length(dfa_pool *p, uint32_t min, uint32_t max);
uint32_t dfa_combine(dfa_pool *p, uint32_t x, uint32_t y, dfa_op op);
/* The texts of x as written in a Python string with this quote. The quote, backslash,
 * newline, return and tab are escaped, other characters are themselves; texts with other
 * control characters are dropped. */
uint32_t dfa_quoted(dfa_pool *p, uint32_t x, char quote);
bool dfa_is_empty(const dfa_pool *p, uint32_t x);
bool dfa_accepts(const dfa_pool *p, uint32_t x, str text);
/* Whether x accepts the text, which may be any bytes. Counts down *steps; if they become
 * negative, the result is meaningless. */
bool dfa_accepts_within(const dfa_pool *p, uint32_t x, str text, int64_t *steps);
/* Computes for x's states with how many characters texts can be completed (dfa_search.c).
 * May call dfa_merge. NULL if there are too many states, or the build failed. Owned by
 * the pool. */
const dfa_lengths *dfa_lengths_of(dfa_pool *p, uint32_t x);
/* Whether x has a text of min to max characters. *all: whether all its texts are. */
bool dfa_lengths_meet(const dfa_lengths *l, uint32_t min, uint32_t max, bool *all);

/* Reduces the number of states; accepts the same texts (dfa_search.c). */
void dfa_merge(dfa_pool *p, uint32_t x);
/* Copies x, which must not be empty, into the nfa once. Returns its number there. */
uint32_t dfa_place(dfa_pool *p, uint32_t x);

/* What to accept, by where texts[0 .. n) occur (dfa_search.c). They are valid UTF-8, not
 * empty. */
typedef enum dfa_found {
    DFA_NEVER, /* texts in which none of them occurs; `wanted` is unused */
    DFA_FIRST, /* texts that end with texts[wanted], where none of them ended before */
    DFA_LAST   /* texts that end with texts[wanted] */
} dfa_found;
uint32_t dfa_search(dfa_pool *p, const str *texts, uint32_t n, uint32_t wanted, dfa_found found);

/* Called by the memoising functions of the same names in dfa_search.c to make an
 * automaton. */
uint32_t dfa_make_pattern(dfa_pool *p, str regex);
uint32_t dfa_make_names(dfa_pool *p, const str *names, uint32_t n);
uint32_t dfa_make_length(dfa_pool *p, uint32_t min, uint32_t max);
uint32_t dfa_make_combined(dfa_pool *p, uint32_t x, uint32_t y, dfa_op op);
uint32_t dfa_make_quoted(dfa_pool *p, uint32_t x, char quote);

/* Builds any other dfa: start empty, add states and edges in order, then trim, which
 * removes states that cannot reach an accepting one. dfa_trim returns x, or DFA_ANY if
 * the build failed. */
uint32_t dfa_new(dfa_pool *p);
void dfa_add_state(dfa_pool *p, uint32_t x, bool accepts);
/* Adds an edge to the newest state; ranges ascend. If a state's last range reaches the
 * last character, it becomes `other`. */
void dfa_add_edge(dfa_pool *p, uint32_t x, uint32_t lo, uint32_t hi, uint32_t to);
uint32_t dfa_trim(dfa_pool *p, uint32_t x);

#endif
