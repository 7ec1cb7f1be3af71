/* `quire bench headline`: its figures compared with hand calculations, its arrivals, the
 * memory each policy reserves, and that every way of serving gives the engine's answers
 * in the expected steps and rows. */

#include <math.h>

#include "lab/bench/headline_case.h"
#include "lab/bench/headline_execute.h"
#include "lab/sim/trace_read.h"
#include "test.h"

enum { MAX_LEN = 128, MAX_SEQS = 4, MAX_ROWS = 64 };

static void assert_near(double value, double expected) {
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected))) {
        fail_msg("%.12g, not %.12g", value, expected);
    }
}

/* ---- figures ---- */

TEST(the_run_of_the_median_is_taken_and_the_lower_of_an_even_number) {
    assert_int_equal(headline_median_run((double[]){0.9}, 1), 0);
    assert_int_equal(headline_median_run((double[]){0.9, 0.8}, 2), 1);
    assert_int_equal(headline_median_run((double[]){0.8, 0.9}, 2), 0);
    assert_int_equal(headline_median_run((double[]){0.9, 0.2, 0.8}, 3), 2);
    assert_int_equal(headline_median_run((double[]){0.9, 0.2, 0.8, 0.7}, 4), 3);
    assert_int_equal(headline_median_run((double[]){0.2, 0.9, 0.7, 0.8, 0.1}, 5), 2);
    /* of equals the middle one in time */
    assert_int_equal(headline_median_run((double[]){0.5, 0.5, 0.5}, 3), 1);
}

/* 100 us a step and 10 a row; a row of logits 1, a pair 0.5 or 0.25, a token moved 2. */
static const cost_model plain = {.n_points = 2,
                                 .rows = {0, 1},
                                 .us = {100, 110},
                                 .out_us = 1,
                                 .decode_pair_us = 0.5,
                                 .prefill_pair_us = 0.25,
                                 .copy_us = 2};

/* Two requests: answers of 5 and 3; 7 steps of 1, 1, 1, 1, 2, 10 and 20 rows: 10 is half
 * of 8 and half of 12, 20 three quarters of 16 and one of 32. */
static const serving_result served = {
    .times = {.per_token = (double[]){4000, 2000}, .n = 2},
    .prompt_tokens = 30,
    .output_tokens = 8,
    .n_steps = 7,
    .n_rows = 36,
    .n_preemptions = 3,
    .step_running = 11,
    .step_live = 110,
    .step_reserved = 220,
    .work = {.rows = 36, .out = 8, .decode_pairs = 90, .prefill_pairs = 265, .copied = 12},
    .steps_at = {4, 1, [7] = 0.5, [8] = 0.5, [9] = 0.75, [10] = 0.25},
    .span_us = 16000,
};

TEST(a_loads_figures_are_those_by_hand) {
    headline_load load = headline_load_of(&served, 2.5);
    assert_near(load.rate, 2.5);
    assert_near(load.latency, 0.003); /* 4 and 2 ms a token */
    assert_near(load.tokens_s, 8 / 0.016);
    assert_near(load.at_once, 11.0 / 7);
    assert_near(load.live, 0.5);
    assert_near(load.n_preemptions, 3);
}

/* 7 x 100 and 36 rows at 10; 8 logits; 90 and 265 pairs; 12 tokens moved. */
TEST(the_time_that_steps_allow_is_that_by_hand) {
    headline_load load = headline_load_of(&served, INFINITY);
    assert_near(headline_allowed_us(&plain, &load), 700 + 360 + 8 + 45 + 66.25 + 24);
}

/* The gain of twice as many at once: 100 + 10 for one a step, 100 + 20 for two. */
TEST(twice_as_many_at_once_gain_what_the_step_costs_say) {
    headline_load one = {.steps_at = {100}}, two = {.steps_at = {0, 50}};
    assert_near(headline_allowed_us(&plain, &one) / headline_allowed_us(&plain, &two), 2 * 110.0 / 120);
}

/* A prompt of 100 in steps of 64 and 36 rows, then 9 tokens after 105 on average. */
TEST(an_idle_server_takes_its_steps) {
    double prompt = 100 + 640 + 1 + 0.25 * 64 * 32.5 + 100 + 360 + 1 + 0.25 * 36 * (64 + 18.5);
    assert_near(headline_idle_latency(&plain, 100, 10, 64), (prompt + 9 * (110 + 1 + 0.5 * 105)) / 10 * 1e-6);
}

