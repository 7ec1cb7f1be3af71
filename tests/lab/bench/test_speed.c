/* The goal table: fractions of limits, which goals exist and which are met; and the speed
 * of requests that decode together. */
#include <math.h>

#include "lab/bench/bench_speed_report.h"
#include "lab/bench/client.h"
#include "test.h"

TEST(a_fraction_is_of_the_limit_whichever_way_is_better) {
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

TEST(without_a_limit_a_goal_bounds_the_value_itself) {
    speed_line l = {.value = {3.0, 0}, .less_is_better = true, .goal = 3};
    assert_true(isnan(speed_fraction(&l)) && speed_is_met(&l));
    l.value.mean = 3.01;
    assert_false(speed_is_met(&l));
    l.less_is_better = false;
    assert_true(speed_is_met(&l));
    l.value.mean = 2.99;
    assert_false(speed_is_met(&l));
}

TEST(goals_are_those_that_were_set) {
    assert_true(speed_goal("decode", "q4_0", 1) == 0.95 && speed_goal("decode", "bf16", 1) == 0.95);
    assert_true(speed_goal("decode", "q4_0", 4) == 0.70 && speed_goal("decode", "int8", 32) == 0.75 &&
                speed_goal("decode", "q8_0", 16) == 0.65);
    assert_true(speed_goal("prefill", "int8", 0) == 0.88 && speed_goal("prefill", "q4_k", 0) == 0.72 &&
                speed_goal("prefill", "bf16", 0) == 0.90);
    assert_true(isnan(speed_goal("decode", "int8", 1)) && isnan(speed_goal("decode", "bf16", 32)) &&
                isnan(speed_goal("prefill", "q9", 0)));
}

TEST(decode_speed_counts_the_time_in_which_all_are_at_work) {
    int64_t a[] = {100, 200, 300, 400, 500}, b[] = {250, 350, 450, 550, 650};
    int32_t looks_a[] = {1, 2, 4, 6, 8}, looks_b[] = {3, 5, 7, 9, 10};
    sent requests[] = {{.times_us = a, .looks = looks_a, .n_output = 5, .n_seen = 5},
                       {.times_us = b, .looks = looks_b, .n_output = 5, .n_seen = 5}};
    /* from 250, when both have a token, to 500: 300 400 500 of one, 350 450 of the
     * other */
    assert_true(fabs(client_decode_speed(requests, 2, 0, 10) - 5 / 250e-6) < 1e-6);
    assert_true(fabs(client_decode_speed(requests, 1, 2, 10) - 2 / 200e-6) < 1e-6);
    requests[1].n_seen = 4;
    assert_true(client_decode_speed(requests, 2, 0, 10) == 0);
}

TEST(tokens_that_came_all_at_once_tell_no_speed) {
    int64_t fast[] = {100, 101, 102, 103, 104}, steady[] = {100, 200, 300, 400, 500};
    int32_t at_once[] = {7, 7, 7, 7, 7}, late[] = {7, 8, 8, 8, 8}, each[] = {7, 8, 9, 10, 11};
    sent s = {.times_us = fast, .looks = at_once, .n_output = 5, .n_seen = 5};
    assert_true(isnan(client_decode_speed(&s, 1, 0, 5)));
    s.looks = late;
    assert_true(isnan(client_decode_speed(&s, 1, 0, 5)));
    s.looks = each;
    assert_true(fabs(client_decode_speed(&s, 1, 0, 5) - 4 / 4e-6) < 1e-3);
    sent both[] = {{.times_us = steady, .looks = each, .n_output = 5, .n_seen = 5},
                   {.times_us = steady, .looks = late, .n_output = 5, .n_seen = 5}};
    assert_true(isnan(client_decode_speed(both, 2, 0, 5)) &&
                fabs(client_decode_speed(both, 1, 0, 5) - 4 / 400e-6) < 1e-6);
}

/* Of 100 tokens, n found together each time, in one step or in a step each. */
static double speed_of(int32_t n, int64_t n_steps) {
    int64_t times[100];
    int32_t looks[100];
    for (int32_t i = 0; i < 100; i++) {
        times[i] = 100 + i;
        looks[i] = (i + n - 1) / n;
    }
    return client_decode_speed(&(sent){.times_us = times, .looks = looks, .n_output = 100, .n_seen = 100}, 1,
                               0, n_steps);
}

TEST(tokens_of_one_step_may_come_together_and_those_of_eight) {
    assert_true(speed_of(8, 100) > 0 && isnan(speed_of(9, 100)));
    assert_true(speed_of(20, 6) > 0); /* drafts, all accepted: 99 tokens after the first, in 5 steps */
    assert_true(isnan(speed_of(33, 30)));
}

TEST(runs_that_do_not_overlap_have_no_speed) {
    int64_t a[] = {100, 200, 300}, b[] = {400, 500, 600};
    int32_t looks_a[] = {1, 2, 3}, looks_b[] = {4, 5, 6}, with_a[] = {3, 4, 5};
    sent requests[] = {{.times_us = a, .looks = looks_a, .n_output = 3, .n_seen = 3},
                       {.times_us = b, .looks = looks_b, .n_output = 3, .n_seen = 3}};
    assert_true(client_decode_speed(requests, 2, 0, 6) == 0);
    assert_true(client_decode_speed(requests, 1, 2, 6) == 0); /* nothing after the third */
    requests[1].looks = with_a;                               /* the reader cannot tell what was first */
    assert_true(isnan(client_decode_speed(requests, 2, 0, 6)));
}

typedef struct script {
    const double *speeds;
    int32_t n;
} script;

static quire_err next_speed(void *context, double *speed, quire_error *err) {
    script *s = context;
    (void)err;
    *speed = s->speeds[s->n++];
    return QUIRE_OK;
}

TEST(late_runs_are_made_again_and_not_for_ever) {
    const double mixed[] = {NAN, 10, NAN, 0, 30, 99}, never[] = {NAN, NAN, NAN, NAN, NAN, NAN, 99};
    script s = {mixed, 0};
    figure f;
    assert_int_equal(client_measure(next_speed, &s, 3, &f, NULL), QUIRE_OK);
    assert_int_equal(s.n, 5); /* 10, 0 and 30 are the three runs; 0 measured nothing */
    assert_true(f.mean == 20 && f.spread == 10);
    s = (script){never, 0};
    assert_int_equal(client_measure(next_speed, &s, 2, &f, NULL), QUIRE_OK);
    assert_int_equal(s.n, 6);
    assert_true(isnan(f.mean));
}

TEST_MAIN(NULL, NULL)
