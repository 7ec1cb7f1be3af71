/* Lines of the goal table: fractions of limits, what is met, which goals there are; and the speed of requests that decode together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "bench/client.h"
#include "bench/speed_report.h"

static void a_fraction_is_of_the_limit_whichever_way_is_better(void **state) {
    (void)state;
    speed_line l = {.value = {60, 0}, .limit = {80, "bytes"}, .goal = 0.75};
    assert_true(speed_fraction(&l) == 0.75 && speed_is_met(&l));
    l.value.mean = 59;
    assert_false(speed_is_met(&l));
    l.less_is_better = true; /* 59 us where 80 would be the least: not a limit, but above it all the same */
    l.goal = 1;
    assert_true(speed_fraction(&l) == 80.0 / 59 && speed_is_met(&l));
    l.value.mean = 160;
    assert_true(speed_fraction(&l) == 0.5 && !speed_is_met(&l));
}

static void without_a_limit_a_goal_bounds_the_value_itself(void **state) {
    (void)state;
    speed_line l = {.value = {3.0, 0}, .less_is_better = true, .goal = 3};
    assert_true(isnan(speed_fraction(&l)) && speed_is_met(&l));
    l.value.mean = 3.01;
    assert_false(speed_is_met(&l));
    l.less_is_better = false;
    assert_true(speed_is_met(&l));
    l.value.mean = 2.99;
    assert_false(speed_is_met(&l));
}

static void goals_are_those_that_were_set(void **state) {
    (void)state;
    assert_true(speed_goal("decode", "q4_0", 1) == 0.95 && speed_goal("decode", "bf16", 1) == 0.95);
    assert_true(speed_goal("decode", "q4_0", 4) == 0.70 && speed_goal("decode", "int8", 32) == 0.75 && speed_goal("decode", "q8_0", 16) == 0.65);
    assert_true(speed_goal("prefill", "int8", 0) == 0.88 && speed_goal("prefill", "q4_k", 0) == 0.72 && speed_goal("prefill", "bf16", 0) == 0.90);
    assert_true(isnan(speed_goal("decode", "int8", 1)) && isnan(speed_goal("decode", "bf16", 32)) && isnan(speed_goal("prefill", "q9", 0)));
}

static void decode_speed_counts_the_time_in_which_all_are_at_work(void **state) {
    (void)state;
    int64_t a[] = {100, 200, 300, 400, 500}, b[] = {250, 350, 450, 550, 650};
    sent requests[] = {{.times_us = a, .n_output = 5, .n_seen = 5}, {.times_us = b, .n_output = 5, .n_seen = 5}};
    /* from 250, when both have a token, to 500: 300 400 500 of one, 350 450 of the other */
    assert_true(fabs(client_decode_speed(requests, 2, 0) - 5 / 250e-6) < 1e-6);
    assert_true(fabs(client_decode_speed(requests, 1, 2) - 2 / 200e-6) < 1e-6);
    requests[1].n_seen = 4;
    assert_true(client_decode_speed(requests, 2, 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fraction_is_of_the_limit_whichever_way_is_better),
        cmocka_unit_test(without_a_limit_a_goal_bounds_the_value_itself),
        cmocka_unit_test(goals_are_those_that_were_set),
        cmocka_unit_test(decode_speed_counts_the_time_in_which_all_are_at_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
