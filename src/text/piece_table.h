/* Tables of a vocabulary, with open addressing: pieces by id, ids by piece, and merges by
 * pair of ids.
 *
 * Built by one thread, then immutable. Hashes are seeded with a random number per
 * process, so that an untrusted file cannot force collisions. */
#ifndef TEXT_PIECE_TABLE_H
#define TEXT_PIECE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

typedef struct piece_span {
    uint32_t at, n;
} piece_span;

typedef struct piece_slot {
    uint32_t hash;
    int32_t id_plus_1; /* 0: empty */
    piece_span span;
} piece_slot;

/* Invariant: at most 3/4 of the slots are used. A piece that was added twice is found
 * under the later id. */
typedef struct piece_table {
    strbuf bytes;
    piece_span *spans; /* [n] by id; n 0: no such piece */
    int32_t n;
    piece_slot *slots;
    uint32_t mask;
    uint64_t seed;
    bool borrowed; /* the three arrays are not owned; nothing can be added */
} piece_table;

/* Allocates for ids 0 .. n_ids - 1 and n_pieces distinct pieces. n_bytes: expected size
 * of their text. QUIRE_NO_MEMORY. */
quire_err piece_table_init(piece_table *t, int32_t n_ids, size_t n_pieces, size_t n_bytes);
void piece_table_deinit(piece_table *t);
/* Copies piece as id, which is below n. QUIRE_NO_MEMORY; QUIRE_TOO_LARGE above 4 GiB of
 * text; QUIRE_BAD_FILE if the table is borrowed. */
quire_err piece_table_add(piece_table *t, int32_t id, str piece);
/* Like piece_table_add, but piece_table_find will not find it: a token that plain text
 * must not become. */
quire_err piece_table_add_hidden(piece_table *t, int32_t id, str piece);
/* The piece of an id; borrowed; empty if there is none. */
str piece_table_get(const piece_table *t, int32_t id);
/* The id of a piece; -1: none. */
int32_t piece_table_find(const piece_table *t, str piece);

typedef struct pair_slot {
    int32_t left_plus_1, right; /* left_plus_1 0: empty slot */
    uint32_t rank;              /* the lowest rank merges first */
    int32_t id;                 /* the merged token */
} pair_slot;

typedef struct pair_table {
    pair_slot *slots;
    size_t mask, n;
    uint64_t seed;
    bool borrowed; /* slots is not owned; nothing can be added */
} pair_table;

/* Opens a table that grows. n_pairs: expected number. QUIRE_NO_MEMORY. */
quire_err pair_table_init(pair_table *t, size_t n_pairs);
void pair_table_deinit(pair_table *t);
/* Adds or overwrites a merge. QUIRE_NO_MEMORY leaves the table unchanged. */
quire_err pair_table_put(pair_table *t, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* The merge of two ids; NULL if they do not merge. */
const pair_slot *pair_table_find(const pair_table *t, int32_t left, int32_t right);

/* A byte trie of pieces as a double array (Aoe 1989), where a step is one comparison.
 * Finds the pieces that begin at a position of a text.
 *
 * Built by one thread, then immutable. */

#define PIECE_TRIE_ROOT 0

typedef struct trie_unit {
    /* the child for byte b is unit base + b, if the parent of that unit is this one; base
     * + 255 is less than n */
    int32_t base;
    int32_t parent; /* -1: a free unit */
    int32_t id;     /* the piece that ends here; -1: none */
} trie_unit;

typedef struct piece_trie {
    trie_unit *units; /* NULL: no pieces */
    size_t n;
    bool borrowed;
} piece_trie;

typedef struct trie_piece {
    str text;
    int32_t id;
} trie_piece;

/* Builds a trie of pieces[0..n), which it sorts. Of equal texts the highest id counts;
 * empty texts are left out. QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err piece_trie_build(trie_piece *pieces, size_t n, piece_trie *out);
void piece_trie_deinit(piece_trie *t);
/* Whether units that were read from a file refer only to one another. O(n). */
bool piece_trie_check(const piece_trie *t);

/* The child of `node` for a byte; -1: none. */
static inline int32_t piece_trie_step(const piece_trie *t, int32_t node, uint8_t byte) {
    int32_t to = t->units[node].base + byte;
    return t->units[to].parent == node && to != PIECE_TRIE_ROOT ? to : -1;
}

/* The node that text leads to from `node`; -1: none. */
int32_t piece_trie_walk(const piece_trie *t, int32_t node, str text);
/* The id of the longest piece under `node` that is a prefix of text, with its length in
 * *n; -1: none. Polls its work; an error reappears at the caller's next poll. */
int32_t piece_trie_longest(const piece_trie *t, int32_t node, str text, size_t *n);

#endif
