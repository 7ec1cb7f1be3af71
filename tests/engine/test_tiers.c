/* Tiers behind the engine: what left the pool comes back, changes no bit of the logits, and what does not come is computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "harness.h"

enum { N_PROMPT = 150, N_STRANGERS = 6, FROM = N_PROMPT - 5 };

static uint64_t seed;
static int32_t prompt[N_PROMPT], strangers[N_STRANGERS][N_PROMPT];

/* A pool that one prompt and a stranger fill. */
static harness_options tiny_pool(compute_mode compute, dtype kv, int32_t page_tokens) {
    harness_options o = harness_defaults;
    o.compute = compute;
    o.kv = kv;
    o.page_tokens = page_tokens;
    o.n_pages = 400 / page_tokens;
    o.tiers = (engine_tiers){.version = "test", .wait_us = 10000000};
    return o;
}

static engine_stats idle_stats(harness *h) {
    engine_stats s;
    do {
        engine_stats_read(h->e, &s);
    } while (s.n_running + s.n_waiting > 0 || s.n_pages_held > 0);
    return s;
}

static void run(harness *h, harness_run *r) {
    harness_submit(h, r);
    harness_wait(h, 1);
    assert_int_equal(r->finish, FINISH_LENGTH);
}

static void run_strangers(harness *h) {
    static harness_run r;
    for (int32_t i = 0; i < N_STRANGERS; i++) {
        r = (harness_run){.prompt = strangers[i], .n_prompt = N_PROMPT, .sampling = greedy(3)};
        run(h, &r);
    }
}

/* Logits and tokens of a run without any cache. */
static void run_cold(harness_options o, harness_run *r, float *logits) {
    harness h = {0};
    o.prefix_cache = PREFIX_CACHE_NONE;
    o.tiers = (engine_tiers){0};
    harness_open(&o, &h);
    *r = (harness_run){.prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(24), .logits = logits, .logits_first = FROM};
    run(&h, r);
    harness_close(&h);
}

static size_t logits_bytes(void) {
    return (size_t)N_PROMPT * 2048 * sizeof(float);
}

static void same_as(const harness_run *cold, const harness_run *warm) {
    const size_t width = 2048;
    assert_memory_equal(warm->logits + FROM * width, cold->logits + FROM * width, (N_PROMPT - FROM) * width * sizeof(float));
    assert_memory_equal(warm->tokens, cold->tokens, 24 * sizeof(int32_t));
}

static void there_and_back(compute_mode compute, dtype kv, int32_t page_tokens) {
    static harness_run cold, warm;
    harness_options o = tiny_pool(compute, kv, page_tokens);
    float *expected = mem_new(1, logits_bytes()), *got = mem_new(1, logits_bytes());
    run_cold(o, &cold, expected);
    o.tiers.host_bytes = 256 << 20;
    harness h = {0};
    harness_open(&o, &h);
    assert_int_equal(h.n_vocab, 2048);
    for (int round = 0; round < 3; round++) {
        engine_stats before = idle_stats(&h);
        warm = (harness_run){.prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(24), .logits = got, .logits_first = FROM};
        memset(got, 0, logits_bytes());
        run(&h, &warm);
        same_as(&cold, &warm);
        engine_stats after = idle_stats(&h);
        int32_t whole = FROM / page_tokens * page_tokens;
        assert_int_equal(after.promoted_tokens - before.promoted_tokens, round == 0 ? 0 : whole);
        assert_true(after.prompt_tokens_reused - before.prompt_tokens_reused >= (round == 0 ? 0 : whole));
        run_strangers(&h);
    }
    engine_stats s = idle_stats(&h);
    assert_true(s.tiers[KV_TIER_HOST].hits >= 2 * (FROM / page_tokens));
    assert_int_equal(s.tiers[KV_TIER_HOST].errors, 0);
    assert_int_equal(s.tiers[KV_TIER_HOST].dropped, 0);
    harness_close(&h);
    mem_free(expected);
    mem_free(got);
}

static void pages_come_back_from_host_memory_bit_for_bit(void **state) {
    (void)state;
    there_and_back(COMPUTE_F32, DTYPE_F32, 16);
    there_and_back(COMPUTE_BF16, DTYPE_BF16, 4);
    there_and_back(COMPUTE_INT8, DTYPE_F16, 16);
    there_and_back(COMPUTE_INT8, DTYPE_BF16, 1);
}

/* A host tier that holds far less than is evicted: what is left of the prompt is computed, and the answer is the same. */
static void a_tier_that_is_too_small_costs_nothing_but_reuse(void **state) {
    (void)state;
    static harness_run cold, warm;
    harness_options o = tiny_pool(COMPUTE_F32, DTYPE_F32, 16);
    float *expected = mem_new(1, logits_bytes()), *got = mem_new(1, logits_bytes());
    run_cold(o, &cold, expected);
    for (int64_t n_pages = 1; n_pages < 80; n_pages = n_pages * 2 + 1) {
        harness h = {0};
        harness_open(&o, &h);
        o.tiers.host_bytes = n_pages * (h.layout.page_bytes + 1024);
        harness_close(&h);
        h = (harness){0};
        harness_open(&o, &h);
        for (int round = 0; round < 2; round++) {
            warm = (harness_run){.prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(24), .logits = got, .logits_first = FROM};
            run(&h, &warm);
            same_as(&cold, &warm);
            run_strangers(&h);
        }
        engine_stats s = idle_stats(&h);
        assert_true(s.tiers[KV_TIER_HOST].bytes <= o.tiers.host_bytes);
        harness_close(&h);
    }
    mem_free(expected);
    mem_free(got);
}

int main(void) {
    seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    random_prompt(&seed, 2048, N_PROMPT, prompt);
    for (int i = 0; i < N_STRANGERS; i++) {
        random_prompt(&seed, 2048, N_PROMPT, strangers[i]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_come_back_from_host_memory_bit_for_bit),
        cmocka_unit_test(a_tier_that_is_too_small_costs_nothing_but_reuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
