/* Layers with a sliding window through the whole engine: pages behind the window are
 * given back while a sequence runs, and nothing that is computed changes. */
#include <stdio.h>

#include "seed.h"
#include "window_world.h"

enum { N_TOKENS = 110, N_PROMPT = 19 };

static void run_two(harness *h, harness_run runs[2], int32_t prompts[2][N_PROMPT]) {
    for (int i = 0; i < 2; i++) {
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = N_PROMPT, .sampling = greedy(N_TOKENS)};
        harness_submit(h, &runs[i]);
    }
    harness_wait(h, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(runs[i].finish, FINISH_LENGTH);
        assert_int_equal(runs[i].n_tokens, N_TOKENS);
    }
}

/* Two sequences of 129 tokens take 9 pages of 16 each; a window of 40 sees 4 of them at
 * most. */
TEST(pages_behind_the_window_serve_others_while_a_sequence_runs) {
    static const prefix_cache caches[] = {PREFIX_CACHE_NONE, PREFIX_CACHE_TOKEN};
    for (int i = 0; i < 2; i++) {
        harness large, small, keeps;
        static harness_run a[2], b[2], c[2];
        int32_t prompts[2][N_PROMPT];
        harness_options o = harness_defaults;
        o.prefix_cache = caches[i];
        o.starts_paused = true;
        open_windowed(o, LAYER_WINDOW, LAYER_WINDOW, true, &large);
        random_prompt(&seed, large.n_vocab, 2 * N_PROMPT, prompts[0]);
        run_two(&large, a, prompts);
        harness_close(&large);

        o.n_pages = 9;
        quire_stats s;
        open_windowed(o, LAYER_WINDOW, LAYER_WINDOW, true, &small);
        run_two(&small, b, prompts);
        engine_stats_read(small.e, &s);
        assert_int_equal(s.preemptions, 0);
        harness_close(&small);

        /* the same masks over pages that are kept: too few */
        open_windowed(o, LAYER_WINDOW, LAYER_WINDOW, false, &keeps);
        run_two(&keeps, c, prompts);
        engine_stats_read(keeps.e, &s);
        assert_true(s.preemptions > 0);
        harness_close(&keeps);
        for (int k = 0; k < 2; k++) {
            assert_memory_equal(a[k].tokens, b[k].tokens, sizeof *a->tokens * N_TOKENS);
            assert_memory_equal(a[k].tokens, c[k].tokens, sizeof *a->tokens * N_TOKENS);
        }
    }
}

/* Full and window layers in groups of their own: logits are those of a run that keeps
 * every page, cold and warm, at every page size. */
TEST(freed_pages_change_no_bit_of_the_logits) {
    harness h;
    static harness_run cold, again;
    static int32_t prompt[120];
    harness_options o = harness_defaults;
    open_windowed(o, LAYER_WINDOW, LAYER_FULL, false, &h);
    int32_t n_vocab = h.n_vocab;
    size_t bytes = 120 * (size_t)n_vocab * sizeof(float);
    float *expected = mem_new(120 * (size_t)n_vocab, sizeof *expected),
          *logits = mem_new(120 * (size_t)n_vocab, sizeof *logits);
    random_prompt(&seed, n_vocab, 120, prompt);
    cold = (harness_run){.prompt = prompt, .n_prompt = 120, .sampling = greedy(40), .logits = expected};
    harness_submit(&h, &cold);
    harness_wait(&h, 1);
    harness_close(&h);
    static const int32_t sizes[] = {1, 8, 16, 64};
    for (int i = 0; i < 4; i++) {
        o.page_tokens = sizes[i];
        o.chunk = 23;
        o.n_pages = 4096 / sizes[i];
        open_windowed(o, LAYER_WINDOW, LAYER_FULL, true, &h);
        assert_int_equal(h.layout.n_groups, 2);
        /* the second reuses the first's pages, but for those whose logits are wanted */
        for (int run = 0; run < 2; run++) {
            memcpy(logits, expected, bytes);
            again = (harness_run){.prompt = prompt,
                                  .n_prompt = 120,
                                  .sampling = greedy(40),
                                  .logits = logits,
                                  .logits_first = run == 0 ? 0 : 100};
            memset(logits + (size_t)again.logits_first * (size_t)n_vocab, 0,
                   bytes - (size_t)again.logits_first * (size_t)n_vocab * sizeof *logits);
            harness_submit(&h, &again);
            harness_wait(&h, 1);
            assert_memory_equal(again.tokens, cold.tokens, 40 * sizeof(int32_t));
            assert_memory_equal(logits, expected, bytes);
        }
        harness_close(&h);
    }
    mem_free(expected);
    mem_free(logits);
}

/* Both groups' pages leave the pool and come back, from host memory and from swap
 * space. */
