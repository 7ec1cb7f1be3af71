#include "kv/pool.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "base/mem.h"
#include "kv/free_pages.h"

#define AHEAD 8 /* prefetch distance in pages: about the number of memory accesses in flight */

/* A page's metadata lies in one cache line, because the pages of a long-used pool come in
 * no order, and each access waits for memory. Members are encoded so that zeroed memory
 * is a pool of free pages: opening touches no metadata. */
typedef struct page_state {
    _Atomic int32_t count; /* number of references */
    _Atomic int32_t next;  /* next younger page in the eviction queue */
    _Atomic int32_t prev;  /* next older page in the eviction queue */
    int32_t entry;         /* complement of the index's entry; of -1: not indexed */
} page_state;

typedef struct granule_state {
    _Atomic int32_t n_held;
    int32_t n_cached;
    int64_t last_use;
    bool is_resident;
} granule_state;

/* Additional data of a pool that has granules. */
typedef struct granules {
    int32_t size, n;  /* pages of a granule; number of granules */
    int32_t n_absent; /* number of absent pages */
    int64_t *clock;   /* the shared clock, or own_clock */
    int64_t own_clock;
    int64_t *stamps;                            /* [n_pages] clock when each page last became cached */
    _Alignas(MEM_ALIGN) _Atomic int32_t n_idle; /* number of pages in resident granules without a held page */
    granule_state all[];
} granules;

struct kv_pool {
    int32_t n_pages;
    free_pages *free;
    page_state *page; /* [n_pages + 1] the last is the sentinel of the eviction queue */
    kv_pool_watch_fn *watch;
    void *watch_context;
    granules *granules; /* NULL: no page is ever absent */
    _Alignas(MEM_ALIGN) _Atomic int32_t n_cached;
};

static int32_t get_next(const kv_pool *pool, int32_t page) {
    return atomic_load_explicit(&pool->page[page].next, memory_order_relaxed);
}

static void set_next(kv_pool *pool, int32_t page, int32_t next) {
    atomic_store_explicit(&pool->page[page].next, next, memory_order_relaxed);
}

static int32_t get_prev(const kv_pool *pool, int32_t page) {
    return atomic_load_explicit(&pool->page[page].prev, memory_order_relaxed);
}

static void set_prev(kv_pool *pool, int32_t page, int32_t prev) {
    atomic_store_explicit(&pool->page[page].prev, prev, memory_order_relaxed);
}

static int32_t get_entry(const kv_pool *pool, int32_t page) {
    return ~pool->page[page].entry;
}

/* Prefetches a page's metadata. A macro, because gcc drops calls of a function that only
 * prefetches. */
#define PREFETCH(pool, id) __builtin_prefetch(&(pool)->page[(id) >= 0 ? (id) : 0], 1)

quire_err kv_pool_open(int32_t n_pages, kv_pool **out) {
    if (n_pages < 1 || n_pages == INT32_MAX) {
        return QUIRE_INVALID;
    }
    kv_pool *pool = mem_new(1, sizeof *pool);
    TRY(mem_check(pool));
    pool->n_pages = n_pages;
    pool->page = mem_new_huge((size_t)n_pages + 1, sizeof *pool->page);
    if (pool->page == NULL || free_pages_open(n_pages, &pool->free) != QUIRE_OK) {
        kv_pool_close(pool);
        return QUIRE_NO_MEMORY;
    }
    set_next(pool, n_pages, n_pages);
    set_prev(pool, n_pages, n_pages);
    *out = pool;
    return QUIRE_OK;
}

void kv_pool_close(kv_pool *pool) {
    if (pool != NULL) {
        free_pages_close(pool->free);
        if (pool->granules != NULL) {
            mem_free(pool->granules->stamps);
        }
        mem_free(pool->granules);
        mem_free(pool->page);
        mem_free(pool);
    }
}

/* ---- granules ---- */

static int32_t granule_pages(const kv_pool *pool, int32_t g) {
    const granules *a = pool->granules;
    return g < a->n - 1 ? a->size : pool->n_pages - (a->n - 1) * a->size;
}

