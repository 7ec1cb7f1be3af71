/* A compilation under way: the nfa that grows, its budgets, and the first error. Private
 * to this room; one thread.
 *
 * The first failure stays; what is appended after it is lost, and node numbers are then
 * NFA_FAIL_NODE. So compilers check once, at the end and in loops (build_step). */
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
    const char *where;    /* begins the messages of errors; NULL: nothing does */
    int64_t steps, bytes; /* left */
    int64_t until_us;     /* of the thread's processor time */
    int64_t until_clock;  /* steps at which the clock is read next */
} build;

void build_init(build *b, const grammar_options *options, quire_error *err);
/* Notes the first error; position: -1 or a byte offset in the text. Returns b->failed. */
quire_err build_fail(build *b, quire_err code, int64_t position, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Takes n steps from the budget; false: the build has failed. */
bool build_step(build *b, int64_t n);
/* hash_index_add, whose failure fails the build; false then. */
bool build_index(build *b, hash_index *x, uint32_t hash, uint32_t entry);
/* Makes room for one more element after n of them; counts the growth against the
 * budget. */
bool build_grow(build *b, void *p, size_t *cap, size_t n, size_t size);
/* Frees n_bytes that build_grow has counted (NFA_FREE), and gives them back to the
 * budget. */
void build_free(build *b, void *p, size_t n_bytes);

uint32_t build_node(build *b, nfa_op op, nfa_mode mode, uint32_t arg, uint32_t n, uint32_t next);
uint32_t build_bytes(build *b, str bytes, uint32_t next);
uint32_t build_split(build *b, const uint32_t *targets, uint32_t n);
uint32_t build_split2(build *b, uint32_t first, uint32_t second);
/* A split whose second target is set later: build_patch(b, node, target). */
uint32_t build_loop(build *b);
void build_patch(build *b, uint32_t split, uint32_t first, uint32_t second);
/* The class of n ranges, ascending and apart; equal ones are shared. */
uint32_t build_class(build *b, const nfa_range *ranges, uint32_t n);
/* The number of a set of special tokens, those of ids or, `negated`, all others; ids are
 * copied. */
uint32_t build_mark_set(build *b, const int32_t *ids, size_t n, bool negated);
uint32_t build_repeat(build *b, uint32_t body, uint32_t min, uint32_t max, uint32_t next);
uint32_t build_rule(build *b);
void build_rule_set(build *b, uint32_t rule, uint32_t start);
uint32_t build_call(build *b, uint32_t rule, uint32_t next);

/* Sets empty[i], zero before, for nodes after which a rule may end without a byte; and
 * `nullable` of rules. [nodes.n] */
void build_find_empty(build *b, bool *empty);
/* Rewrites rules that call themselves before they read a byte, as the machine cannot run
 * them (left_recursion.c). */
void build_left_recursion(build *b);
/* Finds which rules may be empty, takes out what can never be completed, and cuts bytes
 * into classes. QUIRE_INVALID: nothing matches. */
quire_err build_finish(build *b);

#endif
