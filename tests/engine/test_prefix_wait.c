/* Requests that wait for a page that another computes: what is computed, that it ends,
 * and that no token changes. */
#include <stdio.h>
#include <time.h>

#include "harness.h"
#include "seed.h"

#if defined(__SANITIZE_THREAD__) /* many times as slow */
#define SMALL    TINY
#define N_SHARED 1024
#define N_PLAYED 20
#else
#define SMALL    "models/builtin-small.gguf"
#define N_SHARED 4096
#define N_PLAYED 40
#endif
#define N_ALL    32
#define MAX_TAIL (N_ALL + 8)

static harness_options small_model;

/* 32 requests that share N_SHARED tokens and have 1..32 of their own, at once. */
TEST(a_shared_prefix_of_requests_that_arrive_together_is_computed_once) {
    harness h = {0};
    harness_options o = small_model;
    o.n_pages = 4000;
    o.max_model_len = 4200;
    o.max_rows = 512;
    o.max_seqs = N_ALL;
    o.chunk = 64; /* so that eight of them are in a step */
    static int32_t prompts[N_ALL][N_SHARED + MAX_TAIL];
    static harness_run runs[N_ALL], alone;
    int64_t tails = 0;
    harness_open(&o, &h);
    random_prompt(&seed, h.n_vocab, N_SHARED, prompts[0]);
    for (int i = 0; i < N_ALL; i++) {
        memcpy(prompts[i], prompts[0], N_SHARED * sizeof(int32_t));
        random_prompt(&seed, h.n_vocab, MAX_TAIL, prompts[i] + N_SHARED);
        prompts[i][N_SHARED] = 100 + i; /* no two tails begin alike */
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = N_SHARED + 1 + i, .sampling = greedy(3)};
        tails += 1 + i;
    }
    for (int i = 0; i < N_ALL; i++) {
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, N_ALL);
    quire_stats s = harness_idle_stats(&h);
    assert_int_equal(s.step_rows, N_SHARED + tails + N_ALL * 2); /* and the second and third token of each */
    for (int i = 0; i < N_ALL; i++) {
        assert_int_equal(runs[i].n_cached, i == 0 ? 0 : N_SHARED);
    }
    harness_close(&h);
    o.prefix_cache = PREFIX_CACHE_NONE;
    h = (harness){0};
    harness_open(&o, &h);
    alone = (harness_run){.prompt = prompts[17], .n_prompt = N_SHARED + 18, .sampling = greedy(3)};
    harness_submit(&h, &alone);
    harness_wait(&h, 1);
    assert_memory_equal(alone.tokens, runs[17].tokens, 3 * sizeof(int32_t));
    harness_close(&h);
}

/* 16 requests of 64 pages each, 60 of them shared: a pool of 126 pages has room for all
 * of them at once. */
TEST(shared_pages_are_room_for_more_requests_at_once) {
    enum { N = 16, SHARED = 960, PROMPT = 1000 };
    harness h = {0};
    harness_options o = small_model;
    static int32_t prompts[N][PROMPT];
    static harness_run runs[N];
    o.n_pages = 126; /* 60 + 16 x 4, and two */
    o.max_seqs = N;
    harness_open(&o, &h);
    random_prompt(&seed, h.n_vocab, SHARED, prompts[0]);
    harness_hold(&h);
    for (int i = 0; i < N; i++) {
        memcpy(prompts[i], prompts[0], SHARED * sizeof(int32_t));
        random_prompt(&seed, h.n_vocab, PROMPT - SHARED, prompts[i] + SHARED);
        prompts[i][SHARED] = 100 + i;
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = PROMPT, .sampling = greedy(20)};
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, N);
    quire_stats s = harness_idle_stats(&h);
    assert_int_equal(s.preemptions, 0);
    assert_int_equal(s.step_rows, SHARED + N * (PROMPT - SHARED) + N * 19);
    /* 32 if all are there from the start; after one another they take 13 + 16 x 20 */
    assert_true(s.steps < 160);
    harness_close(&h);
}