quire_err kv_pool_open_absent(int32_t n_pages, int32_t size, int64_t *clock, kv_pool **out) {
    kv_pool *pool;
    if (size < 1) {
        return QUIRE_INVALID;
    }
    TRY(kv_pool_open(n_pages, &pool));
    int32_t n = n_pages / size + (n_pages % size != 0);
    granules *a = mem_new(1, sizeof *a + (size_t)n * sizeof *a->all);
    pool->granules = a;
    if (a != NULL) {
        a->stamps = mem_new_huge((size_t)n_pages, sizeof *a->stamps);
    }
    if (a == NULL || a->stamps == NULL) {
        kv_pool_close(pool);
        return QUIRE_NO_MEMORY;
    }
    a->size = size;
    a->n = n;
    a->n_absent = n_pages;
    a->clock = clock;
    bool all_taken = free_pages_take_run(pool->free, (page_id){0}, n_pages);
    assert(all_taken);
    (void)all_taken;
    *out = pool;
    return QUIRE_OK;
}

void kv_pool_leave_clock(kv_pool *pool) {
    assert(pool != NULL);
    granules *a = pool->granules;
    a->own_clock = *a->clock;
    a->clock = &a->own_clock;
}

/* Adds `by`, 1 or -1, to the held pages of a page's granule. The page's bit in the free
 * set is taken whenever this runs, so a free granule has no held page. */
static void granule_hold(kv_pool *pool, int32_t page, int32_t by) {
    granules *a = pool->granules;
    int32_t g = page / a->size;
    int32_t before = atomic_fetch_add_explicit(&a->all[g].n_held, by, memory_order_acq_rel);
    if (before == 0 || before + by == 0) {
        atomic_fetch_sub_explicit(&a->n_idle, by * granule_pages(pool, g), memory_order_relaxed);
    }
}

int32_t kv_pool_n_granules(const kv_pool *pool) {
    return pool->granules->n;
}

kv_granule kv_pool_granule(const kv_pool *pool, int32_t g) {
    const granule_state *s = &pool->granules->all[g];
    return (kv_granule){.first = {g * pool->granules->size},
                        .n_pages = granule_pages(pool, g),
                        .n_held = atomic_load_explicit(&s->n_held, memory_order_acquire),
                        .n_cached = s->n_cached,
                        .is_resident = s->is_resident,
                        .last_use = s->last_use};
}

int32_t kv_pool_idle_pages(const kv_pool *pool) {
    return atomic_load_explicit(&pool->granules->n_idle, memory_order_relaxed);
}

int64_t kv_pool_cached_at(const kv_pool *pool, page_id id) {
    return pool->granules->stamps[id.v];
}

void kv_pool_bring(kv_pool *pool, int32_t g) {
    granules *a = pool->granules;
    int32_t n = granule_pages(pool, g), first = g * a->size;
    free_batch back = {0};
    assert(!a->all[g].is_resident);
    a->all[g].is_resident = true;
    a->n_absent -= n;
    atomic_fetch_add_explicit(&a->n_idle, n, memory_order_relaxed);
    for (int32_t page = first; page < first + n; page++) {
        free_pages_add(pool->free, &back, (page_id){page});
    }
    free_pages_return(pool->free, &back);
}

bool kv_pool_remove(kv_pool *pool, int32_t g) {
    granules *a = pool->granules;
    int32_t n = granule_pages(pool, g);
    assert(a->all[g].is_resident);
    if (!free_pages_take_run(pool->free, (page_id){g * a->size}, n)) {
        return false;
    }
    a->all[g].is_resident = false;
    a->n_absent += n;
    atomic_fetch_sub_explicit(&a->n_idle, n, memory_order_relaxed);
    return true;
}

quire_err kv_pool_reserve(kv_pool *pool, int32_t n, page_id *ids) {
    assert(n >= 0);
    if (n == 0) {
        return QUIRE_OK;
    }
    if (fault_due() || !free_pages_take(pool->free, n, ids)) {
        return QUIRE_NO_ROOM;
    }
    for (int32_t i = 0; i < n; i++) {
        atomic_store_explicit(&pool->page[ids[i].v].count, 1, memory_order_relaxed);
    }
    for (int32_t i = 0; pool->granules != NULL && i < n; i++) {
        granule_hold(pool, ids[i].v, 1);
    }
    return QUIRE_OK;
}

