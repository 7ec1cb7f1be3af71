/* A memory budget shares one amount of memory between several page pools, each with pages
 * of its own size, and the weights of their models.
 *
 *   budget: bytes = unused + granules of pool A + granules of pool B .. + fixed parts
 *
 *   granule of a pool:   absent --bring--> resident --give back--> absent
 *   pages of a resident granule: free, held or cached (kv/pool.h)
 *
 * Each pool has page numbers, and its backend addresses, for all that it could ever use,
 * up to the whole budget, and starts with all pages absent: without memory. Memory moves
 * in granules: runs of adjacent pages of one pool, as many whole pages as fit into
 * GRANULE_BYTES, 2 MB, or a 64th of the budget if that is less. The last granule of a
 * pool may be shorter. A pool brings a granule only when it has too few free pages, and
 * gives one back only when another pool needs its memory or the cache is dropped.
 *
 * Where a pool needs pages (kv_budget_make_free) they come from, in this order:
 *   1. memory of the budget that no pool has;
 *   2. granules of other pools in which every page is free: from the end of their pools,
 *      so that pools stay dense at their start, where they bring granules;
 *   3. cached pages of any pool, the least valuable first: the lowest retention level
 *      (kv/evict.h), then that released longest ago. Of its own pool the policy names the
 *      next page, and one page goes at a time. Of others a granule without a held page
 *      goes as a whole, and before its pages what follows them in their prefixes
 *      (kv/evict.h): it is worth as much as its most valuable page, and counts as used
 *      when the last of its pages was released. That is the price of fragmentation: one
 *      recent page keeps its granule, an old granule takes all of its pages with it, and
 *      a held page keeps its granule in its pool. Pages are not moved.
 *   4. held pages of spare pools, a draft model's, whose owner computes again what they
 *      held: it is asked to release some until there is enough. All memory of a spare
 *      pool is available to the others;
 *   5. held pages above their pools' floors, for a pool that is below its own: their
 *      owner preempts sequences.
 *
 * A floor is how much a pool can always have; setup chooses it so that it holds the
 * longest sequence. All floors and fixed parts fit into the budget together, so no two
 * pools wait for each other, and each owner's own preemption makes progress. While a pool
 * claims its floor, since its owner has work, others reserve no page of it: what they
 * have beyond the rest is given back before they reserve, cached pages too. An idle pool
 * lends its floor. A fixed part is what a member's owner takes from the budget for things
 * other than pages, from join to leave.
 *
 * A granule that is given back is discarded through its pool's mover. If memory cannot be
 * returned to the system (a device's), the budget still limits the pages in use, but the
 * memory behind their addresses stays allocated. Huge pages of the system can straddle
 * two granules: a run of resident granules may take up to one of them more than counted.
 *
 * Invariant (kv_budget_check): the resident pages of all pools and the fixed parts take
 * used_bytes, at most bytes, and so do all floors and fixed parts. Cost: available is
 * O(pools); make_free is O(1) a page for unused memory and O(log pages) for own cached
 * pages as before; choosing a granule of another pool is O(granules of the others), with
 * retention O(their pages), and giving it back costs a system call and later page faults:
 * some hundred microseconds for 2 MB. Owner: the engine thread, which runs all pools of a
 * budget: it alone moves granules. Other threads may reserve and release unindexed pages
 * of these pools meanwhile; they find the pages that are resident. Everything is
 * allocated at open. */
#ifndef KV_BUDGET_H
#define KV_BUDGET_H

#include "kv/index.h"
#include "kv/kv_swap.h"
#include "kv/pool.h"

#define KV_GRANULE_BYTES    ((int64_t)2 << 20)
#define KV_BUDGET_MAX_POOLS 64

typedef struct kv_budget kv_budget;

/* What a pool's owner supplies to the budget; all of it outlives the membership. */
typedef struct kv_budget_member {
    kv_pool *pool;         /* of kv_budget_open_pool */
    kv_index *index;       /* index of its cached pages; NULL: none */
    const kv_mover *mover; /* discards granules; NULL: no memory to discard */
    int64_t page_bytes;
    /* what the pool can always have; joining rounds it up to whole granules. 0:
     * nothing */
    int64_t floor_bytes;
    int64_t fixed_bytes; /* the fixed part */
    /* Releases some held pages; false if none are held. NULL: the pool does not yield. A
     * pool that yields and has no floor is spare. May be called whenever another pool of
     * the budget makes pages free, or joins. */
    bool (*yield)(void *context);
    void *context; /* of yield */
} kv_budget_member;

typedef struct kv_budget_counts {
    int64_t bytes, used_bytes; /* used: by resident pages and fixed parts */
    int64_t fixed_bytes;       /* of all members */
    int64_t promised_bytes;    /* the members' floors and fixed parts */
    int32_t n_pools;
} kv_budget_counts;

/* Opens a budget of `bytes`, at least 1. */
quire_err kv_budget_open(int64_t bytes, kv_budget **out);
/* Closes the budget, in which no pool may be left. */
void kv_budget_close(kv_budget *b);
/* Any thread. */
kv_budget_counts kv_budget_count(const kv_budget *b);
/* How many pages of page_bytes fit into the whole granules within `bytes`; at most
 * INT32_MAX - 1. Any thread. */
int32_t kv_budget_pages(const kv_budget *b, int64_t page_bytes, int64_t bytes);

/* Opens a pool of n_pages absent pages in the granules of b, which the caller closes.
 * QUIRE_INVALID where so many pages exceed the budget; QUIRE_NO_MEMORY. */
quire_err kv_budget_open_pool(kv_budget *b, int32_t n_pages, int64_t page_bytes, kv_pool **out);
/* Makes a pool with its owner a member, whose number is *member; it claims its floor.
 * Other members give up what its fixed part takes. QUIRE_NO_ROOM: its floor and fixed
 * part do not fit beside those of others, or there are KV_BUDGET_MAX_POOLS members. */
quire_err kv_budget_join(kv_budget *b, const kv_budget_member *m, int32_t *member);
/* A member leaves with its memory, which is unused from then on. Other members can no
 * longer take its pages; any thread may own the pool from then on, and closes it. */
void kv_budget_leave(kv_budget *b, int32_t member);
/* Whether a member claims its floor from now on. */
void kv_budget_claim(kv_budget *b, int32_t member, bool claims);
/* The memory of a member's resident pages. */
int64_t kv_budget_resident(const kv_budget *b, int32_t member);
/* How many granules have moved, so that readers of statistics notice changed pools. */
uint64_t kv_budget_moves(const kv_budget *b);

/* How many pages of a member's pool could be made free: free and cached ones, and absent
 * ones for which there is unused memory or memory of others; at least the rest of its
 * floor. */
int32_t kv_budget_available(const kv_budget *b, int32_t member);
/* Brings granules and evicts until n pages of the member's pool are free, or nothing more
 * can be done. Succeeds for n up to kv_budget_available, unless other threads reserve
 * pages meanwhile. */
void kv_budget_make_free(kv_budget *b, int32_t member, int32_t n);
/* Gives back all granules of the pool in which every page is free. False: some of the
 * memory did not go back to the system. */
bool kv_budget_give_back(kv_budget *b, int32_t member);

/* Checks the invariant, and kv_pool_check's of all pools; else QUIRE_INTERNAL and what is
 * wrong. No other thread may be inside the pools. O(pages). */
quire_err kv_budget_check(const kv_budget *b, quire_error *err);

#endif
