/* What `quire bench kv` measures: no page is lost, and every operation is counted. */

#include "lab/bench/figures.h"
#include "lab/bench/kv_pool.h"
#include "test.h"

static kv_pool *open_pool(int32_t n_pages) {
    kv_pool *p;
    assert_int_equal(kv_bench_pool_open(n_pages, 1, &p), QUIRE_OK);
    assert_true(kv_bench_pool_is_whole(p));
    return p;
}

TEST(the_pages_of_an_opened_pool_do_not_lie_side_by_side) {
    kv_pool *p = open_pool(1000);
    page_id ids[1000];
    int32_t n_in_row = 0;
    assert_int_equal(kv_pool_reserve(p, 1000, ids), QUIRE_OK);
    assert_false(kv_bench_pool_is_whole(p));
    for (int i = 1; i < 1000; i++) {
        n_in_row += ids[i].v == ids[i - 1].v + 1;
    }
    assert_true(n_in_row < 600); /* among as many that are held: half of them follow on one another */
    kv_pool_release_all(p, ids, 1000);
    kv_pool_close(p);
}

TEST(every_operation_of_every_thread_is_timed_and_no_page_is_lost) {
    for (int32_t n_threads = 1; n_threads <= 8; n_threads *= 2) {
        kv_pool *p = open_pool(256);
        double ns[KV_OP_N], share;
        assert_int_equal(kv_bench_ops(&p, 1, 256, n_threads, 2, ns, &share), QUIRE_OK);
        assert_true(share > 0 && share < 1.01);
        for (int op = 0; op < KV_OP_N; op++) {
            assert_true(ns[op] > 0.1 && ns[op] < 1e6);
        }
        assert_true(kv_bench_pool_is_whole(p));
        kv_pool_close(p);
    }
}

TEST(threads_with_a_pool_each_are_timed_too) {
    kv_pool *p[2] = {open_pool(128), open_pool(128)};
    double ns[KV_OP_N], share;
    assert_int_equal(kv_bench_ops(p, 2, 256, 2, 2, ns, &share), QUIRE_OK);
    for (int op = 0; op < KV_OP_N; op++) {
        assert_true(ns[op] > 0.1 && ns[op] < 1e6);
    }
    page_id ids[128];
    for (int i = 0; i < 2; i++) { /* had both threads used one of them, it would have had too few */
        assert_int_equal(kv_pool_reserve(p[i], 128, ids), QUIRE_OK);
        kv_pool_release_all(p[i], ids, 128);
        kv_pool_close(p[i]);
    }
}

TEST(a_small_index_is_filled_matched_and_evicted) {
    kv_index_times runs[2];
    kv_index_sizes sizes;
    assert_int_equal(kv_bench_index(16 * 64, 16, 1024, 2, runs, &sizes), QUIRE_OK);
    for (int i = 0; i < 2; i++) {
        assert_true(runs[i][KV_INDEX_MATCH] > 0 && runs[i][KV_INDEX_PEEK] > 0 &&
                    runs[i][KV_INDEX_INSERT] > 0 && runs[i][KV_INDEX_EVICT] > 0);
    }
    assert_in_range(sizes.n_entries, 16 * 64 - 64, 16 * 64);
    assert_true(sizes.pool_bytes >= 16);
    assert_true(sizes.index_bytes > 16 * 4);
    /* pages in common are a part of one, and tails are part-filled */
    assert_int_equal(kv_bench_index(1000, 16, 100, 2, runs, &sizes), QUIRE_OK);
    assert_in_range(sizes.n_nodes, 200, 1000);
    assert_int_equal(kv_bench_index(16 * 64 - 1, 16, 1024, 2, runs, &sizes), QUIRE_INVALID);
}

TEST(the_percentile_is_the_least_value_with_that_part_at_or_under_it) {
    double v[] = {5, 1, 4, 2, 3};
    assert_float_equal(figures_percentile(v, 5, 0.5), 3, 0);
    assert_float_equal(figures_percentile(v, 5, 0.99), 5, 0);
    assert_float_equal(figures_percentile(v, 5, 0.2), 1, 0);
}

TEST_MAIN(NULL, NULL)