/* ---- the eviction queue: a ring through the sentinel n_pages, oldest after it, youngest
 * before it ---- */

static void granule_cache(granules *a, int32_t page) {
    granule_state *s = &a->all[page / a->size];
    s->n_cached++;
    s->last_use = a->stamps[page] = ++*a->clock;
}

/* Call it when a page is no longer cached: it is held, or about to be free. */
static void granule_uncache(kv_pool *pool, int32_t page) {
    pool->granules->all[page / pool->granules->size].n_cached--;
    if (kv_pool_count(pool, (page_id){page}) > 0) {
        granule_hold(pool, page, 1);
    }
}

static void pool_enqueue(kv_pool *pool, int32_t page) {
    int32_t sentinel = pool->n_pages, youngest = get_prev(pool, sentinel);
    set_next(pool, page, sentinel);
    set_prev(pool, page, youngest);
    set_next(pool, youngest, page);
    set_prev(pool, sentinel, page);
    atomic_fetch_add_explicit(&pool->n_cached, 1, memory_order_relaxed);
    if (pool->granules != NULL) {
        granule_cache(pool->granules, page);
    }
    if (pool->watch != NULL) {
        pool->watch(pool->watch_context, (page_id){page}, true);
    }
}

static void pool_unqueue(kv_pool *pool, int32_t page) {
    int32_t older = get_prev(pool, page), younger = get_next(pool, page);
    set_next(pool, older, younger);
    set_prev(pool, younger, older);
    atomic_fetch_sub_explicit(&pool->n_cached, 1, memory_order_relaxed);
    if (pool->granules != NULL) {
        granule_uncache(pool, page);
    }
    if (pool->watch != NULL) {
        pool->watch(pool->watch_context, (page_id){page}, false);
    }
}

void kv_pool_share(kv_pool *pool, page_id id) {
    int32_t before = atomic_fetch_add_explicit(&pool->page[id.v].count, 1, memory_order_relaxed);
    if (before == 0) {
        assert(get_entry(pool, id.v) >= 0); /* a free page must not be shared: it has no content */
        pool_unqueue(pool, id.v);
    }
}

/* Drops a reference; true: it was the last one. A single holder needs no atomic exchange,
 * because no other thread can share a page that only it holds. */
static bool pool_let_go(kv_pool *pool, int32_t page) {
    _Atomic int32_t *count = &pool->page[page].count;
    if (atomic_load_explicit(count, memory_order_acquire) == 1) {
        atomic_store_explicit(count, 0, memory_order_relaxed);
        return true;
    }
    int32_t before = atomic_fetch_sub_explicit(count, 1, memory_order_acq_rel);
    assert(before > 0);
    return before == 1;
}

/* Makes a page without holders cached, or frees it with the batch. */
static void pool_let_rest(kv_pool *pool, int32_t page, free_batch *freed) {
    if (pool->granules != NULL) {
        granule_hold(pool, page, -1);
    }
    if (get_entry(pool, page) >= 0) {
        pool_enqueue(pool, page);
    } else {
        free_pages_add(pool->free, freed, (page_id){page});
    }
}

void kv_pool_release(kv_pool *pool, page_id id) {
    kv_pool_release_all(pool, &id, 1);
}

void kv_pool_release_all(kv_pool *pool, const page_id *ids, int32_t n) {
    free_batch freed = {0};
    for (int32_t i = n - 2; i >= n - AHEAD && i >= 0; i--) {
        PREFETCH(pool, ids[i].v);
    }
    for (int32_t i = n - 1; i >= 0; i--) {
        int32_t page = ids[i].v;
        if (i >= AHEAD) {
            PREFETCH(pool, ids[i - AHEAD].v);
        }
        if (page == PAGE_NONE.v) {
            continue;
        }
        if (!pool_let_go(pool, page)) {
            continue;
        }
        pool_let_rest(pool, page, &freed);
    }
    if (freed.bits != 0) { /* pool may be NULL for a sequence without pages */
        free_pages_return(pool->free, &freed);
    }
}

