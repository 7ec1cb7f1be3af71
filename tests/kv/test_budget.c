/* Pools that share a memory budget, by hand: what goes first, floors, other threads, and
 * failures. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kv/kv_seq.h"
#include "test.h"

/* A cache of one full group, pages of one token, over the budget. */
static kv_cache open_plain(kv_budget *b, int32_t n_pages, int64_t page_bytes, bool no_index) {
    kv_cache c;
    kv_cache_options o = {.n_pages = n_pages,
                          .page_tokens = 1,
                          .n_groups = 1,
                          .no_index = no_index,
                          .max_namespaces = 4,
                          .seed = 1,
                          .budget = b,
                          .page_bytes = page_bytes};
    assert_int_equal(kv_cache_open(&o, &c), QUIRE_OK);
    assert_int_equal(kv_cache_available(&c), 0);
    assert_int_equal(kv_cache_join(&c), QUIRE_OK);
    return c;
}

static void expect(const kv_cache *c, int32_t n_free, int32_t n_held, int32_t n_cached) {
    kv_counts n = kv_pool_counts(c->pool);
    quire_error err = {0};
    if (kv_budget_check(c->budget, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(n.n_free, n_free);
    assert_int_equal(n.n_held, n_held);
    assert_int_equal(n.n_cached, n_cached);
    assert_int_equal(n.n_absent, n.n_pages - n_free - n_held - n_cached);
}

/* Opens a sequence of n tokens with that first one and computes it. */
static kv_seq *run(kv_cache *c, int32_t first, int32_t n, int32_t priority, int32_t *tokens) {
    kv_seq *s = mem_new(1, sizeof *s);
    kv_copies none = {0};
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = first + i;
    }
    assert_int_equal(kv_seq_init(s, 1, n), QUIRE_OK);
    assert_int_equal(kv_seq_open(c, s, "s", 1, "a", 1, tokens, n), QUIRE_OK);
    if (priority != KV_PRIORITY_DEFAULT) {
        kv_retention r = {.priority = priority};
        assert_int_equal(kv_index_retain(c->index, &s->path, &r), QUIRE_OK);
    }
    kv_cache_make_free(c, n);
    assert_int_equal(kv_seq_reserve(c, s, n, &none), QUIRE_OK);
    kv_seq_advance(s, n);
    kv_seq_publish(c, s, tokens);
    return s;
}

static void stop(kv_cache *c, kv_seq *s, const int32_t *tokens, kv_keep keep) {
    kv_seq_release(c, s, tokens, keep);
    kv_seq_close(c, s);
    kv_seq_deinit(s);
    mem_free(s);
}

/* Computes n tokens and leaves them in the cache. */
static void leave_cached(kv_cache *c, int32_t first, int32_t n, int32_t priority) {
    int32_t tokens[256];
    stop(c, run(c, first, n, priority, tokens), tokens, KV_KEEP);
}

/* How many of the n tokens from `first` on are found. */
static int32_t found(kv_cache *c, int32_t first, int32_t n) {
    int32_t tokens[256];
    kv_seq s;
    kv_held held;
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = first + i;
    }
    assert_int_equal(kv_seq_init(&s, 1, n), QUIRE_OK);
    assert_int_equal(kv_seq_open(c, &s, "s", 1, "a", 1, tokens, n), QUIRE_OK);
    int32_t n_found = kv_seq_peek(c, &s, tokens, n, &held);
    kv_seq_close(c, &s);
    kv_seq_deinit(&s);
    return n_found;
}

static kv_budget *open_budget(int64_t bytes) {
    kv_budget *b;
    assert_int_equal(kv_budget_open(bytes, &b), QUIRE_OK);
    return b;
}

TEST(a_pool_that_is_full_gets_the_memory_of_one_that_idles) {
    kv_budget *b = open_budget(256); /* granules of 4 bytes */
    kv_cache x = open_plain(b, 256, 1, false), y = open_plain(b, 128, 2, true);
    int32_t tokens[256];
    expect(&x, 0, 0, 0);
    assert_int_equal(kv_cache_available(&x), 256);
    assert_int_equal(kv_cache_available(&y), 128);
    leave_cached(&x, 1000, 200, KV_PRIORITY_DEFAULT);
    expect(&x, 0, 0, 200);
    kv_seq *s = run(&y, 0, 100, KV_PRIORITY_DEFAULT, tokens); /* 28 are of memory that no pool has */
    expect(&y, 0, 100, 0);
    expect(&x, 0, 0, 56);
    assert_int_equal(kv_cache_available(&x), 56);
    stop(&y, s, tokens, KV_DROP);
    expect(&y, 100, 0, 0);                               /* it keeps what nobody needs */
    s = run(&x, 2000, 200, KV_PRIORITY_DEFAULT, tokens); /* free pages of others go before cached ones */
    expect(&x, 0, 200, 56);
    expect(&y, 0, 0, 0);
    stop(&x, s, tokens, KV_KEEP);
    kv_cache_close(&x);
    assert_int_equal(kv_budget_count(b).used_bytes, 0);
    kv_cache_close(&y);
    kv_budget_close(b);
}

