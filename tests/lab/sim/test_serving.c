/* The simulated server: it plans as the engine does, its clock follows the cost model,
 * and every request gets its tokens. */
#include <stdio.h>
#include <stdlib.h>

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "lab/sim/reservation.h"
#include "lab/sim/serving.h"
#include "lab/sim/trace_read.h"
#include "test.h"

/* 10 us a step, 1 a row, nothing else. */
static const cost_model plain = {.model = "m",
                                 .device = "d",
                                 .n_points = 2,
                                 .rows = {0, 1},
                                 .us = {10, 11},
                                 .kv_tokens = 4096,
                                 .token_bytes = 1,
                                 .max_model_len = 4096};

static serving_options server(const cost_model *c) {
    return (serving_options){.cost = c,
                             .batching = BATCH_ITERATION,
                             .reservation = RESERVE_PAGED,
                             .cache = SERVING_CACHE_NONE,
                             .kv_tokens = 4096,
                             .page_tokens = 16,
                             .max_model_len = 4096,
                             .max_rows = 64,
                             .max_seqs = 4,
                             .speed = 1,
                             .checks = true};
}

static trace parse(const char *text) {
    trace t = {0};
    quire_error err = {.message = ""};
    if (trace_parse(str_of(text), "t", 0, &t, &err) != QUIRE_OK) {
        fail_msg("refused: %s", err.message);
    }
    return t;
}

