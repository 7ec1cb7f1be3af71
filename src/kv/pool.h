/* Page pool: a fixed set of equal pages, handed out and shared by reference count.
 *
 *   free --reserve--> held (count 1) --share--> held (count 2..) --release--> free        (an indexed page goes to cached instead: see index)
 *
 * Invariant: n_free + n_held + n_cached == n_pages, and a page is in exactly one of the three (kv_check).
 * Threads: reserve, share and release of unindexed pages from any thread; all else by the engine thread.
 * Holds integers only: it never touches what lies in a page. At most 16 bytes of metadata a page. */
#ifndef KV_POOL_H
#define KV_POOL_H

#include <stdint.h>

#include "base/err.h"

typedef struct kv_pool kv_pool;

/* A page's number, 0..n_pages. */
typedef struct page_id {
    int32_t v;
} page_id;

typedef struct kv_counts {
    int32_t n_pages, n_free, n_held, n_cached;
} kv_counts;

/* A pool of n_pages (1 .. 2^31 - 2) free pages. */
quire_err kv_pool_open(int32_t n_pages, kv_pool **out);
void kv_pool_close(kv_pool *pool);

/* Takes n pages, each with count 1, into ids[0..n), or none: QUIRE_NO_ROOM if fewer than n are free, and the pool is unchanged.
 * O(n), lock-free. */
quire_err kv_pool_reserve(kv_pool *pool, int32_t n, page_id *ids);
/* One more holder of a held page. */
void kv_pool_share(kv_pool *pool, page_id id);
/* One holder less; the last one's release frees the page. */
void kv_pool_release(kv_pool *pool, page_id id);
int32_t kv_pool_count(const kv_pool *pool, page_id id);
kv_counts kv_pool_counts(const kv_pool *pool);

/* Walks everything and proves the invariant; QUIRE_INTERNAL and what is wrong otherwise. No other thread may be inside the pool. O(n). */
quire_err kv_pool_check(const kv_pool *pool, quire_error *err);

#endif
