/* A KV cache: one pool of pages, the index of prefixes that can be reused, the groups of
 * layers that its pages serve, and swap space.
 *
 * A sequence's state in it is a kv_seq (kv_seq.h). The cache holds integers only: it
 * lists pages to copy, and moves bytes through a mover that it borrows (kv_swap.h).
 * Without an index nothing is found or kept: a page is free as soon as its last holder
 * releases it.
 *
 * Owner: the engine thread, or the opener. Invariant: pool and index pass kv_pool_check
 * and kv_index_check between any two calls. */
#ifndef KV_KV_CACHE_H
#define KV_KV_CACHE_H

#include "core/batch.h"
#include "core/kv_layout.h"
#include "kv/budget.h"
#include "kv/index.h"
#include "kv/kv_swap.h"
#include "kv/pool.h"

typedef struct kv_cache_options {
    int32_t n_pages, page_tokens;   /* page_tokens: tokens of a page, a power of two */
    int32_t n_groups;               /* groups of tokens first, then groups of recurrent states */
    int32_t windows[KV_MAX_GROUPS]; /* window of each group, in tokens; 0: a full group */
    /* pages of a sequence's state in each state group; 0: a group of tokens */
    int32_t state_pages[KV_MAX_GROUPS];
    bool no_index; /* nothing is reused; the members from here to policy are ignored */
    int32_t max_namespaces, max_snapshots;
    /* a sequence also takes a snapshot of its states each time this many tokens are
     * computed; 0: only where kv_seq.h requires one */
    int32_t snapshot_tokens;
    int32_t n_events; /* size of the ring of events; 0: no events are recorded */
    uint64_t seed;    /* seed of the index's balancing; 0: from the system */
    kv_granularity granularity;
    kv_policy policy;
    /* moves pages for swap space and tiers; outlives the cache. NULL: pages are never
     * moved */
    const kv_mover *mover;
    /* budget of the memory of its pages of page_bytes; outlives the cache. NULL: own
     * memory */
    kv_budget *budget;
    int64_t page_bytes;
    int32_t floor_pages; /* with a budget: the floor in pages; 0: none (kv/budget.h) */
    int64_t fixed_bytes; /* with a budget: the fixed part (kv/budget.h) */
    /* with a budget: releases held pages (see kv_budget_member); NULL: does not yield */
    bool (*yield)(void *context);
    void *yield_context;
} kv_cache_options;

/* Pages for copies of states that a step makes after some of its rows
 * (kv_seq_copy_states). Those of one sequence are adjacent. Empty between steps. */
typedef struct kv_state_copies {
    batch_snapshot *list; /* [cap] */
    page_id *pages;       /* [cap][n_state_pages] */
    int32_t n, n_live, cap;
} kv_state_copies;

typedef struct kv_cache {
    kv_pool *pool;
    kv_index *index;   /* NULL: nothing is reused */
    kv_events *events; /* NULL: none are recorded. Any thread may read */
    int32_t page_tokens, n_groups;
    int32_t n_token_groups; /* the first groups have pages of tokens; the others have states */
    int32_t n_state_pages;  /* pages of one sequence's states, in all state groups */
    int32_t snapshot_tokens;
    /* snapshots are taken at multiples of this many tokens, since tiers store no
     * part-filled pages; 0: at any token */
    int32_t snapshot_unit;
    int32_t windows[KV_MAX_GROUPS], state_pages[KV_MAX_GROUPS];
    int32_t n_pages;
    kv_budget *budget;          /* NULL: all pages have memory */
    kv_budget_member as_member; /* the cache's data as a member of the budget */
    int32_t member;             /* the cache's member number; -1: it has not joined, or has left */
    const kv_mover *mover;
    kv_swap swap; /* empty until kv_cache_add_swap */
    page_id *ids; /* [n_pages] scratch for reservations; NULL if the only group is one of tokens */
    kv_state_copies state_copies;
} kv_cache;

/* Returns options with the members that a layout determines set, and all others 0. */
kv_cache_options kv_cache_options_of(const kv_layout *l, int32_t n_pages);
/* Bytes of the pages of a snapshot in this layout; 0: there are no states. */
int64_t kv_snapshot_bytes(const kv_layout *l);
/* Returns how many snapshots a pool of n_pages keeps at most if they may take `bytes` (0:
 * half of the pool, or all of it if there are no groups of tokens). 0: no states, or no
 * room for a snapshot. */
int32_t kv_most_snapshots(const kv_layout *l, int32_t n_pages, int64_t bytes);
/* Opens a cache in place. QUIRE_INVALID: invalid options; QUIRE_NO_MEMORY. *out is then
 * empty, and kv_cache_close does nothing. */
quire_err kv_cache_open(const kv_cache_options *o, kv_cache *out);
/* Joins the budget; before that no page can be reserved. The budget's owner calls it.
 * QUIRE_NO_ROOM: its floor and fixed part do not fit (kv/budget.h). Does nothing without
 * a budget. */
quire_err kv_cache_join(kv_cache *c);
/* Leaves the budget, but keeps its pages, which others can no longer take. The budget's
 * owner calls it. Does nothing if the cache is not a member. */
void kv_cache_leave(kv_cache *c);
/* Adds swap space, once: as many frames as fit into `bytes`. QUIRE_NO_MEMORY: nothing was
 * added. */
quire_err kv_cache_add_swap(kv_cache *c, int64_t bytes);
/* Leaves the budget and closes the cache. No sequence may be open. */
void kv_cache_close(kv_cache *c);

/* Number of pages that can be reserved: free pages, cached pages, which eviction frees,
 * and pages for which the budget has memory. O(1), with a budget O(its pools). */
int32_t kv_cache_available(const kv_cache *c);
/* Evicts, and with a budget brings memory, until n pages are free or nothing more can be
 * done. A shortage is reported only by the reservation. */
void kv_cache_make_free(kv_cache *c, int32_t n);
/* Evicts every cached page and returns the memory of all free pages through the mover,
 * whole granules to the budget. Held pages stay, and stay indexed. *n_dropped: number of
 * cached pages that became free. False: the mover keeps the memory. No other thread may
 * be inside the pool. O(pages). */
bool kv_cache_drop(kv_cache *c, int32_t *n_dropped);
/* Evicts the cached pages of one tenant (kv_index_clear_tenant); keeps their memory.
 * *n_dropped: number of these pages. */
void kv_cache_drop_tenant(kv_cache *c, const void *tenant, size_t n, int32_t *n_dropped);
/* Sets the time for retention, in microseconds from any start. Does nothing without an
 * index. */
void kv_cache_set_time(kv_cache *c, int64_t now_us);
/* First position that group g's layers attend to from position n. */
static inline int32_t kv_cache_first_seen(const kv_cache *c, int32_t g, int32_t n) {
    int32_t window = c->windows[g];
    return window == 0 || n < window ? 0 : n - window + 1;
}

#endif