static serving_result serve(const trace *t, const serving_options *o) {
    serving_result r = {0};
    quire_error err = {.message = ""};
    if (serving_run(t, o, &r, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return r;
}

/* ---- the clock ---- */

TEST(a_step_takes_what_its_parts_take) {
    cost_model c = {.n_points = 3,
                    .rows = {1, 3, 5},
                    .us = {100, 100, 140},
                    .out_us = 7,
                    .decode_pair_us = 0.5,
                    .prefill_pair_us = 0.25,
                    .copy_us = 3};
    assert_true(cost_of(&c, &(step_work){.rows = 1}) == 100);
    assert_true(cost_of(&c, &(step_work){.rows = 2}) == 100);
    assert_true(cost_of(&c, &(step_work){.rows = 4}) == 120);
    assert_true(cost_of(&c, &(step_work){.rows = 10}) == 240); /* the last line goes on */
    assert_true(
        cost_of(&c, &(step_work){.rows = 4, .out = 2, .decode_pairs = 10, .prefill_pairs = 8, .copied = 1}) ==
        120 + 14 + 5 + 2 + 3);
}

/* OPT-13B: 40 layers of width 5,120, 16 bits: 819,200 bytes a token, and about 15,700
 * tokens fit beside it on 40 GB (Kwon et al. 2023, table 1). A step reads 25.7 GB of
 * weights: 20.7 ms at 80% of 1,555 GB/s. */
TEST(a_described_device_is_as_its_data_sheet_says) {
    cost_model c;
    quire_error err;
    assert_int_equal(cost_describe("opt-13b", "a100-40gb", &c, &err), QUIRE_OK);
    assert_int_equal(c.token_bytes, 819200);
    assert_true(c.kv_tokens > 15500 && c.kv_tokens < 16000);
    double step_us = cost_of(&c, &(step_work){.rows = 1});
    assert_true(fabs(step_us - 25.7e9 / (1.555e12 * 0.8) * 1e6) < 1);
    assert_true(cost_of(&c, &(step_work){.rows = 64}) == step_us);
    assert_true(fabs(cost_of(&c, &(step_work){.rows = 2048}) - 2048 * 2 * 12.85e9 / 156e12 * 1e6) < 1);
    assert_true(fabs(c.decode_pair_us - 819200 / (1.555e12 * 0.8) * 1e6) < 1e-9);
    assert_int_equal(cost_describe("opt-13b", "abacus", &c, &err), QUIRE_INVALID);
    assert_int_equal(cost_describe("gpt-9", "a100-40gb", &c, &err), QUIRE_INVALID);
    assert_int_equal(cost_describe("llama-3-70b", "a100-40gb", &c, &err), QUIRE_INVALID); /* does not fit */
}

/* One prompt of 100, 64 rows a step: steps of 64 and 36 rows; the answer's first token
 * comes with the second, then a step of one row each. */
TEST(a_lone_request_takes_its_steps) {
    trace t = parse("{\"t\": 3, \"prompt\": 100, \"output\": 4}\n");
    serving_options o = server(&plain);
    serving_result r = serve(&t, &o);
    assert_int_equal(r.times.n, 1);
    assert_true(r.times.first[0] == 74 + 46);
    assert_true(r.times.gap[0] == 11);
    assert_true(r.times.per_token[0] == (74 + 46 + 33) / 4.0);
    assert_true(r.span_us == 153 && r.busy_us == 153);
    assert_int_equal(r.n_steps, 5);
    assert_int_equal(r.n_rows, 103);
    serving_result_deinit(&r);
    trace_deinit(&t);
}

/* Worked example 27, by time: a step of any size takes 1 us, so requests end at their
 * steps' numbers. Static by count, continuous by the planner. */
TEST(eight_requests_end_at_the_steps_of_worked_example_27) {
    static const int32_t lengths[] = {9, 1269, 24, 443, 23, 1592, 2, 913},
                         continuous[] = {9, 1269, 24, 443, 32, 1616, 34, 947};
    cost_model c = plain;
    c.rows[1] = 2;
    c.us[0] = c.us[1] = 1;
    char text[1024] = "";
    for (int i = 0; i < 8; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"prompt\": 1, \"output\": %d}\n",
                 lengths[i]);
    }
    trace t = parse(text);
    serving_options o = server(&c);
    o.kv_tokens = 4 * 4096;
    o.checks = false;
    serving_result r = serve(&t, &o);
    assert_int_equal(r.times.n, 8);
    assert_true(r.span_us == 1616);
    o.batching = BATCH_STATIC;
    o.reservation = RESERVE_ORACLE;
    serving_result s = serve(&t, &o);
    assert_true(s.span_us == 2861);
    assert_true(fabs(s.span_us / r.span_us - 1.77) < 0.005);
    for (int i = 0; i < 8; i++) {
        assert_true(fabs(s.times.per_token[i] * lengths[i] - (i < 4 ? 1269 : 2861)) < 1e-6);
    }
    for (int i = 0; i < 8; i++) { /* answers end in another order than requests came */
        bool found = false;
        for (int k = 0; k < 8; k++) {
            found |= fabs(r.times.per_token[k] * lengths[i] - continuous[i]) < 1e-6;
        }
        assert_true(found);
    }
    serving_result_deinit(&r);
    serving_result_deinit(&s);
    trace_deinit(&t);
}

/* Worked example 26: lengths 10, 199, 25, 199 take 199 steps of 4 rows; 433 of 796 are
 * useful. */
TEST(a_static_batch_computes_rows_for_who_has_ended) {
    trace t = parse("{\"prompt\": 1, \"output\": 10}\n{\"prompt\": 1, \"output\": 199}\n{\"prompt\": 1, "
                    "\"output\": 25}\n{\"prompt\": 1, "
                    "\"output\": 199}\n");
    serving_options o = server(&plain);
    o.batching = BATCH_STATIC;
    o.reservation = RESERVE_ORACLE;
    serving_result r = serve(&t, &o);
    assert_int_equal(r.n_steps, 199);
    assert_int_equal(r.n_rows, 796);
    assert_int_equal(r.output_tokens, 433);
    serving_result_deinit(&r);
    trace_deinit(&t);
}

/* Worked example 25: prompts of 4, 6, 1, 7 padded to 7: 28 rows for 18 tokens. */
TEST(a_static_batch_computes_rows_for_pads) {
    trace t = parse("{\"prompt\": 4, \"output\": 1}\n{\"prompt\": 6, \"output\": 1}\n{\"prompt\": 1, "
                    "\"output\": 1}\n{\"prompt\": 7, \"output\": 1}\n");
    serving_options o = server(&plain);
    o.batching = BATCH_STATIC;
    o.reservation = RESERVE_ORACLE;
    serving_result r = serve(&t, &o);
    assert_int_equal(r.n_rows - r.prompt_tokens, 10);
    serving_result_deinit(&r);
    trace_deinit(&t);
}

/* ---- memory ---- */

TEST(reserving_the_longest_lets_few_run_at_once) {
    char text[4096] = "";
    for (int i = 0; i < 32; i++) {
        strcat(text, "{\"prompt\": 20, \"output\": 20}\n");
    }
    trace t = parse(text);
    serving_options o = server(&plain);
    o.max_seqs = 32;
    o.kv_tokens = 1024;
    o.max_model_len = 256;
    int32_t most[RESERVE_N];
    for (reservation v = RESERVE_MAX; v < RESERVE_N; v++) {
        o.reservation = v;
        serving_result r = serve(&t, &o);
        most[v] = r.most_running;
        assert_int_equal(r.times.n, 32);
        assert_true(r.live_us <= r.reserved_us);
        serving_result_deinit(&r);
    }
    assert_int_equal(most[RESERVE_MAX], 4);
    assert_int_equal(most[RESERVE_POW2], 1024 / (20 + 32));
    assert_int_equal(most[RESERVE_ORACLE], 1024 / 40);
    assert_true(most[RESERVE_PAGED] >= 1024 / 48 && most[RESERVE_GROWING] >= 1024 / 40);
    trace_deinit(&t);
}

TEST(growing_in_one_piece_moves_what_is_there_every_step) {
    trace t = parse("{\"prompt\": 10, \"output\": 4}\n");
    cost_model c = plain;
    c.copy_us = 1000;
    serving_options o = server(&c);
    o.reservation = RESERVE_GROWING;
    serving_result r = serve(&t, &o);
    assert_true(r.span_us == 20 + 3 * 11 + 1000 * (10 + 11 + 12));
    assert_true(r.live_us == r.reserved_us);
    serving_result_deinit(&r);
    trace_deinit(&t);
}

TEST(pieces_lie_in_the_first_gap) {
    first_fit f;
    int64_t first;
    assert_int_equal(first_fit_open(10, 4, &f), QUIRE_OK);
    assert_true(first_fit_take(&f, 1, 4, &first) && first_fit_take(&f, 2, 3, &first) &&
                first_fit_take(&f, 3, 3, &first));
    assert_false(first_fit_take(&f, 4, 1, &first));
    first_fit_give(&f, 2);
    assert_false(first_fit_take(&f, 4, 4, &first)); /* three are free, in the middle */
    assert_true(first_fit_take(&f, 4, 2, &first));
    assert_int_equal(f.pieces[1].first, 4);
    first_fit_give(&f, 1);
    assert_false(first_fit_take(&f, 5, 5, &first)); /* five are free, not in one piece */
    assert_true(first_fit_take(&f, 5, 4, &first) && first_fit_take(&f, 6, 1, &first));
    assert_false(first_fit_take(&f, 7, 1, &first)); /* no more pieces */
    first_fit_close(&f);
}

TEST(a_request_that_can_never_fit_is_refused) {
    trace t = parse("{\"prompt\": 5000, \"output\": 1}\n{\"prompt\": 10, \"output\": 0}\n{\"prompt\": 4090, "
                    "\"output\": 10}\n");
    serving_options o = server(&plain);
    for (batching b = BATCH_STATIC; b < BATCH_N; b++) {
        o.batching = b;
        serving_result r = serve(&t, &o);
        assert_int_equal(r.n_refused, 2);
        assert_int_equal(r.times.n, 1);
        assert_int_equal(r.output_tokens, 1); /* an answer has a token at least */
        serving_result_deinit(&r);
    }
    quire_error err;
    serving_result none;
    o.max_model_len = 5;
    assert_int_equal(serving_run(&t, &o, &none, &err), QUIRE_INVALID);
    trace_deinit(&t);
}

/* ---- the prefix cache ---- */

/* Worked example 24: 2,000 shared and 30 own tokens, 8 users at once: 2,240 computed
 * against 16,240. All come together, so seven wait for the first's pages. */
TEST(a_shared_prompt_is_computed_once) {
    char text[2048] = "";
    for (int i = 0; i < 8; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"prompt\": [[\"system\", 2000], [\"user %d\", 30]], \"output\": 150}\n", i);
    }
    trace t = parse(text);
    serving_options o = server(&plain);
    o.max_seqs = 8;
    o.kv_tokens = 1 << 15;
    serving_result none = serve(&t, &o);
    assert_int_equal(none.n_rows, 16240 + 8 * 149);
    o.cache = SERVING_CACHE_TOKEN;
    serving_result token = serve(&t, &o);
    assert_int_equal(token.n_rows, 2240 + 8 * 149);
    assert_int_equal(token.hit_tokens, 14000);
    assert_true(token.span_us < none.span_us);
    /* now there is room for chunks of all in the first step, and seven wait all the
     * same */
    o.max_rows = 1024;
    o.max_chunk = 64;
    serving_result wide = serve(&t, &o);
    assert_int_equal(wide.n_rows, 2240 + 8 * 149);
    serving_result_deinit(&none);
    serving_result_deinit(&token);
    serving_result_deinit(&wide);
    trace_deinit(&t);
}

