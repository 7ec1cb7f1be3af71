#include "kv/evict.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "kv/evict_learned.h"

/* A binary heap of small numbers (pages) with an index of their positions, so that any
 * number can be found, moved and removed.
 *
 * Keys are ordered by level, then score, then stamp. If each key has its own stamp the
 * order is total, the same in every run. Invariant (kv_heap_check): no number is above
 * one with a lower key, and position[] and slots[] refer to each other. Allocated at
 * open. Zeroed memory is an empty heap, so opening touches no memory. One thread. */

typedef struct kv_heap_key {
    int32_t level;
    double score; /* never a NaN */
    int64_t stamp;
} kv_heap_key;

typedef struct kv_heap_slot {
    double score;
    int64_t stamp;
    int32_t level, id;
} kv_heap_slot;

typedef struct kv_heap {
    kv_heap_slot *slots; /* [cap] the heap, with the lowest key first */
    int32_t *position;   /* [cap] slot + 1; 0: not in the heap */
    int32_t cap, n;
    int64_t n_compared; /* number of comparisons since the open, for measurements */
} kv_heap;

#define HEAP_NONE (-1)

static void kv_heap_close(kv_heap *h) {
    mem_free(h->slots);
    mem_free(h->position);
    h->slots = NULL;
    h->position = NULL;
}