TEST(the_highest_rate_lies_between_those_around_the_bound) {
    const headline_load loads[] = {
        {.rate = 1, .latency = 0.1}, {.rate = 4, .latency = 0.4}, {.rate = 16, .latency = 6.4}};
    bool is_between;
    assert_near(headline_highest_rate(loads, 3, 0.2, &is_between), 2); /* both double */
    assert_true(is_between);
    assert_near(headline_highest_rate(loads, 3, 1.6, &is_between), 8); /* half of two fourfolds */
    assert_near(headline_highest_rate(loads, 3, 0.05, &is_between), 1);
    assert_false(is_between);
    assert_near(headline_highest_rate(loads, 3, 10, &is_between), 16);
    assert_false(is_between);
}

TEST(the_mean_of_loads_is_that_of_each_figure) {
    headline_load first = headline_load_of(&served, 2), second = first, third = first, mean;
    second.latency *= 3;
    second.n_preemptions = 6;
    third.work.decode_pairs = 0;
    third.steps_at[7] = 2;
    third.tokens_s *= 4;
    headline_load_mean(&mean, 0, &first);
    headline_load_mean(&mean, 1, &second);
    headline_load_mean(&mean, 2, &third);
    assert_near(mean.rate, 2);
    assert_near(mean.latency, first.latency * 5 / 3);
    assert_near(mean.tokens_s, first.tokens_s * 2);
    assert_near(mean.n_preemptions, 4);
    assert_near(mean.n_steps, 7);
    assert_near(mean.work.rows, 36);
    assert_near(mean.work.decode_pairs, 60);
    assert_near(mean.steps_at[7], 1);
}

TEST(drift_is_what_the_loads_work_costs_more_at_one_of_two_costs) {
    headline_load load = headline_load_of(&served, INFINITY);
    cost_model slower = plain;
    slower.copy_us *= 2; /* 24 more, of 1203.25 */
    assert_near(headline_drift(&plain, &slower, &load), 24 / 1203.25);
    assert_near(headline_drift(&slower, &plain, &load), 24 / 1203.25);
    assert_true(headline_drift(&plain, &plain, &load) == 0);
}

/* ---- arrivals ---- */

TEST(arrivals_are_a_poisson_process_of_their_rate) {
    enum { N = 4000 };
    arrivals_options o = {.lengths = "alpaca", .rate = 50, .n = N, .most = 200, .seed = 3};
    trace t, again;
    quire_error err;
    assert_int_equal(arrivals_make(&o, &t, &err), QUIRE_OK);
    assert_int_equal(arrivals_make(&o, &again, &err), QUIRE_OK);
    int64_t tokens = t.n_prompt_tokens;
    arrivals_space(&t, 5, 9);
    arrivals_space(&again, 5, 9);
    double gap_us = (double)t.requests[N - 1].arrival_us / (N - 1), squares = 0;
    for (int i = 1; i < N; i++) {
        double gap = (double)(t.requests[i].arrival_us - t.requests[i - 1].arrival_us);
        assert_true(gap >= 0 && t.requests[i].arrival_us == again.requests[i].arrival_us);
        squares += (gap - gap_us) * (gap - gap_us) / (N - 1);
    }
    assert_true(fabs(gap_us / 200000 - 1) < 0.05);
    assert_true(fabs(sqrt(squares) / gap_us - 1) < 0.05); /* an exponential's deviation is its mean */
    assert_int_equal(t.n_prompt_tokens, tokens);
    trace_deinit(&t);
    trace_deinit(&again);
}

/* ---- memory ---- */

