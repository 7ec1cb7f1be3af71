/* A hash index finds entries of its owner's array by the hash of their keys.
 *
 * The owner keeps the entries and compares their keys; the hash index keeps each entry's
 * hash and its index in the array. Open addressing with linear probing, at most half
 * full; the hash times a random multiplier gives the slot (Dietzfelbinger et al. 1997,
 * multiply-shift), so a client cannot choose different hashes that share a slot. A zeroed
 * index is empty. One thread at a time. */
#ifndef BASE_HASH_INDEX_H
#define BASE_HASH_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define HASH_INDEX_NONE UINT32_MAX

typedef struct hash_slot {
    uint32_t hash, entry; /* entry: the entry's index plus 1; 0: the slot is empty */
} hash_slot;

typedef struct hash_index {
    hash_slot *slots; /* [2^bits], or NULL */
    uint64_t multiplier;
    uint32_t bits, n;
} hash_index;

/* Adds an entry, given by its index, which is below HASH_INDEX_NONE. QUIRE_NO_MEMORY:
 * nothing changed. O(1) amortised. */
quire_err hash_index_add(hash_index *x, uint32_t hash, uint32_t entry);
void hash_index_deinit(hash_index *x);

/* Returns the slot at which a search for the hash begins. */
static inline uint32_t hash_index_first(const hash_index *x, uint32_t hash) {
    return x->slots != NULL ? (uint32_t)(x->multiplier * hash >> (64 - x->bits)) : 0;
}
/* Returns the next entry with the hash at or after slot *at, and moves *at past it.
 * HASH_INDEX_NONE: there is none. */
static inline uint32_t hash_index_next(const hash_index *x, uint32_t hash, uint32_t *at) {
    const uint32_t mask = x->slots != NULL ? ((uint32_t)1 << x->bits) - 1 : 0;
    while (x->slots != NULL && x->slots[*at & mask].entry != 0) {
        const hash_slot *s = &x->slots[(*at)++ & mask];
        if (s->hash == hash) {
            return s->entry - 1;
        }
    }
    return HASH_INDEX_NONE;
}
/* Loops over the entries i with the hash. The body must not add entries. */
#define HASH_INDEX_EACH(x, hash, i)                                                                          \
    for (uint32_t i##_at = hash_index_first(x, hash), i = hash_index_next(x, hash, &i##_at);                 \
         i != HASH_INDEX_NONE; i = hash_index_next(x, hash, &i##_at))

#endif
