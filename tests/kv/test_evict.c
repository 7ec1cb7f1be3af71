/* Which cached page goes first: each policy's order by hand, retention, and what scans do
 * to a hot set. */

#include <math.h>

#include "base/rng.h"
#include "kv/evict_learned.h"
#include "kv/index.h"
#include "test.h"

/* A cache whose requests come one after another. */
typedef struct cache {
    kv_pool *pool;
    kv_index *ix;
    int32_t page_tokens;
    kv_table table;
    int64_t n_hits; /* tokens found */
} cache;

static void cache_open(cache *c, int32_t n_pages, int32_t page_tokens, kv_policy policy) {
    kv_index_options o = {.page_tokens = page_tokens, .n_groups = 1, .max_namespaces = 4, .policy = policy};
    *c = (cache){.page_tokens = page_tokens};
    assert_int_equal(kv_pool_open(n_pages, &c->pool), QUIRE_OK);
    assert_int_equal(kv_index_open(c->pool, &o, &c->ix), QUIRE_OK);
    assert_int_equal(kv_table_init(&c->table, n_pages + 1), QUIRE_OK);
}

static void cache_close(cache *c) {
    kv_table_deinit(c->pool, &c->table);
    kv_index_close(c->ix);
    kv_pool_close(c->pool);
}

