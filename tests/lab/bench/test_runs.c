/* What `quire bench runs` measures with: pages lie as it says, and runs are found where they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lab/bench/runs_measure.h"

static void pages_are_arranged_in_runs_and_each_is_there_once(void **state) {
    (void)state;
    enum { N = 1003 };
    static const int32_t lengths[] = {1, 4, 16, N};
    for (int k = 0; k < 4; k++) {
        page_id pages[N];
        int32_t run = lengths[k], n_in_row = 0;
        int seen[N] = {0};
        runs_arrange(N, run, 7, pages);
        for (int32_t i = 0; i < N; i++) {
            assert_in_range(pages[i].v, 0, N - 1);
            assert_int_equal(seen[pages[i].v]++, 0);
            n_in_row += i > 0 && pages[i].v == pages[i - 1].v + 1;
        }
        assert_int_equal(runs_count(pages, N, run), N / run * run);
        int32_t n_inside = N / run * (run - 1) + (N % run > 0 ? N % run - 1 : 0); /* and a few where two runs meet by chance */
        assert_in_range(n_in_row, n_inside, n_inside + 8);
    }
}

static void a_run_starts_at_a_multiple_of_its_length(void **state) {
    (void)state;
    const page_id pages[] = {{9}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}};
    assert_int_equal(runs_count(pages, 9, 4), 4); /* 4 5 6 7; 1 2 3 4 straddles */
    assert_int_equal(runs_count(pages, 7, 4), 0);
    assert_int_equal(runs_count(pages, 9, 1), 9);
}

static void a_new_pool_gives_runs_and_a_used_one_few(void **state) {
    (void)state;
    runs_found f;
    const runs_churn c = {.n_seqs = 8, .page_tokens = 16, .n_ended = 200, .seed = 3};
    assert_int_equal(runs_find(&c, &f), QUIRE_OK);
    assert_true(f.new_4 > 0.9 && f.new_4 <= 1 && f.new_16 > 0.8 && f.new_16 <= f.new_4);
    assert_true(f.end_4 < 0.5 && f.end_16 <= f.end_4);
}

static void attention_takes_time_whatever_the_runs(void **state) {
    (void)state;
    runs_stage *s;
    quire_error err;
    model_desc d = {.n_layers = 2, .n_heads = 2, .n_kv_heads = 2, .d_head = 16};
    assert_int_equal(runs_stage_open(&d, 16, 500, &s, &err), QUIRE_OK);
    assert_true(runs_attention_us(s, 1) > 0);
    assert_true(runs_attention_us(s, 16) > 0);
    assert_true(runs_attention_us(s, INT32_MAX) > 0);
    runs_stage_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_arranged_in_runs_and_each_is_there_once),
        cmocka_unit_test(a_run_starts_at_a_multiple_of_its_length),
        cmocka_unit_test(a_new_pool_gives_runs_and_a_used_one_few),
        cmocka_unit_test(attention_takes_time_whatever_the_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
