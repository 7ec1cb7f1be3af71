#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/pool.h"
#include "test.h"

static kv_pool *open_pool(int32_t n_pages) {
    kv_pool *pool;
    assert_int_equal(kv_pool_open(n_pages, &pool), QUIRE_OK);
    return pool;
}

static void check(const kv_pool *pool) {
    quire_error err;
    if (kv_pool_check(pool, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static void expect_counts(const kv_pool *pool, int32_t n_free, int32_t n_held, int32_t n_cached) {
    check(pool);
    kv_counts c = kv_pool_counts(pool);
    assert_int_equal(c.n_free, n_free);
    assert_int_equal(c.n_held, n_held);
    assert_int_equal(c.n_cached, n_cached);
    assert_int_equal(c.n_pages, n_free + n_held + n_cached);
}

TEST(a_reserve_takes_all_pages_or_none) {
    kv_pool *pool = open_pool(8);
    page_id ids[9];
    assert_int_equal(kv_pool_reserve(pool, 5, ids), QUIRE_OK);
    expect_counts(pool, 3, 5, 0);
    assert_int_equal(kv_pool_reserve(pool, 4, ids + 5), QUIRE_NO_ROOM);
    expect_counts(pool, 3, 5, 0);
    assert_int_equal(kv_pool_reserve(pool, 3, ids + 5), QUIRE_OK);
    expect_counts(pool, 0, 8, 0);
    assert_int_equal(kv_pool_reserve(pool, 0, ids), QUIRE_OK);
    assert_int_equal(kv_pool_reserve(pool, 1, ids + 8), QUIRE_NO_ROOM);
    int seen[8] = {0};
    for (int i = 0; i < 8; i++) {
        assert_in_range(ids[i].v, 0, 7);
        assert_int_equal(seen[ids[i].v]++, 0);
        assert_int_equal(kv_pool_count(pool, ids[i]), 1);
    }
    kv_pool_release_all(pool, ids, 8);
    expect_counts(pool, 8, 0, 0);
    kv_pool_close(pool);
}

TEST(a_shared_page_is_freed_by_its_last_holder) {
    kv_pool *pool = open_pool(2);
    page_id id;
    assert_int_equal(kv_pool_reserve(pool, 1, &id), QUIRE_OK);
    kv_pool_share(pool, id);
    kv_pool_share(pool, id);
    assert_int_equal(kv_pool_count(pool, id), 3);
    assert_true(kv_pool_is_shared(pool, id));
    kv_pool_release(pool, id);
    kv_pool_release(pool, id);
    assert_false(kv_pool_is_shared(pool, id));
    expect_counts(pool, 1, 1, 0);
    kv_pool_release(pool, id);
    expect_counts(pool, 2, 0, 0);
    kv_pool_close(pool);
}

/* Worked example 18. */
TEST(the_page_released_longest_ago_is_evicted_first_unless_touched) {
    kv_pool *pool = open_pool(4);
    page_id ids[4], got;
    assert_int_equal(kv_pool_reserve(pool, 4, ids), QUIRE_OK);
    for (int i = 0; i < 4; i++) {
        kv_pool_index(pool, ids[i], 100 + i);
        assert_true(kv_pool_is_shared(pool, ids[i]));
    }
    assert_int_equal(kv_pool_oldest(pool).v, PAGE_NONE.v);
    for (int i = 0; i < 4; i++) {
        kv_pool_release(pool, ids[i]);
    }
    expect_counts(pool, 0, 0, 4);
    assert_int_equal(kv_pool_oldest(pool).v, ids[0].v);
    kv_pool_share(pool, ids[0]); /* a touch rescues the oldest */
    expect_counts(pool, 0, 1, 3);
    assert_int_equal(kv_pool_oldest(pool).v, ids[1].v);
    kv_pool_release(pool, ids[0]); /* and puts it at the young end */
    static const int order[] = {1, 2, 3, 0};
    assert_int_equal(kv_pool_reserve(pool, 1, &got), QUIRE_NO_ROOM);
    for (int i = 0; i < 4; i++) {
        page_id oldest = kv_pool_oldest(pool);
        assert_int_equal(oldest.v, ids[order[i]].v);
        assert_int_equal(kv_pool_entry(pool, oldest), 100 + order[i]); /* until now it could be found */
        kv_pool_unindex(pool, oldest);
        expect_counts(pool, i + 1, 0, 3 - i);
    }
    assert_int_equal(kv_pool_oldest(pool).v, PAGE_NONE.v);
    kv_pool_close(pool);
}

TEST(a_sequences_last_page_is_offered_for_eviction_before_its_first) {
    kv_pool *pool = open_pool(3);
    page_id ids[3];
    assert_int_equal(kv_pool_reserve(pool, 3, ids), QUIRE_OK);
    for (int i = 0; i < 3; i++) {
        kv_pool_index(pool, ids[i], i);
    }
    kv_pool_release_all(pool, ids, 3);
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(kv_pool_oldest(pool).v, ids[i].v);
        kv_pool_unindex(pool, ids[i]);
    }
    kv_pool_close(pool);
}

TEST(a_held_page_that_is_unindexed_is_freed_when_released) {
    kv_pool *pool = open_pool(1);
    page_id id;
    assert_int_equal(kv_pool_reserve(pool, 1, &id), QUIRE_OK);
    kv_pool_index(pool, id, 7);
    kv_pool_unindex(pool, id);
    assert_int_equal(kv_pool_entry(pool, id), -1);
    expect_counts(pool, 0, 1, 0);
    kv_pool_release(pool, id);
    expect_counts(pool, 1, 0, 0);
    kv_pool_close(pool);
}

typedef struct runs {
    int32_t first[8], n[8], n_runs;
} runs;

static void note_run(void *context, page_id first, int32_t n) {
    runs *r = context;
    assert_true(r->n_runs < 8);
    r->first[r->n_runs] = first.v;
    r->n[r->n_runs++] = n;
}

TEST(a_tidy_pool_offers_free_pages_in_order_and_lists_their_runs) {
    enum { N = 12 };
    kv_pool *pool = open_pool(N);
    page_id ids[N], back[N] = {{7}, {0}, {9}, {10}, {3}, {8}, {2}}, next[N];
    runs r = {.n_runs = 0};
    assert_int_equal(kv_pool_reserve(pool, N, ids), QUIRE_OK);
    kv_pool_tidy(pool, note_run, &r);
    assert_int_equal(r.n_runs, 0);
    kv_pool_index(pool, (page_id){10}, 1); /* cached, not free */
    kv_pool_release_all(pool, back, 7);
    expect_counts(pool, 6, 5, 1);
    kv_pool_tidy(pool, note_run, &r);
    expect_counts(pool, 6, 5, 1);
    assert_int_equal(r.n_runs, 3);
    for (int32_t i = 0; i < r.n_runs; i++) { /* in any order */
        int32_t expected = r.first[i] == 0 ? 1 : r.first[i] == 2 ? 2 : r.first[i] == 7 ? 3 : -1;
        assert_int_equal(r.n[i], expected);
    }
    static const int32_t order[] = {0, 2, 3, 7, 8, 9};
    assert_int_equal(kv_pool_reserve(pool, 6, next), QUIRE_OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(next[i].v, order[i]);
    }
    expect_counts(pool, 0, 11, 1);
    kv_pool_close(pool);
}

TEST(impossible_sizes_are_refused) {
    kv_pool *pool = NULL;
    assert_int_equal(kv_pool_open(0, &pool), QUIRE_INVALID);
    assert_int_equal(kv_pool_open(-1, &pool), QUIRE_INVALID);
    assert_int_equal(kv_pool_open(INT32_MAX, &pool), QUIRE_INVALID);
    assert_null(pool);
    kv_pool_close(NULL);
}

/* A plain model beside the pool: a count and a mark a page, and the order of releases. */
typedef struct model {
    int32_t n_pages, counts[64], entries[64], n_queue, queue[64];
} model;

static void model_unqueue(model *m, int32_t page) {
    int32_t to = 0;
    for (int32_t i = 0; i < m->n_queue; i++) {
        if (m->queue[i] != page) {
            m->queue[to++] = m->queue[i];
        }
    }
    m->n_queue = to;
}

static void compare(const kv_pool *pool, const model *m) {
    int32_t n_held = 0;
    check(pool);
    for (int32_t i = 0; i < m->n_pages; i++) {
        assert_int_equal(kv_pool_count(pool, (page_id){i}), m->counts[i]);
        assert_int_equal(kv_pool_entry(pool, (page_id){i}), m->entries[i]);
        n_held += m->counts[i] > 0;
    }
    kv_counts c = kv_pool_counts(pool);
    assert_int_equal(c.n_held, n_held);
    assert_int_equal(c.n_cached, m->n_queue);
    assert_int_equal(kv_pool_oldest(pool).v, m->n_queue > 0 ? m->queue[0] : -1);
}

static void random_step(kv_pool *pool, model *m, uint64_t *s) {
    int32_t page = (int32_t)(rng_next(s) % (uint64_t)m->n_pages);
    page_id id = {page}, ids[64];
    bool live = m->counts[page] > 0 || m->entries[page] >= 0;
    switch (rng_next(s) % 5) {
    case 0: {
        int32_t n = 1 + (int32_t)(rng_next(s) % 6);
        bool fits = n <= kv_pool_counts(pool).n_free;
        assert_int_equal(kv_pool_reserve(pool, n, ids), fits ? QUIRE_OK : QUIRE_NO_ROOM);
        for (int32_t i = 0; fits && i < n; i++) {
            assert_int_equal(m->counts[ids[i].v], 0);
            assert_int_equal(m->entries[ids[i].v], -1);
            m->counts[ids[i].v] = 1;
        }
        return;
    }
    case 1:
        if (live) {
            kv_pool_share(pool, id);
            m->counts[page]++;
            model_unqueue(m, page);
        }
        return;
    case 2:
        if (m->counts[page] > 0) {
            kv_pool_release(pool, id);
            if (--m->counts[page] == 0 && m->entries[page] >= 0) {
                m->queue[m->n_queue++] = page;
            }
        }
        return;
    case 3:
        if (m->counts[page] > 0) {
            kv_pool_index(pool, id, (int32_t)(rng_next(s) % 1000));
            m->entries[page] = kv_pool_entry(pool, id);
        }
        return;
    default:
        if (m->entries[page] >= 0) {
            kv_pool_unindex(pool, id);
            m->entries[page] = -1;
            model_unqueue(m, page);
        }
        return;
    }
}

TEST(random_operations_agree_with_a_plain_model) {
    uint64_t seed = rng_os_seed(), s = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int32_t n_pages = 1; n_pages <= 64; n_pages += 9) {
        kv_pool *pool = open_pool(n_pages);
        model m = {.n_pages = n_pages};
        memset(m.entries, -1, sizeof m.entries);
        for (int step = 0; step < 3000; step++) {
            random_step(pool, &m, &s);
            compare(pool, &m);
        }
        kv_pool_close(pool);
    }
}

enum { N_THREADS = 8, N_ROUNDS = 20000, MAX_HELD = 4, STRESS_PAGES = 12 };

typedef struct stress {
    kv_pool *pool;
    int32_t *content; /* [n_pages] plain memory: what a page holds is its holder's */
    int32_t number;
} stress;

/* Reserves, writes its number into its pages, shares and releases; finds its number still
 * there before it gives a page back. */
static void *stress_main(void *argument) {
    const stress *st = argument;
    page_id held[MAX_HELD];
    int32_t n = 0;
    uint64_t s = (uint64_t)st->number;
    for (int round = 0; round < N_ROUNDS; round++) {
        int32_t want = (int32_t)(rng_next(&s) % 3);
        if (n + want <= MAX_HELD && kv_pool_reserve(st->pool, want, held + n) == QUIRE_OK) {
            for (int32_t i = n; i < n + want; i++) {
                st->content[held[i].v] = st->number;
            }
            n += want;
        }
        int32_t give = (int32_t)(rng_next(&s) % (uint64_t)(n + 1));
        for (int32_t i = n - give; i < n; i++) {
            kv_pool_share(st->pool, held[i]);
            kv_pool_release(st->pool, held[i]);
            if (st->content[held[i].v] != st->number) {
                return "a page was given out twice";
            }
        }
        kv_pool_release_all(st->pool, held + n - give, give);
        n -= give;
    }
    kv_pool_release_all(st->pool, held, n);
    return NULL;
}

TEST(eight_threads_never_hold_the_same_page_and_lose_none) {
    kv_pool *pool = open_pool(STRESS_PAGES); /* too few for all: some reserves fail */
    int32_t *content = mem_new(STRESS_PAGES, sizeof *content);
    pthread_t threads[N_THREADS];
    stress stresses[N_THREADS];
    for (int32_t i = 0; i < N_THREADS; i++) {
        stresses[i] = (stress){pool, content, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, stress_main, &stresses[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    expect_counts(pool, STRESS_PAGES, 0, 0);
    mem_free(content);
    kv_pool_close(pool);
}

TEST_MAIN(NULL, NULL)