int32_t kv_pool_count(const kv_pool *pool, page_id id) {
    return atomic_load_explicit(&pool->page[id.v].count, memory_order_relaxed);
}

kv_counts kv_pool_counts(const kv_pool *pool) {
    kv_counts c = {.n_pages = pool->n_pages,
                   .n_free = free_pages_count(pool->free),
                   .n_cached = atomic_load_explicit(&pool->n_cached, memory_order_relaxed),
                   .n_absent = pool->granules != NULL ? pool->granules->n_absent : 0};
    c.n_held = c.n_pages - c.n_free - c.n_cached - c.n_absent;
    return c;
}

int64_t kv_pool_bytes(const kv_pool *pool) {
    const granules *a = pool->granules;
    int64_t n = (int64_t)sizeof *pool + ((int64_t)pool->n_pages + 1) * (int64_t)sizeof *pool->page +
                free_pages_bytes(pool->free);
    return a == NULL ? n
                     : n + (int64_t)sizeof *a + a->n * (int64_t)sizeof *a->all +
                           pool->n_pages * (int64_t)sizeof *a->stamps;
}

void kv_pool_index(kv_pool *pool, page_id id, int32_t entry) {
    assert(entry >= 0 && kv_pool_count(pool, id) > 0);
    pool->page[id.v].entry = ~entry;
}

void kv_pool_unindex(kv_pool *pool, page_id id) {
    assert(get_entry(pool, id.v) >= 0);
    pool->page[id.v].entry = ~-1;
    if (kv_pool_count(pool, id) == 0) {
        pool_unqueue(pool, id.v);
        free_batch freed = {0};
        free_pages_add(pool->free, &freed, id);
        free_pages_return(pool->free, &freed);
    }
}

int32_t kv_pool_entry(const kv_pool *pool, page_id id) {
    return get_entry(pool, id.v);
}

page_id kv_pool_oldest(const kv_pool *pool) {
    int32_t oldest = get_next(pool, pool->n_pages);
    return oldest == pool->n_pages ? PAGE_NONE : (page_id){oldest};
}

page_id kv_pool_younger(const kv_pool *pool, page_id id) {
    int32_t younger = get_next(pool, id.v);
    return younger == pool->n_pages ? PAGE_NONE : (page_id){younger};
}

void kv_pool_watch(kv_pool *pool, kv_pool_watch_fn *fn, void *context) {
    pool->watch = fn;
    pool->watch_context = context;
}

bool kv_pool_is_shared(const kv_pool *pool, page_id id) {
    return kv_pool_count(pool, id) > 1 || get_entry(pool, id.v) >= 0;
}

void kv_pool_tidy(kv_pool *pool, kv_pool_run_fn *fn, void *context) {
    int32_t n = 0;
    free_pages_rewind(pool->free);
    for (int32_t page = 0; page <= pool->n_pages; page++) {
        bool is_free = page < pool->n_pages && free_pages_has(pool->free, (page_id){page});
        if (n > 0 && !is_free) {
            fn(context, (page_id){page - n}, n);
        }
        n = is_free ? n + 1 : 0;
    }
}

/* ---- audit ---- */

static bool is_resident(const kv_pool *pool, int32_t page) {
    return pool->granules == NULL || pool->granules->all[page / pool->granules->size].is_resident;
}

/* Checks that a page is free exactly if it has memory, count 0 and no index entry. */
static quire_err check_free(const kv_pool *pool, quire_error *err) {
    TRY(free_pages_check(pool->free, err));
    for (page_id id = {0}; id.v < pool->n_pages; id.v++) {
        bool unused = kv_pool_count(pool, id) == 0 && get_entry(pool, id.v) < 0;
        if (!is_resident(pool, id.v)) {
            if (!unused) {
                return err_set(err, QUIRE_INTERNAL, -1,
                               "kv pool: page %d has no memory, and count %d and entry %d", (int)id.v,
                               (int)kv_pool_count(pool, id), (int)get_entry(pool, id.v));
            }
            unused = false;
        }
        if (unused != free_pages_has(pool->free, id)) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv pool: page %d is %s, with count %d and entry %d",
                           (int)id.v, unused ? "not free" : "free", (int)kv_pool_count(pool, id),
                           (int)get_entry(pool, id.v));
        }
    }
    return QUIRE_OK;
}

