/* Grammars for structured output: a regex, JSON Schema, choice or EBNF is compiled to an
 * automaton, which computes the tokens that may come next.
 *
 *   grammar_compile -> grammar         what is allowed, as bytes; knows no tokens
 *   grammar_vocab_open -> vocabulary   the bytes of all tokens as a trie; one a tokenizer
 *   grammar_run_open -> run            a grammar over a vocabulary: a deterministic
 *                                      automaton that is built as it is used, with masks
 *   grammar_start -> state             the position of a sequence: plain bytes, copied by
 *                                      assignment
 *
 * A state's number is valid while its run is open. So a fork is an assignment, and a
 * caller that may roll back keeps each earlier state and assigns it back. All runs of one
 * grammar over one vocabulary share states and masks. A run pays from its own budget for
 * the states that it is the first to need; if that is used up, only its own sequences
 * end.
 *
 * Threads: grammar and vocabulary are immutable, with atomic reference counts. Any number
 * of threads may use one run: a lock guards it, for about a microsecond if the mask is
 * known. Unknown masks are built under the lock, in up to some milliseconds for the first
 * mask of a state. Calls on a state use no allocator: a run reserves addresses when it is
 * opened, and the system supplies memory when they are first written.
 *
 * Input is untrusted: compiling has budgets of steps, memory and time, a run has a budget
 * of memory. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "core/params.h"

/* ---- compiling ---- */

/* A keyword of a schema, in the order in which they are found. Texts are borrowed until
 * the call returns. */
typedef struct grammar_keyword {
    const char *path;    /* JSON pointer to the schema with the keyword; "": the root */
    const char *keyword; /* such as "minLength" */
    enum { GRAMMAR_ENFORCED, GRAMMAR_ANNOTATION, GRAMMAR_REFUSED } status;
    const char *how; /* how it is enforced, or why it is not: one clause */
} grammar_keyword;

typedef struct grammar_options {
    grammar_space space;
    grammar_order order;
    grammar_numbers numbers;
    grammar_additional additional;
    uint32_t max_depth;     /* limit on the nesting of JSON objects and arrays, at most 254; 0: none */
    str whitespace_pattern; /* a regex for each run of white space; empty: `space` decides */
    /* budgets, the last of processor time; 0: GRAMMAR_MAX_STEPS, _BYTES, _US */
    int64_t max_steps, max_bytes, max_us;
    /* called for each keyword of a schema; NULL: not wanted. With `survey` a refused
     * keyword does not end the call at once: it fails after all others were reported */
    void (*keyword)(void *user, const grammar_keyword *k);
    void *user;
    bool survey;
} grammar_options;

#define GRAMMAR_MAX_TEXT  ((size_t)1 << 20) /* bytes of a grammar's text */
#define GRAMMAR_MAX_STEPS 4000000 /* default; steps are nodes made, states merged, characters read */
#define GRAMMAR_MAX_BYTES ((int64_t)16 << 20)
#define GRAMMAR_MAX_US    200000

typedef struct grammar grammar;

/* Compiles text. options may be NULL (all zero). The caller owns *out (grammar_drop). Any
 * thread. QUIRE_INVALID: the text is malformed, or nothing matches it. QUIRE_UNSUPPORTED:
 * a keyword or construct that cannot be enforced. QUIRE_TOO_LARGE: over a budget.
 * QUIRE_CANCELLED: by its thread's turn (base/turn.h). err->message says what and where:
 * for a schema path and keyword, for other texts also err->position. */
quire_err grammar_compile(grammar_kind kind, str text, const grammar_options *options, grammar **out,
                          quire_error *err);
/* Adds a reference, which needs a grammar_drop. NULL is allowed. */
grammar *grammar_share(grammar *g);
void grammar_drop(grammar *g);
/* Bytes of the grammar itself, without runs. */
size_t grammar_bytes(const grammar *g);