static trace parse(const char *text) {
    trace t = {0};
    quire_error err = {.message = ""};
    if (trace_parse(str_of(text), "t", 0, &t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return t;
}

static serving_options server(int32_t n_pages) {
    return (serving_options){.cost = &plain,
                             .batching = BATCH_ITERATION,
                             .kv_tokens = (int64_t)n_pages * HEADLINE_PAGE,
                             .piece_tokens = HEADLINE_PAGE,
                             .pads_unread = true,
                             .page_tokens = HEADLINE_PAGE,
                             .max_model_len = MAX_LEN,
                             .max_rows = MAX_ROWS,
                             .max_seqs = MAX_SEQS,
                             .speed = 1e12};
}

static serving_result simulate(const trace *t, const serving_options *o) {
    serving_result r = {0};
    quire_error err = {.message = ""};
    if (serving_run(t, o, &r, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return r;
}

/* A prompt of 30 and an answer of 5: steps with 0, 30, 31, 32, 33 tokens held before
 * them. */
TEST(each_way_reserves_what_it_says) {
    static const struct {
        reservation how;
        int64_t reserved;
    } cases[] = {{RESERVE_MAX, 5 * 128},
                 {RESERVE_POW2, 5 * 48},
                 {RESERVE_ORACLE, 5 * 48},
                 {RESERVE_GROWING, 3 * 32 + 2 * 48},
                 {RESERVE_PAGED, 3 * 32 + 2 * 48}};
    trace t = parse("{\"prompt\": 30, \"output\": 5}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        serving_options o = server(16);
        o.reservation = cases[i].how;
        serving_result r = simulate(&t, &o);
        assert_int_equal(r.n_steps, 5);
        assert_int_equal(r.step_running, 5);
        assert_int_equal(r.step_reserved, cases[i].reserved);
        assert_int_equal(r.step_live,
                         cases[i].how == RESERVE_PAGED ? 30 + 31 + 32 + 33 + 34 : 0 + 30 + 31 + 32 + 33);
        assert_near(r.steps_at[0], 4);
        assert_near(r.steps_at[9], 2.0 / 16); /* 30 rows */
        assert_near(r.steps_at[10], 14.0 / 16);
        assert_int_equal(r.n_copied, cases[i].how == RESERVE_GROWING ? 32 : 0);
        serving_result_deinit(&r);
    }
    trace_deinit(&t);
}

/* ---- really ---- */

static const char REQUESTS[] =
    "{\"prompt\": 30, \"output\": 10}\n{\"prompt\": 5, \"output\": 25}\n{\"prompt\": 17, \"output\": 3}\n"
    "{\"prompt\": 60, \"output\": 12}\n{\"prompt\": 1, \"output\": 20}\n{\"prompt\": 33, \"output\": 8}\n";
enum { N_PROMPT = 30 + 5 + 17 + 60 + 1 + 33, N_OUTPUT = 10 + 25 + 3 + 12 + 20 + 8, N_REQUESTS = 6 };

typedef struct fixture {
    trace t;
    quire_options engine;
    model_runner b;
    uint64_t digest; /* of the engine's answers */
} fixture;

static void fixture_open(fixture *w) {
    quire_error err = {.message = ""};
    *w = (fixture){.t = parse(REQUESTS)};
    quire_options_init(&w->engine);
    w->engine.model = "builtin-small";
    w->engine.n_threads = 1;
    const model_runner_options o = {.engine = &w->engine,
                                    .page_tokens = HEADLINE_PAGE,
                                    .n_pages = 64 + headline_padding_pages(64, MAX_LEN),
                                    .max_rows = MAX_ROWS,
                                    .max_seqs = MAX_SEQS,
                                    .max_len = MAX_LEN};
    if (model_runner_open(&o, &w->b, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static void fixture_close(fixture *w) {
    model_runner_close(&w->b);
    trace_deinit(&w->t);
}

static serving_result serve(fixture *w, headline_server by, serving_options o) {
    serving_result r = {0};
    quire_error err = {.message = ""};
    uint64_t digest;
    if (headline_serve(&w->b, &w->t, by, &o, &r, &digest, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_true(w->digest == 0 || w->digest == digest);
    w->digest = digest;
    assert_true(r.span_us > 0 && r.times.n == N_REQUESTS);
    return r;
}

static serving_result by_engine(fixture *w, int32_t n_pages, int64_t swap_bytes) {
    return serve(w, (headline_server){true, swap_bytes}, server(n_pages));
}

static serving_result without_engine(fixture *w, serving_options o) {
    return serve(w, (headline_server){.is_engine = false}, o);
}

/* The engine, its planner without it, and the simulation: the same steps. */
TEST(the_engine_takes_the_simulators_steps) {
    fixture w;
    fixture_open(&w);
    for (int32_t n_pages = 8; n_pages <= 64; n_pages *= 2) {
        serving_options o = server(n_pages);
        o.reservation = RESERVE_PAGED;
        serving_result engine = by_engine(&w, n_pages, 0), planner = without_engine(&w, o),
                       sim = simulate(&w.t, &o);
        const serving_result *others[] = {&planner, &sim};
        assert_true(engine.n_preemptions > 0 || n_pages > 8);
        assert_true(engine.n_preemptions > 0 || engine.n_rows == N_PROMPT + N_OUTPUT - N_REQUESTS);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(engine.n_steps, others[i]->n_steps);
            assert_int_equal(engine.n_rows, others[i]->n_rows);
            assert_int_equal(engine.n_preemptions, others[i]->n_preemptions);
            assert_int_equal(engine.step_running, others[i]->step_running);
            assert_int_equal(engine.step_live, others[i]->step_live);
            assert_int_equal(engine.step_reserved, others[i]->step_reserved);
            assert_near(engine.work.decode_pairs, others[i]->work.decode_pairs);
            assert_near(engine.work.prefill_pairs, others[i]->work.prefill_pairs);
            assert_near(engine.work.out, others[i]->work.out);
        }
        serving_result_deinit(&engine);
        serving_result_deinit(&planner);
        serving_result_deinit(&sim);
    }
    fixture_close(&w);
}

TEST(a_swapped_sequence_is_not_computed_again) {
    fixture w;
    fixture_open(&w);
    serving_result r = by_engine(&w, 8, 1 << 24);
    assert_true(r.n_preemptions > 0);
    assert_int_equal(r.n_rows, N_PROMPT + N_OUTPUT - N_REQUESTS);
    serving_options o = server(8);
    o.reservation = RESERVE_PAGED;
    o.swap_tokens = 1 << 20;
    o.preempt = PREEMPT_SWAP;
    serving_result sim = simulate(&w.t, &o);
    assert_int_equal(r.n_steps, sim.n_steps);
    assert_int_equal(r.n_rows, sim.n_rows);
    assert_int_equal(r.n_preemptions, sim.n_preemptions);
    assert_int_equal(r.step_live, sim.step_live);
    assert_near(r.work.decode_pairs, sim.work.decode_pairs);
    assert_true(sim.n_swapped > 0);
    serving_result_deinit(&sim);
    serving_result_deinit(&r);
    r = by_engine(&w, 64, 0); /* the same answers */
    serving_result_deinit(&r);
    fixture_close(&w);
}

TEST(pieces_give_the_engines_answers_and_waste_no_row) {
    fixture w;
    fixture_open(&w);
    serving_result r = by_engine(&w, 64, 0);
    serving_result_deinit(&r);
    for (reservation how = RESERVE_MAX; how <= RESERVE_GROWING; how++) {
        serving_options o = server(16);
        o.reservation = how;
        r = without_engine(&w, o);
        assert_int_equal(r.most_running <= 2, how == RESERVE_MAX); /* 16 pages hold two of the longest */
        assert_int_equal(r.n_copied > 0, how == RESERVE_GROWING);
        assert_true(how == RESERVE_GROWING || r.n_preemptions == 0);
        assert_true(r.n_preemptions > 0 || r.n_rows == N_PROMPT + N_OUTPUT - N_REQUESTS);
        serving_result_deinit(&r);
    }
    serving_options small = server(8); /* of the longest, alone, not beside its copy */
    small.reservation = RESERVE_GROWING;
    r = without_engine(&w, small);
    assert_true(r.n_preemptions > 0);
    serving_result_deinit(&r);
    fixture_close(&w);
}

/* 16 pages hold two of the longest: batches of 30 + 5, 17 + 60 and 1 + 33 tokens, padded
 * to 30, 60 and 33, for 25, 12 and 20 steps. */
TEST(a_static_batch_computes_pads_and_dead_rows) {
    fixture w;
    fixture_open(&w);
    serving_result r = by_engine(&w, 64, 0);
    serving_result_deinit(&r);
    serving_options o = server(16);
    o.batching = BATCH_STATIC;
    o.reservation = RESERVE_MAX;
    r = without_engine(&w, o);
    assert_int_equal(r.n_steps, 25 + 12 + 20);
    assert_int_equal(r.n_rows, 2 * 30 + 2 * 60 + 2 * 33 + 2 * (24 + 11 + 19));
    assert_int_equal(headline_padding_rows(&w.t, &r), (0 + 25) + (43 + 0) + (32 + 0));
    assert_int_equal(headline_dead_rows(&w.t, &r), (15 + 0) + (9 + 0) + (0 + 12));
    assert_int_equal(r.most_running, 2);
    serving_result_deinit(&r);
    fixture_close(&w);
}

TEST(a_steps_cost_is_measured_and_does_not_fall) {
    fixture w;
    quire_error err;
    cost_model c;
    double off;
    fixture_open(&w);
    headline_cost_options o = {
        .n_pages = 64, .max_rows = MAX_ROWS, .max_seqs = MAX_SEQS, .max_len = MAX_LEN, .n_runs = 1};
    assert_int_equal(headline_cost_measure(&w.b, &o, &c, &off, &err), QUIRE_OK);
    assert_int_equal(c.n_points, 12); /* 1 to 8, 12, 16, 32 and 64 rows */
    assert_int_equal(c.kv_tokens, 64 * HEADLINE_PAGE);
    for (int i = 0; i < c.n_points; i++) {
        assert_true(c.us[i] > 0 && (i == 0 || c.us[i] >= c.us[i - 1]));
    }
    assert_true(c.us[11] > c.us[0] && off >= 0 && isfinite(off));
    assert_true(c.copy_us > 0);
    fixture_close(&w);
}

TEST_MAIN(NULL, NULL)