/* ---- at random ---- */

static trace random_trace(uint64_t *seed, int32_t n) {
    char *text = malloc(1 << 16);
    size_t at = 0;
    double when = 0;
    for (int32_t i = 0; i < n; i++) {
        when += 1e-5 * (double)(rng_next(seed) % 100);
        at += (size_t)snprintf(
            text + at, (1 << 16) - at,
            "{\"t\": %.6f, \"tenant\": \"%d\", \"prompt\": [[\"s%d\", %d], [\"u%d\", %d]], \"output\": %d}\n",
            when, (int)(rng_next(seed) % 2), (int)(rng_next(seed) % 3), 1 + (int)(rng_next(seed) % 60), i,
            1 + (int)(rng_next(seed) % 40), (int)(rng_next(seed) % 30));
    }
    trace t = parse(text);
    free(text);
    return t;
}

/* Any batching, memory, cache and pool down to what the longest request needs: all are
 * answered, nothing is lost, no token is had for less than its row. */
TEST(everybody_is_answered_however_little_memory_there_is) {
    uint64_t seed = rng_os_seed();
    int64_t n_preempted = 0, n_hits = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 60; round++) {
        trace t = random_trace(&seed, 1 + (int32_t)(rng_next(&seed) % 40));
        serving_options o = server(&plain);
        o.batching = rng_next(&seed) % 4 == 0 ? BATCH_STATIC : BATCH_ITERATION;
        o.reservation = rng_next(&seed) % 2 == 0 ? RESERVE_PAGED : (reservation)(rng_next(&seed) % RESERVE_N);
        o.cache = (serving_cache)(rng_next(&seed) % 3);
        o.page_tokens = 1 << rng_next(&seed) % 5;
        o.max_seqs = 1 + (int32_t)(rng_next(&seed) % 12);
        o.max_rows = o.max_seqs + (int32_t)(rng_next(&seed) % 60);
        o.max_chunk = (int32_t)(rng_next(&seed) % 30);
        o.step_target_us = rng_next(&seed) % 2 == 0 ? 0 : 40;
        o.max_model_len = t.longest + 1;
        o.kv_tokens = (t.longest + 16) / 16 * 16 + 16 * (int64_t)(rng_next(&seed) % 10);
        serving_result r = serve(&t, &o);
        assert_int_equal(r.times.n, t.n_requests);
        assert_int_equal(r.n_refused, 0);
        assert_int_equal(r.prompt_tokens, t.n_prompt_tokens);
        assert_true(r.n_rows + r.hit_tokens >= r.prompt_tokens + r.output_tokens - t.n_requests);
        if (o.batching == BATCH_ITERATION && r.n_preemptions == 0) {
            assert_int_equal(r.n_rows + r.hit_tokens, r.prompt_tokens + r.output_tokens - t.n_requests);
        }
        assert_true(r.span_us >= r.busy_us && r.live_us <= r.reserved_us && r.most_running <= o.max_seqs);
        for (int32_t i = 0; i < r.times.n; i++) {
            assert_true(r.times.first[i] >= 11 && r.times.per_token[i] > 0);
        }
        n_preempted += r.n_preemptions;
        n_hits += r.hit_tokens;
        serving_result_deinit(&r);
        trace_deinit(&t);
    }
    assert_true(n_preempted > 0 && n_hits > 0);
}

