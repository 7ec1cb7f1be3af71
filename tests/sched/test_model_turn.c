/* Whose step runs next, where several models share a thread. */
#include "sched/scheduler.h"

#include "base/rng.h"
#include "test.h"

TEST(the_least_served_goes_first) {
    const turn_claim claims[] = {{.served_us = 30}, {.served_us = 10}, {.served_us = 10}};
    assert_int_equal(turn_choose(claims, 3, 0), 1);
    assert_int_equal(turn_choose(claims, 1, 0), 0);
}

TEST(a_deadline_that_others_would_break_goes_before_the_least_served) {
    turn_claim claims[] = {{.served_us = 10, .step_us = 5000},
                           {.served_us = 20, .step_us = 3000, .deadline_us = 1000 + 7999}};
    assert_int_equal(turn_choose(claims, 2, 1000), 1);
    claims[1].deadline_us = 1000 + 8000; /* there is time for a step of the other and its own */
    assert_int_equal(turn_choose(claims, 2, 1000), 0);
    claims[1].deadline_us = 999; /* missed anyway */
    assert_int_equal(turn_choose(claims, 2, 1000), 0);
}

TEST(of_two_urgent_deadlines_the_earlier_goes_first) {
    const turn_claim claims[] = {{.served_us = 10, .step_us = 5000},
                                 {.served_us = 20, .step_us = 3000, .deadline_us = 4000},
                                 {.served_us = 30, .step_us = 3000, .deadline_us = 3000}};
    assert_int_equal(turn_choose(claims, 3, 0), 2);
}

TEST(deadlines_take_no_more_than_the_bound_beyond_a_share) {
    turn_claim claims[] = {{.served_us = 0, .step_us = 5000},
                           {.served_us = TURN_MOST_AHEAD_US, .step_us = 3000, .deadline_us = 4000}};
    assert_int_equal(turn_choose(claims, 2, 0), 1);
    claims[1].served_us += 1;
    assert_int_equal(turn_choose(claims, 2, 0), 0);
}

TEST(a_model_that_pauses_saves_no_time_up) {
    const turn_claim others[] = {{.served_us = 500}, {.served_us = 400}};
    assert_true(turn_resume(100, others, 2, 900) == 400);
    assert_true(turn_resume(450, others, 2, 900) == 450);
}

TEST(a_model_that_begins_while_none_has_work_begins_where_the_last_ones_ended) {
    assert_true(turn_resume(0, NULL, 0, 900) == 900);
    assert_true(turn_resume(900, NULL, 0, 900) == 900);
}

/* Models with steps of any length, floods of deadlines among them: over a second each
 * gets its share, within the bound and a step. */
TEST(each_gets_its_share_whatever_the_others_want) {
    enum { N = 4 };
    uint64_t seed = 20261130;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 50; round++) {
        turn_claim c[N] = {{0}};
        double used[N] = {0}, longest = 0, now = 1;
        for (int i = 0; i < N; i++) {
            c[i].step_us = 100 + (double)(rng_next(&seed) % 20000);
            longest = c[i].step_us > longest ? c[i].step_us : longest;
        }
        while (now < 8e6) {
            for (int i = 0; i < N; i++) {
                c[i].deadline_us = i % 2 == 0 ? (int64_t)now + (int64_t)(rng_next(&seed) % 30000) : 0;
            }
            const int32_t first = turn_choose(c, N, (int64_t)now);
            now += c[first].step_us;
            used[first] += c[first].step_us;
            c[first].served_us += c[first].step_us;
        }
        for (int i = 0; i < N; i++) {
            assert_true(used[i] > now / N - TURN_MOST_AHEAD_US - longest);
            assert_true(used[i] < now / N + TURN_MOST_AHEAD_US + longest);
        }
    }
}

/* For a second the first one has work and no step to run; then it gets a half, not
 * all. */
TEST(a_model_that_waits_for_something_outside_saves_no_turns_up) {
    turn_claim c[2] = {{.step_us = 1000}, {.step_us = 3000}};
    double used[2] = {0}, now = 0;
    while (now < 2e6) {
        int32_t i = turn_choose(c, 2, (int64_t)now);
        if (i == 0 && now < 1e6) {
            i = 1;
            c[0].served_us = turn_pass(c[0].served_us, c[1].served_us);
        }
        c[i].served_us += c[i].step_us;
        now += c[i].step_us;
        used[i] += now > 1e6 ? c[i].step_us : 0;
    }
    assert_true(used[0] > 490000 && used[0] < 510000);
    assert_true(used[1] > 490000 && used[1] < 510000);
}

TEST_MAIN(NULL, NULL)
