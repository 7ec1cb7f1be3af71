/* Eviction: selects the cached page to evict first (docs/design.md, Pages).
 *
 * Candidates are the cached pages whose eviction cuts no prefix: in a full group those
 * whose entry is the last of its branch, in a window group all. So under any policy a
 * page is evicted only after the pages that follow it. Of the candidates the one with the
 * lowest retention level (below) is evicted first, then that with the lowest value by the
 * policy, then the one released longest ago:
 *
 *   lru      only the time of the last release counts.
 *   lfu      the number of uses: the page's computation, each match that takes it, and
 *            each publish that finds it in the tree.
 *   gdsf     greedy dual size frequency (Cherkasova 1998): clock + uses x cost. Pages are
 *            of one size; the cost of computing one again is that of its tokens, each
 *            1 + depth / KV_COST_DEPTH. The clock is the value of the last evicted page,
 *            so old uses fade.
 *   learned  last use + a time that grows with the probability of another use, by a model
 *            that learns online (kv/evict_learned.h).
 *   caller   evicts first the page whose next use (kv_index_set_next_use) is the latest:
 *            optimal if the future is known (simulator).
 *
 * Retention: a request may give the pages of its prompt a priority and a time to live.
 * Both count from the last release of a page, in the time of kv_index_set_time; kv reads
 * no clock.
 *   - priority 0..100, 50 by default: higher is evicted later, under every policy. With
 *     priority_us it falls back to 50 after that time.
 *   - ttl_us: after that time the page is evicted before all others once a page is
 *     needed; until then it can still be found.
 * The last request with a retention for a page decides; a request without one leaves the
 * page's retention unchanged. Since pages are evicted from the end of their branch, a
 * page protects those before it, whatever their priority.
 *
 * lru without retention uses the pool's own queue, at no cost here. All other policies
 * use a heap of candidates, with an index by page: O(log pages). It is allocated at open;
 * nothing is allocated later. Owner: the engine thread. Invariant (kv_evict_check): the
 * heap is ordered, and holds exactly the candidates. */
#ifndef KV_EVICT_H
#define KV_EVICT_H

#include "core/kv_layout.h"
#include "kv/pool.h"
#include "kv/tree.h"

typedef enum kv_policy {
    KV_EVICT_LRU,
    KV_EVICT_LFU,
    KV_EVICT_GDSF,
    KV_EVICT_LEARNED,
    KV_EVICT_CALLER
} kv_policy;

#define KV_PRIORITY_DEFAULT 50
#define KV_PRIORITY_MAX     100
/* Longest time in a retention: 10 years, in microseconds. */
#define KV_RETENTION_MAX_US ((int64_t)10 * 365 * 24 * 3600 * 1000000)

typedef struct kv_retention {
    int32_t priority;    /* 0..KV_PRIORITY_MAX */
    int64_t priority_us; /* duration of the priority; 0: unlimited */
    int64_t ttl_us;      /* time to live; 0: unlimited */
} kv_retention;

/* Default retention: priority 50, no time to live. */
#define KV_RETENTION_DEFAULT ((kv_retention){.priority = KV_PRIORITY_DEFAULT})
/* Whether r is in range. */
bool kv_retention_is_valid(const kv_retention *r);

/* Depth in tokens at which attention to the tokens before costs as much as all other work
 * for a token: parameters / (2 x layers x heads x head size), which is 19,000 for a Llama
 * of 1B and 26,000 for one of 7B. */
#define KV_COST_DEPTH 20000

typedef struct kv_evict kv_evict;

/* Opens eviction for a pool and its index's tree, which outlive it. full[n_groups]:
 * whether a group needs all pages of a prefix. n_others: entries beside the tree's
 * (snapshots), whose pages are indexed under numbers from tree->cap_entries on. Nothing
 * follows these, so they are always candidates. */
quire_err kv_evict_open(kv_pool *pool, const kv_tree *tree, kv_policy policy, const bool *full,
                        int32_t n_others, kv_evict **out);
void kv_evict_close(kv_evict *ev);
/* Bytes of memory in use. lru without retention never touches its reserved memory, which
 * is then only address space and not counted. */
int64_t kv_evict_bytes(const kv_evict *ev);

/* As kv_index_set_time and kv_index_set_next_use. */
void kv_evict_set_time(kv_evict *ev, int64_t now_us);
void kv_evict_set_next_use(kv_evict *ev, page_id page, double when);

/* ---- calls of the index ---- */
/* Records a new, unused entry e: page `depth` of its prefix in that namespace. hash: the
 * prefix's; 0: none. O(log pages), like all calls below. */
void kv_evict_inserted(kv_evict *ev, int32_t e, int32_t depth, int32_t namespace, uint64_t hash);
/* Records that a request uses e. */
void kv_evict_used(kv_evict *ev, int32_t e);
/* Sets a request's retention, which must be valid, for e. The first one that is not the
 * default makes lru use the heap: O(cached pages), once. */
void kv_evict_retain(kv_evict *ev, int32_t e, const kv_retention *r);
/* Call it when an entry after e was added or removed. */
void kv_evict_leaf_changed(kv_evict *ev, int32_t e);

/* Returns the page to evict next, or PAGE_NONE. The caller must evict it at once. */
page_id kv_evict_next(kv_evict *ev);

/* Returns the same page as kv_evict_next, but records nothing: it need not be evicted. */
page_id kv_evict_peek(kv_evict *ev);
/* Current retention level of a cached page: higher levels are evicted later. */
int32_t kv_evict_level(const kv_evict *ev, page_id page);
/* Whether levels can differ between pages. */
bool kv_evict_has_levels(const kv_evict *ev);

/* Checks the invariant. QUIRE_INTERNAL: err says what is wrong. O(pages). */
quire_err kv_evict_check(const kv_evict *ev, quire_error *err);

#endif
