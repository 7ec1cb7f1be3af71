/* A pool far too small for what is asked of it: everything ends, with the tokens of a
 * pool that is large enough. */
#include <stdio.h>

#include "harness.h"
#include "seed.h"

enum { N_REQUESTS = 64, MAX_PROMPT = 80, MAX_OUT = 200 };

static int32_t prompts[N_REQUESTS][MAX_PROMPT];
static harness_run runs[2][N_REQUESTS];

static void make_requests(const harness *h) {
    for (int i = 0; i < N_REQUESTS; i++) {
        int32_t n = 1 + (int32_t)(rng_next(&seed) % MAX_PROMPT);
        random_prompt(&seed, h->n_vocab, n, prompts[i]);
        runs[0][i] = (harness_run){.prompt = prompts[i],
                                   .n_prompt = n,
                                   .sampling = greedy(1 + (int32_t)(rng_next(&seed) % MAX_OUT)),
                                   .priority = i % 3};
        runs[0][i].sampling.temperature = i % 2 ? 1.0f : 0.0f;
        runs[0][i].sampling.seed = (uint64_t)i;
        runs[1][i] = runs[0][i];
    }
}

static quire_stats run_all(const harness_options *o, harness_run *all) {
    harness h = {0};
    quire_stats s;
    harness_open(o, &h);
    for (int i = 0; i < N_REQUESTS; i++) {
        harness_submit(&h, &all[i]);
    }
    harness_wait(&h, N_REQUESTS);
    do {
        engine_stats_read(h.e, &s);
    } while (s.n_requests_running > 0);
    harness_close(&h);
    return s;
}

TEST(sixty_four_requests_end_alike_in_a_pool_of_a_third) {
    static const struct {
        admission_policy schedule;
        prefix_cache cache;
        int64_t swap_bytes, target_us;
    } cases[] = {{ADMISSION_FCFS, PREFIX_CACHE_TOKEN, 0, 0},
                 {ADMISSION_PRIORITY, PREFIX_CACHE_NONE, 0, 1000},
                 {ADMISSION_FAIR, PREFIX_CACHE_TOKEN, 1 << 22, 500},
                 {ADMISSION_PREFIX, PREFIX_CACHE_PAGE, 0, 100000}};
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    o.max_seqs = N_REQUESTS;
    o.starts_paused = true;
    harness h = {0};
    harness_open(&o, &h);
    make_requests(&h);
    harness_close(&h);
    int32_t demand = 0;
    for (int i = 0; i < N_REQUESTS; i++) {
        demand += (runs[0][i].n_prompt + runs[0][i].sampling.max_tokens + 15) / 16;
    }
    o.n_pages = demand + 64;
    quire_stats roomy = run_all(&o, runs[0]);
    assert_int_equal(roomy.preemptions, 0);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        o.n_pages = demand * 3 / 10;
        o.schedule = cases[c].schedule;
        o.prefix_cache = cases[c].cache;
        o.swap_bytes = cases[c].swap_bytes;
        o.step_target_us = cases[c].target_us;
        quire_stats s = run_all(&o, runs[1]);
        printf("%d pages for %d: %lld preemptions\n", (int)o.n_pages, (int)demand, (long long)s.preemptions);
        assert_in_range(s.preemptions, 1, N_REQUESTS * 8);
        for (int i = 0; i < N_REQUESTS; i++) {
            assert_int_equal(runs[1][i].finish, FINISH_LENGTH);
            assert_int_equal(runs[1][i].n_tokens, runs[0][i].n_tokens);
            assert_memory_equal(runs[1][i].tokens, runs[0][i].tokens,
                                (size_t)runs[0][i].n_tokens * sizeof(int32_t));
        }
    }
}

TEST_MAIN_SEEDED(NULL, NULL)
