/* Grammars for structured output: a regex, JSON Schema, choice or EBNF compiled to an
 * automaton that computes which tokens may come next.
 *
 *   grammar_compile -> grammar         what is allowed, as bytes; knows no tokens
 *   grammar_vocab_open -> vocabulary   the bytes of every token as a trie; one for each
 *                                      tokenizer
 *   grammar_run_open -> run            both together: a deterministic automaton that is
 *                                      built while it is used, and its masks
 *   grammar_start -> state             the position of one sequence: 4 bytes; copied by
 *                                      assignment
 *
 * A state is a number that its run keeps for as long as the run is open. So a fork is an
 * assignment, and a caller that may roll back keeps the state of each earlier position (4
 * bytes a token) and assigns it back. All runs of one grammar over one vocabulary share
 * states and masks. Each pays for the states that it is the first to need, from a budget
 * of its own: where that is used up, only its own sequences end.
 *
 * Threads: grammar and vocabulary are immutable and counted atomically. Any number of
 * threads may use one run at once: a lock of the run guards it, for about a microsecond
 * where the mask is known. What isn't known is built under it: up to some milliseconds
 * for the first mask after a state. Calls on a state allocate nothing: a run reserves
 * addresses when it is opened, and the system gives memory when they are first written.
 *
 * Input is hostile: compiling stops at budgets of steps, memory and time, and a run at
 * its budget of memory. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "core/params.h"

/* ---- compiling ---- */

/* One keyword of a schema, in the order in which they were met. Texts are borrowed until
 * the call returns. */
typedef struct grammar_keyword {
    const char *path;    /* JSON pointer of the schema that holds it, "" is the root */
    const char *keyword; /* "minLength" */
    enum { GRAMMAR_ENFORCED, GRAMMAR_ANNOTATION, GRAMMAR_REFUSED } status;
    const char *how; /* how it is enforced, or why it isn't: one clause */
} grammar_keyword;

typedef struct grammar_options {
    grammar_space space;
    grammar_order order;
    grammar_numbers numbers;
    grammar_additional additional;
    uint32_t max_depth;     /* of JSON's objects and arrays in each other, at most 254; 0: any */
    str whitespace_pattern; /* a regex in place of each run of white space; empty: `space` decides */
    /* Budgets; 0: GRAMMAR_MAX_STEPS, _BYTES, _US (of processor time). */
    int64_t max_steps, max_bytes, max_us;
    /* Called for each keyword of a schema; NULL: not wanted. With `survey` a refused
     * keyword doesn't end the call at once: all others are reported too before it
     * fails. */
    void (*keyword)(void *user, const grammar_keyword *k);
    void *user;
    bool survey;
} grammar_options;

#define GRAMMAR_MAX_TEXT  ((size_t)1 << 20) /* bytes of a grammar's text */
#define GRAMMAR_MAX_STEPS 4000000           /* default: nodes made, states merged, characters read */
#define GRAMMAR_MAX_BYTES ((int64_t)16 << 20)
#define GRAMMAR_MAX_US    200000

typedef struct grammar grammar;

/* Compiles text; options may be NULL (all zero). *out belongs to the caller
 * (grammar_drop). Any thread.
 * QUIRE_INVALID: the text is malformed or nothing matches it. QUIRE_UNSUPPORTED: a
 * keyword or construct that cannot be enforced. QUIRE_TOO_LARGE: past a budget.
 * QUIRE_CANCELLED: its thread's turn (base/turn.h) ended it. err->message says what and
 * where: of a schema path and keyword, of other texts err->position too. */
quire_err grammar_compile(grammar_kind kind, str text, const grammar_options *options, grammar **out,
                          quire_error *err);
/* Counts a reference up; each needs a grammar_drop. NULL is allowed. */
grammar *grammar_share(grammar *g);
void grammar_drop(grammar *g);
/* What a grammar itself takes, without runs. */
size_t grammar_bytes(const grammar *g);

