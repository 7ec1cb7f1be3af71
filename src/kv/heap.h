/* A binary heap of small numbers (pages) with a position for each, so that any of them can be found, moved and taken out.
 *
 * Keys are ordered by level, then score, then stamp; a user who gives each its own stamp has a total order, the same on every run.
 * Invariant (kv_heap_check): no number is above one of a lower key, and position[] and slots[] name each other. Sized at open; zeroed
 * memory is an empty heap, so opening touches nothing. One thread. */
#ifndef KV_HEAP_H
#define KV_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct kv_heap_key {
    int32_t level;
    double score; /* never a NaN */
    int64_t stamp;
} kv_heap_key;

typedef struct kv_heap_slot {
    double score;
    int64_t stamp;
    int32_t level, id;
} kv_heap_slot;

typedef struct kv_heap {
    kv_heap_slot *slots; /* [cap]; the lowest first */
    int32_t *position;   /* [cap] slot + 1; 0: not in the heap */
    int32_t cap, n;
    int64_t n_compared; /* keys compared since open, for measurements */
} kv_heap;

#define HEAP_NONE (-1)

/* For numbers 0..cap. */
quire_err kv_heap_open(kv_heap *h, int32_t cap);
void kv_heap_close(kv_heap *h);
/* Puts id there under key, or moves it if it is there. O(log n). */
void kv_heap_put(kv_heap *h, int32_t id, kv_heap_key key);
/* Takes id out; nothing happens if it is not there. O(log n). */
void kv_heap_take(kv_heap *h, int32_t id);
/* The number of the lowest key, or HEAP_NONE. O(1). */
int32_t kv_heap_lowest(const kv_heap *h);
bool kv_heap_has(const kv_heap *h, int32_t id);
/* The key of a number that is there. */
kv_heap_key kv_heap_key_of(const kv_heap *h, int32_t id);
/* Proves the invariant; QUIRE_INTERNAL and what is wrong otherwise. O(cap). */
quire_err kv_heap_check(const kv_heap *h, quire_error *err);

#endif