/* Samples of one prompt, as n > 1 makes them: the prompt is computed once, but for its
 * part-filled last page. */
TEST(samples_of_one_prompt_share_its_pages) {
    enum { N = 8, PROMPT = 100 };
    harness h = {0};
    int32_t prompt[PROMPT];
    static harness_run runs[N];
    harness_open(&small_model, &h);
    random_prompt(&seed, h.n_vocab, PROMPT, prompt);
    for (int i = 0; i < N; i++) {
        runs[i] = (harness_run){.prompt = prompt, .n_prompt = PROMPT, .sampling = greedy(2)};
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, N);
    /* a sample that comes when another has ended finds all but the last token */
    int64_t rows = harness_idle_stats(&h).step_rows - N;
    assert_in_range(rows, PROMPT + (N - 1), PROMPT + (N - 1) * (PROMPT % 16));
    for (int i = 1; i < N; i++) {
        assert_memory_equal(runs[i].tokens, runs[0].tokens, 2 * sizeof(int32_t));
    }
    harness_close(&h);
}

/* One's public prefix is the beginning of the other's. What the other tenant computes
 * after it may be what the longer prefix says, and is its own nevertheless: nobody waits
 * for it. */
TEST(a_tenant_waits_for_public_pages_and_for_nothing_behind_them) {
    enum { SHORT = 32, LONG = 64 };
    int32_t p[LONG + 1], q[LONG];
    harness_options o = small_model;
    o.chunk = 16;
    o.starts_paused = true;
    random_prompt(&seed, 2048, LONG + 1, p);
    memcpy(q, p, sizeof q);
    q[48] = (p[48] + 1) % 2048; /* one page more than the shorter prefix */
    engine_prefix prefixes[] = {{p, SHORT}, {p, LONG}};
    o.prefixes = prefixes;
    o.n_prefixes = 2;
    harness h = {0};
    harness_open(&o, &h);
    harness_run one = {.prompt = q, .n_prompt = 49, .sampling = greedy(1), .namespace = "one"};
    harness_run two = {.prompt = p, .n_prompt = LONG + 1, .sampling = greedy(1), .namespace = "two"};
    harness_submit(&h, &one);
    harness_submit(&h, &two);
    engine_release(h.e);
    harness_wait(&h, 2);
    quire_stats s = harness_idle_stats(&h);
    assert_int_equal(two.n_cached, SHORT);
    assert_int_equal(s.step_rows, 49 + LONG + 1 - SHORT);
    /* two for the public pages, then three for what is left of the other's 65 tokens */
    assert_int_equal(s.steps, 5);
    harness_close(&h);
}

/* The one that others wait for is cancelled half-way: they go on from what it left. */
TEST(the_end_of_the_one_waited_for_frees_the_others) {
    enum { N = 6, PROMPT = 1500 };
    harness h = {0};
    harness_options o = small_model;
    o.max_rows = 16;
    int32_t prompt[PROMPT];
    static harness_run runs[N];
    harness_open(&o, &h);
    harness_take_over(&h);
    random_prompt(&seed, h.n_vocab, PROMPT, prompt);
    for (int i = 0; i < N; i++) {
        runs[i] = (harness_run){.prompt = prompt, .n_prompt = PROMPT, .sampling = greedy(1)};
        harness_submit(&h, &runs[i]);
    }
    quire_stats s;
    assert_int_equal(harness_steps(&h, 5), 5);
    engine_stats_read(h.e, &s);
    assert_int_equal(s.n_requests_deferred, N - 1);
    assert_int_equal(s.n_requests_waiting, N - 1); /* for its pages, not for a place */
    engine_cancel(h.e, runs[0].id);
    harness_steps(&h, 1000);
    s = harness_idle_stats(&h);
    assert_int_equal(s.n_requests_deferred, 0);
    assert_int_equal(runs[0].finish, FINISH_CANCELLED);
    for (int i = 1; i < N; i++) {
        assert_int_equal(runs[i].finish, FINISH_LENGTH);
        assert_memory_equal(runs[i].tokens, runs[1].tokens, sizeof(int32_t));
    }
    /* what was cancelled is taken up where it ended, within a page; the others compute
     * what is after the last whole page */
    assert_in_range(s.step_rows, PROMPT, PROMPT + 16 + (N - 2) * (PROMPT % 16));
    harness_close(&h);
}