/* Whether a regex matches somewhere in a text, like `pattern` in JSON Schema: ^ and $ are
 * the text's ends. *steps: the budget; gets what is left. Compiling takes at most
 * GRAMMAR_MATCH_STEPS, each character of the text at least one. Any thread.
 * QUIRE_INVALID, QUIRE_UNSUPPORTED: the regex; err says what and where. QUIRE_TOO_LARGE:
 * out of steps. QUIRE_NO_MEMORY. */
quire_err grammar_regex_matches(str regex, str text, int64_t *steps, bool *matches, quire_error *err);
#define GRAMMAR_MATCH_STEPS 50000 /* about a millisecond or several */

/* ---- vocabulary ---- */

typedef struct grammar_vocab grammar_vocab;

/* Builds the trie of n tokens with the bytes texts[id]; a token without bytes (control
 * tokens, unknown) is never allowed. ends: the n_ends tokens that end an answer, allowed
 * where it is complete. Keeps no texts. O(bytes of all tokens x log): about 50 ms for
 * 128k tokens. QUIRE_INVALID: n or an end token is out of range; QUIRE_NO_MEMORY. */
quire_err grammar_vocab_open(const str *texts, int32_t n, const int32_t *ends, int32_t n_ends,
                             grammar_vocab **out);
grammar_vocab *grammar_vocab_share(grammar_vocab *v);
void grammar_vocab_drop(grammar_vocab *v);
int32_t grammar_vocab_size(const grammar_vocab *v);
/* The bytes of a token; borrowed. */
str grammar_vocab_text(const grammar_vocab *v, int32_t token);
/* The number of words in a mask: (n + 63) / 64. */
size_t grammar_mask_words(const grammar_vocab *v);

/* ---- run ---- */

typedef struct grammar_run grammar_run;

#define GRAMMAR_RUN_BYTES ((size_t)64 << 20) /* default limit for a run's states */

/* A limit on the memory that states and masks of many runs take together, with shares by
 * tenant. A tenant's runs may take more while they have at most what is then free. So one
 * tenant can have half, k of them that take all they can get equal parts, and an equal
 * part stays free for another. */
typedef struct grammar_memory grammar_memory;

quire_err grammar_memory_open(size_t max_bytes, grammar_memory **out);
/* Runs that use it may be closed later. */
void grammar_memory_close(grammar_memory *m);
size_t grammar_memory_max(const grammar_memory *m);
size_t grammar_memory_used(const grammar_memory *m); /* any thread */

/* Opens a run of g over v. It shares states and masks with g's open runs over v while
 * those take less than half of a budget. Keeps references to both. max_bytes: budget for
 * states, 0: GRAMMAR_RUN_BYTES; sharing runs have equal budgets, and half of one more for
 * their masks. Memory is taken as needed. QUIRE_NO_MEMORY; QUIRE_TOO_LARGE: for the first
 * state. Not within a step. */
quire_err grammar_run_open(grammar *g, grammar_vocab *v, size_t max_bytes, grammar_run **out);
/* Like grammar_run_open with the default budget, charged to the tenant's share of m,
 * which may be NULL. Errors as there. */
quire_err grammar_run_open_in(grammar *g, grammar_vocab *v, grammar_memory *m, uint64_t tenant,
                              grammar_run **out);
void grammar_run_close(grammar_run *r);

/* Builds the masks with which answers usually begin: at the start and, if letters may
 * come there, after letters, as in free text before a tag. Takes up to some milliseconds,
 * which a step then saves; is quick if they are built already. */
void grammar_run_warm(grammar_run *r);

/* Why the run last failed with QUIRE_TOO_LARGE or QUIRE_NO_MEMORY, as a constant clause:
 * "its states take over 64 MiB". NULL: it did not. Any thread. */
const char *grammar_run_why(const grammar_run *r);