/* ---- arrivals, traces, files ---- */

/* Four of 40 + 60 tokens in memory for 160: somebody gives way. What was computed comes
 * back, and the clock has its way twice. */
TEST(swapping_moves_what_recomputing_repeats) {
    cost_model c = plain;
    c.swap_us = 0.5;
    trace t = parse("{\"prompt\": 40, \"output\": 60}\n{\"prompt\": 40, \"output\": 60}\n"
                    "{\"prompt\": 40, \"output\": 60}\n{\"prompt\": 40, \"output\": 60}\n");
    serving_options o = server(&c);
    o.kv_tokens = 160;
    serving_result again = serve(&t, &o);
    assert_true(again.n_preemptions > 0 && again.n_rows > 4 * 99 && again.n_swapped == 0);
    o.swap_tokens = INT64_MAX;
    o.preempt = PREEMPT_SWAP;
    serving_result r = serve(&t, &o);
    assert_true(r.n_preemptions > 0);
    assert_int_equal(r.n_rows, 4 * 99);
    assert_true(r.n_swapped >= 2 * 16 && r.n_swapped % 32 == 0); /* whole pages, out and in */
    assert_true(fabs(r.busy_us - (10.0 * (double)r.n_steps + 4 * 99 + 0.5 * (double)r.n_swapped)) < 1e-6);
    serving_result_deinit(&r);
    o.preempt = PREEMPT_RECOMPUTE;
    r = serve(&t, &o);
    assert_int_equal(r.n_rows, again.n_rows);
    serving_result_deinit(&r);
    serving_result_deinit(&again);
    trace_deinit(&t);
}