TEST(the_least_valuable_of_all_pools_goes_first) {
    kv_budget *b = open_budget(256);
    kv_cache x = open_plain(b, 256, 1, false), y = open_plain(b, 256, 1, false);
    leave_cached(&x, 1000, 64, KV_PRIORITY_DEFAULT);
    leave_cached(&y, 2000, 128, KV_PRIORITY_DEFAULT);
    leave_cached(&x, 3000, 64, KV_PRIORITY_DEFAULT);
    leave_cached(&x, 4000, 64, KV_PRIORITY_DEFAULT); /* its own pages are the oldest */
    assert_int_equal(found(&x, 1000, 64), 0);
    assert_int_equal(found(&y, 2000, 128), 128);
    leave_cached(&x, 5000, 64, KV_PRIORITY_DEFAULT); /* the other's are: its end goes */
    assert_int_equal(found(&y, 2000, 128), 64);
    assert_int_equal(found(&x, 3000, 64), 64);
    expect(&x, 0, 0, 192);
    expect(&y, 0, 0, 64);
    kv_cache_close(&x);
    kv_cache_close(&y);
    kv_budget_close(b);
}

TEST(retention_counts_between_pools) {
    kv_budget *b = open_budget(256);
    kv_cache x = open_plain(b, 256, 1, false), y = open_plain(b, 256, 1, false);
    leave_cached(&y, 2000, 128, 80);
    leave_cached(&y, 3000, 64, KV_PRIORITY_DEFAULT);
    leave_cached(&x, 1000, 64, 20);
    leave_cached(&x, 4000, 64, KV_PRIORITY_DEFAULT); /* over those of level 20, the youngest */
    assert_int_equal(found(&x, 1000, 64), 0);
    leave_cached(&x, 5000, 64, KV_PRIORITY_DEFAULT);
    assert_int_equal(found(&y, 3000, 64), 0);
    assert_int_equal(found(&y, 2000, 128), 128);
    leave_cached(&x, 6000, 128, KV_PRIORITY_DEFAULT);
    assert_int_equal(found(&y, 2000, 128), 128);
    kv_cache_close(&x);
    kv_cache_close(&y);
    kv_budget_close(b);
}

TEST(a_granule_with_a_held_page_stays_and_the_rest_is_given_back) {
    kv_budget *b = open_budget(256);
    kv_cache x = open_plain(b, 256, 1, true), y = open_plain(b, 256, 1, true);
    page_id ids[256];
    kv_cache_make_free(&x, 256);
    assert_int_equal(kv_pool_reserve(x.pool, 256, ids), QUIRE_OK);
    assert_int_equal(kv_cache_available(&y), 0);
    kv_cache_make_free(&y, 1);
    expect(&y, 0, 0, 0);
    for (int32_t i = 0; i < 256; i++) {
        if (i % 16 != 5) {
            kv_pool_release(x.pool, (page_id){i});
        }
    }
    expect(&x, 240, 16, 0);
    assert_int_equal(kv_cache_available(&y), 192); /* of 64 granules 16 have a held page */
    kv_cache_make_free(&y, 256);
    expect(&y, 192, 0, 0);
    expect(&x, 48, 16, 0);
    assert_int_equal(kv_cache_available(&x), 48 + 192);
    int32_t n_dropped;
    assert_true(kv_cache_drop(&y, &n_dropped));
    assert_int_equal(kv_budget_count(b).used_bytes, 64);
    for (int32_t i = 5; i < 256; i += 16) {
        kv_pool_release(x.pool, (page_id){i});
    }
    kv_cache_close(&x);
    kv_cache_close(&y);
    kv_budget_close(b);
}