/* Limits on work. On a thread with a work_room (base/turn.h), the calls below that may
 * build states or masks only do what fits into it; its unit is a configuration visited.
 * QUIRE_BUSY: it did not fit, or another thread is working on the run without a room.
 * What was built stays, and the call may be repeated, also on a thread without a room.
 * There, work is done in slices of about a millisecond, between which the thread yields
 * (QUIRE_CANCELLED). */

typedef struct grammar_state {
    uint32_t id, ends; /* ends: bit 0: the text so far is a complete answer; bit 1: nothing can follow it */
} grammar_state;

grammar_state grammar_start(const grammar_run *r);

/* Advances *s by a token. QUIRE_INVALID: not allowed here. An end token is allowed where
 * the answer is complete, and leaves *s unchanged. QUIRE_TOO_LARGE: the run's budget is
 * used up, or the grammar is too ambiguous here. Errors leave *s unchanged. */
quire_err grammar_accept(grammar_run *r, grammar_state *s, int32_t token);
/* Advances *s by any bytes. *n_taken (may be NULL): how many of them the grammar allows.
 * Errors as in grammar_accept. */
quire_err grammar_accept_bytes(grammar_run *r, grammar_state *s, str bytes, size_t *n_taken);

/* Writes the mask for s [grammar_mask_words]: bit id % 64 of bits[id / 64] is set iff the
 * token is allowed. A token is allowed iff the text so far and its bytes begin a complete
 * answer in which no object of a schema has a name twice (exceptions: docs/grammar.md);
 * an end token iff the answer is complete. QUIRE_TOO_LARGE as above; bits is undefined
 * then. */
quire_err grammar_mask(grammar_run *r, grammar_state s, uint64_t *bits);
/* Whether the mask for s has this token. Cheap. */
bool grammar_allows(grammar_run *r, grammar_state s, int32_t token);

/* Whether the text so far is a complete answer, and whether nothing can follow it. */
static inline bool grammar_is_final(const grammar_run *r, grammar_state s) {
    return (void)r, (s.ends & 1u) != 0;
}
static inline bool grammar_is_over(const grammar_run *r, grammar_state s) {
    return (void)r, (s.ends & 2u) != 0;
}

/* Writes up to max forced tokens: each is the only one in the mask after the previous
 * one. Returns how many; may find fewer on failure. No end tokens. Appending them without
 * sampling gives the same token ids. */
int32_t grammar_forced(grammar_run *r, grammar_state s, int32_t *tokens, int32_t max);
#define GRAMMAR_MAX_GUESSES 32 /* most tokens in a draft */
#define GRAMMAR_GUESS_WIDTH 8  /* most tokens after one parent */

/* Bounds on the tokens to guess. */
typedef struct grammar_guess_bounds {
    int32_t nodes; /* most tokens */
    /* if several tokens spell the same bytes: probability that the longest is right; else
     * it may be any of them */
    float first;
    float least; /* least joint probability of a guess and its ancestors */
    /* cost of a token, as a fraction of what a correct guess among several spellings
     * saves. Later tokens with one spelling come with it: they save nothing themselves,
     * and are wasted if it is wrong */
    float row;
} grammar_guess_bounds;

/* Writes a draft of likely tokens and returns its size: tokens that spell the bytes with
 * which every continuation begins. Each is allowed after its parent (index of an earlier
 * one; -1: the state), but other tokens may be too. The likeliest tokens, likeliest
 * first, at most GRAMMAR_MAX_GUESSES. With least over a half they are a single chain of
 * longest tokens. */
int32_t grammar_guess(grammar_run *r, grammar_state s, const grammar_guess_bounds *bounds, int32_t *tokens,
                      int32_t *parents);

/* ---- statistics ---- */

/* Counters of a run and of the runs that it shares with. */
typedef struct grammar_run_stats {
    int64_t n_states, n_masks;
    size_t bytes; /* states and masks */
} grammar_run_stats;
/* Nanoseconds spent on building masks. Does not block. */
int64_t grammar_run_mask_ns(const grammar_run *r);
void grammar_run_get_stats(grammar_run *r, grammar_run_stats *out);

#endif