static void check(const cache *c) {
    quire_error err = {.message = ""};
    if (kv_index_check(c->ix, &err) != QUIRE_OK || kv_pool_check(c->pool, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

/* Matches, computes and publishes tokens[0..n) on a path that stays; r may be NULL. Says
 * how many were found. */
static int32_t start(cache *c, const int32_t *tokens, int32_t n, const kv_retention *r, kv_path *path) {
    int32_t found;
    kv_copies none = {.cap = 0};
    assert_int_equal(kv_index_enter(c->ix, "t", 1, path), QUIRE_OK);
    if (r != NULL) {
        assert_int_equal(kv_index_retain(c->ix, path, r), QUIRE_OK);
    }
    assert_int_equal(kv_index_match(c->ix, path, tokens, n, &c->table, &found), QUIRE_OK);
    /* a tail is computed anew */
    kv_table_truncate(c->pool, &c->table, found / c->page_tokens * c->page_tokens, c->page_tokens);
    int32_t n_new = n - c->table.n_tokens;
    assert_int_equal(kv_index_evict(c->ix, kv_table_needs(c->pool, &c->table, n_new, c->page_tokens)),
                     QUIRE_OK);
    assert_int_equal(kv_table_append(c->pool, &c->table, n_new, c->page_tokens, &none), QUIRE_OK);
    assert_int_equal(kv_index_publish(c->ix, path, tokens, n, &c->table, KV_PUBLISH_TAIL), QUIRE_OK);
    c->n_hits += found;
    return found;
}

static void finish(cache *c, kv_path *path) {
    kv_table_clear(c->pool, &c->table);
    kv_index_leave(c->ix, path);
}

static int32_t request(cache *c, const int32_t *tokens, int32_t n, const kv_retention *r) {
    kv_path path;
    int32_t found = start(c, tokens, n, r, &path);
    finish(c, &path);
    return found;
}

/* A request of one page that holds token t. */
static int32_t ask(cache *c, int32_t t) {
    return request(c, &t, 1, NULL);
}

static int32_t ask_times(cache *c, int32_t t, int32_t times) {
    int32_t found = 0;
    for (int32_t i = 0; i < times; i++) {
        found += ask(c, t);
    }
    return found;
}

static void keep(cache *c, int32_t t, kv_retention r) {
    (void)request(c, &t, 1, &r);
}

static bool is_cached(const cache *c, const int32_t *tokens, int32_t n) {
    kv_path path;
    assert_int_equal(kv_index_enter(c->ix, "t", 1, &path), QUIRE_OK);
    int32_t found = kv_index_peek(c->ix, &path, tokens, n);
    kv_index_leave(c->ix, &path);
    return found == n;
}

/* Evicts page by page, and expects those of single tokens to go in this order. */
static void expect_order(cache *c, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < n; k++) {
            if (is_cached(c, &tokens[k], 1) != (k >= i)) {
                fail_msg("after %d evictions token %d is %s cached", i, tokens[k], k >= i ? "not" : "still");
            }
        }
        assert_int_equal(kv_index_evict(c->ix, kv_pool_counts(c->pool).n_free + 1), QUIRE_OK);
        check(c);
    }
}

#define EXPECT_ORDER(c, ...)                                                                                 \
    expect_order(c, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* ---- the policies, by hand ---- */

/* Worked example 18, one page a token: the longest free goes first, touch rescues,
 * contents stay until the page is given out again. */
TEST(lru_lets_the_longest_unused_go_first) {
    cache c;
    cache_open(&c, 4, 1, KV_EVICT_LRU);
    for (int32_t t = 1; t <= 4; t++) {
        assert_int_equal(ask(&c, t), 0);
    }
    assert_int_equal(ask(&c, 1), 1);
    EXPECT_ORDER(&c, 2, 3, 4, 1);
    cache_close(&c);
}

TEST(lfu_lets_the_least_used_go_first_and_of_those_the_oldest) {
    cache c;
    cache_open(&c, 4, 1, KV_EVICT_LFU);
    assert_int_equal(ask_times(&c, 1, 3), 2);
    (void)ask(&c, 2);
    (void)ask_times(&c, 3, 2);
    (void)ask(&c, 4);
    check(&c);
    EXPECT_ORDER(&c, 2, 4, 3, 1);
    cache_close(&c);
}

/* Values at depth 0, in units of the cost of one page: 1: 3, 2: 1, 3: 2. Then 5 takes
 * 2's place (clock 1, value 2), 6 takes 3's, which is older than 5 (clock 2, value 3),
 * 7 takes 5's (value 3). Now 1, with three uses, is the oldest of three that are worth
 * 3. */
TEST(gdsf_lets_old_merits_fade) {
    cache c;
    cache_open(&c, 3, 1, KV_EVICT_GDSF);
    (void)ask_times(&c, 1, 3);
    (void)ask(&c, 2);
    (void)ask_times(&c, 3, 2);
    for (int32_t t = 5; t <= 7; t++) {
        assert_int_equal(ask(&c, t), 0);
        check(&c);
    }
    EXPECT_ORDER(&c, 1, 6, 7);
    cache_close(&c);
}

/* Page 256: the last of 81 pages costs 1 + 20,608 / 20,000 = 2.03 pages at depth 0, so
 * once used it is worth more than a first page used twice (2 x 1.0064); a tail of 64
 * tokens there is worth a quarter. */
TEST(gdsf_weighs_what_it_costs_to_compute_a_page_again) {
    cache c;
    int32_t shallow[256], deep[81 * 256];
    for (int32_t i = 0; i < 81 * 256; i++) {
        deep[i] = i;
        shallow[i % 256] = -1 - i % 256;
    }
    cache_open(&c, 100, 256, KV_EVICT_GDSF);
    (void)request(&c, deep, 81 * 256, NULL);
    (void)request(&c, shallow, 256, NULL);
    assert_int_equal(request(&c, shallow, 256, NULL), 256);
    assert_int_equal(kv_index_evict(c.ix, kv_pool_counts(c.pool).n_free + 1), QUIRE_OK);
    assert_false(is_cached(&c, shallow, 256));
    assert_true(is_cached(&c, deep, 81 * 256));
    cache_close(&c);

    cache_open(&c, 100, 256, KV_EVICT_GDSF);
    (void)request(&c, shallow, 256, NULL);
    (void)request(&c, deep, 80 * 256 + 64, NULL);
    assert_int_equal(kv_index_evict(c.ix, kv_pool_counts(c.pool).n_free + 1), QUIRE_OK);
    assert_true(is_cached(&c, shallow, 256));
    assert_false(is_cached(&c, deep, 80 * 256 + 64));
    assert_true(is_cached(&c, deep, 80 * 256));
    check(&c);
    cache_close(&c);
}

static page_id page_of(const cache *c, int32_t t) {
    kv_path path;
    kv_table table = {0};
    int32_t found;
    assert_int_equal(kv_index_enter(c->ix, "t", 1, &path), QUIRE_OK);
    assert_int_equal(kv_index_match(c->ix, &path, &t, 1, &table, &found), QUIRE_OK);
    assert_int_equal(found, 1);
    page_id page = table.pages[0];
    kv_table_deinit(c->pool, &table);
    kv_index_leave(c->ix, &path);
    return page;
}

TEST(the_callers_order_is_kept) {
    cache c;
    const double when[] = {0, 7, INFINITY, 2.5, 0, NAN};
    cache_open(&c, 6, 1, KV_EVICT_CALLER);
    for (int32_t t = 1; t <= 6; t++) {
        (void)ask(&c, t);
    }
    for (int32_t t = 1; t <= 4; t++) {
        kv_index_set_next_use(c.ix, page_of(&c, t), when[t]);
    }
    page_id five = page_of(&c, 5);
    kv_index_set_next_use(c.ix, five, when[5]);
    check(&c);
    /* nothing said of 6; infinity and no number mean never; 2 was let go before 5 */
    EXPECT_ORDER(&c, 6, 2, 5, 1, 3, 4);
    (void)ask(&c, 7);
    cache_close(&c);
}

/* Worked example 23: page 1; [1,2,3], then [1,2,4]. Under every policy a leaf goes before
 * what it stands on, however often that was used. */
TEST(leaves_go_first_under_every_policy) {
    for (kv_policy p = KV_EVICT_LRU; p <= KV_EVICT_CALLER; p++) {
        cache c;
        const int32_t a[] = {1, 2, 3}, b[] = {1, 2, 4};
        cache_open(&c, 8, 1, p);
        (void)request(&c, a, 3, NULL);
        assert_int_equal(request(&c, b, 3, NULL), 2);
        assert_int_equal(kv_index_count(c.ix).n_nodes, 4); /* root, [1,2], [3], [4] */
        assert_int_equal(kv_index_evict(c.ix, 5), QUIRE_OK);
        assert_false(is_cached(&c, a, 3));
        assert_true(is_cached(&c, b, 3));
        assert_int_equal(kv_index_count(c.ix).n_nodes, 2); /* [1,2] and [4] are one again */
        for (int32_t n = 3; n > 0; n--) {
            assert_true(is_cached(&c, b, n));
            check(&c);
            assert_int_equal(kv_index_evict(c.ix, 8 - n + 1), QUIRE_OK);
            assert_false(is_cached(&c, b, n));
        }
        cache_close(&c);
    }
}

/* ---- the learned policy's model ---- */

TEST(an_untaught_model_finds_all_alike) {
    kv_learned l;
    kv_use old = {0}, young = {0};
    assert_int_equal(kv_learned_open(&l, 16), QUIRE_OK);
    kv_learned_made(&l, 1, 0, 0, &old);
    kv_learned_made(&l, 2, 900, 7, &young);
    kv_learned_used(&l, 1, &old);
    kv_learned_used(&l, 2, &young);
    assert_true(kv_learned_probability(&l, &old) == 0.5 && kv_learned_probability(&l, &young) == 0.5);
    /* lru: the time of the last use alone */
    assert_true(kv_learned_value(&l, &young) - kv_learned_value(&l, &old) == 1);
    kv_learned_close(&l);
}

TEST(a_trial_lasts_as_many_uses_as_there_are_pages) {
    kv_learned l;
    kv_use again, other, back;
    assert_int_equal(kv_learned_open(&l, 4), QUIRE_OK);
    kv_learned_made(&l, 1, 3, 0, &again);
    kv_learned_used(&l, 1, &again); /* use 1 */
    for (uint64_t hash = 10; hash < 13; hash++) {
        kv_learned_made(&l, hash, 0, 0, &other);
        kv_learned_used(&l, hash, &other); /* 2, 3, 4 */
    }
    assert_true(l.mean == 0 && l.weights[0] == 0); /* no trial is over */
    kv_learned_made(&l, 1, 3, 0, &back);           /* it was evicted and is made again: its past is known */
    assert_int_equal(back.n_uses, 1);
    kv_learned_used(&l, 1, &back); /* 5: the first trial ends before it, unused */
    assert_int_equal(back.n_uses, 2);
    assert_int_equal(back.gap, 4);
    assert_true(l.weights[0] == -0.1 && l.mean == 0); /* the first lesson moves a weight by the rate */
    /* 6: ends use 2's, unused; tells use 5's that it was used again */
    kv_learned_used(&l, 1, &back);
    for (uint64_t hash = 20; hash < 23; hash++) {
        kv_learned_made(&l, hash, 0, 0, &other);
        kv_learned_used(&l, hash, &other);
    }
    assert_true(l.mean == 0.25); /* use 5's is over: 1 of 4, weighted */
    kv_learned_close(&l);
}

TEST(the_model_tells_what_comes_back_from_what_does_not) {
    kv_learned l;
    kv_use hot[4] = {{0}}, once = {0};
    assert_int_equal(kv_learned_open(&l, 32), QUIRE_OK);
    for (int32_t i = 0; i < 4; i++) {
        kv_learned_made(&l, (uint64_t)i + 1, 0, 1, &hot[i]);
    }
    for (int32_t i = 0; i < 4000; i++) {
        if (i % 2 == 0) {
            kv_learned_used(&l, (uint64_t)(i / 2 % 4) + 1, &hot[i / 2 % 4]);
        } else {
            kv_learned_made(&l, 1000 + (uint64_t)i, 0, 2, &once);
            kv_learned_used(&l, 1000 + (uint64_t)i, &once);
        }
    }
    assert_true(kv_learned_probability(&l, &hot[0]) > 0.95);
    assert_true(kv_learned_probability(&l, &once) < 0.05);
    assert_true(kv_learned_value(&l, &hot[0]) > kv_learned_value(&l, &once) + l.age); /* worth another age */
    kv_learned_close(&l);
}

/* ---- retention ---- */

#define SECOND INT64_C(1000000)

TEST(priority_goes_before_the_policy) {
    for (kv_policy p = KV_EVICT_LRU; p <= KV_EVICT_LEARNED; p++) {
        cache c;
        cache_open(&c, 8, 1, p);
        (void)ask(&c, 1); /* cached before anybody spoke of retention */
        keep(&c, 2, (kv_retention){.priority = 90});
        (void)ask_times(&c, 3, 5);
        keep(&c, 3, (kv_retention){.priority = 10});
        (void)ask(&c, 4);
        keep(&c, 5, (kv_retention){.priority = 0});
        check(&c);
        EXPECT_ORDER(&c, 5, 3, 1, 4, 2);
        cache_close(&c);
    }
}

TEST(a_time_to_live_and_a_priority_end) {
    for (kv_policy p = KV_EVICT_LRU; p <= KV_EVICT_LEARNED; p++) {
        for (int32_t late = 0; late < 2; late++) {
            cache c;
            cache_open(&c, 8, 1, p);
            kv_index_set_time(c.ix, 1000);
            keep(&c, 1, (kv_retention){.priority = 90, .priority_us = 3 * SECOND});
            keep(&c, 2, (kv_retention){.priority = 100, .priority_us = 9 * SECOND, .ttl_us = 5 * SECOND});
            keep(&c, 3, (kv_retention){.priority = 10, .priority_us = 5 * SECOND});
            (void)ask(&c, 4);
            kv_index_set_time(c.ix, 1000 + 3 * SECOND - 1);
            check(&c);
            if (!late) {
                EXPECT_ORDER(&c, 3, 4, 1, 2); /* nothing has ended yet */
            } else {
                kv_index_set_time(c.ix, 1000 + 5 * SECOND);
                kv_index_set_time(c.ix, 7);   /* time does not run back */
                EXPECT_ORDER(&c, 2, 1, 3, 4); /* 2 is over, 1 and 3 are like any other */
            }
            cache_close(&c);
        }
    }
}

TEST(times_count_from_when_the_last_holder_lets_go) {
    cache c;
    kv_path path;
    int32_t one = 1;
    kv_retention r = {.priority = 100, .ttl_us = 5 * SECOND};
    cache_open(&c, 8, 1, KV_EVICT_LRU);
    assert_int_equal(start(&c, &one, 1, &r, &path), 0);
    kv_index_set_time(c.ix, 60 * SECOND);
    finish(&c, &path);
    (void)ask(&c, 2);
    kv_index_set_time(c.ix, 65 * SECOND - 1);
    assert_int_equal(ask(&c, 3), 0);
    EXPECT_ORDER(&c, 2, 3, 1);
    assert_int_equal(ask(&c, 1), 0); /* made again, and nothing was said this time */
    (void)ask(&c, 2);
    kv_index_set_time(c.ix, 999 * SECOND);
    EXPECT_ORDER(&c, 1, 2);
    cache_close(&c);
}

TEST(the_last_that_says_something_counts) {
    cache c;
    cache_open(&c, 8, 1, KV_EVICT_LRU);
    keep(&c, 1, (kv_retention){.priority = 90});
    assert_int_equal(ask(&c, 1), 1); /* says nothing: 90 stays */
    keep(&c, 2, (kv_retention){.priority = 90});
    keep(&c, 2, (kv_retention){.priority = 20});
    keep(&c, 3, KV_RETENTION_DEFAULT);
    EXPECT_ORDER(&c, 2, 3, 1);
    cache_close(&c);
}

TEST(a_page_keeps_those_before_it_whatever_their_priority) {
    for (kv_policy p = KV_EVICT_LRU; p <= KV_EVICT_LEARNED; p++) {
        cache c;
        const int32_t both[] = {1, 2}, other = 9;
        cache_open(&c, 8, 1, p);
        kv_retention high = {.priority = 100}, low = {.priority = 0};
        (void)request(&c, both, 2, &high);
        (void)request(&c, both, 1, &low);
        (void)ask(&c, other);
        assert_int_equal(kv_index_evict(c.ix, 6), QUIRE_OK); /* the only leaf of 50 */
        assert_true(is_cached(&c, both, 2) && !is_cached(&c, &other, 1));
        assert_int_equal(kv_index_evict(c.ix, 7), QUIRE_OK);
        assert_true(is_cached(&c, both, 1) && !is_cached(&c, both, 2));
        check(&c);
        cache_close(&c);
    }
}

TEST(retention_out_of_range_is_refused) {
    cache c;
    kv_path path;
    const kv_retention wrong[] = {{.priority = -1},
                                  {.priority = 101},
                                  {.priority = 50, .priority_us = -1},
                                  {.priority = 50, .ttl_us = -1},
                                  {.priority = 50, .ttl_us = KV_RETENTION_MAX_US + 1},
                                  {.priority = 50, .priority_us = INT64_MAX}};
    cache_open(&c, 8, 1, KV_EVICT_LRU);
    assert_int_equal(kv_index_enter(c.ix, "t", 1, &path), QUIRE_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(kv_index_retain(c.ix, &path, &wrong[i]), QUIRE_INVALID);
        assert_false(path.retains);
    }
    assert_int_equal(
        kv_index_retain(c.ix, &path, &(kv_retention){.priority = 100, .ttl_us = KV_RETENTION_MAX_US}),
        QUIRE_OK);
    kv_index_leave(c.ix, &path);
    cache_close(&c);
}

/* ---- scans ---- */

/* 3 of 10 requests ask for one of 50 pages, 7 for a page that nobody asks for again; the
 * pool has 100. */
static int64_t hits_in_scans(kv_policy policy) {
    cache c;
    uint64_t s = 42;
    cache_open(&c, 100, 1, policy);
    for (int32_t i = 0; i < 20000; i++) {
        uint64_t word = rng_next(&s);
        (void)ask(&c, word % 10 < 3 ? (int32_t)(word / 10 % 50) : 1000 + i);
    }
    check(&c);
    int64_t n_hits = c.n_hits;
    cache_close(&c);
    return n_hits;
}

TEST(scans_do_not_drive_out_what_is_used_often) {
    int64_t lru = hits_in_scans(KV_EVICT_LRU), lfu = hits_in_scans(KV_EVICT_LFU),
            gdsf = hits_in_scans(KV_EVICT_GDSF), learned = hits_in_scans(KV_EVICT_LEARNED);
    print_message("hits of 20,000, about 6,000 possible: lru %d, lfu %d, gdsf %d, learned %d\n", (int)lru,
                  (int)lfu, (int)gdsf, (int)learned);
    assert_true(lru < 6000 && lfu > 5500 && gdsf > 5000);
    assert_true(20 * learned > 23 * lru); /* without being told what to look for it finds a fifth more */
}

TEST_MAIN(NULL, NULL)