/* A page of the start of a prompt goes with its granule, and with it what follows. */
TEST(what_follows_an_evicted_page_goes_before_it) {
    kv_budget *b = open_budget(256);
    kv_cache x = open_plain(b, 256, 1, true), y = open_plain(b, 256, 1, false);
    int32_t tokens[8];
    kv_seq *s = run(&y, 100, 6, KV_PRIORITY_DEFAULT, tokens); /* of a granule and a half */
    stop(&y, s, tokens, KV_KEEP);
    leave_cached(&y, 500, 2, KV_PRIORITY_DEFAULT); /* makes the second granule younger */
    expect(&y, 0, 0, 8);
    kv_cache_make_free(&x, 250);
    expect(&x, 252, 0, 0);
    expect(&y, 2, 0, 2);
    assert_int_equal(found(&y, 100, 6), 0);
    assert_int_equal(found(&y, 500, 2), 2);
    kv_cache_close(&x);
    kv_cache_close(&y);
    kv_budget_close(b);
}

typedef struct yielding {
    kv_cache cache;
    page_id ids[256];
    int32_t n;
} yielding;

static bool yield_one(void *context) {
    yielding *y = context;
    if (y->n == 0) {
        return false;
    }
    kv_pool_release(y->cache.pool, y->ids[--y->n]);
    return true;
}

/* A member that holds pages of one byte each, and yields them one by one. */
static void open_yielding(kv_budget *b, int32_t floor, int32_t n, yielding *y) {
    kv_cache_options o = {.n_pages = 256,
                          .page_tokens = 1,
                          .n_groups = 1,
                          .no_index = true,
                          .budget = b,
                          .page_bytes = 1,
                          .floor_pages = floor,
                          .yield = yield_one,
                          .yield_context = y};
    *y = (yielding){.n = n};
    assert_int_equal(kv_cache_open(&o, &y->cache), QUIRE_OK);
    assert_int_equal(kv_cache_join(&y->cache), QUIRE_OK);
    kv_cache_make_free(&y->cache, n);
    assert_int_equal(kv_pool_reserve(y->cache.pool, n, y->ids), QUIRE_OK);
}

TEST(held_pages_of_a_pool_that_yields_are_the_last_to_go) {
    kv_budget *b = open_budget(256);
    kv_cache x = open_plain(b, 256, 1, false);
    yielding y;
    open_yielding(b, 0, 64, &y);
    leave_cached(&x, 1000, 192, KV_PRIORITY_DEFAULT);
    assert_int_equal(kv_cache_available(&x), 256);
    kv_cache_make_free(&x, 192);
    expect(&x, 192, 0, 0);
    assert_int_equal(y.n, 64);
    kv_cache_make_free(&x, 193);
    expect(&x, 196, 0, 0);
    assert_int_equal(y.n, 60);
    kv_cache_make_free(&x, 256);
    expect(&x, 256, 0, 0);
    expect(&y.cache, 0, 0, 0);
    kv_cache_close(&x);
    kv_cache_close(&y.cache);
    kv_budget_close(b);
}

TEST(a_new_member_gets_its_fixed_part_and_its_floor_from_those_above_theirs) {
    kv_budget *b = open_budget(256); /* granules of 4 pages */
    yielding x, spare;
    kv_cache y;
    kv_cache_options o = {.n_pages = 128,
                          .page_tokens = 1,
                          .n_groups = 1,
                          .no_index = true,
                          .budget = b,
                          .page_bytes = 2,
                          .floor_pages = 15, /* 32 bytes of whole granules */
                          .fixed_bytes = 161};
    open_yielding(b, 64, 200, &x);
    open_yielding(b, 0, 40, &spare);
    assert_int_equal(kv_cache_open(&o, &y), QUIRE_OK);
    assert_int_equal(kv_cache_join(&y), QUIRE_NO_ROOM); /* 64 + 161 + 32 */
    kv_cache_close(&y);
    assert_true(x.n == 200 && spare.n == 40);
    o.fixed_bytes = 100;
    assert_int_equal(kv_cache_open(&o, &y), QUIRE_OK);
    assert_int_equal(kv_cache_join(&y), QUIRE_OK);
    assert_true(x.n == 156 && spare.n == 0);
    assert_int_equal(kv_budget_count(b).used_bytes, 256);
    assert_int_equal(kv_cache_available(&x.cache), 0);
    assert_int_equal(kv_cache_available(&y), 16);
    kv_cache_make_free(&y, 15);
    expect(&y, 16, 0, 0);
    assert_int_equal(x.n, 124);
    kv_pool_release(x.cache.pool, x.ids[--x.n]);
    assert_int_equal(kv_cache_available(&x.cache), 1); /* of its own granule */
    kv_budget_claim(b, y.member, false);
    assert_int_equal(kv_cache_available(&x.cache), 1 + 32);
    kv_cache_make_free(&x.cache, 5);
    expect(&x.cache, 5, 123, 0);
    expect(&y, 14, 0, 0);
    kv_cache_close(&y);
    assert_int_equal(kv_budget_count(b).used_bytes, 128);
    assert_int_equal(kv_budget_count(b).promised_bytes, 64);
    kv_pool_release_all(x.cache.pool, x.ids, x.n);
    kv_cache_close(&x.cache);
    kv_cache_close(&spare.cache);
    kv_budget_close(b);
}