/* Whether a regex matches somewhere in a text, as JSON Schema's `pattern` does: ^ and $ are
 * its ends. *steps: how many may be taken, of which compiling takes at most
 * GRAMMAR_MATCH_STEPS, and each character of the text one or some; gets what is left of
 * them. Any thread. Takes no vocabulary. INVALID, UNSUPPORTED: the regex, err says what and
 * where. TOO_LARGE: too many steps. NO_MEMORY. */
quire_err grammar_regex_matches(str regex, str text, int64_t *steps, bool *matches, quire_error *err);
#define GRAMMAR_MATCH_STEPS 50000 /* some milliseconds */

/* ---- vocabulary ---- */

typedef struct grammar_vocab grammar_vocab;

/* Builds the trie of n tokens, whose bytes are texts[id]; a token without bytes (control
 * tokens, unknown) is never allowed. ends are the n_ends tokens that end an answer,
 * allowed where it is complete. Texts aren't kept. O(bytes of all tokens x log); some 50
 * ms for 128k. */
quire_err grammar_vocab_open(const str *texts, int32_t n, const int32_t *ends, int32_t n_ends,
                             grammar_vocab **out);
grammar_vocab *grammar_vocab_share(grammar_vocab *v);
void grammar_vocab_drop(grammar_vocab *v);
int32_t grammar_vocab_size(const grammar_vocab *v);
/* The bytes of a token, borrowed. */
str grammar_vocab_text(const grammar_vocab *v, int32_t token);
/* Words of a mask: (n + 63) / 64. */
size_t grammar_mask_words(const grammar_vocab *v);

/* ---- run ---- */

typedef struct grammar_run grammar_run;

#define GRAMMAR_RUN_BYTES ((size_t)64 << 20) /* default budget of a run */

/* Memory that the states and masks of many runs take together, with shares by tenant: a
 * tenant's runs may take more while they have at most what is free then. So one tenant
 * has up to a half, k of them that take all they can an equal part each, and as much is
 * free for another. */
typedef struct grammar_memory grammar_memory;

quire_err grammar_memory_open(size_t max_bytes, grammar_memory **out);
/* Runs in it may be closed later. */
void grammar_memory_close(grammar_memory *m);
size_t grammar_memory_max(const grammar_memory *m);
size_t grammar_memory_used(const grammar_memory *m); /* any thread */

/* Opens a run of g over v, which shares states and masks with the open ones that g has
 * for v, as long as these take less than half of a budget. It keeps references to both.
 * max_bytes: its budget of states, 0: GRAMMAR_RUN_BYTES; runs that share have equal ones,
 * and half of one more for their masks. Memory is taken as it is used. QUIRE_NO_MEMORY;
 * QUIRE_TOO_LARGE: the first state is. Not within a step. */
quire_err grammar_run_open(grammar *g, grammar_vocab *v, size_t max_bytes, grammar_run **out);
/* The same with the default budget, whose memory is of the tenant's share of m, which may
 * be NULL. */
quire_err grammar_run_open_in(grammar *g, grammar_vocab *v, grammar_memory *m, uint64_t tenant,
                              grammar_run **out);
void grammar_run_close(grammar_run *r);

/* Builds the masks with which answers begin: after nothing, and after letters where these
 * may come, as in free text before a tag. Up to some milliseconds, which a step then has
 * not to take. Where they are built already it is quick. */
void grammar_run_warm(grammar_run *r);

/* Why the run last failed with QUIRE_TOO_LARGE or QUIRE_NO_MEMORY, for people, as a
 * part of a sentence: "its states take over 64 MiB"; NULL: it did not. A constant. Any
 * thread. */
const char *grammar_run_why(const grammar_run *r);