/* Requests of a few families, some cancelled, in pools too small for them. */
typedef struct family_plan {
    int32_t prompts[5][300];
    harness_run cold[N_PLAYED], warm[N_PLAYED];
    int32_t n;
} family_plan;

static void play(harness *h, harness_run *runs, int32_t n, bool cancels) {
    for (int32_t i = 0; i < n; i++) {
        harness_submit(h, &runs[i]);
        if (rng_next(&seed) % 4 == 0) {
            nanosleep(&(struct timespec){0, (long)(rng_next(&seed) % 2000000)}, NULL);
        }
        if (cancels && rng_next(&seed) % 8 == 0) {
            engine_cancel(h->e, runs[rng_next(&seed) % (uint64_t)(i + 1)].id);
        }
    }
    harness_wait(h, n);
}

TEST(random_families_end_with_the_tokens_of_a_cold_run) {
    static family_plan f;
    static int32_t prompts[N_PLAYED][300];
    int rounds = getenv("QUIRE_TEST_LONG") ? 300 : 25;
    int64_t n_hits = 0, n_preempted = 0;
    for (int round = 0; round < rounds; round++) {
        harness_options o = small_model;
        harness cold = {0}, warm = {0};
        o.prefix_cache = PREFIX_CACHE_NONE;
        harness_open(&o, &cold);
        o.prefix_cache = PREFIX_CACHE_TOKEN;
        o.page_tokens = 1 << (rng_next(&seed) % 6);
        o.n_pages = 420 / o.page_tokens + 4 + (int32_t)(rng_next(&seed) % 40);
        o.max_rows = 1 + (int32_t)(rng_next(&seed) % 100);
        o.max_seqs = 1 + (int32_t)(rng_next(&seed) % 16);
        o.chunk = (int32_t)(rng_next(&seed) % 3) * 7;
        harness_open(&o, &warm);
        f.n = N_PLAYED;
        for (int i = 0; i < 5; i++) {
            random_prompt(&seed, cold.n_vocab, 300, f.prompts[i]);
        }
        for (int32_t i = 0; i < f.n; i++) {
            int32_t n = 1 + (int32_t)(rng_next(&seed) % 300), own = (int32_t)(rng_next(&seed) % (uint64_t)n);
            memcpy(prompts[i], f.prompts[rng_next(&seed) % 5], sizeof prompts[i]);
            random_prompt(&seed, cold.n_vocab, own % 40, prompts[i] + n - own % 40);
            f.cold[i] = f.warm[i] =
                (harness_run){.prompt = prompts[i], .n_prompt = n, .sampling = greedy(1 + i % 20)};
            f.warm[i].namespace = i % 11 == 0 ? "other" : NULL;
        }
        play(&cold, f.cold, f.n, false);
        play(&warm, f.warm, f.n, round % 2);
        for (int32_t i = 0; i < f.n; i++) {
            assert_true(f.warm[i].finish == FINISH_LENGTH ||
                        (round % 2 && f.warm[i].finish == FINISH_CANCELLED));
            int32_t n = f.warm[i].n_tokens;
            assert_true(n <= f.cold[i].n_tokens);
            assert_memory_equal(f.warm[i].tokens, f.cold[i].tokens, (size_t)n * sizeof(int32_t));
        }
        quire_stats s = harness_idle_stats(&warm);
        n_hits += s.prefix_hits;
        n_preempted += s.preemptions;
        harness_close(&cold);
        harness_close(&warm);
    }
    printf("%lld tokens reused, %lld preemptions\n", (long long)n_hits, (long long)n_preempted);
    assert_true(n_hits > 0 && n_preempted > 0);
}

int main(void) {
    draw_seed();
    small_model = harness_defaults;
    small_model.path = SMALL;
    return tests_run(NULL, NULL);
}
