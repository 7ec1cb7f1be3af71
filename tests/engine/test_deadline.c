/* Deadlines for first tokens: the arithmetic, and an engine that refuses what cannot make
 * one. */
#include <stdio.h>

#include "harness.h"
#include "sched/admission_candidates.h"
#include "seed.h"

#if defined(__SANITIZE_THREAD__) /* many times as slow */
enum { LONG = 200 };
#else
enum { LONG = 1600 };
#endif

#define SECOND INT64_C(1000000)

TEST(the_time_to_a_first_token_is_that_of_all_rows_before_it) {
    sched_limits l = {.max_rows = 100, .cost = {.step_us = 1000, .row_us = 10, .pair_us = 0.5}};
    deadline_load q = {.rows = 250, .pairs = 400};
    assert_true(deadline_foretell_us(&l, &q) == 2500 + 200 + 3 * 1000.0);
    q.n_decodes = 50; /* half of each step's rows are theirs */
    q.decode_pairs = 1000;
    assert_true(deadline_foretell_us(&l, &q) == 2700 + 5 * (1000 + 500 + 500.0));
    l.target_us = 2300; /* 300 us a step would be left; twice their own time is more */
    assert_true(deadline_foretell_us(&l, &q) == 2700 + 5 * 2000.0);
    q.rows = 40;
    q.pairs = 12000; /* four steps of 2,000 us each for what takes 6,400, though the rows fit one */
    assert_true(deadline_foretell_us(&l, &q) == 6400 + 4 * 2000.0);
}

static harness_run request(const harness *h, int32_t *prompt, int32_t n, int32_t n_out) {
    random_prompt(&seed, h->n_vocab, n, prompt);
    return (harness_run){.prompt = prompt, .n_prompt = n, .sampling = greedy(n_out)};
}

TEST(what_cannot_make_it_is_refused_at_once) {
    static int32_t prompts[24][1600];
    static harness_run runs[24];
    harness h = {0};
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    o.n_pages = 4000;
    o.prefix_cache = PREFIX_CACHE_NONE;
    harness_open(&o, &h);
    for (int i = 0; i < 10; i++) { /* the engine learns what steps cost */
        runs[i] = request(&h, prompts[i], 100 + 100 * i, 10);
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, 10);
    runs[0] = request(&h, prompts[0], 100, 1);
    runs[0].deadline_us = 3600 * SECOND;
    harness_submit(&h, &runs[0]);
    harness_wait(&h, 1);
    assert_int_equal(runs[0].finish, FINISH_LENGTH); /* there is time enough */
    harness_hold(&h);
    for (int i = 1; i < 20; i++) {
        runs[i] = request(&h, prompts[i], LONG, 1);
        harness_submit(&h, &runs[i]);
    }
    runs[20] = request(&h, prompts[20], 100, 1);
    runs[20].deadline_us = 2000; /* queued behind thousands of tokens */
    harness_submit(&h, &runs[20]);
    harness_wait(&h, 20);
    assert_int_equal(runs[20].finish, FINISH_ERROR);
    assert_int_equal(runs[20].error, QUIRE_BUSY);
    assert_in_range(runs[20].retry_after_s, 1, 3600);
    assert_int_equal(runs[20].place, 11); /* the first of them to end */
    for (int i = 1; i < 20; i++) {
        assert_int_equal(runs[i].finish, FINISH_LENGTH);
    }
    quire_stats s;
    engine_stats_read(h.e, &s);
    assert_int_equal(s.deadlines_refused, 1);
    harness_close(&h);
}

/* Steps until nothing is left to do, while the engine believes that a row takes a second:
 * what is foretold is a matter of rows, and deadlines are hours away from when they are
 * looked at. */
static void run_at_a_second_a_row(harness *h, int32_t most) {
    bool goes_on = true, ended;
    while (goes_on && most-- > 0) {
        h->e->sched.step_cost = (step_cost){0};
        for (int i = 0; i < 100; i++) {
            step_cost_note(&h->e->sched.step_cost, 1 + i, 0, (double)(SECOND * (1 + i)));
        }
        goes_on = harness_step(h);
    }
    while (harness_read(h, &ended)) {
    }
}

/* Who goes before a request is the policy's word: after a flood of another tenant it
 * comes next under a fair schedule, and last by arrival. */
TEST(those_that_the_policy_puts_behind_do_not_count) {
    enum { N = 20 };
    static int32_t prompts[N][1600];
    static harness_run runs[N];
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    o.n_pages = 4000;
    o.max_seqs = 2;
    o.prefix_cache = PREFIX_CACHE_NONE;
    for (int fair = 0; fair < 2; fair++) {
        harness h = {0};
        o.schedule = fair ? ADMISSION_FAIR : ADMISSION_FCFS;
        harness_open(&o, &h);
        harness_take_over(&h);
        for (int i = 0; i < N; i++) {
            runs[i] = request(&h, prompts[i], i + 1 < N ? LONG : 100, 1);
            runs[i].namespace = i + 1 < N ? "flood" : "test";
            runs[i].deadline_us = i + 1 < N ? 0 : (N - 1) * LONG * SECOND / 2;
            harness_submit(&h, &runs[i]);
        }
        run_at_a_second_a_row(&h, INT32_MAX);
        assert_int_equal(runs[N - 1].finish, fair ? FINISH_LENGTH : FINISH_ERROR);
        for (int i = 0; i + 1 < N; i++) {
            assert_int_equal(runs[i].finish, FINISH_LENGTH);
        }
        harness_close(&h);
    }
}

