#include "kv/pool.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "base/mem.h"
#include "kv/free_pages.h"

#define AHEAD 8 /* prefetch distance in pages: about as many memory accesses as can be under way */

/* A page's metadata lies in one cache line: the pages of a long-used pool come in no
 * order, and each access waits for memory. Entries are encoded so that zeroed memory is a
 * pool of free pages: opening touches no page's metadata. */
typedef struct page_state {
    _Atomic int32_t count; /* references */
    _Atomic int32_t next;  /* younger in the eviction queue */
    _Atomic int32_t prev;  /* older in it */
    int32_t entry;         /* complement of the index's, or of -1 for none */
} page_state;

struct kv_pool {
    int32_t n_pages;
    free_pages *free;
    page_state *page; /* [n_pages + 1]; the last is the queue's sentinel */
    kv_pool_watch_fn *watch;
    void *watch_context;
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

/* Prefetches a page's metadata. A macro, since gcc drops calls of a function that only
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
        mem_free(pool->page);
        mem_free(pool);
    }
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
    return QUIRE_OK;
}

/* ---- the eviction queue: a ring through the sentinel n_pages, oldest after it, youngest
 * before it ---- */

static void pool_enqueue(kv_pool *pool, int32_t page) {
    int32_t sentinel = pool->n_pages, youngest = get_prev(pool, sentinel);
    set_next(pool, page, sentinel);
    set_prev(pool, page, youngest);
    set_next(pool, youngest, page);
    set_prev(pool, sentinel, page);
    atomic_fetch_add_explicit(&pool->n_cached, 1, memory_order_relaxed);
    if (pool->watch != NULL) {
        pool->watch(pool->watch_context, (page_id){page}, true);
    }
}

static void pool_unqueue(kv_pool *pool, int32_t page) {
    int32_t older = get_prev(pool, page), younger = get_next(pool, page);
    set_next(pool, older, younger);
    set_prev(pool, younger, older);
    atomic_fetch_sub_explicit(&pool->n_cached, 1, memory_order_relaxed);
    if (pool->watch != NULL) {
        pool->watch(pool->watch_context, (page_id){page}, false);
    }
}

void kv_pool_share(kv_pool *pool, page_id id) {
    int32_t before = atomic_fetch_add_explicit(&pool->page[id.v].count, 1, memory_order_relaxed);
    if (before == 0) {
        assert(get_entry(pool, id.v) >= 0); /* a free page has no content to share */
        pool_unqueue(pool, id.v);
    }
}

/* Drops a reference; whether it was the last one. A lone holder needs no exchange: no
 * other thread can share what only it holds. */
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
        if (get_entry(pool, page) >= 0) {
            pool_enqueue(pool, page);
            continue;
        }
        free_pages_add(pool->free, &freed, ids[i]);
    }
    if (freed.bits != 0) { /* a sequence without pages may have no pool */
        free_pages_return(pool->free, &freed);
    }
}

int32_t kv_pool_count(const kv_pool *pool, page_id id) {
    return atomic_load_explicit(&pool->page[id.v].count, memory_order_relaxed);
}

kv_counts kv_pool_counts(const kv_pool *pool) {
    kv_counts c = {.n_pages = pool->n_pages,
                   .n_free = free_pages_count(pool->free),
                   .n_cached = atomic_load_explicit(&pool->n_cached, memory_order_relaxed)};
    c.n_held = c.n_pages - c.n_free - c.n_cached;
    return c;
}

int64_t kv_pool_bytes(const kv_pool *pool) {
    return (int64_t)sizeof *pool + ((int64_t)pool->n_pages + 1) * (int64_t)sizeof *pool->page +
           free_pages_bytes(pool->free);
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

/* Checks that just the pages with count 0 that are not indexed are free. */
static quire_err check_free(const kv_pool *pool, quire_error *err) {
    TRY(free_pages_check(pool->free, err));
    for (page_id id = {0}; id.v < pool->n_pages; id.v++) {
        bool unused = kv_pool_count(pool, id) == 0 && get_entry(pool, id.v) < 0;
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

quire_err kv_pool_check(const kv_pool *pool, quire_error *err) {
    kv_counts c = kv_pool_counts(pool);
    TRY(check_free(pool, err));
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
                       "kv pool: %d pages have holders, but %d free and %d cached of %d leave %d", n_held,
                       c.n_free, c.n_cached, c.n_pages, c.n_held);
    }
    return QUIRE_OK;
}
