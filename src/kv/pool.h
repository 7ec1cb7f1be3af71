/* The page pool is a fixed set of equal pages, which sequences reserve and share by
 * reference count.
 *
 *   free --reserve--> held (count 1) --share--> held (count 2..) --release--> free, or
 *                                                          cached if it is indexed
 *   cached --share--> held (count 1)    cached --unindex--> free
 *   held --index--> held and indexed
 *   absent --bring--> free --remove--> absent    (granules; kv/budget.h)
 *
 * Invariant: n_free + n_held + n_cached + n_absent == n_pages, and a page is in exactly
 * one of the four (kv_pool_check). Held: count > 0. Cached: count 0, indexed, in the
 * eviction queue. Free: count 0, not indexed, in the set of free pages. Absent: count 0,
 * not indexed, not in that set; it has a number but no memory. Pages become absent, and
 * free again, by whole granules (runs of adjacent pages), only in pools opened with
 * granules; otherwise n_absent is 0. A page's content stays until the page is reserved
 * again or becomes absent. Threads: reserve, share and release of unindexed pages from
 * any thread; all else by the engine thread. The pool never accesses a page's content.
 * Metadata: 16.2 bytes per page, with granules 8 more. */
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
 * Pools that share *clock, which the engine thread owns and which outlives them, can
 * compare when pages were released: it advances with each page that becomes cached. */
quire_err kv_pool_open_absent(int32_t n_pages, int32_t granule_pages, int64_t *clock, kv_pool **out);
/* Gives the pool its own clock, when it leaves the owner of the shared one. */
void kv_pool_leave_clock(kv_pool *pool);
void kv_pool_close(kv_pool *pool);

/* Takes n pages, each with count 1, into ids[0..n). QUIRE_NO_ROOM: fewer than n are free;
 * the pool is unchanged. O(n); without a lock if one region has n (kv/free_pages.h). */
quire_err kv_pool_reserve(kv_pool *pool, int32_t n, page_id *ids);
/* Adds a reference to a held or cached page. A cached page leaves the eviction queue.
 * O(1). */
void kv_pool_share(kv_pool *pool, page_id id);
/* Drops a reference. The last one frees the page or, if it is indexed, puts it at the
 * young end of the eviction queue. O(1). */
void kv_pool_release(kv_pool *pool, page_id id);
/* Releases ids[n - 1], ..., ids[0]; skips PAGE_NONE. A sequence's pages are released from
 * the end, so that the eviction queue has a page before those that precede it in the
 * prefix. */
void kv_pool_release_all(kv_pool *pool, const page_id *ids, int32_t n);
/* Returns the page's reference count. */
int32_t kv_pool_count(const kv_pool *pool, page_id id);
kv_counts kv_pool_counts(const kv_pool *pool);
/* Bytes of the pool's metadata. */
int64_t kv_pool_bytes(const kv_pool *pool);

/* ---- indexed pages, whose content a prefix can find; the engine thread ---- */
/* Marks a held page as indexed by entry >= 0 of the index. */
void kv_pool_index(kv_pool *pool, page_id id, int32_t entry);
/* Removes the mark of kv_pool_index; a cached page becomes free. */
void kv_pool_unindex(kv_pool *pool, page_id id);
/* Returns the entry that indexes the page, or -1. */
int32_t kv_pool_entry(const kv_pool *pool, page_id id);
/* Returns the cached page that was released longest ago, or PAGE_NONE. */
page_id kv_pool_oldest(const kv_pool *pool);
/* Returns the cached page that was released next after this cached one, or PAGE_NONE. */
page_id kv_pool_younger(const kv_pool *pool, page_id id);
/* Sets the only watcher; NULL: none. fn is called after a page has become cached or is no
 * longer cached; it must not change the pool. */
typedef void kv_pool_watch_fn(void *context, page_id id, bool cached);
void kv_pool_watch(kv_pool *pool, kv_pool_watch_fn *fn, void *context);
/* Whether the page must not be written in place, because it has other holders or is
 * indexed. */
bool kv_pool_is_shared(const kv_pool *pool, page_id id);

/* ---- granules, of pools that have them; the engine thread ---- */
typedef struct kv_granule {
    page_id first;
    int32_t n_pages;
    int32_t n_held, n_cached; /* number of its pages that are held, and cached */
    bool is_resident;         /* its pages have memory; false: they are absent */
    /* clock when one of its pages last became cached; 0: none ever did */
    int64_t last_use;
} kv_granule;
int32_t kv_pool_n_granules(const kv_pool *pool);
/* Returns the current state of a granule. Other threads may reserve pages of a resident
 * one at any time. */
kv_granule kv_pool_granule(const kv_pool *pool, int32_t granule);
/* Number of pages in resident granules without a held page. */
int32_t kv_pool_idle_pages(const kv_pool *pool);
/* Clock when a cached page became cached. */
int64_t kv_pool_cached_at(const kv_pool *pool, page_id id);
/* Makes the pages of an absent granule free; the caller has given them memory. O(granule
 * / 64). */
void kv_pool_bring(kv_pool *pool, int32_t granule);
/* Makes the pages of a resident granule absent if all of them are free; the caller then
 * owns their memory. False: a page is not free; nothing changed. O(granule / 64). */
bool kv_pool_remove(kv_pool *pool, int32_t granule);

/* Called for a run of n free pages, first.v .. first.v + n - 1. */
typedef void kv_pool_run_fn(void *context, page_id first, int32_t n);
/* Makes the next reservations start at the lowest free pages, and calls fn for each
 * longest run of free pages. No other thread may be inside the pool. O(pages). */
void kv_pool_tidy(kv_pool *pool, kv_pool_run_fn *fn, void *context);

/* Checks the invariant. QUIRE_INTERNAL: err says what is wrong. No other thread may be
 * inside the pool. O(n). */
quire_err kv_pool_check(const kv_pool *pool, quire_error *err);

#endif
