/* A KV cache: one pool of pages, the index of prefixes that can be reused, the groups of
 * layers for which pages are cut, and swap space.
 *
 * A sequence's state in it is a kv_seq (kv_seq.h). The cache holds integers only: it
 * lists pages to copy, and moves bytes through a mover that it borrows (kv_swap.h).
 * Without an index nothing is found or kept, and a page is free as soon as its last
 * holder releases it.
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
    int32_t n_pages, page_tokens;   /* page_tokens: a power of two */
    int32_t n_groups;               /* groups of tokens first, then groups of recurrent states */
    int32_t windows[KV_MAX_GROUPS]; /* tokens of a window group; 0: a full group */
    /* pages of a sequence's state in a state group; 0: a group of tokens */
    int32_t state_pages[KV_MAX_GROUPS];
    bool no_index; /* nothing is reused; the fields below up to mover are ignored then */
    int32_t max_namespaces, max_snapshots;
    /* a sequence also takes a snapshot of its states after every this many tokens; 0:
     * only where kv_seq.h requires one */
    int32_t snapshot_tokens;
    int32_t n_events; /* events that are kept; 0: none are recorded */
    uint64_t seed;    /* seed of the index's inner order; 0: from the system */
    kv_granularity granularity;
    kv_policy policy;
    /* moves its pages for swap space and tiers; outlives the cache. NULL: pages are not
     * moved */
    const kv_mover *mover;
    /* budget from which its pages of page_bytes take memory; outlives the cache. NULL:
     * they have their own memory */
    kv_budget *budget;
    int64_t page_bytes;
    int32_t floor_pages; /* with a budget: how many it can always have; 0: none (kv/budget.h) */
    int64_t fixed_bytes; /* with a budget: bytes that the owner takes from it for other things */
    /* with a budget: releases some held pages for other pools; false: none are held.
     * NULL: the cache does not yield (kv/budget.h) */
    bool (*yield)(void *context);
    void *yield_context;
} kv_cache_options;

/* Pages for copies of states that a step makes within its rows (kv_seq_copy_states): each
 * sequence's are adjacent. Empty between steps. */
typedef struct kv_state_copies {
    batch_snapshot *list; /* [cap] */
    page_id *pages;       /* [cap][n_state_pages] */
    int32_t n, n_live, cap;
} kv_state_copies;

typedef struct kv_cache {
    kv_pool *pool;
    kv_index *index;   /* NULL: nothing is reused */
    kv_events *events; /* NULL: none. Any thread may read */
    int32_t page_tokens, n_groups;
    int32_t n_token_groups; /* the first groups; the others are of states */
    int32_t n_state_pages;  /* pages of one sequence in all state groups */
    int32_t snapshot_tokens;
    /* snapshots are taken after multiples of this many tokens, since tiers keep no
     * part-filled pages; 0: after any token */
    int32_t snapshot_unit;
    int32_t windows[KV_MAX_GROUPS], state_pages[KV_MAX_GROUPS];
    int32_t n_pages;
    kv_budget *budget;          /* NULL: all pages have memory */
    kv_budget_member as_member; /* with a budget, once it joins */
    int32_t member;             /* its number in the budget; -1: it has not joined, or has left */
    const kv_mover *mover;
    kv_swap swap; /* empty until kv_cache_add_swap */
    page_id *ids; /* [n_pages] scratch of a reservation; NULL with one group, of tokens */
    kv_state_copies state_copies;
} kv_cache;

/* The options that a layout determines; all else 0. */
kv_cache_options kv_cache_options_of(const kv_layout *l, int32_t n_pages);
/* Bytes of a snapshot of a sequence's states in pages of this layout; 0: there are no
 * states. */
int64_t kv_snapshot_bytes(const kv_layout *l);
/* The most snapshots that a pool of n_pages keeps if they may take `bytes` (0: half of
 * the pool, or all of it without groups of tokens). 0: no states, or no room for a
 * snapshot. */
int32_t kv_most_snapshots(const kv_layout *l, int32_t n_pages, int64_t bytes);
/* Opens a cache in place. On failure *out is empty, and kv_cache_close does nothing.
 * QUIRE_INVALID for invalid options, QUIRE_NO_MEMORY. */
quire_err kv_cache_open(const kv_cache_options *o, kv_cache *out);
/* Joins the budget, without which there are no pages to reserve. By the budget's owner.
 * QUIRE_NO_ROOM: its floor and fixed part do not fit (kv/budget.h). Without a budget:
 * nothing. */
quire_err kv_cache_join(kv_cache *c);
/* Leaves the budget, and keeps its pages, which others can no longer take. Does
 * nothing if it is not a member. For the budget's owner. */
void kv_cache_leave(kv_cache *c);
/* Gives the cache swap space, once: as many frames as fit into `bytes`. QUIRE_NO_MEMORY:
 * it has none. */
quire_err kv_cache_add_swap(kv_cache *c, int64_t bytes);
/* Closes the cache, which leaves its budget. No sequence may be open. */
void kv_cache_close(kv_cache *c);

/* Pages that can be allocated: free ones, cached ones, which eviction frees, and those
 * for which the budget has memory. O(1), with a budget O(its pools). */
int32_t kv_cache_available(const kv_cache *c);
/* Evicts until n pages are free, as far as possible, and with a budget gets memory for
 * them. Too few pages are reported only when they are reserved. */
void kv_cache_make_free(kv_cache *c, int32_t n);
/* Evicts every cached page, and returns the memory of all free pages through the
 * mover, whole granules to the budget. Held pages stay, and stay indexed. *n_dropped:
 * cached pages that became free. False: the mover keeps the memory. No other thread
 * may be inside the pool. O(pages). */
bool kv_cache_drop(kv_cache *c, int32_t *n_dropped);
/* Evicts the cached pages of one tenant (kv_index_clear_tenant). Their memory stays. */
void kv_cache_drop_tenant(kv_cache *c, const void *tenant, size_t n, int32_t *n_dropped);
/* Sets the time for retention, in microseconds from any start. Without an index:
 * nothing. */
void kv_cache_set_time(kv_cache *c, int64_t now_us);
/* The first position that group g's layers attend to from position n. */
static inline int32_t kv_cache_first_seen(const kv_cache *c, int32_t g, int32_t n) {
    int32_t window = c->windows[g];
    return window == 0 || n < window ? 0 : n - window + 1;
}

#endif
