/* A memory budget is shared by several page pools, each with pages of its own size, and
 * by the weights of their models.
 *
 *   budget: bytes = unused + granules of pool A + granules of pool B .. + fixed parts
 *
 *   granule of a pool:   absent --bring--> resident --give back--> absent
 *   pages of a resident granule: free, held or cached (kv/pool.h)
 *
 * Each pool has page numbers, and its backend addresses, for all pages that it could ever
 * use, up to the whole budget. At first all pages are absent, that is without memory.
 * Memory moves in granules: runs of adjacent pages of one pool, as many whole pages as
 * fit into 2 MB (KV_GRANULE_BYTES), or into a 64th of the budget if that is less. The
 * last granule of a pool may be shorter. A pool brings a granule only when it has too few
 * free pages, and gives one back only when another pool needs the memory or the cache is
 * dropped.
 *
 * When a pool needs pages (kv_budget_make_free), they come from these places, in this
 * order:
 *   1. unused memory of the budget;
 *   2. granules of other pools in which every page is free: from the end of these pools,
 *      so that pools stay dense at their start, where they bring granules;
 *   3. cached pages of any pool, the least valuable first: the lowest retention level
 *      (kv/evict.h), then the one released longest ago. In its own pool the policy selects
 *      pages one by one. In other pools whole granules without a held page are evicted,
 *      with all pages that follow theirs in a prefix (kv/evict.h). A granule is worth as
 *      much as its most valuable page, and was last used when the last of its pages was
 *      released. So fragmentation has a price: one recent page keeps its granule, an old
 *      granule takes all of its pages with it, and a held page keeps its granule in its
 *      pool. Pages are not moved.
 *   4. held pages of spare pools (draft models), whose content is computed again later:
 *      the owner is asked to release some until there is enough. Other pools can get all
 *      memory of a spare pool;
 *   5. held pages above their pools' floors, for a pool below its own floor: their owner
 *      preempts sequences.
 *
 * A floor is the memory that a pool can always get; it is chosen at setup to hold the
 * longest sequence. All floors and fixed parts fit into the budget together, so no two
 * pools wait for each other, and the preemption of each owner makes progress. While a
 * pool claims its floor, because its owner has work, other pools reserve none of it: what
 * they hold beyond the rest is given back before they reserve, cached pages included. An
 * idle pool lends its floor. A fixed part is memory that a member's owner takes from the
 * budget for things other than pages, from join to leave.
 *
 * A granule that is given back is discarded through its pool's mover. If memory cannot be
 * returned to the system (a device's), the budget still limits the pages in use, but the
 * memory at their addresses stays allocated. The system's huge pages can straddle two
 * granules, so a run of resident granules may take up to one huge page more than is
 * counted.
 *
 * Invariant (kv_budget_check): used_bytes is the memory of all resident pages and the
 * fixed parts, and at most bytes; all floors and fixed parts together are at most bytes
 * too. Cost: available is O(pools). make_free is O(1) a page for unused memory, O(log
 * pages) for own cached pages; choosing a granule of another pool is O(its granules),
 * with retention O(its pages), and giving it back costs a system call and later page
 * faults, some hundred microseconds for 2 MB. Owner: the engine thread, which runs all
 * pools of a budget and alone moves granules. Other threads may reserve and release
 * unindexed pages of these pools meanwhile, but only pages that are resident. Everything
 * is allocated at open. */
#ifndef KV_BUDGET_H
#define KV_BUDGET_H

#include "kv/index.h"
#include "kv/kv_swap.h"
#include "kv/pool.h"

#define KV_GRANULE_BYTES    ((int64_t)2 << 20)
#define KV_BUDGET_MAX_POOLS 64

typedef struct kv_budget kv_budget;

/* What a pool's owner supplies to the budget. All of it outlives the membership. */
typedef struct kv_budget_member {
    kv_pool *pool;         /* opened by kv_budget_open_pool */
    kv_index *index;       /* index of the pool's cached pages; NULL: none */
    const kv_mover *mover; /* discards granules; NULL: no memory to discard */
    int64_t page_bytes;
    /* memory that the pool can always get; kv_budget_join rounds it up to whole granules.
     * 0: none */
    int64_t floor_bytes;
    int64_t fixed_bytes; /* memory for things other than pages */
    /* Releases some held pages; false: none are held. NULL: the pool does not yield. A
     * pool that yields and has no floor is spare. May be called whenever another pool of
     * the budget makes pages free, or joins. */
    bool (*yield)(void *context);
    void *context; /* first argument of yield */
} kv_budget_member;

typedef struct kv_budget_counts {
    int64_t bytes, used_bytes; /* used_bytes: resident pages and fixed parts */
    int64_t fixed_bytes;       /* fixed parts of all members */
    int64_t promised_bytes;    /* floors and fixed parts of all members */
    int32_t n_pools;
} kv_budget_counts;

/* Opens a budget of `bytes` >= 1. */
quire_err kv_budget_open(int64_t bytes, kv_budget **out);
/* Closes the budget. All members must have left. */
void kv_budget_close(kv_budget *b);
/* Returns the current counts. Any thread. */
kv_budget_counts kv_budget_count(const kv_budget *b);
/* Returns how many pages of page_bytes fit into the whole granules within `bytes`, at
 * most INT32_MAX - 1. Any thread. */
int32_t kv_budget_pages(const kv_budget *b, int64_t page_bytes, int64_t bytes);

/* Opens a pool of n_pages absent pages for budget b; the caller closes it. QUIRE_INVALID:
 * so many pages exceed the budget; QUIRE_NO_MEMORY. */
quire_err kv_budget_open_pool(kv_budget *b, int32_t n_pages, int64_t page_bytes, kv_pool **out);
/* Adds a member, and sets *member to its number. It claims its floor at once. Other
 * members give up memory for its fixed part. QUIRE_NO_ROOM: its floor and fixed part do
 * not fit beside those of others, or there are KV_BUDGET_MAX_POOLS members. */
quire_err kv_budget_join(kv_budget *b, const kv_budget_member *m, int32_t *member);
/* Removes a member, whose memory is unused for the budget from then on. Other members can
 * no longer take its pages. Any thread may own the pool after that, and closes it. */
void kv_budget_leave(kv_budget *b, int32_t member);
/* Sets whether a member claims its floor from now on. */
void kv_budget_claim(kv_budget *b, int32_t member, bool claims);
/* Bytes of a member's resident pages. */
int64_t kv_budget_resident(const kv_budget *b, int32_t member);
/* Number of granule moves so far, by which readers of statistics notice changed pools. */
uint64_t kv_budget_moves(const kv_budget *b);

/* Returns how many pages of a member's pool could be made free: free and cached pages,
 * and absent pages for which there is unused memory or memory of others; at least the
 * rest of its floor. */
int32_t kv_budget_available(const kv_budget *b, int32_t member);
/* Brings granules and evicts pages until n pages of the member's pool are free, or
 * nothing more can be done. Succeeds for n up to kv_budget_available, unless other
 * threads reserve pages meanwhile. */
void kv_budget_make_free(kv_budget *b, int32_t member, int32_t n);
/* Gives back all granules of the pool in which every page is free. False: some of the
 * memory was not returned to the system. */
bool kv_budget_give_back(kv_budget *b, int32_t member);

/* Checks the invariant, and that of kv_pool_check for all pools. QUIRE_INTERNAL: err says
 * what is wrong. No other thread may be inside the pools. O(pages). */
quire_err kv_budget_check(const kv_budget *b, quire_error *err);

#endif