TEST(granules_are_two_megabytes_or_a_64th) {
    static const struct {
        int64_t bytes, page_bytes;
        int32_t n_pages, expected;
    } rows[] = {{(int64_t)1 << 30, 360448, 1000, 6},
                {(int64_t)1 << 30, 2 << 20, 512, 1},
                {(int64_t)1 << 30, 3 << 20, 300, 1},
                {64000, 100, 640, 10},
                {64000, 100, 3, 3},
                {10, 1, 10, 1},
                {(int64_t)1 << 40, 1, 1 << 22, 1 << 21}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv_budget *b = open_budget(rows[i].bytes);
        kv_pool *pool;
        assert_int_equal(kv_budget_open_pool(b, rows[i].n_pages, rows[i].page_bytes, &pool), QUIRE_OK);
        assert_int_equal(kv_pool_granule(pool, 0).n_pages, rows[i].expected);
        assert_int_equal(kv_pool_counts(pool).n_absent, rows[i].n_pages);
        kv_pool_close(pool);
        kv_budget_close(b);
    }
}

TEST(what_exceeds_the_budget_is_refused) {
    kv_budget *b = NULL;
    kv_pool *pool = NULL;
    assert_int_equal(kv_budget_open(0, &b), QUIRE_INVALID);
    assert_int_equal(kv_budget_open(-5, &b), QUIRE_INVALID);
    assert_null(b);
    b = open_budget(100);
    assert_int_equal(kv_budget_open_pool(b, 11, 10, &pool), QUIRE_INVALID);
    assert_int_equal(kv_budget_open_pool(b, 0, 10, &pool), QUIRE_INVALID);
    assert_int_equal(kv_budget_open_pool(b, 1, 0, &pool), QUIRE_INVALID);
    assert_int_equal(kv_budget_open_pool(b, INT32_MAX, INT64_MAX, &pool), QUIRE_INVALID);
    assert_null(pool);
    kv_cache caches[KV_BUDGET_MAX_POOLS], more;
    for (int32_t i = 0; i < KV_BUDGET_MAX_POOLS; i++) {
        caches[i] = open_plain(b, 10, 10, true);
    }
    kv_cache_options o = {
        .n_pages = 10, .page_tokens = 1, .n_groups = 1, .no_index = true, .budget = b, .page_bytes = 10};
    assert_int_equal(kv_cache_open(&o, &more), QUIRE_OK);
    assert_int_equal(kv_cache_join(&more), QUIRE_NO_ROOM);
    kv_cache_close(&more);
    for (int32_t i = 0; i < KV_BUDGET_MAX_POOLS; i++) {
        kv_cache_close(&caches[i]);
    }
    kv_budget_close(b);
    kv_budget_close(NULL);
}

/* ---- other threads ---- */

enum { N_THREADS = 3, N_ROUNDS = 4000, MOST_HELD = 6, SHARED_PAGES = 96 };

typedef struct holder {
    kv_pool *pool;
    atomic_int *owner; /* [SHARED_PAGES] */
    int32_t number;
    atomic_int *n_running;
    const char *wrong;
} holder;

