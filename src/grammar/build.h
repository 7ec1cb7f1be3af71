/* A compilation in progress: the nfa under construction, its budgets, and the first
 * error. Private to this room; one thread.
 *
 * The first failure stays. After it, additions are dropped and return NFA_FAIL_NODE, so
 * compilers check for failure only at the end and in loops (build_step). */
#ifndef GRAMMAR_BUILD_H
#define GRAMMAR_BUILD_H

#include "base/hash_index.h"
#include "grammar/grammar.h"
#include "grammar/nfa.h"

typedef struct build {
    nfa a;
    const grammar_options *options;
    quire_error *err;
    quire_err failed;
    const char *where;    /* prefix of error messages; NULL: none */
    int64_t steps, bytes; /* what is left of the budgets */
    int64_t until_us;     /* deadline, in processor time of this thread */
    int64_t until_clock;  /* value of steps at which to read the clock next */
} build;

void build_init(build *b, const grammar_options *options, quire_error *err);
/* Records an error if it is the first. position: a byte offset in the text, or -1.
 * Returns b->failed. */
quire_err build_fail(build *b, quire_err code, int64_t position, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Takes n steps from the budget. False if the build has failed. */
bool build_step(build *b, int64_t n);
/* Like mem_new; a failure fails the build and returns NULL. */
void *build_new(build *b, size_t n, size_t size);
/* Like hash_index_add; a failure fails the build and returns false. */
bool build_index(build *b, hash_index *x, uint32_t hash, uint32_t entry);
/* Makes room for another element after n, counting the growth against the budget. False
 * if the build has failed. */
bool build_grow(build *b, void *p, size_t *cap, size_t n, size_t size);
/* Frees memory of n_bytes that build_grow counted (NFA_FREE), and returns it to the
 * budget. */
void build_free(build *b, void *p, size_t n_bytes);

uint32_t build_node(build *b, nfa_op op, nfa_mode mode, uint32_t arg, uint32_t n, uint32_t next);
uint32_t build_bytes(build *b, str bytes, uint32_t next);
uint32_t build_split(build *b, const uint32_t *targets, uint32_t n);
uint32_t build_split2(build *b, uint32_t first, uint32_t second);
/* Adds a split whose second target is set later by build_patch(b, node, target). */
uint32_t build_loop(build *b);
void build_patch(build *b, uint32_t split, uint32_t first, uint32_t second);
/* Makes a class of n ascending, disjoint ranges; equal classes are shared. */
uint32_t build_class(build *b, const nfa_range *ranges, uint32_t n);
/* Makes a set of special tokens: ids, which are copied, or if `negated` all others.
 * Returns its number. */
uint32_t build_mark_set(build *b, const int32_t *ids, size_t n, bool negated);
uint32_t build_repeat(build *b, uint32_t body, uint32_t min, uint32_t max, uint32_t next);
uint32_t build_rule(build *b);
void build_rule_set(build *b, uint32_t rule, uint32_t start);
uint32_t build_call(build *b, uint32_t rule, uint32_t next);

/* For every node finds whether its rule may end after it without reading a byte: sets
 * empty[i] ([nodes.n], zeroed before). Also sets rules' `nullable`. */
void build_find_empty(build *b, bool *empty);
/* Rewrites rules that call themselves before reading a byte, which the machine cannot run
 * (left_recursion.c). */
void build_left_recursion(build *b);
/* Last pass: finds nullable rules, removes what can never be completed, and divides bytes
 * into classes. QUIRE_INVALID: nothing matches. */
quire_err build_finish(build *b);

#endif
