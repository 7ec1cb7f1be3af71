/* The order of waiting requests: the formulas by themselves, then an engine that is
 * driven until all have ended. */
#include <stdio.h>

#include "harness.h"
#include "seed.h"

/* ---- prefix ---- */

TEST(a_second_of_waiting_is_worth_lambda_tokens) {
    assert_true(admission_prefix_score(1800, 100000, 100.0) == 1810.0);
    assert_true(admission_prefix_score(50, 5000000, 100.0) == 550.0);
    assert_true(admission_prefix_score(1800, 100000, 500.0) == 1850.0);
    assert_true(admission_prefix_score(50, 5000000, 500.0) == 2550.0);
    double lambda = (1800.0 - 50.0) / (5.0 - 0.1);
    assert_true(lambda > 357.142 && lambda < 357.143); /* where both are worth the same */
    double gap = admission_prefix_score(1800, 100000, lambda) - admission_prefix_score(50, 5000000, lambda);
    assert_true(gap > -1e-9 && gap < 1e-9);
}

/* However much of others' prompts is cached, one request a tenth of a second is served,
 * and after longest / lambda seconds nobody new overtakes. */
TEST(nobody_starves_behind_cached_prefixes) {
    enum { LONGEST = 32768, STEP_US = 100000, N_STEPS = 3000 };
    double lambda = 500.0;
    int64_t bound_us = (int64_t)(LONGEST / lambda * 1e6), arrived_us[N_STEPS + 1], longest_wait_us = 0;
    int32_t matched[N_STEPS + 1], n = 0;
    matched[n] = 0; /* the poor one, whom nothing helps */
    arrived_us[n++] = 0;
    for (int64_t now = 0; now < (int64_t)N_STEPS * STEP_US; now += STEP_US) {
        matched[n] = (int32_t)(rng_next(&seed) % (LONGEST + 1)); /* one comes, one is served */
        arrived_us[n++] = now;
        int32_t best = 0;
        for (int32_t i = 1; i < n; i++) {
            if (admission_prefix_score(matched[i], now - arrived_us[i], lambda) >
                admission_prefix_score(matched[best], now - arrived_us[best], lambda)) {
                best = i;
            }
        }
        longest_wait_us = now - arrived_us[best] > longest_wait_us ? now - arrived_us[best] : longest_wait_us;
        arrived_us[best] = arrived_us[--n];
        matched[best] = matched[n];
    }
    assert_true(longest_wait_us > 0 && longest_wait_us <= bound_us + STEP_US);
}

/* ---- shares ---- */

TEST(who_comes_back_has_saved_no_credit_up) {
    service_counters s;
    assert_int_equal(service_counters_open(&s, 3), QUIRE_OK);
    int32_t a = service_counters_enter(&s, "a", 1), b = service_counters_enter(&s, "b", 1);
    assert_int_not_equal(a, b);
    assert_int_equal(service_counters_enter(&s, "a", 1), a);
    service_counters_add(&s, a, 100.0);
    service_counters_add(&s, b, 60.0);
    service_counters_leave(&s, b);
    service_counters_add(&s, a, 100.0);
    assert_int_equal(service_counters_enter(&s, "b", 1), b);
    assert_true(service_counters_of(&s, b) == 200.0); /* as the least of those who stand */
    int32_t c = service_counters_enter(&s, "c", 1);
    assert_true(service_counters_of(&s, c) == 200.0);
    /* more tenants than slots: they count as one, and go before nobody */
    int32_t d = service_counters_enter(&s, "d", 1), common = service_counters_enter(&s, "x", 1);
    assert_int_equal(d, 3);
    assert_int_equal(common, d);
    assert_true(service_counters_of(&s, d) == 200.0);
    service_counters_add(&s, d, 30.0);
    assert_true(service_counters_of(&s, common) == 230.0);
    service_counters_leave(&s, d);
    service_counters_leave(&s, common);
    service_counters_leave(&s, c);
    assert_int_equal(service_counters_enter(&s, "d", 1), c); /* a slot that nobody stands in */
    service_counters_leave(&s, a);
    service_counters_leave(&s, a);
    service_counters_leave(&s, b);
    service_counters_add(&s, b, 50.0);
    int32_t e = service_counters_enter(&s, "e", 1);
    assert_int_equal(e, a); /* that of the absent one who loses least */
    service_counters_close(&s);
}

