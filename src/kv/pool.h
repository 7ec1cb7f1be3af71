/* Page pool: a fixed set of equal pages, handed out and shared by reference count.
 *
 *   free --reserve--> held (count 1) --share--> held (count 2..) --release--> free, or cached where the page is indexed
 *   cached --share--> held (count 1)        cached --unindex--> free        held --index--> held and indexed
 *
 * Invariant: n_free + n_held + n_cached == n_pages, and a page is in exactly one of the three (kv_pool_check). Held: count > 0. Cached:
 * count 0, indexed, on the eviction queue. Free: count 0, not indexed, on the free stack. What lies in a page stays until it is reserved
 * again. Threads: reserve, share and release of unindexed pages from any thread; all else by the engine thread. Holds integers only: it
 * never touches what lies in a page. 16 bytes of metadata a page. */
#ifndef KV_POOL_H
#define KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct kv_pool kv_pool;

/* A page's number, 0..n_pages. */
typedef struct page_id {
    int32_t v;
} page_id;
#define PAGE_NONE ((page_id){-1})

typedef struct kv_counts {
    int32_t n_pages, n_free, n_held, n_cached;
} kv_counts;

/* A pool of n_pages (1 .. 2^31 - 2) free pages. */
quire_err kv_pool_open(int32_t n_pages, kv_pool **out);
void kv_pool_close(kv_pool *pool);

/* Takes n pages, each with count 1, into ids[0..n), or none: QUIRE_NO_ROOM if fewer than n are free, and the pool is unchanged.
 * O(n), lock-free. */
quire_err kv_pool_reserve(kv_pool *pool, int32_t n, page_id *ids);
/* One more holder of a held or cached page; a cached one leaves the eviction queue. O(1). */
void kv_pool_share(kv_pool *pool, page_id id);
/* One holder less; the last one's release frees the page, or puts it at the young end of the eviction queue if it is indexed. O(1). */
void kv_pool_release(kv_pool *pool, page_id id);
/* Releases ids[n - 1], ..., ids[0]: a sequence's pages go from its end, so that the eviction queue offers a page before those that it
 * follows. PAGE_NONE is skipped. */
void kv_pool_release_all(kv_pool *pool, const page_id *ids, int32_t n);
int32_t kv_pool_count(const kv_pool *pool, page_id id);
kv_counts kv_pool_counts(const kv_pool *pool);
/* Memory that the pool's metadata takes. */
int64_t kv_pool_bytes(const kv_pool *pool);

/* ---- pages whose content can be found again; the engine thread ---- */
/* Marks a held page as indexed, by the index's entry (>= 0). */
void kv_pool_index(kv_pool *pool, page_id id, int32_t entry);
/* Takes the mark away; a cached page becomes free. */
void kv_pool_unindex(kv_pool *pool, page_id id);
/* The entry, or -1 when the page is not indexed. */
int32_t kv_pool_entry(const kv_pool *pool, page_id id);
/* The cached page that was released longest ago, or PAGE_NONE. */
page_id kv_pool_oldest(const kv_pool *pool);
/* The cached page that was released next after this cached one, or PAGE_NONE. */
page_id kv_pool_younger(const kv_pool *pool, page_id id);
/* fn is told, after the fact, of every page that becomes cached or ceases to be; it must not change the pool. One watcher; NULL: none. */
typedef void kv_pool_watch_fn(void *context, page_id id, bool cached);
void kv_pool_watch(kv_pool *pool, kv_pool_watch_fn *fn, void *context);
/* Whether a write into the page would be seen by someone else: it has other holders, or it can be found again. */
bool kv_pool_is_shared(const kv_pool *pool, page_id id);

/* Walks everything and proves the invariant; QUIRE_INTERNAL and what is wrong otherwise. No other thread may be inside the pool. O(n). */
quire_err kv_pool_check(const kv_pool *pool, quire_error *err);

#endif
