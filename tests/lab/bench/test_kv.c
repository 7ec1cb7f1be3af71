/* What `quire bench kv` measures with: the two pools agree, no page is lost, every
 * operation is counted. */

#include "base/mem.h"
#include "lab/bench/figures.h"
#include "lab/bench/kv_pool.h"
#include "test.h"

static page_store *open_store(page_store_kind kind, int32_t n_pages) {
    page_store *s;
    assert_int_equal(page_store_open(kind, n_pages, 1, &s), QUIRE_OK);
    assert_true(page_store_is_whole(s));
    return s;
}

TEST(both_stores_take_all_or_none_and_count_holders) {
    for (int kind = 0; kind < PAGE_STORE_N_KINDS; kind++) {
        page_store *s = open_store((page_store_kind)kind, 40);
        page_id ids[40];
        kv_table a, b;
        assert_int_equal(kv_table_init(&a, 8), QUIRE_OK);
        assert_int_equal(kv_table_init(&b, 8), QUIRE_OK);
        assert_int_equal(page_store_reserve(s, 38, ids), QUIRE_OK);
        assert_int_equal(page_store_reserve(s, 3, ids), QUIRE_NO_ROOM);
        assert_int_equal(page_store_append_page(s, &a), QUIRE_OK);
        assert_int_equal(page_store_append_page(s, &a), QUIRE_OK);
        assert_int_equal(page_store_append_page(s, &a), QUIRE_NO_ROOM);
        assert_int_equal(page_store_fork(s, &a, &b), QUIRE_OK);
        page_store_release(s, ids, 38);
        page_store_clear(s, &a);
        assert_false(page_store_is_whole(s)); /* b holds two still */
        assert_int_equal(page_store_reserve(s, 38, ids), QUIRE_OK);
        assert_int_equal(page_store_reserve(s, 1, ids), QUIRE_NO_ROOM);
        page_store_release(s, ids, 38);
        page_store_clear(s, &b);
        assert_true(page_store_is_whole(s));
        mem_free(a.pages);
        mem_free(b.pages);
        page_store_close(s);
    }
}

TEST(the_pages_of_an_opened_store_do_not_lie_side_by_side) {
    for (int kind = 0; kind < PAGE_STORE_N_KINDS; kind++) {
        page_store *s = open_store((page_store_kind)kind, 1000);
        page_id ids[1000];
        int32_t n_in_row = 0;
        assert_int_equal(page_store_reserve(s, 1000, ids), QUIRE_OK);
        for (int i = 1; i < 1000; i++) {
            n_in_row += ids[i].v == ids[i - 1].v + 1;
        }
        assert_true(n_in_row < 600); /* among as many that are held: half of them follow on one another */
        page_store_release(s, ids, 1000);
        page_store_close(s);
    }
}

TEST(every_operation_of_every_thread_is_timed_and_no_page_is_lost) {
    for (int kind = 0; kind < PAGE_STORE_N_KINDS; kind++) {
        for (int32_t n_threads = 1; n_threads <= 8; n_threads *= 2) {
            page_store *s = open_store((page_store_kind)kind, 256);
            double ns[KV_OP_N], share;
            assert_int_equal(kv_bench_ops(&s, 1, 256, n_threads, 2, ns, &share), QUIRE_OK);
            assert_true(share > 0 && share < 1.01);
            for (int op = 0; op < KV_OP_N; op++) {
                assert_true(ns[op] > 0.1 && ns[op] < 1e6);
            }
            assert_true(page_store_is_whole(s));
            page_store_close(s);
        }
    }
}

TEST(threads_with_a_store_each_are_timed_too) {
    page_store *s[2] = {open_store(PAGE_STORE_POOL, 128), open_store(PAGE_STORE_POOL, 128)};
    double ns[KV_OP_N], share;
    assert_int_equal(kv_bench_ops(s, 2, 256, 2, 2, ns, &share), QUIRE_OK);
    for (int op = 0; op < KV_OP_N; op++) {
        assert_true(ns[op] > 0.1 && ns[op] < 1e6);
    }
    page_id ids[128];
    for (int i = 0; i < 2; i++) { /* had both threads used one of them, it would have had too few */
        assert_int_equal(page_store_reserve(s[i], 128, ids), QUIRE_OK);
        page_store_release(s[i], ids, 128);
        page_store_close(s[i]);
    }
}

TEST(appends_are_timed_one_by_one) {
    page_store *s = open_store(PAGE_STORE_POOL, 8 * 64);
    double ns[500], most = 0;
    assert_int_equal(kv_bench_append_times(s, 8, 500, ns), QUIRE_OK);
    for (int i = 0; i < 500; i++) {
        assert_true(ns[i] >= 0);
        most = ns[i] > most ? ns[i] : most;
    }
    assert_true(most > 0);
    assert_true(page_store_is_whole(s));
    page_store_close(s);
}

TEST(a_small_index_is_filled_matched_and_evicted) {
    kv_index_times runs[2];
    kv_index_sizes sizes;
    assert_int_equal(kv_bench_index(16 * 64, 16, 1024, 2, runs, &sizes), QUIRE_OK);
    for (int i = 0; i < 2; i++) {
        assert_true(runs[i].match_ns > 0 && runs[i].peek_ns > 0 && runs[i].insert_ns > 0 &&
                    runs[i].evict_ns > 0);
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

TEST(one_thread_has_another_clock_than_several) {
    static const int32_t threads[] = {1, 1, 2, 4};
    assert_string_equal(figures_times_name(threads, 2), "processor time");
    assert_string_equal(figures_times_name(threads + 2, 2), "wall time");
    assert_string_equal(figures_times_name(threads, 4),
                        "processor time with one thread, wall time with more");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_stores_take_all_or_none_and_count_holders),
        cmocka_unit_test(the_pages_of_an_opened_store_do_not_lie_side_by_side),
        cmocka_unit_test(every_operation_of_every_thread_is_timed_and_no_page_is_lost),
        cmocka_unit_test(threads_with_a_store_each_are_timed_too),
        cmocka_unit_test(appends_are_timed_one_by_one),
        cmocka_unit_test(a_small_index_is_filled_matched_and_evicted),
        cmocka_unit_test(the_percentile_is_the_least_value_with_that_part_at_or_under_it),
        cmocka_unit_test(one_thread_has_another_clock_than_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
