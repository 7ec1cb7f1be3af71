#include "kv/pool.h"

#include <assert.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "base/mem.h"

#define END   (-1)
#define AHEAD 8 /* prefetch distance in pages: about as many memory accesses as can be under way */

/* The free list is a stack (Treiber 1986) whose head has a tag in its upper half that every push and pop increments: a pop that walked an
 * older stack fails its exchange. The credit is the number of unclaimed pages. A reserve lowers it by n first, a release raises it after
 * its push, so the stack always holds the pages of every claim that succeeded, and n of them are popped in one exchange. All writes to the
 * head are read-modify-write with release order, so an acquiring load sees every link below it.
 *
 * Links and entries are encoded so that zeroed memory is a pool of free pages, the first on top: opening touches no page's metadata. A
 * page's metadata is in one cache line: the pages of a long-used pool come in no order, and each access waits for memory. */
typedef struct page_state {
    _Atomic int32_t count; /* references */
    _Atomic int32_t next;  /* xor next_page(): towards the stack's bottom, or younger in the queue */
    _Atomic int32_t prev;  /* older in the queue; of a free page: one that was freed AHEAD before it */
    int32_t entry;         /* complement of the index's, or of -1 for none */
} page_state;

struct kv_pool {
    _Alignas(MEM_ALIGN) _Atomic uint64_t head; /* tag << 32 | page, END as 0xffffffff */
    _Atomic int32_t recent[AHEAD], n_recent; /* the pages freed last, in a ring; n_recent is the next index */
    _Alignas(MEM_ALIGN) _Atomic int32_t credit;
    _Alignas(MEM_ALIGN) int32_t n_pages;
    _Atomic int32_t n_cached;
    page_state *page; /* [n_pages + 1]; the last is the queue's sentinel */
    kv_pool_watch_fn *watch;
    void *watch_context;
};

/* The link of a page that was never used. */
static int32_t next_page(const kv_pool *pool, int32_t page) {
    return page + 1 < pool->n_pages ? page + 1 : END;
}

static int32_t get_next(const kv_pool *pool, int32_t page) {
    return atomic_load_explicit(&pool->page[page].next, memory_order_relaxed) ^ next_page(pool, page);
}

static void set_next(kv_pool *pool, int32_t page, int32_t next) {
    atomic_store_explicit(&pool->page[page].next, next ^ next_page(pool, page), memory_order_relaxed);
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

/* Prefetches a page's metadata. A macro, since gcc drops calls of a function that only prefetches. */
#define PREFETCH(pool, id) __builtin_prefetch(&(pool)->page[(id) >= 0 ? (id) : 0], 1)

static uint64_t raised(uint64_t head, int32_t top) {
    return ((head >> 32) + 1) << 32 | (uint32_t)top;
}

quire_err kv_pool_open(int32_t n_pages, kv_pool **out) {
    if (n_pages < 1 || n_pages == INT32_MAX) {
        return QUIRE_INVALID;
    }
    kv_pool *pool = mem_new(1, sizeof *pool);
    TRY(mem_check(pool));
    pool->n_pages = n_pages;
    pool->page = mem_new_huge((size_t)n_pages + 1, sizeof *pool->page);
    if (pool->page == NULL) {
        kv_pool_close(pool);
        return QUIRE_NO_MEMORY;
    }
    set_next(pool, n_pages, n_pages);
    set_prev(pool, n_pages, n_pages);
    atomic_init(&pool->head, 0);
    atomic_init(&pool->credit, n_pages);
    *out = pool;
    return QUIRE_OK;
}

void kv_pool_close(kv_pool *pool) {
    if (pool != NULL) {
        mem_free(pool->page);
        mem_free(pool);
    }
}

static bool claim(kv_pool *pool, int32_t n) {
    int32_t credit = atomic_load_explicit(&pool->credit, memory_order_relaxed);
    do {
        if (credit < n) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&pool->credit, &credit, credit - n, memory_order_acquire, memory_order_relaxed));
    return true;
}