/* Checks the eviction queue: n_cached indexed pages with count 0, linked both ways. */
static quire_err check_queue(const kv_pool *pool, int32_t n_cached, quire_error *err) {
    int32_t n = 0, older = pool->n_pages;
    for (int32_t page = get_next(pool, older); page != pool->n_pages;
         older = page, page = get_next(pool, page)) {
        if (page < 0 || page >= pool->n_pages || get_prev(pool, page) != older) {
            return err_set(err, QUIRE_INTERNAL, -1,
                           "kv pool: the eviction queue is broken at page %d after %d", page, older);
        }
        if (kv_pool_count(pool, (page_id){page}) != 0 || get_entry(pool, page) < 0) {
            return err_set(err, QUIRE_INTERNAL, -1,
                           "kv pool: page %d is on the eviction queue with count %d and entry %d", page,
                           kv_pool_count(pool, (page_id){page}), get_entry(pool, page));
        }
        if (++n > n_cached) {
            return err_set(err, QUIRE_INTERNAL, -1,
                           "kv pool: the eviction queue holds more than the %d cached pages", n_cached);
        }
    }
    if (n != n_cached || get_prev(pool, pool->n_pages) != older) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "kv pool: the eviction queue holds %d pages, %d are counted cached", n, n_cached);
    }
    return QUIRE_OK;
}

/* Checks the counts of granule g, and adds them up. */
static quire_err check_granule(const kv_pool *pool, int32_t g, int32_t *n_idle, int32_t *n_absent,
                               quire_error *err) {
    kv_granule a = kv_pool_granule(pool, g);
    int32_t n_held = 0, n_cached = 0;
    for (int32_t page = a.first.v; page < a.first.v + a.n_pages; page++) {
        int32_t count = kv_pool_count(pool, (page_id){page});
        n_held += count > 0;
        n_cached += count == 0 && get_entry(pool, page) >= 0;
    }
    if (n_held != a.n_held || n_cached != a.n_cached) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "kv pool: granule %d has %d held and %d cached pages, %d and %d are counted", (int)g,
                       (int)n_held, (int)n_cached, (int)a.n_held, (int)a.n_cached);
    }
    *n_idle += a.is_resident && n_held == 0 ? a.n_pages : 0;
    *n_absent += a.is_resident ? 0 : a.n_pages;
    return QUIRE_OK;
}

static quire_err check_granules(const kv_pool *pool, quire_error *err) {
    int32_t n_idle = 0, n_absent = 0;
    if (pool->granules == NULL) {
        return QUIRE_OK;
    }
    for (int32_t g = 0; g < pool->granules->n; g++) {
        TRY(check_granule(pool, g, &n_idle, &n_absent, err));
    }
    if (n_idle != kv_pool_idle_pages(pool) || n_absent != pool->granules->n_absent) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "kv pool: granules have %d idle and %d absent pages, %d and %d are counted",
                       (int)n_idle, (int)n_absent, (int)kv_pool_idle_pages(pool),
                       (int)pool->granules->n_absent);
    }
    return QUIRE_OK;
}

quire_err kv_pool_check(const kv_pool *pool, quire_error *err) {
    kv_counts c = kv_pool_counts(pool);
    TRY(check_free(pool, err));
    TRY(check_granules(pool, err));
    TRY(check_queue(pool, c.n_cached, err));
    int32_t n_held = 0;
    for (int32_t page = 0; page < pool->n_pages; page++) {
        int32_t count = kv_pool_count(pool, (page_id){page});
        if (count < 0) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv pool: page %d has count %d", page, count);
        }
        n_held += count > 0;
    }
    if (n_held != c.n_held) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "kv pool: %d pages have holders, but %d free, %d cached and %d absent of %d leave %d",
                       n_held, c.n_free, c.n_cached, c.n_absent, c.n_pages, c.n_held);
    }
    return QUIRE_OK;
}
