#include <stdio.h>
#include <time.h>

#include "harness.h"
#include "seed.h"

static harness_options small_model; /* the sibling: what is tested here is not arithmetic */

static quire_stats stats_of(harness *h) {
    quire_stats s;
    engine_stats_read(h->e, &s);
    return s;
}

/* The numbers are published after the step that sent the last event, so they may trail it
 * by a moment. */
static void wait_until_idle(harness *h) {
    for (int i = 0; i < 60000; i++) {
        quire_stats s = stats_of(h);
        if (s.n_requests_running == 0 && s.n_requests_waiting == 0 &&
            s.n_pages_free + s.n_pages_cached == s.n_pages) {
            return;
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    fail_msg("%lld pages are still held", (long long)stats_of(h).n_pages_held);
}

TEST(requests_end_at_max_tokens_and_give_their_pages_back) {
    harness h = {0};
    int32_t prompt[20];
    harness_open(&small_model, &h);
    random_prompt(&seed, h.n_vocab, 20, prompt);
    harness_run r = {.prompt = prompt, .n_prompt = 20, .sampling = greedy(7)};
    harness_submit(&h, &r);
    harness_wait(&h, 1);
    assert_int_equal(r.finish, FINISH_LENGTH);
    assert_int_equal(r.n_tokens, 7);
    wait_until_idle(&h);
    harness_close(&h);
}

TEST(a_stop_token_ends_a_request_unless_it_comes_too_early) {
    harness h = {0};
    int32_t prompt[20];
    harness_open(&small_model, &h);
    random_prompt(&seed, h.n_vocab, 20, prompt);
    harness_run free_run = {.prompt = prompt, .n_prompt = 20, .sampling = greedy(12)};
    harness_submit(&h, &free_run);
    harness_wait(&h, 1);
    harness_run r = {.prompt = prompt, .n_prompt = 20, .sampling = greedy(12)};
    r.sampling.n_stop_tokens = 1;
    r.sampling.stop_tokens[0] = free_run.tokens[0];
    harness_submit(&h, &r);
    harness_wait(&h, 1);
    assert_int_equal(r.finish, FINISH_STOP);
    assert_int_equal(r.n_tokens, 1);
    r.sampling.min_tokens = 3;
    harness_submit(&h, &r);
    harness_wait(&h, 1);
    assert_true(r.n_tokens >= 4);
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(r.tokens[i], free_run.tokens[0]);
    }
    harness_close(&h);
}

TEST(what_can_never_fit_is_refused_at_once) {
    harness h = {0};
    harness_options o = small_model;
    int32_t prompt[64], bad[] = {1, 2048};
    o.n_pages = 4;
    harness_open(&o, &h);
    random_prompt(&seed, h.n_vocab, 64, prompt);
    harness_run big = {.prompt = prompt, .n_prompt = 64, .sampling = greedy(1)},
                fits = {.prompt = prompt, .n_prompt = 63, .sampling = greedy(9)};
    harness_run strange = {.prompt = bad, .n_prompt = 2, .sampling = greedy(1)};
    harness_submit(&h, &big);
    assert_int_equal(big.error, QUIRE_TOO_LARGE);
    harness_submit(&h, &strange);
    assert_int_equal(strange.error, QUIRE_BAD_REQUEST);
    strange = (harness_run){.prompt = prompt, .n_prompt = 2, .sampling = greedy(1)};
    strange.sampling.n_stop_tokens = 1;
    strange.sampling.stop_tokens[0] = h.n_vocab;
    harness_submit(&h, &strange);
    assert_int_equal(strange.error, QUIRE_BAD_REQUEST);
    harness_submit(&h, &fits);
    harness_wait(&h, 1);
    assert_int_equal(fits.finish, FINISH_LENGTH);
    assert_int_equal(fits.n_tokens, 1); /* the length limit cuts what was asked for */
    harness_close(&h);
}

TEST(more_requests_than_the_table_holds_are_refused_as_busy) {
    harness h = {0};
    int32_t prompt[4] = {1, 2, 3, 4}, n_busy = 0;
    static harness_run runs[300];
    harness_open(&small_model, &h);
    for (int i = 0; i < 300; i++) {
        runs[i] = (harness_run){.prompt = prompt, .n_prompt = 4, .sampling = greedy(60)};
        harness_submit(&h, &runs[i]);
        n_busy += runs[i].error == QUIRE_BUSY;
    }
    assert_true(n_busy > 0);
    harness_wait(&h, 300 - n_busy);
    for (int i = 0; i < 300; i++) {
        assert_true(runs[i].error == QUIRE_BUSY ||
                    (runs[i].finish == FINISH_LENGTH && runs[i].n_tokens == 60));
    }
    wait_until_idle(&h);
    harness_close(&h);
}

TEST(cancelled_requests_free_their_pages_and_leave_others_alone) {
    harness h = {0};
    int32_t prompt[30];
    static harness_run runs[12];
    harness_run alone = {.prompt = prompt, .n_prompt = 30, .sampling = greedy(60)};
    harness_open(&small_model, &h);
    random_prompt(&seed, h.n_vocab, 30, prompt);
    harness_submit(&h, &alone);
    harness_wait(&h, 1);
    harness_take_over(&h); /* none may end before it is cancelled */
    for (int i = 0; i < 12; i++) {
        runs[i] = (harness_run){.prompt = prompt, .n_prompt = 30, .sampling = greedy(i % 2 ? 60 : 1500)};
        harness_submit(&h, &runs[i]);
    }
    harness_steps(&h, 20);
    for (int i = 0; i < 12; i += 2) {
        engine_cancel(h.e, runs[i].id);
        engine_cancel(h.e, runs[i].id); /* twice is once */
    }
    harness_steps(&h, 10000);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(runs[i].finish, i % 2 ? FINISH_LENGTH : FINISH_CANCELLED);
        if (i % 2) {
            assert_memory_equal(runs[i].tokens, alone.tokens, 60 * sizeof(int32_t));
        }
    }
    engine_cancel(h.e, runs[0].id); /* an id of long ago */
    wait_until_idle(&h);
    harness_close(&h);
}