/* Calls below that lead to states or masks do, on a thread with a work_room
 * (base/turn.h), only what fits into it; a unit is a configuration visited.
 * QUIRE_BUSY: it did not fit, or another thread is working on the run without a room;
 * what is built stays, and the call may be made again, on a thread without a room. There
 * it is done in slices of about a millisecond, between which the thread takes turns
 * (base/turn.h): QUIRE_CANCELLED too. */

typedef struct grammar_state {
    uint32_t id, ends; /* ends: bit 0: what came so far is a complete answer; bit 1: nothing can follow it */
} grammar_state;

grammar_state grammar_start(const grammar_run *r);

/* Moves *s over a token. QUIRE_INVALID: the grammar doesn't allow it here; an end token
 * is allowed where the answer is complete and leaves *s. QUIRE_TOO_LARGE: the run's
 * budget is used up, or the grammar is too ambiguous here. *s is unchanged after an
 * error. */
quire_err grammar_accept(grammar_run *r, grammar_state *s, int32_t token);
/* The same over bytes that needn't be a token. *n_taken (may be NULL): how many of them
 * the grammar allows. */
quire_err grammar_accept_bytes(grammar_run *r, grammar_state *s, str bytes, size_t *n_taken);

/* Writes the mask after s: bit id % 64 of bits[id / 64] is set iff the token is
 * allowed, [grammar_mask_words]. A token is allowed iff the text so far and its bytes
 * begin a complete answer in which no object of a schema has a name twice
 * (docs/grammar.md has the exceptions); an end token iff the answer is complete.
 * QUIRE_TOO_LARGE as above; bits undefined. */
quire_err grammar_mask(grammar_run *r, grammar_state s, uint64_t *bits);
/* Whether the mask would allow this one token; cheap. */
bool grammar_allows(grammar_run *r, grammar_state s, int32_t token);

/* Whether what came so far is a complete answer, and whether nothing can follow it. */
static inline bool grammar_is_final(const grammar_run *r, grammar_state s) {
    return (void)r, (s.ends & 1u) != 0;
}
static inline bool grammar_is_over(const grammar_run *r, grammar_state s) {
    return (void)r, (s.ends & 2u) != 0;
}

/* Tokens that are certain: each is the only one that the mask after the one before
 * allows. Writes at most max of them; returns how many. An end token isn't among them.
 * Fewer if it fails. To take them changes no answer, nor its tokens. */
int32_t grammar_forced(grammar_run *r, grammar_state s, int32_t *tokens, int32_t max);
#define GRAMMAR_MAX_GUESSES 32 /* tokens */
#define GRAMMAR_GUESS_WIDTH 8  /* of them after one token */

/* Which guesses are worth while. */
typedef struct grammar_guess_bounds {
    int32_t nodes; /* at most */
    /* probability that the longest of the tokens that spell the same bytes is meant; else
     * it is any of them */
    float first;
    float least; /* probability of a guess with all before it */
    /* Cost of a token, as a fraction of what a correct guess among several spellings
     * saves. Later tokens with one spelling come with it: they save nothing
     * themselves, and are lost with it. */
    float row;
} grammar_guess_bounds;

/* Tokens that are likely: those that spell the bytes with which every continuation
 * begins. Each is allowed after its parent (the number of an earlier one, or -1), but
 * others may be allowed beside it: they are drafts to verify. The likeliest ones,
 * likeliest first, in [GRAMMAR_MAX_GUESSES]; returns how many. Where least is over a half
 * they are a line of longest tokens. */
int32_t grammar_guess(grammar_run *r, grammar_state s, const grammar_guess_bounds *bounds, int32_t *tokens,
                      int32_t *parents);

/* ---- figures ---- */

/* Counters of a run and those that share with it. */
typedef struct grammar_run_stats {
    int64_t n_states, n_masks;
    size_t bytes; /* of states and masks */
} grammar_run_stats;
/* Nanoseconds spent on masks that had to be built; does not wait for one. */
int64_t grammar_run_mask_ns(const grammar_run *r);
void grammar_run_get_stats(grammar_run *r, grammar_run_stats *out);

#endif
