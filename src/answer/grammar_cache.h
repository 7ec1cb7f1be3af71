/* The cache of compiled grammars: a rule that a tenant sends again is not compiled again.
 *
 * An entry is a grammar under all that it was compiled from: tenant, form, kind, options,
 * frame and text, which are compared whole. Tenants do not see each other's entries, so
 * how fast a rule is taken tells nothing of others' rules. Past the limit the least
 * recently used entry of the tenant that holds most goes. An entry counts as the limit's
 * 512th part at least. Threads: any; a lock is held while texts are compared. */
#ifndef ANSWER_GRAMMAR_CACHE_H
#define ANSWER_GRAMMAR_CACHE_H

#include "answer/reasoning_frame.h"
#include "grammar/grammar.h"
#include "request/request_rule.h"

#define GRAMMAR_CACHE_BYTES   ((size_t)16 << 20) /* of an engine's grammars and their texts */
#define GRAMMAR_CACHE_ENTRIES 512                /* at most; each counts as its share of the bytes at least */

typedef struct grammar_cache grammar_cache;

typedef struct grammar_key {
    uint64_t tenant;
    request_rule_form form;
    grammar_kind kind; /* of a rule of some kind */
    grammar_space space;
    grammar_order order;
    reasoning_frame frame; /* around it; zero: none */
    grammar_numbers numbers;
    grammar_additional additional;
    str whitespace_pattern, text;
} grammar_key;

quire_err grammar_cache_open(size_t max_bytes, grammar_cache **out);
void grammar_cache_close(grammar_cache *c);
/* A reference to the grammar of a key, which the caller drops; NULL: it is not known. */
grammar *grammar_cache_find(grammar_cache *c, const grammar_key *key);
/* Keeps a reference to g under a copy of the key, unless both take over a quarter of the
 * limit, are known already, or memory is out. */
void grammar_cache_keep(grammar_cache *c, const grammar_key *key, grammar *g);
/* Bytes that the entries take. */
size_t grammar_cache_bytes(grammar_cache *c);

#endif
