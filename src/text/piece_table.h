/* Pieces of a vocabulary by id, ids by piece, and pairs of ids by their merge. Open
 * addressing.
 *
 * Built by one thread, then immutable. Hashes are keyed by a random number of the
 * process, so that a hostile file cannot force collisions. */
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

/* Invariant: slots hold at most 3/4 of their number; a piece added twice is found under
 * the later id. */
typedef struct piece_table {
    strbuf bytes;
    piece_span *spans; /* [n]; n 0 if there is no piece */
    int32_t n;
    piece_slot *slots;
    uint32_t mask;
    uint64_t seed;
    bool borrowed; /* all three arrays belong to another; nothing can be added */
} piece_table;

/* Allocates room for ids 0..n_ids) and n_pieces distinct pieces. n_bytes: the expected
 * size of their text. */
quire_err piece_table_init(piece_table *t, int32_t n_ids, size_t n_pieces, size_t n_bytes);
void piece_table_deinit(piece_table *t);
/* Copies piece as id (below n). QUIRE_NO_MEMORY; QUIRE_TOO_LARGE past 4 GiB of text;
 * QUIRE_BAD_FILE where the table is borrowed. */
quire_err piece_table_add(piece_table *t, int32_t id, str piece);
/* The same, but piece_table_find does not find it: a token that ordinary text must not
 * become. */
quire_err piece_table_add_hidden(piece_table *t, int32_t id, str piece);
/* Borrowed; empty if there is none. */
str piece_table_get(const piece_table *t, int32_t id);
/* The id of piece, or -1. */
int32_t piece_table_find(const piece_table *t, str piece);

typedef struct pair_slot {
    int32_t left_plus_1, right; /* 0: empty */
    uint32_t rank;              /* lowest merges first */
    int32_t id;                 /* the merged token */
} pair_slot;

typedef struct pair_table {
    pair_slot *slots;
    size_t mask, n;
    uint64_t seed;
    bool borrowed; /* slots belong to another; nothing can be added */
} pair_table;

/* n_pairs: the expected number; the table grows past it. */
quire_err pair_table_init(pair_table *t, size_t n_pairs);
void pair_table_deinit(pair_table *t);
/* Adds or overwrites. QUIRE_NO_MEMORY: the table is unchanged. */
quire_err pair_table_put(pair_table *t, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* NULL when the pair does not merge. */
const pair_slot *pair_table_find(const pair_table *t, int32_t left, int32_t right);

/* A byte trie over pieces, as a double array (Aoe 1989): a step is one comparison. It
 * finds the pieces that begin at a place in a text.
 *
 * Built by one thread, then immutable. */

#define PIECE_TRIE_ROOT 0

typedef struct trie_unit {
    /* the child for a byte b is unit base + b, if that unit's parent is this one. base +
     * 255 is below n */
    int32_t base;
    int32_t parent; /* -1: a free unit */
    int32_t id;     /* the piece that ends here, or -1 */
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

/* Builds a trie of pieces[0..n), which it sorts. Of equal texts the one with the highest
 * id counts; empty texts are left out. QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err piece_trie_build(trie_piece *pieces, size_t n, piece_trie *out);
void piece_trie_deinit(piece_trie *t);
/* Whether units from a file keep to their bounds. O(n). */
bool piece_trie_check(const piece_trie *t);

/* The node after `node` for a byte, or -1. */
static inline int32_t piece_trie_step(const piece_trie *t, int32_t node, uint8_t byte) {
    int32_t to = t->units[node].base + byte;
    return t->units[to].parent == node && to != PIECE_TRIE_ROOT ? to : -1;
}

/* The node that text leads to from `node`, or -1. */
int32_t piece_trie_walk(const piece_trie *t, int32_t node, str text);
/* The longest piece that text begins with below `node`: its id, and its length in *n; -1:
 * none. Its steps are polled work, whose error the caller's next poll has. */
int32_t piece_trie_longest(const piece_trie *t, int32_t node, str text, size_t *n);

#endif