static void let_deadlines_pass(harness *h) {
    for (int32_t i = 0; i < h->e->sched.n_running + h->e->sched.n_waiting; i++) {
        sequence *s =
            i < h->e->sched.n_running ? running_at(h->e, i) : waiting_at(h->e, i - h->e->sched.n_running);
        s->task.deadline_us = s->task.deadline_us > 0 ? 1 : 0;
    }
}

/* The parent's first token is the request's: samples that find no place beside it may
 * begin later. */
static void check_samples(bool no_fork_sharing) {
    enum { N_SAMPLES = 4, N = 8, N_OUT = 40 };
    static harness_run runs[N_SAMPLES];
    void *users[N_SAMPLES];
    request_id ids[N_SAMPLES];
    quire_error err;
    harness_options o = harness_defaults;
    harness h = {0};
    o.path = "models/builtin-small.gguf";
    o.max_seqs = 2;
    o.ablations.no_fork_sharing = no_fork_sharing;
    harness_open(&o, &h);
    harness_take_over(&h);
    int32_t *tokens = mem_new(N, sizeof *tokens);
    random_prompt(&seed, h.n_vocab, N, tokens);
    for (int i = 0; i < N_SAMPLES; i++) {
        runs[i] = (harness_run){.prompt = tokens, .n_prompt = N};
        users[i] = &runs[i];
    }
    engine_request r = {.tokens = tokens,
                        .n_tokens = N,
                        .sampling = greedy(N_OUT),
                        .deadline_us = 3600 * SECOND,
                        .out = h.out};
    assert_int_equal(engine_submit_samples(h.e, &r, N_SAMPLES, users, ids, &err), QUIRE_OK);
    run_at_a_second_a_row(&h, N_OUT / 2);
    assert_int_equal(h.e->sched.n_running, 2);
    assert_int_equal(h.e->sched.n_waiting, 2);
    assert_true(runs[0].n_tokens > 0);
    let_deadlines_pass(&h);
    run_at_a_second_a_row(&h, INT32_MAX);
    for (int i = 0; i < N_SAMPLES; i++) {
        assert_int_equal(runs[i].finish, FINISH_LENGTH);
        assert_int_equal(runs[i].n_tokens, N_OUT);
    }
    harness_close(&h);
}

TEST(samples_that_begin_late_are_not_refused) {
    check_samples(false);
    check_samples(true);
}

/* A request was admitted in time, and its first sample is cancelled in mid-prefill: the
 * next one goes on, however late. */
TEST(samples_of_an_admitted_request_are_not_refused_when_another_computes_their_prompt) {
    enum { N_SAMPLES = 3, N = 100, N_OUT = 4 };
    static harness_run runs[N_SAMPLES];
    void *users[N_SAMPLES];
    request_id ids[N_SAMPLES];
    quire_error err;
    harness_options o = harness_defaults;
    harness h = {0};
    o.path = "models/builtin-small.gguf";
    o.max_rows = 32;
    harness_open(&o, &h);
    harness_take_over(&h);
    int32_t *tokens = mem_new(N, sizeof *tokens);
    random_prompt(&seed, h.n_vocab, N, tokens);
    for (int i = 0; i < N_SAMPLES; i++) {
        runs[i] = (harness_run){0};
        users[i] = &runs[i];
    }
    engine_request r = {.tokens = tokens,
                        .n_tokens = N,
                        .sampling = greedy(N_OUT),
                        .deadline_us = 3600 * SECOND,
                        .out = h.out};
    assert_int_equal(engine_submit_samples(h.e, &r, N_SAMPLES, users, ids, &err), QUIRE_OK);
    run_at_a_second_a_row(&h, 2);
    sequence *child = running_at(h.e, 0)->next_child;
    assert_non_null(child);
    for (; child != NULL; child = child->next_child) {
        child->task.deadline_us = 1; /* long ago */
    }
    engine_cancel(h.e, ids[0]);
    run_at_a_second_a_row(&h, INT32_MAX);
    assert_int_equal(runs[0].finish, FINISH_CANCELLED);
    for (int i = 1; i < N_SAMPLES; i++) {
        assert_int_equal(runs[i].finish, FINISH_LENGTH);
        assert_int_equal(runs[i].n_tokens, N_OUT);
    }
    harness_close(&h);
}

TEST_MAIN_SEEDED(NULL, NULL)