TEST(a_pool_far_too_small_for_all_finishes_all_with_the_same_tokens) {
    harness large = {0}, small = {0};
    harness_options o = small_model;
    static int32_t prompts[64][40];
    static harness_run a[64], b[64];
    harness_open(&o, &large);
    o.n_pages = 30; /* 64 requests of 70 tokens take 320 */
    o.starts_paused = true;
    harness_open(&o, &small);
    for (int i = 0; i < 64; i++) {
        random_prompt(&seed, large.n_vocab, 40, prompts[i]);
        a[i] = b[i] = (harness_run){.prompt = prompts[i], .n_prompt = 10 + i % 30, .sampling = greedy(30)};
        a[i].sampling.temperature = b[i].sampling.temperature = i % 2 ? 0.9f : 0.0f;
        a[i].sampling.seed = b[i].sampling.seed = (uint64_t)i;
        harness_submit(&large, &a[i]);
        harness_submit(&small, &b[i]);
    }
    harness_wait(&large, 64);
    harness_wait(&small, 64);
    assert_true(stats_of(&small).preemptions > 0);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(b[i].finish, FINISH_LENGTH);
        assert_memory_equal(a[i].tokens, b[i].tokens, 30 * sizeof(int32_t));
    }
    wait_until_idle(&small);
    harness_close(&large);
    harness_close(&small);
}

TEST(a_reader_that_comes_late_misses_nothing) {
#ifdef __SANITIZE_THREAD__ /* many times as slow */
    enum { N_OUT = 25 };
#else
    enum { N_OUT = 100 };
#endif
    harness h = {0};
    int32_t prompt[4] = {5, 6, 7, 8};
    static harness_run runs[32];
    harness_open(&small_model, &h);
    for (int i = 0; i < 32; i++) {
        runs[i] = (harness_run){.prompt = prompt, .n_prompt = 4, .sampling = greedy(N_OUT)};
        harness_submit(&h, &runs[i]);
    }
    while (stats_of(&h).generation_tokens < 32 * N_OUT) {
        nanosleep(&(struct timespec){0, 1000000}, NULL); /* nobody reads an event yet */
    }
    wait_until_idle(&h);
    harness_wait(&h, 32);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(runs[i].n_tokens, N_OUT);
        assert_memory_equal(runs[i].tokens, runs[0].tokens, N_OUT * sizeof(int32_t));
    }
    harness_close(&h);
}

int main(void) {
    draw_seed();
    small_model = harness_defaults;
    small_model.path = "models/builtin-small.gguf";
    return tests_run(NULL, NULL);
}
