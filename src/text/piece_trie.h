/* A byte trie over pieces, as a double array (Aoe 1989): a step is one comparison. It
 * finds the pieces that begin at a place in a text.
 *
 * Built by one thread, then immutable. */
#ifndef TEXT_PIECE_TRIE_H
#define TEXT_PIECE_TRIE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

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
