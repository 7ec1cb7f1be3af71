/* A hash index finds entries of its owner's array by the hash of their keys.
 *
 * The owner keeps the entries and compares their keys; the index keeps each entry's hash
 * and number. Open addressing with linear probing, at most half full; the slot comes from
 * the hash by a random multiplier (Dietzfelbinger et al. 1997, multiply-shift), so hashes
 * that differ cannot be chosen to collide. Zeroed: empty. One thread at a time. */
#ifndef BASE_HASH_INDEX_H
#define BASE_HASH_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define HASH_INDEX_NONE UINT32_MAX

typedef struct hash_slot {
    uint32_t hash, entry; /* entry: its number plus 1; 0: the slot is empty */
} hash_slot;

typedef struct hash_index {
    hash_slot *slots; /* [2^bits], or NULL */
    uint64_t multiplier;
    uint32_t bits, n;
} hash_index;

/* Adds an entry below HASH_INDEX_NONE. NO_MEMORY: nothing changed. O(1) amortised. */
quire_err hash_index_add(hash_index *x, uint32_t hash, uint32_t entry);
void hash_index_deinit(hash_index *x);

/* The slot at which a search for the hash begins. */
static inline uint32_t hash_index_first(const hash_index *x, uint32_t hash) {
    return x->slots != NULL ? (uint32_t)(x->multiplier * hash >> (64 - x->bits)) : 0;
}
/* The next entry with that hash, from slot *at on; *at moves past it. HASH_INDEX_NONE if
 * there is none. */
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
/* A loop over the entries i with that hash; its body must not add entries. */
#define HASH_INDEX_EACH(x, hash, i)                                                                          \
    for (uint32_t i##_at = hash_index_first(x, hash), i = hash_index_next(x, hash, &i##_at);                 \
         i != HASH_INDEX_NONE; i = hash_index_next(x, hash, &i##_at))

#endif
