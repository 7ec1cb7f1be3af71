/* Cost models: the cost of a step by its rows, and the mean of several measurements. */
#include <math.h>

#include "lab/sim/cost.h"
#include "test.h"

static const cost_model first = {.n_points = 2,
                                 .rows = {1, 4},
                                 .us = {10, 40},
                                 .out_us = 1,
                                 .decode_pair_us = 0.5,
                                 .prefill_pair_us = 0.25,
                                 .copy_us = 2,
                                 .swap_us = 3};

static void assert_near(double a, double b) {
    if (!(fabs(a - b) <= 1e-12 * fabs(b))) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

TEST(a_step_costs_what_its_parts_do) {
    assert_near(cost_of(&first, &(step_work){.rows = 1}), 10);
    assert_near(cost_of(&first, &(step_work){.rows = 2}), 20); /* between the points on a line */
    assert_near(cost_of(&first, &(step_work){.rows = 6}), 60); /* and past the last */
    assert_near(
        cost_of(&first,
                &(step_work){.rows = 4, .out = 3, .decode_pairs = 8, .prefill_pairs = 16, .copied = 5}),
        40 + 3 + 4 + 4 + 10);
}

TEST(knots_lie_close_where_a_tile_of_rows_ends) {
    static const int32_t knots[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64};
    int32_t until[COST_MAX_POINTS];
    double part;
    for (int32_t i = 0; i < 12; i++) {
        assert_int_equal(cost_knot(i), knots[i]);
        assert_int_equal(cost_knot_before(knots[i], &part), i);
        assert_true(part == 0);
    }
    assert_int_equal(cost_knot_before(0, &part), 0);
    assert_true(part == 0);
    assert_int_equal(cost_knot_before(9, &part), 7);
    assert_near(part, 0.25);
    assert_int_equal(cost_knots_until(64, until), 12);
    assert_int_equal(cost_knots_until(40, until), 12);
    assert_int_equal(until[11], 40);
    assert_int_equal(cost_knots_until(1, until), 1);
    assert_int_equal(until[0], 1);
    assert_int_equal(cost_knots_until(INT32_MAX, until), 32);
    assert_int_equal(until[31], INT32_MAX);
}

/* What is linear between knots sums up the same by the parts of both. */
TEST(parts_of_two_knots_stand_for_the_rows_between_them) {
    for (double rows = 1; rows < 5000; rows += 1) {
        double part;
        int32_t k = cost_knot_before(rows, &part);
        assert_true(part >= 0 && part < 1);
        assert_near((1 - part) * cost_knot(k) + part * cost_knot(k + 1), rows);
    }
}

TEST(measurements_count_alike_in_their_mean) {
    static const double factors[] = {1, 2, 6}; /* times the first, 3 in the mean */
    cost_model mean = {0};
    for (int32_t i = 0; i < 3; i++) {
        cost_model c = first;
        c.us[0] *= factors[i];
        c.us[1] *= factors[i];
        c.out_us *= factors[i];
        c.decode_pair_us *= factors[i];
        c.prefill_pair_us *= factors[i];
        c.copy_us *= factors[i];
        c.swap_us *= factors[i];
        cost_mean(&mean, i, &c);
    }
    assert_int_equal(mean.n_points, 2);
    assert_near(mean.rows[1], 4);
    assert_near(mean.us[0], 30);
    assert_near(mean.us[1], 120);
    assert_near(mean.out_us, 3);
    assert_near(mean.decode_pair_us, 1.5);
    assert_near(mean.prefill_pair_us, 0.75);
    assert_near(mean.copy_us, 6);
    assert_near(mean.swap_us, 9);
}

TEST_MAIN(NULL, NULL)