TEST(pages_of_groups_come_back_from_tiers_and_swap_space) {
    harness h;
    static harness_run cold[4], warm[4];
    static int32_t prompts[4][70];
    harness_options o = harness_defaults;
    o.page_tokens = 8;
    random_prompt(&seed, 2000, 4 * 70, prompts[0]);
    for (int pass = 0; pass < 2; pass++) {
        harness_run *runs = pass == 0 ? cold : warm;
        o.n_pages = pass == 0 ? 1024 : 44;
        o.tiers =
            (engine_tiers){.version = "test", .wait_us = 10000000, .host_bytes = pass == 0 ? 0 : 64 << 20};
        o.swap_bytes = pass == 0 ? 0 : 64 << 20;
        o.preempt = PREEMPT_SWAP;
        open_windowed(o, LAYER_WINDOW, LAYER_FULL, true, &h);
        harness_hold(&h);
        for (int i = 0; i < 4; i++) {
            runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = 70, .sampling = greedy(100)};
            harness_submit(&h, &runs[i]);
        }
        harness_wait(&h, 4);
        for (int i = 0; pass == 1 && i < 4; i++) { /* one by one, after the others' pages */
            assert_memory_equal(warm[i].tokens, cold[i].tokens, 100 * sizeof(int32_t));
            harness_submit(&h, &warm[i]);
            harness_wait(&h, 1);
            assert_memory_equal(warm[i].tokens, cold[i].tokens, 100 * sizeof(int32_t));
        }
        quire_stats s;
        engine_stats_read(h.e, &s);
        if (pass == 1) {
            assert_true(s.swapped_in > 0 && s.promoted_tokens >= 3 * 64);
            assert_int_equal(s.tiers[KV_TIER_HOST].errors, 0);
        }
        harness_close(&h);
    }
}

/* Without a full group the index has more entries than the pool has pages: those whose
 * pages lie behind a window stay while their sequence runs. */
TEST(a_model_of_windows_alone_finds_its_pages_in_a_tier_again) {
    enum { N = 3 };
    harness h;
    static harness_run cold[N], warm[N];
    static int32_t prompts[N][100];
    harness_options o = harness_defaults;
    o.page_tokens = 4;
    random_prompt(&seed, 2000, N * 100, prompts[0]);
    for (int pass = 0; pass < 2; pass++) {
        harness_run *runs = pass == 0 ? cold : warm;
        o.n_pages = pass == 0 ? 1024 : 64; /* each takes up to 26, of 62 entries */
        o.tiers = (engine_tiers){.version = "test",
                                 .wait_us = 10000000,
                                 .host_bytes = pass == 0 ? 0 : 64 << 20,
                                 .write = TIER_WRITE_THROUGH};
        open_windowed(o, LAYER_WINDOW, LAYER_WINDOW, true, &h);
        for (int i = 0; i < N; i++) {
            runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = 100, .sampling = greedy(150)};
            harness_submit(&h, &runs[i]);
        }
        harness_wait(&h, N);
        for (int i = 0; pass == 1 && i < N; i++) {
            assert_memory_equal(warm[i].tokens, cold[i].tokens, 150 * sizeof(int32_t));
            harness_submit(&h, &warm[i]);
            harness_wait(&h, 1);
            assert_memory_equal(warm[i].tokens, cold[i].tokens, 150 * sizeof(int32_t));
        }
        quire_stats s = harness_idle_stats(&h);
        assert_true(pass == 0 || s.promoted_tokens > 0);
        harness_close(&h);
    }
}

/* Preempted sequences come back with the pages their windows see. What lay behind is
 * gone, and must not be found as if it were there. */
TEST(a_swapped_sequence_leaves_nothing_behind_its_window) {
    enum { N = 6 };
    harness h;
    static harness_run runs[N], again;
    static int32_t prompts[N][256];
    harness_options o = harness_defaults;
    o.n_pages = 60; /* each takes 12 pages in the full group and up to 4 in the other */
    o.swap_bytes = 1 << 24;
    o.preempt = PREEMPT_SWAP;
    o.starts_paused = true;
    open_windowed(o, LAYER_WINDOW, LAYER_FULL, true, &h);
    for (int i = 0; i < N; i++) {
        random_prompt(&seed, h.n_vocab, 60, prompts[i]);
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = 60, .sampling = greedy(120)};
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, N);
    quire_stats s;
    engine_stats_read(h.e, &s);
    assert_true(s.swapped_in > 0);
    /* the last to end first: most of it is cached still. From any prefix the text goes on
     * as it did */
    for (int i = N - 1; i >= 0; i--) {
        for (int n = 15; n < 115; n += 10) {
            memcpy(prompts[i] + 60, runs[i].tokens, (size_t)n * sizeof(int32_t));
            again = (harness_run){.prompt = prompts[i], .n_prompt = 60 + n, .sampling = greedy(5)};
            harness_submit(&h, &again);
            harness_wait(&h, 1);
            assert_memory_equal(again.tokens, runs[i].tokens + n, 5 * sizeof(int32_t));
        }
    }
    harness_close(&h);
}

TEST_MAIN_SEEDED(NULL, NULL)