/* Opens a heap for the numbers 0 .. cap - 1. */
static quire_err kv_heap_open(kv_heap *h, int32_t cap) {
    *h = (kv_heap){.cap = cap};
    h->slots = mem_new_huge((size_t)cap, sizeof *h->slots);
    h->position = mem_new_huge((size_t)cap, sizeof *h->position);
    if (h->slots == NULL || h->position == NULL) {
        kv_heap_close(h);
        return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

static bool heap_is_before(const kv_heap_slot *a, const kv_heap_slot *b) {
    if (a->level != b->level) {
        return a->level < b->level;
    }
    return a->score < b->score || (!(b->score < a->score) && a->stamp < b->stamp);
}

static void set_slot(kv_heap *h, int32_t at, const kv_heap_slot *slot) {
    h->slots[at] = *slot;
    h->position[slot->id] = at + 1;
}

/* Puts *slot into the heap's hole at `at`: moves the hole up past higher keys or down
 * past lower ones, then fills it. */
static void heap_fill(kv_heap *h, int32_t at, const kv_heap_slot *slot) {
    while (at > 0 && (h->n_compared++, heap_is_before(slot, &h->slots[(at - 1) / 2]))) {
        set_slot(h, at, &h->slots[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (int32_t child; at < h->n / 2; at = child) { /* slots from n / 2 on have nothing below them */
        child = 2 * at + 1;
        if (child + 1 < h->n && (h->n_compared++, heap_is_before(&h->slots[child + 1], &h->slots[child]))) {
            child++;
        }
        h->n_compared++;
        if (!heap_is_before(&h->slots[child], slot)) {
            break;
        }
        set_slot(h, at, &h->slots[child]);
    }
    set_slot(h, at, slot);
}

/* Inserts id with this key, or changes its key if it is there. O(log n). */
static void kv_heap_put(kv_heap *h, int32_t id, kv_heap_key key) {
    kv_heap_slot slot = {.score = key.score, .stamp = key.stamp, .level = key.level, .id = id};
    int32_t at = h->position[id] - 1;
    if (at < 0) {
        at = h->n++;
        h->slots[at] = slot; /* the hole must compare like its future content */
    }
    heap_fill(h, at, &slot);
}

/* Removes id; does nothing if it is not there. O(log n). */
static void kv_heap_take(kv_heap *h, int32_t id) {
    int32_t at = h->position[id] - 1;
    if (at < 0) {
        return;
    }
    h->position[id] = 0;
    h->n--;
    if (at < h->n) {
        kv_heap_slot last = h->slots[h->n];
        heap_fill(h, at, &last);
    }
}

/* Returns the number with the lowest key, or HEAP_NONE. O(1). */
static int32_t kv_heap_lowest(const kv_heap *h) {
    return h->n > 0 ? h->slots[0].id : HEAP_NONE;
}

static bool kv_heap_has(const kv_heap *h, int32_t id) {
    return h->position[id] > 0;
}

/* Returns the key of an id that is in the heap. */
static kv_heap_key kv_heap_key_of(const kv_heap *h, int32_t id) {
    const kv_heap_slot *slot = &h->slots[h->position[id] - 1];
    return (kv_heap_key){slot->level, slot->score, slot->stamp};
}

/* Checks the invariant. QUIRE_INTERNAL: err says what is wrong. O(cap). */
static quire_err kv_heap_check(const kv_heap *h, quire_error *err) {
    int32_t n = 0;
    for (int32_t at = 0; at < h->n; at++) {
        const kv_heap_slot *slot = &h->slots[at];
        if (slot->id < 0 || slot->id >= h->cap || h->position[slot->id] != at + 1) {
            return err_set(err, QUIRE_INTERNAL, -1,
                           "kv heap: slot %d holds %d, whose recorded position differs", at, slot->id);
        }
        if (at > 0 && heap_is_before(slot, &h->slots[(at - 1) / 2])) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv heap: slot %d is below one of a higher key", at);
        }
    }
    for (int32_t id = 0; id < h->cap; id++) {
        n += h->position[id] > 0;
    }
    if (n != h->n) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv heap: %d numbers have a position, %d are counted", n,
                       h->n);
    }
    return QUIRE_OK;
}

/* Level of a page whose time to live is over. The level of other pages is their
 * priority. */
#define LEVEL_OVER (-1)

/* The policy's data about an entry; all zero: none. */
typedef struct entry_note {
    int64_t priority_us, ttl_us;
    int32_t priority; /* difference to KV_PRIORITY_DEFAULT */
    kv_use use;
    uint64_t hash;
} entry_note;

/* The policy's data about a page. The first three are valid while it is cached. */
typedef struct page_note {
    double score;
    int64_t stamp, cached_us;
    double next_use; /* KV_EVICT_CALLER: set by the caller */
    bool said;
} page_note;

struct kv_evict {
    kv_pool *pool;
    const kv_tree *tree;
    kv_policy policy;
    bool full[KV_MAX_GROUPS], all_full;
    bool is_active; /* the heap is in use; false while lru needs only the pool's queue */
    int64_t now_us, n_stamps;
    double clock; /* clock of gdsf */
    kv_learned learned;
    int32_t n_entries;
    entry_note *entries; /* [n_entries] */
    page_note *pages;
    kv_heap order;     /* candidates, in the order of eviction */
    kv_heap deadlines; /* candidates whose level will change, in the order of these times */
};

/* ---- ranges ---- */

bool kv_retention_is_valid(const kv_retention *r) {
    return r->priority >= 0 && r->priority <= KV_PRIORITY_MAX && r->priority_us >= 0 &&
           r->priority_us <= KV_RETENTION_MAX_US && r->ttl_us >= 0 && r->ttl_us <= KV_RETENTION_MAX_US;
}

/* ---- candidates ---- */

static bool is_cached(const kv_evict *ev, page_id page) {
    return kv_pool_entry(ev->pool, page) >= 0 && kv_pool_count(ev->pool, page) == 0;
}

/* Whether e is a snapshot, not an entry of the tree. */
static bool is_other(const kv_evict *ev, int32_t e) {
    return e >= ev->tree->cap_entries;
}

/* Whether a cached page is a candidate: no entry follows its own, or its group does not
 * need all pages of a prefix. */
static bool is_candidate(const kv_evict *ev, page_id page) {
    int32_t e = kv_pool_entry(ev->pool, page), g = 0;
    if (is_other(ev, e) || kv_tree_is_last(ev->tree, e)) {
        return true;
    }
    if (ev->all_full) {
        return false;
    }
    while (kv_tree_pages(ev->tree, e)[g] != page.v) {
        g++;
    }
    return !ev->full[g];
}

/* Returns a page's current level. *next_us: time when it will change; 0: never. */
static int32_t evict_level_of(const kv_evict *ev, page_id page, int64_t *next_us) {
    const entry_note *e = &ev->entries[kv_pool_entry(ev->pool, page)];
    int64_t cached_us = ev->pages[page.v].cached_us, age_us = ev->now_us - cached_us;
    bool dies = e->ttl_us > 0, falls = e->priority_us > 0 && age_us < e->priority_us;
    *next_us = 0;
    if (dies && age_us >= e->ttl_us) {
        return LEVEL_OVER;
    }
    if (dies || falls) {
        *next_us = cached_us + (falls && (!dies || e->priority_us < e->ttl_us) ? e->priority_us : e->ttl_us);
    }
    return KV_PRIORITY_DEFAULT + (falls || e->priority_us == 0 ? e->priority : 0);
}

/* Puts a candidate into the heap with its current key. */
static void evict_put(kv_evict *ev, page_id page) {
    int64_t next_us;
    int32_t level = evict_level_of(ev, page, &next_us);
    kv_heap_put(&ev->order, page.v, (kv_heap_key){level, ev->pages[page.v].score, ev->pages[page.v].stamp});
    if (next_us > 0) {
        kv_heap_put(&ev->deadlines, page.v, (kv_heap_key){.stamp = next_us});
    } else {
        kv_heap_take(&ev->deadlines, page.v);
    }
}

static void evict_take(kv_evict *ev, page_id page) {
    kv_heap_take(&ev->order, page.v);
    kv_heap_take(&ev->deadlines, page.v);
}

/* ---- values by the policies ---- */

/* Cost of computing an entry's tokens again; 1 is a page at depth 0. */
static double evict_cost_of(const kv_evict *ev, int32_t e) {
    double size = ev->tree->page_tokens,
           n_tokens = is_other(ev, e) ? size : kv_tree_entry(ev->tree, e)->n_tokens;
    double depth = size * ev->entries[e].use.depth + n_tokens / 2;
    return n_tokens / size * (1 + depth / KV_COST_DEPTH);
}

static double evict_score_of(const kv_evict *ev, page_id page) {
    int32_t e = kv_pool_entry(ev->pool, page);
    switch (ev->policy) {
    case KV_EVICT_LFU:
        return (double)ev->entries[e].use.n_uses;
    case KV_EVICT_GDSF:
        return ev->clock + (double)ev->entries[e].use.n_uses * evict_cost_of(ev, e);
    case KV_EVICT_LEARNED:
        return kv_learned_value(&ev->learned, &ev->entries[e].use);
    case KV_EVICT_CALLER:
        return ev->pages[page.v].said ? -ev->pages[page.v].next_use : -INFINITY;
    default:
        return 0; /* lru: the stamp decides */
    }
}

/* Callback of the pool: a page became cached, or is no longer cached. */
static void page_changed(void *context, page_id page, bool cached) {
    kv_evict *ev = context;
    page_note *p = &ev->pages[page.v];
    if (!cached) {
        evict_take(ev, page);
        /* the next use was that of the page's former content */
        p->said = p->said && kv_pool_entry(ev->pool, page) >= 0;
        return;
    }
    p->score = evict_score_of(ev, page);
    p->stamp = ev->n_stamps++;
    p->cached_us = ev->now_us;
    if (is_candidate(ev, page)) {
        evict_put(ev, page);
    }
}

/* Starts to use the heap. Pages already cached enter in the order of the pool's queue. */
static void evict_activate(kv_evict *ev) {
    ev->is_active = true;
    for (page_id page = kv_pool_oldest(ev->pool); page.v != PAGE_NONE.v;
         page = kv_pool_younger(ev->pool, page)) {
        page_changed(ev, page, true);
    }
    kv_pool_watch(ev->pool, page_changed, ev);
}

/* ---- opening ---- */

quire_err kv_evict_open(kv_pool *pool, const kv_tree *tree, kv_policy policy, const bool *full,
                        int32_t n_others, kv_evict **out) {
    int32_t n_pages = kv_pool_counts(pool).n_pages;
    kv_evict *ev = mem_new(1, sizeof *ev);
    TRY(mem_check(ev));
    *ev = (kv_evict){.pool = pool, .tree = tree, .policy = policy, .all_full = true};
    for (int32_t g = 0; g < tree->n_groups; g++) {
        ev->full[g] = full[g];
        ev->all_full = ev->all_full && full[g];
    }
    ev->n_entries = tree->cap_entries + n_others;
    ev->entries = mem_new_huge((size_t)ev->n_entries, sizeof *ev->entries);
    ev->pages = mem_new_huge((size_t)n_pages, sizeof *ev->pages);
    if (ev->entries == NULL || ev->pages == NULL || kv_heap_open(&ev->order, n_pages) != QUIRE_OK ||
        kv_heap_open(&ev->deadlines, n_pages) != QUIRE_OK ||
        (policy == KV_EVICT_LEARNED && kv_learned_open(&ev->learned, n_pages) != QUIRE_OK)) {
        kv_evict_close(ev);
        return QUIRE_NO_MEMORY;
    }
    if (policy != KV_EVICT_LRU) {
        evict_activate(ev);
    }
    *out = ev;
    return QUIRE_OK;
}

void kv_evict_close(kv_evict *ev) {
    if (ev == NULL) {
        return;
    }
    if (ev->is_active) {
        kv_pool_watch(ev->pool, NULL, NULL);
    }
    kv_heap_close(&ev->order);
    kv_heap_close(&ev->deadlines);
    kv_learned_close(&ev->learned);
    mem_free(ev->entries);
    mem_free(ev->pages);
    mem_free(ev);
}

int64_t kv_evict_bytes(const kv_evict *ev) {
    int64_t page_bytes =
        (int64_t)(sizeof *ev->pages + 2 * (sizeof *ev->order.slots + sizeof *ev->order.position));
    if (!ev->is_active) {
        return (int64_t)sizeof *ev;
    }
    return (int64_t)sizeof *ev + ev->order.cap * page_bytes + ev->n_entries * (int64_t)sizeof *ev->entries +
           kv_learned_bytes(&ev->learned);
}

/* ---- calls of the index ---- */

void kv_evict_set_time(kv_evict *ev, int64_t now_us) {
    ev->now_us = now_us > ev->now_us ? now_us : ev->now_us;
}

void kv_evict_set_next_use(kv_evict *ev, page_id page, double when) {
    assert(ev->policy == KV_EVICT_CALLER);
    ev->pages[page.v].next_use = isnan(when) ? INFINITY : when;
    ev->pages[page.v].said = true;
    ev->pages[page.v].score = -ev->pages[page.v].next_use;
    if (kv_heap_has(&ev->order, page.v)) {
        evict_put(ev, page);
    }
}

void kv_evict_inserted(kv_evict *ev, int32_t e, int32_t depth, int32_t namespace, uint64_t hash) {
    if (!ev->is_active) {
        return;
    }
    ev->entries[e] = (entry_note){.hash = hash, .use = {.depth = depth}};
    if (ev->policy == KV_EVICT_LEARNED) {
        kv_learned_made(&ev->learned, hash, depth, namespace, &ev->entries[e].use);
    }
}

void kv_evict_used(kv_evict *ev, int32_t e) {
    if (ev->policy == KV_EVICT_LEARNED) {
        kv_learned_used(&ev->learned, ev->entries[e].hash, &ev->entries[e].use);
    } else if (ev->is_active) {
        ev->entries[e].use.n_uses++;
    }
}

void kv_evict_retain(kv_evict *ev, int32_t e, const kv_retention *r) {
    if (!ev->is_active) {
        if (r->priority == KV_PRIORITY_DEFAULT && r->ttl_us == 0) {
            return; /* all entries have the default already */
        }
        evict_activate(ev);
    }
    ev->entries[e].priority = r->priority - KV_PRIORITY_DEFAULT;
    ev->entries[e].priority_us = r->priority_us;
    ev->entries[e].ttl_us = r->ttl_us;
}

void kv_evict_leaf_changed(kv_evict *ev, int32_t e) {
    for (int32_t g = 0; ev->is_active && g < ev->tree->n_groups; g++) {
        page_id page = {kv_tree_pages(ev->tree, e)[g]};
        if (page.v == TREE_NONE || !is_cached(ev, page)) {
            continue;
        }
        if (!is_candidate(ev, page)) {
            evict_take(ev, page);
        } else if (!kv_heap_has(&ev->order, page.v)) {
            evict_put(ev, page);
        }
    }
}

/* ---- eviction ---- */

/* Updates the levels of all candidates to the current time. */
static void keep_time(kv_evict *ev) {
    for (;;) {
        page_id page = {kv_heap_lowest(&ev->deadlines)};
        if (page.v == HEAP_NONE || kv_heap_key_of(&ev->deadlines, page.v).stamp > ev->now_us) {
            return;
        }
        evict_put(ev, page);
    }
}

page_id kv_evict_peek(kv_evict *ev) {
    keep_time(ev);
    page_id page = {kv_heap_lowest(&ev->order)};
    /* either lru without retention, or all remaining pages precede entries that have lost
     * their pages but not their paths */
    return page.v == HEAP_NONE ? kv_pool_oldest(ev->pool) : page;
}

int32_t kv_evict_level(const kv_evict *ev, page_id page) {
    int64_t next_us;
    return ev->is_active ? evict_level_of(ev, page, &next_us) : KV_PRIORITY_DEFAULT;
}

bool kv_evict_has_levels(const kv_evict *ev) {
    return ev->is_active;
}

page_id kv_evict_next(kv_evict *ev) {
    page_id page = kv_evict_peek(ev);
    if (page.v == PAGE_NONE.v || !kv_heap_has(&ev->order, page.v)) {
        return page;
    }
    kv_heap_key key = kv_heap_key_of(&ev->order, page.v);
    int32_t e = kv_pool_entry(ev->pool, page);
    if (ev->policy == KV_EVICT_LEARNED && (is_other(ev, e) || kv_tree_is_last(ev->tree, e))) {
        kv_learned_evicted(&ev->learned, &ev->entries[e].use);
    }
    if (ev->policy == KV_EVICT_GDSF && key.level != LEVEL_OVER && key.score > ev->clock) {
        ev->clock = key.score;
    }
    return page;
}

/* ---- audit ---- */

/* Checks one page: it is in the heap exactly if it is a candidate, with its own key, and
 * only then may have a deadline. */
static quire_err check_page(const kv_evict *ev, page_id page, quire_error *err) {
    bool may_go = is_cached(ev, page) && is_candidate(ev, page), is_in = kv_heap_has(&ev->order, page.v);
    if (may_go != is_in) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv evict: page %d %s and %s in the heap", page.v,
                       may_go ? "may go" : "may not go", is_in ? "is" : "is not");
    }
    if (!is_in) {
        return kv_heap_has(&ev->deadlines, page.v)
                   ? err_set(err, QUIRE_INTERNAL, -1,
                             "kv evict: page %d has a deadline and is not in the heap", page.v)
                   : QUIRE_OK;
    }
    kv_heap_key key = kv_heap_key_of(&ev->order, page.v);
    bool same = !(key.score < ev->pages[page.v].score) && !(key.score > ev->pages[page.v].score);
    if (!same || key.stamp != ev->pages[page.v].stamp || key.level < LEVEL_OVER ||
        key.level > KV_PRIORITY_MAX) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv evict: page %d is filed under a key that is not its own",
                       page.v);
    }
    return QUIRE_OK;
}

quire_err kv_evict_check(const kv_evict *ev, quire_error *err) {
    TRY(kv_heap_check(&ev->order, err));
    TRY(kv_heap_check(&ev->deadlines, err));
    for (int32_t page = 0; ev->is_active && page < ev->order.cap; page++) {
        TRY(check_page(ev, (page_id){page}, err));
    }
    if (!ev->is_active && ev->order.n > 0) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv evict: the heap holds %d pages while the queue decides",
                       ev->order.n);
    }
    return QUIRE_OK;
}
