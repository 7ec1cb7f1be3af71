/* A grammar (grammar/grammar.h) as a constraint of sequences (sample/constraint.h), and
 * the vocabulary that an engine's grammars share. */
#ifndef ANSWER_GRAMMAR_CONSTRAINT_H
#define ANSWER_GRAMMAR_CONSTRAINT_H

#include "answer/reasoning_frame.h"
#include "grammar/grammar.h"
#include "grammar/grammar_parts.h"
#include "request/request.h"
#include "sample/constraint.h"
#include "text/tokenizer.h"

/* Builds the vocabulary of a model of n_vocab tokens from its tokenizer; ids that the
 * tokenizer lacks are never allowed. End tokens are included like all others
 * (sample_accept decides where they may come). marks: tokens that are terminals of their
 * own; NULL: control tokens are never allowed, and other special tokens stand for their
 * texts. Tens of milliseconds. *out belongs to the caller. QUIRE_NO_MEMORY. */
quire_err grammar_constraint_vocab(const tokenizer *t, int32_t n_vocab, const grammar_marks *marks,
                                   grammar_vocab **out);

/* Makes a constraint with one reference, and the masks with which its answers begin. g
 * and v stay the caller's; the constraint holds references of its own. Its states count
 * towards the tenant's share of memory (NULL: no share). Up to some milliseconds.
 * QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err grammar_constraint_open(grammar *g, grammar_vocab *v, grammar_memory *memory, uint64_t tenant,
                                  constraint **out);

/* What making masks took so far, in all sequences of its grammar; 0 for a constraint of
 * another kind. */
int64_t grammar_constraint_mask_us(const constraint *c);

/* ---- a vocabulary with special tokens apart ---- */

/* The vocabulary of grammars that tell special tokens from text
 * (grammar/grammar_parts.h), and the list of these tokens. Immutable.
 *
 * Special are a tokenizer's control tokens, and those that a user added, unless they are
 * white space alone: these are text. */

typedef struct marked_vocab {
    grammar_vocab *vocab;
    grammar_marks marks; /* texts are the tokenizer's */
    grammar_mark *list;  /* of marks */
} marked_vocab;

/* Whether a token is special in this sense. */
bool marked_vocab_is_mark(const tokenizer *t, int32_t id);
/* As grammar_constraint_vocab. t outlives *out, which belongs to the caller. */
quire_err marked_vocab_open(const tokenizer *t, int32_t n_vocab, marked_vocab **out);
void marked_vocab_close(marked_vocab *v);

/* ---- the cache of compiled grammars ---- */

/* The cache of compiled grammars: a rule that a tenant sends again is not compiled again.
 *
 * An entry is a grammar under everything from which it was compiled: tenant, form, kind,
 * options, frame and text, which are compared whole. Tenants do not see each other's
 * entries, so the time that a rule takes reveals nothing about others' rules. Over the
 * limit, the least recently used entry of the tenant that holds most is dropped. An entry
 * counts as at least a 512th of the limit. Threads: any; a lock is held while texts are
 * compared. */

#define GRAMMAR_CACHE_BYTES   ((size_t)16 << 20) /* for an engine's grammars and their texts */
#define GRAMMAR_CACHE_ENTRIES 512                /* at most; each counts as its share of the bytes at least */

typedef struct grammar_cache grammar_cache;

typedef struct grammar_key {
    uint64_t tenant;
    request_rule_form form;
    grammar_kind kind; /* kind of a rule */
    grammar_space space;
    grammar_order order;
    reasoning_frame frame; /* around it; zero: none */
    grammar_numbers numbers;
    grammar_additional additional;
    str whitespace_pattern, text;
} grammar_key;

quire_err grammar_cache_open(size_t max_bytes, grammar_cache **out);
void grammar_cache_close(grammar_cache *c);
/* A reference to the grammar of a key, which the caller drops; NULL if there is none. */
grammar *grammar_cache_find(grammar_cache *c, const grammar_key *key);
/* Keeps a reference to g under a copy of the key, unless both take over a quarter of the
 * limit, are known already, or memory is out. */
void grammar_cache_keep(grammar_cache *c, const grammar_key *key, grammar *g);
/* Bytes that the entries take. */
size_t grammar_cache_bytes(grammar_cache *c);

#endif