/* ---- the engine ---- */

enum { N_MOST = 75 };

static harness_run runs[N_MOST];
static int32_t prompts[N_MOST][64];

static harness_options one_at_a_time(admission_policy policy) {
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    o.schedule = policy;
    o.max_seqs = 1;
    return o;
}

static harness_run request(const harness *h, int32_t i, int32_t n_prompt, int32_t n_out) {
    random_prompt(&seed, h->n_vocab, n_prompt, prompts[i]);
    return (harness_run){.prompt = prompts[i], .n_prompt = n_prompt, .sampling = greedy(n_out)};
}

TEST(the_lower_priority_number_goes_first) {
    harness h = {0};
    harness_options o = one_at_a_time(ADMISSION_PRIORITY);
    o.starts_paused = true;
    harness_open(&o, &h);
    static const int32_t priorities[6] = {3, 0, 2, 0, -5, 2}, place[6] = {5, 1, 3, 2, 0, 4};
    for (int32_t i = 0; i < 6; i++) {
        runs[i] = request(&h, i, 12, 3);
        runs[i].priority = priorities[i];
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, 6);
    for (int32_t i = 0; i < 6; i++) {
        assert_int_equal(runs[i].place, place[i]);
    }
    harness_close(&h);
}

TEST(what_is_cached_goes_first_under_prefix) {
    harness h = {0};
    harness_options o = one_at_a_time(ADMISSION_PREFIX);
    o.schedule_lambda = 0.001; /* a wait counts for nothing here */
    harness_open(&o, &h);
    runs[0] = request(&h, 0, 48, 1);
    harness_submit(&h, &runs[0]);
    harness_wait(&h, 1);
    harness_hold(&h);
    runs[1] = request(&h, 1, 48, 1);
    runs[2] = request(&h, 2, 48, 1);
    memcpy(prompts[2], prompts[0], 16 * sizeof(int32_t));
    runs[3] = request(&h, 3, 48, 1);
    memcpy(prompts[3], prompts[0], 32 * sizeof(int32_t));
    for (int32_t i = 1; i < 4; i++) {
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, 3);
    assert_int_equal(runs[3].place, 1);
    assert_int_equal(runs[2].place, 2);
    assert_int_equal(runs[1].place, 3);
    harness_close(&h);
}

/* One tenant sends 60 requests, then another 15 of its own: while both wait, each gets
 * half; at least 80% of that is promised. */
TEST(a_flooding_tenant_leaves_the_others_their_share) {
    harness h = {0};
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    o.schedule = ADMISSION_FAIR;
    o.max_seqs = 4;
    o.prefix_cache = PREFIX_CACHE_NONE;
    o.starts_paused = true;
    enum { N_FLOOD = 60, N_OTHER = 15 };
    harness_open(&o, &h);
    for (int32_t i = 0; i < N_FLOOD + N_OTHER; i++) {
        runs[i] = request(&h, i, 24, 12);
        runs[i].namespace = i < N_FLOOD ? "flood" : "other";
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, N_FLOOD + N_OTHER);
    int32_t last = 0, flood_before = 0;
    for (int32_t i = N_FLOOD; i < N_FLOOD + N_OTHER; i++) {
        last = runs[i].place > last ? runs[i].place : last;
    }
    for (int32_t i = 0; i < N_FLOOD; i++) {
        flood_before += runs[i].place < last;
    }
    printf("of %d requests served until the other tenant's last, %d were the flood's\n", last + 1,
           flood_before);
    assert_true(N_OTHER >= 0.8 * (N_OTHER + flood_before) / 2);
    harness_close(&h);
}

/* Steps until a request of 70 tokens has its first token, beside n_flood running and
 * waiting ones of another tenant. Its tokens are checked: preemption changes none. */
