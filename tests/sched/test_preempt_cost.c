/* Swapping against computing again: what either costs by measured rates, and which is
 * chosen. */

#include "sched/step_cost.h"
#include "test.h"

static const sched_cost slow_model = {.step_us = 100, .row_us = 50, .pair_us = 0.01},
                        fast_model = {.step_us = 10, .row_us = 0.5, .pair_us = 0.0001};

static copy_cost pace_of(double page_us) {
    copy_cost p = {0};
    copy_cost_note(&p, 1, page_us);
    return p;
}

TEST(what_copying_costs_follows_what_it_took) {
    copy_cost p = {0};
    assert_float_equal(copy_cost_page_us(&p), 0, 0);
    copy_cost_note(&p, 100, 500);
    assert_float_equal(copy_cost_page_us(&p), 5, 1e-12);
    for (int i = 0; i < 100; i++) { /* the machine got slower */
        copy_cost_note(&p, 10, 200);
    }
    assert_float_equal(copy_cost_page_us(&p), 20, 0.1);
    copy_cost_note(&p, 1, 1e6); /* one long wait, of one page, is soon forgotten */
    for (int i = 0; i < 200; i++) {
        copy_cost_note(&p, 10, 200);
    }
    assert_float_equal(copy_cost_page_us(&p), 20, 0.1);
}

TEST(swapping_costs_each_page_both_ways) {
    copy_cost out = pace_of(3), in = pace_of(5);
    assert_float_equal(preempt_swap_us(&(preempt_case){.n_pages = 10, .to = 160, .max_rows = 64}, &out, &in),
                       80, 1e-9);
}

TEST(computing_costs_steps_rows_and_pairs) {
    const sched_cost steps = {.step_us = 7}, rows = {.row_us = 2}, pairs = {.pair_us = 1};
    preempt_case c = {.n_pages = 10, .to = 100, .max_rows = 64};
    assert_float_equal(preempt_recompute_us(&c, &steps), 14, 1e-9);
    assert_float_equal(preempt_recompute_us(&c, &rows), 200, 1e-9);
    assert_float_equal(preempt_recompute_us(&c, &pairs), 5050, 1e-9);
    c.from = 36; /* the pages before are shared: a single step, and 1 + .. + 36 pairs less */
    assert_float_equal(preempt_recompute_us(&c, &steps), 7, 1e-9);
    assert_float_equal(preempt_recompute_us(&c, &rows), 128, 1e-9);
    assert_float_equal(preempt_recompute_us(&c, &pairs), 5050 - 666, 1e-9);
}

TEST(auto_takes_the_cheaper) {
    copy_cost page = pace_of(40);
    preempt_case c = {.n_pages = 64, .to = 1024, .max_rows = 512};
    assert_true(preempt_swaps(PREEMPT_AUTO, &c, &page, &page, &slow_model));  /* 5.1 ms against 57 */
    assert_false(preempt_swaps(PREEMPT_AUTO, &c, &page, &page, &fast_model)); /* against 0.58 */
    copy_cost equal = pace_of(preempt_recompute_us(&c, &fast_model) / 128);
    assert_true(preempt_swaps(PREEMPT_AUTO, &c, &equal, &equal, &fast_model));
    copy_cost more = pace_of(copy_cost_page_us(&equal) * 1.001);
    assert_false(preempt_swaps(PREEMPT_AUTO, &c, &more, &more, &fast_model));
}

/* What the tail of a sequence costs to compute grows with all that is before it, what it
 * costs to copy does not. */
TEST(long_sequences_are_swapped_where_short_ones_are_computed) {
    const sched_cost cost = {.step_us = 100, .row_us = 1, .pair_us = 0.001};
    copy_cost page = pace_of(30);
    int32_t n_changes = 0;
    bool was = false;
    for (int32_t pages = 1; pages <= 4096; pages *= 2) {
        preempt_case c = {.n_pages = pages, .to = 16 * pages, .max_rows = 512};
        bool swaps = preempt_swaps(PREEMPT_AUTO, &c, &page, &page, &cost);
        if (pages == 1) {
            was = swaps;
        }
        n_changes += swaps != was;
        was = swaps;
    }
    assert_true(was);
    assert_in_range(n_changes, 1, 2);
}

TEST(modes_are_obeyed_whatever_the_cost) {
    copy_cost cheap = pace_of(0.001), dear = pace_of(1e6);
    preempt_case c = {.n_pages = 4, .to = 64, .max_rows = 64};
    assert_true(preempt_swaps(PREEMPT_SWAP, &c, &dear, &dear, &fast_model));
    assert_false(preempt_swaps(PREEMPT_RECOMPUTE, &c, &cheap, &cheap, &slow_model));
}

TEST(who_knows_nothing_of_computing_swaps) {
    const sched_cost nothing = {0};
    copy_cost dear = pace_of(1e6);
    assert_true(preempt_swaps(PREEMPT_AUTO, &(preempt_case){.n_pages = 4, .to = 64, .max_rows = 64}, &dear,
                              &dear, &nothing));
}

TEST_MAIN(NULL, NULL)