TEST(guesses_that_are_right_save_steps) {
    trace t = parse("{\"prompt\": 10, \"output\": 61}\n");
    serving_options o = server(&plain);
    o.n_drafts = 4;
    o.draft_us = 2;
    o.acceptance[0] = o.acceptance[1] = o.acceptance[2] = o.acceptance[3] = 1;
    serving_result r = serve(&t, &o);
    assert_int_equal(r.n_steps, 1 + 12); /* five tokens a step after the first */
    assert_int_equal(r.n_rows, 10 + 60);
    assert_int_equal(r.n_accepted, r.n_drafted);
    assert_true(r.busy_us == 20 + 12 * (10 + 5 + 2));
    assert_true(r.work.out == 1 + 60);
    assert_true(r.work.decode_pairs + r.work.prefill_pairs == 70.0 * 71 / 2);
    serving_result_deinit(&r);
    o.acceptance[0] = 0;
    r = serve(&t, &o);
    assert_int_equal(r.n_steps, 61);
    assert_int_equal(r.n_accepted, 0);
    assert_int_equal(r.output_tokens, 61);
    serving_result_deinit(&r);
    trace_deinit(&t);
}

/* With chance p of each of n guesses a step gives 1 + p + .. + p^n tokens; many requests
 * in little memory, every invariant checked. */
TEST(guesses_are_right_as_often_as_they_are_said_to_be) {
    char text[64 * 40] = "";
    for (int i = 0; i < 40; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"prompt\": %d, \"output\": 200}\n",
                 5 + i);
    }
    trace t = parse(text);
    serving_options o = server(&plain);
    o.kv_tokens = 512;
    o.n_drafts = 3;
    o.acceptance[0] = o.acceptance[1] = o.acceptance[2] = 0.5;
    o.swap_tokens = 1 << 20;
    serving_result r = serve(&t, &o);
    assert_int_equal(r.times.n, 40);
    assert_int_equal(r.output_tokens, 40 * 200);
    double accepted = (double)r.n_accepted / (double)r.n_drafted;
    assert_true(fabs(accepted - 0.875 / 3) < 0.02);
    serving_result_deinit(&r);
    trace_deinit(&t);
}

