/* What a step costs, learned from steps whose cost is known. */
#include <math.h>
#include <stdio.h>

#include "sched/step_cost.h"
#include "seed.h"

static double between(double least, double most) {
    return least + (most - least) * (double)(rng_next(&seed) >> 11) * 0x1p-53;
}

static void play(step_cost *p, const sched_cost *truth, int n, double noise) {
    for (int i = 0; i < n; i++) {
        double rows = floor(between(1, 512)), pairs = rows * between(10, 4000);
        step_cost_note(p, rows, pairs, sched_predict_us(truth, rows, pairs) * between(1 - noise, 1 + noise));
    }
}

/* Within that part of what the step costs, or of a middling step's cost where it is
 * cheaper: noise of large steps hides what small ones cost. */
static void expect_near(const step_cost *p, const sched_cost *truth, double part) {
    sched_cost c = step_cost_fit(p);
    double middling = sched_predict_us(truth, 256, 256 * 2000);
    for (int i = 0; i < 20; i++) {
        double rows = floor(between(1, 512)), pairs = rows * between(10, 4000),
               us = sched_predict_us(truth, rows, pairs);
        double off = fabs(sched_predict_us(&c, rows, pairs) - us) / fmax(us, middling);
        if (off > part) {
            fail_msg("%g rows, %g pairs: %g us, foretold %g", rows, pairs, us,
                     sched_predict_us(&c, rows, pairs));
        }
    }
}

TEST(it_learns_what_steps_cost_and_learns_anew) {
    step_cost p = {0};
    sched_cost slow = {8000, 300, 0.05}, fast = {2000, 40, 0.01};
    play(&p, &slow, 300, 0.0);
    expect_near(&p, &slow, 0.02);
    play(&p, &fast, 600, 0.0);
    expect_near(&p, &fast, 0.02);
    play(&p, &fast, 600, 0.2);
    expect_near(&p, &fast, 0.25);
}

TEST(one_slow_step_does_not_spoil_it) {
    step_cost p = {0};
    sched_cost truth = {5000, 100, 0.02};
    play(&p, &truth, 300, 0.0);
    step_cost_note(&p, 16, 16000, 1e9);
    expect_near(&p, &truth, 0.35);
    play(&p, &truth, 200, 0.0);
    expect_near(&p, &truth, 0.05);
}

TEST(steps_all_alike_foretell_themselves) {
    step_cost p = {0};
    for (int i = 0; i < 100; i++) {
        step_cost_note(&p, 4, 4000, 700);
    }
    sched_cost c = step_cost_fit(&p);
    assert_true(fabs(sched_predict_us(&c, 4, 4000) - 700) < 7);
    assert_true(c.step_us >= 0 && c.row_us >= 0 && c.pair_us >= 0);
}

TEST_MAIN_SEEDED(NULL, NULL)
