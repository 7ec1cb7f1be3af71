/* Which cached page goes first (docs/design.md, Pages).
 *
 * Candidates are the cached pages whose going cuts no prefix: those of a full group whose entry is the last of its branch, and those of a
 * window group anywhere. So a page never goes before one that follows it, whatever the policy says. Among the candidates the lowest level
 * goes first (retention, below), then what the policy values least, then what was let go longest ago:
 *
 *   lru      nothing counts but when the last holder let go.
 *   lfu      uses: being computed is the first; then each match that takes the page and each publish that finds it there.
 *   gdsf     greedy dual size frequency (Cherkasova 1998): clock + uses x cost. Pages are of one size; the cost of computing one again is
 *            its tokens, each 1 + depth / KV_COST_DEPTH. The clock is the value of what went last, so that old merits fade.
 *   learned  last use + more time, the likelier a model that learns while it runs finds it that it is used again (kv/evict_learned.h).
 *   caller   what kv_index_set_next_use says is used last goes first: the optimum, where the future is known (simulator).
 *
 * Retention: a request may give the pages of its prompt a priority and a time to live. Both count from when the last holder let go of a
 * page, by the time that kv_index_set_time tells; kv reads no clock.
 *   - priority 0..100, 50 if nothing is said: higher goes later, under every policy. With priority_us it is 50 again after that time.
 *   - ttl_us: after that time the page goes before all others, when a page is needed next. Until then it is still found.
 * The last request that says something about a page is the one that counts; a request that says nothing leaves the page as it is. Since
 * pages go from the end of their branch, a page keeps those before it, whatever their priority.
 *
 * lru without retention is the pool's own queue: O(1), and nothing here is touched. Everything else is a heap of candidates with positions
 * by page: O(log pages). It is sized at open and allocates nothing later. Owner: the engine thread. Invariant (kv_evict_check): the heap is
 * one, and holds exactly the candidates. */
#ifndef KV_EVICT_H
#define KV_EVICT_H

#include "core/kv_layout.h"
#include "kv/pool.h"
#include "kv/tree.h"

typedef enum kv_policy { KV_EVICT_LRU, KV_EVICT_LFU, KV_EVICT_GDSF, KV_EVICT_LEARNED, KV_EVICT_CALLER } kv_policy;

/* The policy of a name a user may give: lru, lfu, gdsf, learned. QUIRE_INVALID for any other; *out is untouched then. */
quire_err kv_policy_parse(const char *name, kv_policy *out);
/* Its name; "caller" of that one. */
const char *kv_policy_name(kv_policy policy);
/* The names a user may give, with commas between, for error texts and help. */
extern const char kv_policy_names[];

#define KV_PRIORITY_DEFAULT 50
#define KV_PRIORITY_MAX     100
/* The longest time in a retention: 10 years, in microseconds. */
#define KV_RETENTION_MAX_US ((int64_t)10 * 365 * 24 * 3600 * 1000000)

typedef struct kv_retention {
    int32_t priority;    /* 0..KV_PRIORITY_MAX */
    int64_t priority_us; /* how long it lasts; 0: for ever */
    int64_t ttl_us;      /* 0: no end */
} kv_retention;

/* Priority 50 for ever, no time to live. */
#define KV_RETENTION_DEFAULT ((kv_retention){.priority = KV_PRIORITY_DEFAULT})
/* Whether it is in range. */
bool kv_retention_is_valid(const kv_retention *r);

/* The depth in tokens at which attention over what came before costs as much as all else a token costs: parameters / (2 x layers x heads x
 * head size), which is 19,000 for a Llama of 1B and 26,000 for one of 7B. */
#define KV_COST_DEPTH 20000

typedef struct kv_evict kv_evict;

/* For a pool and the tree of its index, which outlive it; full[n_groups]: whether a group needs all pages of a prefix. Beside the tree's
 * entries there are n_others more (snapshots), whose pages are marked tree->cap_entries and up: nothing follows them, and they may go any
 * time. */
quire_err kv_evict_open(kv_pool *pool, const kv_tree *tree, kv_policy policy, const bool *full, int32_t n_others, kv_evict **out);
void kv_evict_close(kv_evict *ev);
/* Bytes it uses. An lru without retention never touches what it has reserved: that is address space only, and not counted. */
int64_t kv_evict_bytes(const kv_evict *ev);

void kv_evict_set_time(kv_evict *ev, int64_t now_us);
void kv_evict_set_next_use(kv_evict *ev, page_id page, double when);

/* ---- what the index tells ---- */
/* Entry e is new, not used yet: page `depth` of its prefix, of that namespace; hash names its prefix, 0: nothing does. O(log pages), as all
 * below. */
void kv_evict_inserted(kv_evict *ev, int32_t e, int32_t depth, int32_t namespace, uint64_t hash);
/* A request uses e. */
void kv_evict_used(kv_evict *ev, int32_t e);
/* What a request says about keeping e, a valid retention. The first that is not the default makes an lru keep the heap: O(cached pages),
 * once. */
void kv_evict_retain(kv_evict *ev, int32_t e, const kv_retention *r);
/* Something came or went behind e. */
void kv_evict_leaf_changed(kv_evict *ev, int32_t e);

/* The page that goes next, or PAGE_NONE; the caller evicts it now. */
page_id kv_evict_next(kv_evict *ev);

/* Proves the invariant; QUIRE_INTERNAL and what is wrong otherwise. O(pages). */
quire_err kv_evict_check(const kv_evict *ev, quire_error *err);

#endif