/* Pops n claimed pages. A walk that other threads disturb may read any links, but then its exchange fails. */
static void pop(kv_pool *pool, int32_t n, page_id *ids) {
    uint64_t head = atomic_load_explicit(&pool->head, memory_order_acquire);
    for (;;) {
        int32_t top = (int32_t)(uint32_t)head, n_walked = 0;
        while (n_walked < n && top >= 0 && top < pool->n_pages) {
            ids[n_walked++].v = top;
            PREFETCH(pool, get_prev(pool, top));
            top = get_next(pool, top);
        }
        if (n_walked < n) {
            head = atomic_load_explicit(&pool->head, memory_order_acquire);
        } else if (atomic_compare_exchange_weak_explicit(&pool->head, &head, raised(head, top), memory_order_acq_rel,
                                                         memory_order_acquire)) {
            return;
        }
    }
}

quire_err kv_pool_reserve(kv_pool *pool, int32_t n, page_id *ids) {
    assert(n >= 0);
    if (n == 0) {
        return QUIRE_OK;
    }
    if (fault_due() || !claim(pool, n)) {
        return QUIRE_NO_ROOM;
    }
    pop(pool, n, ids);
    for (int32_t i = 0; i < n; i++) {
        atomic_store_explicit(&pool->page[ids[i].v].count, 1, memory_order_relaxed);
    }
    return QUIRE_OK;
}

/* Records in a page that is being freed the one freed AHEAD before it, which is about as far below it on the stack: who pops this one
 * prefetches that one. Only speed depends on it: threads that free at the same time may spoil it. */
static void note_recent(kv_pool *pool, int32_t page) {
    int32_t i = atomic_load_explicit(&pool->n_recent, memory_order_relaxed);
    set_prev(pool, page, atomic_load_explicit(&pool->recent[i], memory_order_relaxed));
    atomic_store_explicit(&pool->recent[i], page, memory_order_relaxed);
    atomic_store_explicit(&pool->n_recent, (i + 1) % AHEAD, memory_order_relaxed);
}

/* Pushes the chain first -> ... -> last of n pages. */
static void push(kv_pool *pool, int32_t first, int32_t last, int32_t n) {
    uint64_t head = atomic_load_explicit(&pool->head, memory_order_relaxed);
    do {
        set_next(pool, last, (int32_t)(uint32_t)head);
    } while (!atomic_compare_exchange_weak_explicit(&pool->head, &head, raised(head, first), memory_order_acq_rel, memory_order_relaxed));
    atomic_fetch_add_explicit(&pool->credit, n, memory_order_release);
}

/* ---- the eviction queue: a ring through the sentinel n_pages, oldest after it, youngest before it ---- */

static void enqueue(kv_pool *pool, int32_t page) {
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

static void unqueue(kv_pool *pool, int32_t page) {
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
        unqueue(pool, id.v);
    }
}

/* Drops a reference; whether it was the last one. A lone holder needs no exchange: no other thread can share what only it holds. */
static bool let_go(kv_pool *pool, int32_t page) {
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
    int32_t first = END, last = END, n_freed = 0;
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
        if (!let_go(pool, page)) {
            continue;
        }
        if (get_entry(pool, page) >= 0) {
            enqueue(pool, page);
            continue;
        }
        set_next(pool, page, first);
        note_recent(pool, page);
        first = page;
        last = last == END ? page : last;
        n_freed++;
    }
    if (n_freed > 0) {
        push(pool, first, last, n_freed);
    }
}

int32_t kv_pool_count(const kv_pool *pool, page_id id) {
    return atomic_load_explicit(&pool->page[id.v].count, memory_order_relaxed);
}

kv_counts kv_pool_counts(const kv_pool *pool) {
    kv_counts c = {.n_pages = pool->n_pages,
                   .n_free = atomic_load_explicit(&pool->credit, memory_order_relaxed),
                   .n_cached = atomic_load_explicit(&pool->n_cached, memory_order_relaxed)};
    c.n_held = c.n_pages - c.n_free - c.n_cached;
    return c;
}