static int32_t steps_beside(int32_t n_flood, const harness_run *alone, harness_run *out) {
    static int32_t prompt[70];
    harness h = {0};
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    o.schedule = ADMISSION_FAIR;
    o.max_seqs = 4;
    o.max_rows = 32;
    o.prefix_cache = PREFIX_CACHE_NONE;
    harness_open(&o, &h);
    harness_take_over(&h);
    for (int32_t i = 0; i < n_flood; i++) {
        runs[i] = request(&h, i, 24, 40);
        runs[i].namespace = "flood";
        harness_submit(&h, &runs[i]);
    }
    harness_steps(&h, n_flood > 0 ? 13 : 0);
    for (int32_t i = 0; i < 70; i++) {
        prompt[i] = 100 + i;
    }
    *out = (harness_run){.prompt = prompt, .n_prompt = 70, .sampling = greedy(6), .namespace = "other"};
    harness_submit(&h, out);
    int32_t n_steps = 0;
    while (out->n_tokens == 0) {
        n_steps += harness_steps(&h, 1);
    }
    harness_steps(&h, 10000);
    assert_int_equal(out->finish, FINISH_LENGTH);
    for (int32_t i = 0; alone != NULL && i < out->n_tokens; i++) {
        assert_int_equal(out->tokens[i], alone->tokens[i]);
    }
    for (int32_t i = 0; i < n_flood; i++) {
        assert_int_equal(runs[i].finish, FINISH_LENGTH);
    }
    assert_true(n_flood == 0 || h.e->sched.counts.preemptions > 0);
    harness_close(&h);
    return n_steps;
}

TEST(a_request_behind_a_flood_waits_two_steps_more_than_alone) {
    static harness_run alone, beside;
    int32_t n_alone = steps_beside(0, NULL, &alone), n_beside = steps_beside(20, &alone, &beside);
    assert_int_equal(n_alone, 3);
    assert_in_range(n_beside, n_alone, n_alone + 2);
}

/* Its tenant pays for a prompt that is preempted half-way as for one that is not. */
TEST(a_prompt_that_is_computed_again_is_paid_for_once) {
    enum { N = 200, N_OUT = 4 };
    static int32_t prompt[N];
    static harness_run r;
    harness h = {0};
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    o.schedule = ADMISSION_FAIR;
    o.max_rows = 32;
    o.prefix_cache = PREFIX_CACHE_NONE;
    harness_open(&o, &h);
    harness_take_over(&h);
    random_prompt(&seed, h.n_vocab, N, prompt);
    r = (harness_run){.prompt = prompt, .n_prompt = N, .sampling = greedy(N_OUT)};
    harness_submit(&h, &r);
    harness_steps(&h, 3);
    scheduler *s = &h.e->sched;
    int32_t slot = s->running[0]->tenant_slot;
    assert_int_equal(s->running[0]->kv.n_computed, 3 * 32);
    scheduler_preempt_group(s, s->running[0], NULL);
    engine_audit(h.e);
    assert_int_equal(s->n_waiting, 1);
    harness_steps(&h, 100);
    assert_int_equal(r.finish, FINISH_LENGTH);
    assert_true(service_counters_of(&s->service, slot) ==
                N * SERVICE_PROMPT_WEIGHT + N_OUT * SERVICE_OUTPUT_WEIGHT);
    harness_close(&h);
}

TEST(first_come_first_served_does_not) {
    harness h = {0};
    harness_options o = one_at_a_time(ADMISSION_FCFS);
    o.starts_paused = true;
    harness_open(&o, &h);
    for (int32_t i = 0; i < 8; i++) {
        runs[i] = request(&h, i, 12, 2);
        runs[i].priority = -i;
        runs[i].namespace = i < 7 ? "flood" : "other";
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, 8);
    for (int32_t i = 0; i < 8; i++) {
        assert_int_equal(runs[i].place, i);
    }
    harness_close(&h);
}

TEST_MAIN_SEEDED(NULL, NULL)