/* Reserves and releases what pages are resident. */
static void *hold(void *argument) {
    holder *h = argument;
    page_id held[MOST_HELD];
    int32_t n = 0;
    uint64_t s = (uint64_t)h->number;
    for (int32_t round = 0; round < N_ROUNDS; round++) {
        int32_t want = (int32_t)(rng_next(&s) % 4);
        if (n + want <= MOST_HELD && kv_pool_reserve(h->pool, want, held + n) == QUIRE_OK) {
            for (int32_t i = n; i < n + want; i++) {
                if (atomic_exchange(&h->owner[held[i].v], h->number) != 0) {
                    h->wrong = "a page was given out twice";
                }
            }
            n += want;
        }
        for (int32_t give = (int32_t)(rng_next(&s) % (uint64_t)(n + 1)); give > 0; give--) {
            n--;
            if (atomic_exchange(&h->owner[held[n].v], 0) != h->number) {
                h->wrong = "a held page was taken away";
            }
            kv_pool_release(h->pool, held[n]);
        }
    }
    kv_pool_release_all(h->pool, held, n);
    for (int32_t i = 0; i < n; i++) {
        atomic_store(&h->owner[held[i].v], 0);
    }
    atomic_fetch_sub(h->n_running, 1);
    return NULL;
}

TEST(granules_move_while_other_threads_reserve_and_release) {
    kv_budget *b = open_budget(SHARED_PAGES);
    kv_cache x = open_plain(b, SHARED_PAGES, 1, true), y = open_plain(b, SHARED_PAGES / 4, 4, true);
    static atomic_int owner[SHARED_PAGES];
    atomic_int n_running = N_THREADS;
    pthread_t threads[N_THREADS];
    holder holders[N_THREADS];
    uint64_t s = 1;
    kv_cache_make_free(&x, SHARED_PAGES / 2);
    for (int32_t i = 0; i < N_THREADS; i++) {
        holders[i] = (holder){.pool = x.pool, .owner = owner, .number = i + 1, .n_running = &n_running};
        assert_int_equal(pthread_create(&threads[i], NULL, hold, &holders[i]), 0);
    }
    while (atomic_load(&n_running) > 0) {
        page_id ids[SHARED_PAGES / 4];
        int32_t n = (int32_t)(rng_next(&s) % (SHARED_PAGES / 4));
        kv_cache_make_free(&y, n);
        if (kv_pool_reserve(y.pool, n, ids) == QUIRE_OK) {
            kv_pool_release_all(y.pool, ids, n);
        }
        kv_cache_make_free(&x, (int32_t)(rng_next(&s) % SHARED_PAGES));
    }
    for (int32_t i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (holders[i].wrong != NULL) {
            fail_msg("%s", holders[i].wrong);
        }
    }
    expect(&x, kv_pool_counts(x.pool).n_free, 0, 0);
    assert_int_equal(kv_cache_available(&x), SHARED_PAGES);
    kv_cache_close(&x);
    kv_cache_close(&y);
    kv_budget_close(b);
}

/* ---- failures ---- */

#ifdef QUIRE_DEBUG
TEST(a_cache_that_cannot_be_opened_leaves_the_budget_as_it_was) {
    kv_budget *b = NULL;
    kv_cache c;
    fault_at(1);
    assert_int_equal(kv_budget_open(1000, &b), QUIRE_NO_MEMORY);
    fault_at(0);
    b = open_budget(1000);
    kv_cache_options o = {.n_pages = 100,
                          .page_tokens = 1,
                          .n_groups = 1,
                          .max_namespaces = 4,
                          .n_events = 4,
                          .seed = 1,
                          .budget = b,
                          .page_bytes = 10};
    quire_err e = QUIRE_NO_MEMORY;
    int32_t point = 0;
    while (e != QUIRE_OK) {
        fault_at(++point);
        e = kv_cache_open(&o, &c);
        assert_true(e == QUIRE_NO_MEMORY || !fault_happened());
        fault_at(0);
        assert_int_equal(kv_budget_count(b).n_pools, 0);
    }
    assert_true(point > 8);
    assert_int_equal(kv_cache_join(&c), QUIRE_OK);
    assert_int_equal(kv_budget_count(b).n_pools, 1);
    /* a failed reservation keeps what was brought for it */
    page_id id;
    kv_cache_make_free(&c, 1);
    kv_counts before = kv_pool_counts(c.pool);
    fault_at(1);
    assert_int_equal(kv_pool_reserve(c.pool, 1, &id), QUIRE_NO_ROOM);
    fault_at(0);
    expect(&c, before.n_free, 0, 0);
    kv_cache_close(&c);
    assert_int_equal(kv_budget_count(b).used_bytes, 0);
    kv_budget_close(b);
}
#else
TEST(a_cache_that_cannot_be_opened_leaves_the_budget_as_it_was) {
    skip(); /* no fault points in this build */
}
#endif

TEST_MAIN(NULL, NULL)
