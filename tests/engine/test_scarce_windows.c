/* Pools that hold no whole sequence, but what its windows see: requests longer than the
 * pool run, whoever waits for whom, and every bit is that of a pool with room. The engine
 * audits all pages after each step. */
#include <stdio.h>

#include "seed.h"
#include "window_world.h"

enum { N = 6, N_OUT = 50, LONGEST = 200, PAGE = 16 };

static int32_t prompts[N][LONGEST];

static int32_t length_of(int32_t i) {
    return i == 0 ? LONGEST : 30 + 31 * i;
}

/* All N requests at once; the first one's logits too. */
static void run_all(harness *h, harness_run *runs, float *logits) {
    for (int32_t i = 0; i < N; i++) {
        runs[i] = (harness_run){.prompt = prompts[i],
                                .n_prompt = length_of(i),
                                .sampling = greedy(N_OUT),
                                .namespace = i < 4 ? "flood" : "other",
                                .logits = i == 0 ? logits : NULL};
        harness_submit(h, &runs[i]);
    }
    harness_wait(h, N);
    for (int32_t i = 0; i < N; i++) {
        assert_int_equal(runs[i].finish, FINISH_LENGTH);
        assert_int_equal(runs[i].n_tokens, N_OUT);
    }
}

typedef struct way {
    admission_policy schedule;
    prefix_cache prefix_cache;
    preempt_mode preempt;
    int32_t swap_bytes, chunk;
} way;

static const way ways[] = {{ADMISSION_FCFS, PREFIX_CACHE_NONE, PREEMPT_RECOMPUTE, 0, 23},
                           {ADMISSION_FAIR, PREFIX_CACHE_TOKEN, PREEMPT_RECOMPUTE, 0, 7},
                           {ADMISSION_FCFS, PREFIX_CACHE_TOKEN, PREEMPT_SWAP, 1 << 22, 33},
                           {ADMISSION_FAIR, PREFIX_CACHE_NONE, PREEMPT_SWAP, 1 << 22, 20},
                           {ADMISSION_PREFIX, PREFIX_CACHE_PAGE, PREEMPT_AUTO, 1 << 20, 33}};

static harness_options options_of(const way *w) {
    harness_options o = harness_defaults;
    o.page_tokens = PAGE;
    o.starts_paused = true;
    o.schedule = w->schedule;
    o.prefix_cache = w->prefix_cache;
    o.preempt = w->preempt;
    o.swap_bytes = w->swap_bytes;
    o.chunk = w->chunk;
    return o;
}

/* A pool of exactly the most pages that the longest of them holds. */
static void run_scarce(layer_kind even, int32_t n_pages) {
    harness h;
    static harness_run roomy[N], scarce[N];
    int64_t preemptions = 0, swapped = 0;
    open_windowed(options_of(&ways[0]), even, LAYER_WINDOW, false, &h);
    size_t n = LONGEST * (size_t)h.n_vocab;
    float *expected = mem_new(n, sizeof *expected), *logits = mem_new(n, sizeof *logits);
    random_prompt(&seed, h.n_vocab, N * LONGEST, prompts[0]);
    memcpy(prompts[3], prompts[2], 80 * sizeof(int32_t));
    memcpy(prompts[5], prompts[0], 100 * sizeof(int32_t));
    run_all(&h, roomy, expected);
    harness_close(&h);
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        harness_options o = options_of(&ways[k]);
        o.n_pages = n_pages;
        open_windowed(o, even, LAYER_WINDOW, true, &h);
        assert_int_equal(kv_most_pages(&h.e->sched.limits.most, LONGEST + N_OUT), n_pages);
        run_all(&h, scarce, logits);
        quire_stats s = harness_idle_stats(&h);
        preemptions += s.preemptions;
        swapped += s.swapped_in;
        harness_close(&h);
        assert_memory_equal(logits, expected, n * sizeof *logits);
        for (int32_t i = 0; i < N; i++) {
            assert_memory_equal(scarce[i].tokens, roomy[i].tokens, N_OUT * sizeof(int32_t));
        }
    }
    assert_true(preemptions > 0 && swapped > 0);
    mem_free(expected);
    mem_free(logits);
}

/* 250 tokens take 16 pages. A window of 40 and the 33 rows that a step may verify touch
 * 6. */
TEST(requests_longer_than_the_pool_run_where_all_layers_have_windows) {
    run_scarce(LAYER_WINDOW, 6);
}

TEST(requests_that_fit_beside_their_windows_only_run) {
    run_scarce(LAYER_FULL, 16 + 6);
}

TEST_MAIN_SEEDED(NULL, NULL)