TEST(poisson_arrivals_have_the_rate_and_lengths_asked_for) {
    arrivals_options o = {.lengths = "alpaca", .rate = 5, .n = 20000, .most = 2048, .seed = 3};
    trace a = {0}, b = {0};
    quire_error err;
    assert_int_equal(arrivals_make(&o, &a, &err), QUIRE_OK);
    assert_int_equal(arrivals_make(&o, &b, &err), QUIRE_OK);
    assert_memory_equal(a.requests, b.requests, (size_t)a.n_requests * sizeof *a.requests);
    assert_true(fabs((double)a.n_prompt_tokens / a.n_requests - 19.31) < 0.4);
    assert_true(fabs((double)a.n_output_tokens / a.n_requests - 58.45) < 1.5);
    double seconds = (double)a.requests[a.n_requests - 1].arrival_us * 1e-6, squares = 0,
           mean = seconds / (a.n_requests - 1);
    assert_true(fabs(a.n_requests / seconds / 5 - 1) < 0.03);
    for (int32_t i = 1; i < a.n_requests; i++) {
        double gap = (double)(a.requests[i].arrival_us - a.requests[i - 1].arrival_us) * 1e-6;
        squares += (gap - mean) * (gap - mean);
    }
    /* exponential: as far from the mean as the mean is long */
    assert_true(fabs(sqrt(squares / (a.n_requests - 1)) / mean - 1) < 0.05);
    trace_deinit(&a);
    trace_deinit(&b);
    o.lengths = "novels";
    assert_int_equal(arrivals_make(&o, &a, &err), QUIRE_INVALID);
    o.lengths = "alpaca";
    o.rate = NAN;
    assert_int_equal(arrivals_make(&o, &a, &err), QUIRE_INVALID);
}

TEST(a_shrunk_trace_shares_what_it_shared) {
    trace t =
        parse("{\"timestamp\": 0, \"input_length\": 1300, \"output_length\": 65, \"hash_ids\": [1, 2, 3]}\n"
              "{\"timestamp\": 1, \"input_length\": 1024, \"output_length\": 0, \"hash_ids\": [1, 2]}\n");
    trace_shrink(&t, 64);
    assert_int_equal(t.requests[0].n_prompt, 8 + 8 + 5); /* 276 tokens of the third block */
    assert_int_equal(t.requests[0].n_output, 2);
    assert_int_equal(t.requests[1].n_prompt, 16);
    assert_int_equal(t.requests[1].n_output, 0);
    assert_int_equal(t.n_prompt_tokens, 37);
    assert_int_equal(t.longest, 23);
    int32_t a[23], b[16];
    trace_tokens(&t, &t.requests[0], a);
    trace_tokens(&t, &t.requests[1], b);
    assert_memory_equal(a, b, sizeof b);
    trace_deinit(&t);
}

TEST(every_reservation_holds_the_tokens_and_the_later_ones_hold_less) {
    reserved_seq s = {.n_prompt = 100, .n_output = 25, .n_now = 80};
    /* worked example 7: 1,968 of them dead */
    assert_int_equal(reservation_slots(RESERVE_MAX, &s, 2048, 16), 2048);
    /* as for Orca (Pow2): 25 tokens reserve 32 */
    assert_int_equal(reservation_slots(RESERVE_POW2, &s, 2048, 16), 132);
    assert_int_equal(reservation_slots(RESERVE_ORACLE, &s, 2048, 16), 125);
    assert_int_equal(reservation_slots(RESERVE_GROWING, &s, 2048, 16), 80);
    assert_int_equal(reservation_slots(RESERVE_PAGED, &s, 2048, 16), 80);
    s.n_now = 81;
    assert_int_equal(reservation_slots(RESERVE_PAGED, &s, 2048, 16), 96);
}

TEST_MAIN(NULL, NULL)
