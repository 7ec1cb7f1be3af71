/* A binary heap of small numbers (pages) with an index of their positions, so that any
 * number can be found, moved and removed.
 *
 * Keys are ordered by level, then score, then stamp. When each key has its own stamp the
 * order is total, the same on every run. Invariant (kv_heap_check): no number is above
 * one of a lower key, and position[] and slots[] refer to each other. Allocated at open.
 * Zeroed memory is an empty heap, so opening touches no memory. One thread. */
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

/* Opens a heap for numbers 0..cap. */
quire_err kv_heap_open(kv_heap *h, int32_t cap);
void kv_heap_close(kv_heap *h);
/* Inserts id with this key, or moves it if it is there. O(log n). */
void kv_heap_put(kv_heap *h, int32_t id, kv_heap_key key);
/* Removes id; does nothing if it is not there. O(log n). */
void kv_heap_take(kv_heap *h, int32_t id);
/* The number of the lowest key, or HEAP_NONE. O(1). */
int32_t kv_heap_lowest(const kv_heap *h);
bool kv_heap_has(const kv_heap *h, int32_t id);
/* The key of a number that is there. */
kv_heap_key kv_heap_key_of(const kv_heap *h, int32_t id);
/* Checks the invariant; else QUIRE_INTERNAL and what is wrong. O(cap). */
quire_err kv_heap_check(const kv_heap *h, quire_error *err);

#endif
