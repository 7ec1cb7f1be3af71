/* Adapts a grammar to a constraint of sequences (sample/constraint.h), and builds the
 * vocabulary that the grammars of an engine share. */
#ifndef ANSWER_GRAMMAR_CONSTRAINT_H
#define ANSWER_GRAMMAR_CONSTRAINT_H

#include "answer/reasoning_frame.h"
#include "grammar/grammar.h"
#include "grammar/grammar_parts.h"
#include "request/request.h"
#include "sample/constraint.h"
#include "text/tokenizer.h"

/* Builds the grammar vocabulary of a model with n_vocab tokens from its tokenizer; ids
 * that the tokenizer lacks are never allowed. End tokens are included like all others
 * (sample_accept decides where they may come). marks: tokens that are terminals of their
 * own; NULL: control tokens are never allowed, and other special tokens stand for their
 * texts. Takes tens of milliseconds. The caller drops *out. QUIRE_NO_MEMORY. */
quire_err grammar_constraint_vocab(const tokenizer *t, int32_t n_vocab, const grammar_marks *marks,
                                   grammar_vocab **out);

/* Makes a constraint with one reference, and precomputes the masks of its initial state.
 * g and v stay the caller's; the constraint takes references of its own. Its states count
 * towards the tenant's share of `memory` (NULL: no limit). Takes up to some milliseconds.
 * QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err grammar_constraint_open(grammar *g, grammar_vocab *v, grammar_memory *memory, uint64_t tenant,
                                  constraint **out);

/* Microseconds spent on computing masks so far, in all sequences of c's grammar; 0 if c
 * is not a grammar's constraint. */
int64_t grammar_constraint_mask_us(const constraint *c);

/* The vocabulary of grammars that distinguish special tokens from text
 * (grammar/grammar_parts.h), and the list of these tokens. Immutable.
 *
 * Special tokens are a tokenizer's control tokens and those that a user added, except
 * tokens of white space alone, which are text. */

typedef struct marked_vocab {
    grammar_vocab *vocab;
    grammar_marks marks; /* texts are the tokenizer's */
    grammar_mark *list;  /* the array of marks, owned */
} marked_vocab;

/* Whether a token counts as special in a marked_vocab. */
bool marked_vocab_is_mark(const tokenizer *t, int32_t id);
/* As grammar_constraint_vocab, with the special tokens as marks. *out belongs to the
 * caller (marked_vocab_close); t must outlive it. */
quire_err marked_vocab_open(const tokenizer *t, int32_t n_vocab, marked_vocab **out);
void marked_vocab_close(marked_vocab *v);

/* A cache of compiled grammars: a rule that a tenant sends again is not compiled again.
 *
 * An entry's key is everything that a grammar is compiled from: tenant, form, kind,
 * options, frame and text, all compared in full. Tenants do not see each other's entries,
 * so timing reveals nothing about others' rules. Over the limit, the least recently used
 * entry of the tenant that holds most is dropped. An entry counts as at least a 512th of
 * the limit. Threads: any; a lock is held while texts are compared. */

#define GRAMMAR_CACHE_BYTES   ((size_t)16 << 20) /* limit of the cache of one engine */
#define GRAMMAR_CACHE_ENTRIES 512                /* most entries: each counts as max_bytes / 512 or more */

typedef struct grammar_cache grammar_cache;

typedef struct grammar_key {
    uint64_t tenant;
    request_rule_form form;
    grammar_kind kind; /* kind of the rule's text, for forms that have one */
    grammar_space space;
    grammar_order order;
    reasoning_frame frame; /* the text around the answer; zeroed: none */
    grammar_numbers numbers;
    grammar_additional additional;
    str whitespace_pattern, text;
} grammar_key;

/* Opens a cache with a limit in bytes (GRAMMAR_CACHE_BYTES). QUIRE_NO_MEMORY. */
quire_err grammar_cache_open(size_t max_bytes, grammar_cache **out);
void grammar_cache_close(grammar_cache *c);
/* Returns a reference to the grammar with this key, which the caller drops; NULL:
 * none. */
grammar *grammar_cache_find(grammar_cache *c, const grammar_key *key);
/* Adds g with a copy of the key, and takes a reference. Does nothing if both are larger
 * than a quarter of the limit, if the key is present, or if memory is out. */
void grammar_cache_keep(grammar_cache *c, const grammar_key *key, grammar *g);
/* Bytes of all entries, as counted towards the limit. */
size_t grammar_cache_bytes(grammar_cache *c);

#endif