int64_t kv_pool_bytes(const kv_pool *pool) {
    return (int64_t)sizeof *pool + ((int64_t)pool->n_pages + 1) * (int64_t)sizeof *pool->page;
}

void kv_pool_index(kv_pool *pool, page_id id, int32_t entry) {
    assert(entry >= 0 && kv_pool_count(pool, id) > 0);
    pool->page[id.v].entry = ~entry;
}

void kv_pool_unindex(kv_pool *pool, page_id id) {
    assert(get_entry(pool, id.v) >= 0);
    pool->page[id.v].entry = ~-1;
    if (kv_pool_count(pool, id) == 0) {
        unqueue(pool, id.v);
        push(pool, id.v, id.v, 1);
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

static bool is_free(const kv_pool *pool, int32_t page) {
    return kv_pool_count(pool, (page_id){page}) == 0 && get_entry(pool, page) < 0;
}

void kv_pool_tidy(kv_pool *pool, kv_pool_run_fn *fn, void *context) {
    int32_t top = END, n = 0;
    for (int32_t page = pool->n_pages - 1; page >= 0; page--) {
        bool free = is_free(pool, page);
        if (free) {
            set_next(pool, page, top);
            top = page;
            n++;
        }
        if (n > 0 && (!free || page == 0)) {
            fn(context, (page_id){free ? page : page + 1}, n);
            n = 0;
        }
    }
    atomic_store(&pool->head, raised(atomic_load(&pool->head), top));
}

/* ---- audit ---- */

/* Checks the free stack: n_free different pages with count 0 that are not indexed. */
static quire_err check_stack(const kv_pool *pool, int32_t n_free, quire_error *err) {
    int32_t n = 0;
    for (int32_t page = (int32_t)(uint32_t)atomic_load(&pool->head); page != END; page = get_next(pool, page)) {
        if (page < 0 || page >= pool->n_pages) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv pool: the free stack holds page %d of %d", page, pool->n_pages);
        }
        if (kv_pool_count(pool, (page_id){page}) != 0 || get_entry(pool, page) >= 0) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv pool: page %d is on the free stack with count %d and entry %d", page,
                           kv_pool_count(pool, (page_id){page}), get_entry(pool, page));
        }
        if (++n > n_free) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv pool: the free stack holds more than the %d free pages, or a cycle", n_free);
        }
    }
    if (n != n_free) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv pool: the free stack holds %d pages, %d are counted free", n, n_free);
    }
    return QUIRE_OK;
}

/* Checks the eviction queue: n_cached indexed pages with count 0, linked both ways. */
static quire_err check_queue(const kv_pool *pool, int32_t n_cached, quire_error *err) {
    int32_t n = 0, older = pool->n_pages;
    for (int32_t page = get_next(pool, older); page != pool->n_pages; older = page, page = get_next(pool, page)) {
        if (page < 0 || page >= pool->n_pages || get_prev(pool, page) != older) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv pool: the eviction queue is broken at page %d after %d", page, older);
        }
        if (kv_pool_count(pool, (page_id){page}) != 0 || get_entry(pool, page) < 0) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv pool: page %d is on the eviction queue with count %d and entry %d", page,
                           kv_pool_count(pool, (page_id){page}), get_entry(pool, page));
        }
        if (++n > n_cached) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv pool: the eviction queue holds more than the %d cached pages", n_cached);
        }
    }
    if (n != n_cached || get_prev(pool, pool->n_pages) != older) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv pool: the eviction queue holds %d pages, %d are counted cached", n, n_cached);
    }
    return QUIRE_OK;
}

quire_err kv_pool_check(const kv_pool *pool, quire_error *err) {
    kv_counts c = kv_pool_counts(pool);
    TRY(check_stack(pool, c.n_free, err));
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
        return err_set(err, QUIRE_INTERNAL, -1, "kv pool: %d pages have holders, but %d free and %d cached of %d leave %d", n_held,
                       c.n_free, c.n_cached, c.n_pages, c.n_held);
    }
    return QUIRE_OK;
}
