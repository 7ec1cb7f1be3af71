/* The page pool is a fixed set of equal pages, which sequences reserve and share by
 * reference count.
 *
 *   free --reserve--> held (count 1) --share--> held (count 2..) --release--> free, or
 *                                                          cached where it is indexed
 *   cached --share--> held (count 1)    cached --unindex--> free
 *   held --index--> held and indexed
 *   absent --bring--> free --remove--> absent    (granules; kv/budget.h)
 *
 * Invariant: n_free + n_held + n_cached + n_absent == n_pages, and a page is in exactly
 * one of the four (kv_pool_check). Held: count > 0. Cached: count 0, indexed, in the
 * eviction queue. Free: count 0, not indexed, in the set of free pages. Absent: count 0,
 * not indexed, not in that set: it has a number and no memory. Pages become absent and
 * free again by whole granules, runs of adjacent pages, and only in pools that were
 * opened with granules: in all others n_absent is 0. A page's content stays until the
 * page is reserved again or becomes absent. Threads: reserve, share and release of
 * unindexed pages from any thread; all else by the engine thread. Integers only: the pool
 * never touches a page's content. 16.2 bytes of metadata per page, with granules 8
 * more. */
#ifndef KV_POOL_H
#define KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kv/free_pages.h"

typedef struct kv_pool kv_pool;

typedef struct kv_counts {
    int32_t n_pages, n_free, n_held, n_cached, n_absent;
} kv_counts;

/* Opens a pool of n_pages (1 .. 2^31 - 2) free pages. */
quire_err kv_pool_open(int32_t n_pages, kv_pool **out);
/* Opens a pool of absent pages in granules of granule_pages; the last one may have fewer.
 * The pools that share a clock, which the engine thread owns, can compare when pages were
 * released: it advances with each page that becomes cached. It outlives the pools. */
quire_err kv_pool_open_absent(int32_t n_pages, int32_t granule_pages, int64_t *clock, kv_pool **out);
/* Gives the pool its own clock again, when it leaves the others' owner. */
void kv_pool_leave_clock(kv_pool *pool);
void kv_pool_close(kv_pool *pool);

/* Takes n pages, each with count 1, into ids[0..n), or none: QUIRE_NO_ROOM if fewer than
 * n are free, and the pool is unchanged. O(n); without a lock where one region has n
 * (kv/free_pages.h). */
quire_err kv_pool_reserve(kv_pool *pool, int32_t n, page_id *ids);
/* Adds a reference to a held or cached page; a cached one leaves the eviction queue.
 * O(1). */
void kv_pool_share(kv_pool *pool, page_id id);
/* Drops a reference. The last one frees the page, or puts it at the young end of the
 * eviction queue if it is indexed. O(1). */
void kv_pool_release(kv_pool *pool, page_id id);
/* Releases ids[n - 1], ..., ids[0]. A sequence's pages are released from the end, so that
 * in the eviction queue a page comes before the pages that precede it in the prefix.
 * PAGE_NONE is skipped. */
void kv_pool_release_all(kv_pool *pool, const page_id *ids, int32_t n);
int32_t kv_pool_count(const kv_pool *pool, page_id id);
kv_counts kv_pool_counts(const kv_pool *pool);
/* Bytes of the pool's metadata. */
int64_t kv_pool_bytes(const kv_pool *pool);

/* ---- indexed pages, whose content a prefix can find; the engine thread ---- */
/* Marks a held page as indexed, by the index's entry (>= 0). */
void kv_pool_index(kv_pool *pool, page_id id, int32_t entry);
/* Removes that mark; a cached page becomes free. */
void kv_pool_unindex(kv_pool *pool, page_id id);
/* The entry, or -1 when the page is not indexed. */
int32_t kv_pool_entry(const kv_pool *pool, page_id id);
/* The cached page that was released longest ago, or PAGE_NONE. */
page_id kv_pool_oldest(const kv_pool *pool);
/* The cached page that was released next after this cached one, or PAGE_NONE. */
page_id kv_pool_younger(const kv_pool *pool, page_id id);
/* fn is called after a page has become cached or is cached no more; it must not change
 * the pool. One watcher; NULL: none. */
typedef void kv_pool_watch_fn(void *context, page_id id, bool cached);
void kv_pool_watch(kv_pool *pool, kv_pool_watch_fn *fn, void *context);
/* Whether the page must not be written in place: it has other holders, or it is
 * indexed. */
bool kv_pool_is_shared(const kv_pool *pool, page_id id);

/* ---- granules, of pools that have them; the engine thread ---- */
typedef struct kv_granule {
    page_id first;
    int32_t n_pages;
    int32_t n_held, n_cached; /* of them */
    bool is_resident;         /* otherwise they are absent */
    /* the clock when a page of it became cached last; 0: none ever did */
    int64_t last_use;
} kv_granule;
int32_t kv_pool_n_granules(const kv_pool *pool);
/* The present state of a granule. Other threads may reserve pages of a resident one at
 * any time. */
kv_granule kv_pool_granule(const kv_pool *pool, int32_t granule);
/* The pages of resident granules without a held page. */
int32_t kv_pool_idle_pages(const kv_pool *pool);
/* The clock when a cached page became cached. */
int64_t kv_pool_cached_at(const kv_pool *pool, page_id id);
/* Makes the pages of an absent granule free: they have memory. O(granule / 64). */
void kv_pool_bring(kv_pool *pool, int32_t granule);
/* Makes the pages of a resident granule absent, if all of them are free; their memory is
 * the caller's from then on. False: a page is not free, and nothing has changed.
 * O(granule / 64). */
bool kv_pool_remove(kv_pool *pool, int32_t granule);

/* fn is called for n free pages, first.v up to first.v + n - 1. */
typedef void kv_pool_run_fn(void *context, page_id first, int32_t n);
/* Makes the next reservations start at the lowest free pages again, and calls fn for each
 * longest run of free pages. No other thread may be inside the pool. O(pages). */
void kv_pool_tidy(kv_pool *pool, kv_pool_run_fn *fn, void *context);

/* Checks the invariant; else QUIRE_INTERNAL and what is wrong. No other thread may be
 * inside the pool. O(n). */
quire_err kv_pool_check(const kv_pool *pool, quire_error *err);

#endif
