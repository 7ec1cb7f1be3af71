/* Tiers behind the engine: what left the pool comes back, changes no bit of the logits,
 * and what does not come is computed. */
#include <stdio.h>

#include <unistd.h>

#include "harness.h"
#include "seed.h"

enum { N_PROMPT = 150, N_STRANGERS = 6, FROM = N_PROMPT - 5 };

static int32_t prompt[N_PROMPT], strangers[N_STRANGERS][N_PROMPT];

/* The small one: what is tested here is where pages go. */
static harness_options small_model(void) {
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    return o;
}

/* A pool that one prompt and a stranger fill. */
static harness_options tiny_pool(compute_mode compute, dtype kv, int32_t page_tokens) {
    harness_options o = small_model();
    o.compute = compute;
    o.kv = kv;
    o.page_tokens = page_tokens;
    o.n_pages = 400 / page_tokens;
    o.tiers = (engine_tiers){.version = "test", .wait_us = 10000000};
    return o;
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
    *r = (harness_run){.prompt = prompt,
                       .n_prompt = N_PROMPT,
                       .sampling = greedy(24),
                       .logits = logits,
                       .logits_first = FROM};
    run(&h, r);
    harness_close(&h);
}

static size_t logits_bytes(void) {
    return (size_t)N_PROMPT * 2048 * sizeof(float);
}

static void same_as(const harness_run *cold, const harness_run *warm) {
    const size_t width = 2048;
    assert_memory_equal(warm->logits + FROM * width, cold->logits + FROM * width,
                        (N_PROMPT - FROM) * width * sizeof(float));
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
        quire_stats before = harness_idle_stats(&h);
        warm = (harness_run){.prompt = prompt,
                             .n_prompt = N_PROMPT,
                             .sampling = greedy(24),
                             .logits = got,
                             .logits_first = FROM};
        memset(got, 0, logits_bytes());
        run(&h, &warm);
        same_as(&cold, &warm);
        quire_stats after = harness_idle_stats(&h);
        int32_t whole = FROM / page_tokens * page_tokens;
        assert_int_equal(after.promoted_tokens - before.promoted_tokens, round == 0 ? 0 : whole);
        assert_true(after.prefix_hits - before.prefix_hits >= (round == 0 ? 0 : whole));
        run_strangers(&h);
    }
    quire_stats s = harness_idle_stats(&h);
    assert_true(s.tiers[KV_TIER_HOST].hits >= 2 * (FROM / page_tokens));
    assert_int_equal(s.tiers[KV_TIER_HOST].errors, 0);
    assert_int_equal(s.tiers[KV_TIER_HOST].dropped, 0);
    harness_close(&h);
    mem_free(expected);
    mem_free(got);
}

TEST(pages_come_back_from_host_memory_bit_for_bit) {
    there_and_back(COMPUTE_F32, DTYPE_F32, 16);
    there_and_back(COMPUTE_BF16, DTYPE_BF16, 4);
    there_and_back(COMPUTE_INT8, DTYPE_F16, 16);
    there_and_back(COMPUTE_INT8, DTYPE_BF16, 1);
    there_and_back(COMPUTE_INT8, DTYPE_I8, 16);
    there_and_back(COMPUTE_F32, DTYPE_F8_E4M3, 4);
    there_and_back(COMPUTE_INT8, DTYPE_I4, 16);
}

/* A host tier that holds far less than is evicted: what is left of the prompt is
 * computed, and the response is the same. */
TEST(a_tier_that_is_too_small_costs_nothing_but_reuse) {
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
            warm = (harness_run){.prompt = prompt,
                                 .n_prompt = N_PROMPT,
                                 .sampling = greedy(24),
                                 .logits = got,
                                 .logits_first = FROM};
            run(&h, &warm);
            same_as(&cold, &warm);
            run_strangers(&h);
        }
        quire_stats s = harness_idle_stats(&h);
        assert_true(s.tiers[KV_TIER_HOST].bytes <= o.tiers.host_bytes);
        harness_close(&h);
    }
    mem_free(expected);
    mem_free(got);
}

/* ---- everything at once ---- */

enum { N_PIECES = 3, PIECE = 24, MAX_PIECES = 6, N_ROUNDS = 12, N_AT_ONCE = 8, N_OUT = 12 };

/* A prompt of up to MAX_PIECES pieces out of N_PIECES, so that prompts share beginnings
 * of any length; then some of its own tokens, so that few end at a page's end. */
static int32_t random_story(int32_t *out) {
    int32_t n = 0, n_pieces = 1 + (int32_t)(rng_next(&seed) % MAX_PIECES),
            tail = (int32_t)(rng_next(&seed) % 5);
    for (int32_t i = 0; i < n_pieces; i++, n += PIECE) {
        memcpy(out + n, strangers[rng_next(&seed) % N_PIECES], PIECE * sizeof *out);
    }
    random_prompt(&seed, 2048, tail, out + n);
    return n + tail;
}

/* Submits all of a round at once, cancels some, waits for all. */
static void run_round(harness *h, harness_run *runs, bool cancels) {
    for (int i = 0; i < N_AT_ONCE; i++) {
        harness_submit(h, &runs[i]);
    }
    for (int i = 0; cancels && i < N_AT_ONCE; i++) {
        if (rng_next(&seed) % 4 == 0) {
            engine_cancel(h->e, runs[i].id);
        }
    }
    harness_wait(h, N_AT_ONCE);
}

/* Small tiers behind a small pool with swap space, pages written through, requests
 * cancelled at any time, the engine opened anew between: every response is that of an
 * engine that has none of it. Debug builds audit pool and tables after each step. */
TEST(random_requests_through_all_tiers_answer_as_without) {
    static int32_t prompts[N_AT_ONCE][MAX_PIECES * PIECE + 5];
    static harness_run runs[N_AT_ONCE], cold[N_AT_ONCE];
    char directory[64];
    snprintf(directory, sizeof directory, "/tmp/quire-tiers-%ld", (long)getpid());
    harness_options o = small_model(), plain = small_model();
    harness h = {0}, reference = {0};
    plain.prefix_cache = PREFIX_CACHE_NONE;
    harness_open(&plain, &reference);
    o.page_tokens = 8;
    o.n_pages = 60; /* a little more than two of the longest take */
    o.max_seqs = 6;
    o.swap_bytes = 1 << 20;
    o.tiers = (engine_tiers){.version = "test",
                             .host_bytes = 1 << 19,
                             .file_path = directory,
                             .file_bytes = 3 << 20,
                             .wait_us = 10000000};
    int64_t n_promoted = 0, n_preempted = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        if (round % 3 == 0) {
            if (round > 0) {
                harness_close(&h);
            }
            o.tiers.write = round % 2 ? TIER_WRITE_EVICT : TIER_WRITE_THROUGH;
            h = (harness){0};
            harness_open(&o, &h);
        }
        for (int i = 0; i < N_AT_ONCE; i++) {
            runs[i] = (harness_run){
                .prompt = prompts[i], .n_prompt = random_story(prompts[i]), .sampling = greedy(N_OUT)};
            runs[i].sampling.temperature = 0.7f;
            cold[i] = runs[i];
        }
        run_round(&h, runs, true);
        run_round(&reference, cold, false);
        for (int i = 0; i < N_AT_ONCE; i++) {
            assert_true(runs[i].finish == FINISH_LENGTH || runs[i].finish == FINISH_CANCELLED);
            assert_int_equal(cold[i].finish, FINISH_LENGTH);
            assert_memory_equal(runs[i].tokens, cold[i].tokens, (size_t)runs[i].n_tokens * sizeof(int32_t));
        }
        if (round % 3 == 2) {
            quire_stats s = harness_idle_stats(&h);
            n_promoted += s.promoted_tokens;
            n_preempted += s.preemptions;
            assert_int_equal(s.tiers[KV_TIER_HOST].errors + s.tiers[KV_TIER_FILE].errors, 0);
            assert_true(s.tiers[KV_TIER_HOST].bytes <= o.tiers.host_bytes &&
                        s.tiers[KV_TIER_FILE].bytes <= o.tiers.file_bytes);
        }
    }
    printf("%lld tokens promoted, %lld preemptions\n", (long long)n_promoted, (long long)n_preempted);
    assert_true(n_promoted > 0);
    harness_close(&h);
    harness_close(&reference);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

/* ---- swapping ---- */

enum { N_SEQS = 6, N_LONG = 60 };

/* Requests that outgrow the pool together: the newest are preempted. Their tokens, and
 * what the engine counted. */
static quire_stats run_together(const harness_options *o, int32_t n_shared, harness_run *runs) {
    static int32_t prompts[N_SEQS][N_LONG];
    harness h = {0};
    harness_open(o, &h);
    for (int32_t i = 0; i < N_SEQS; i++) {
        memcpy(prompts[i], strangers[i], sizeof prompts[i]);
        memcpy(prompts[i], prompt, (size_t)n_shared * sizeof prompt[0]);
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = N_LONG - i, .sampling = greedy(60)};
        runs[i].sampling.temperature = 0.9f;
        runs[i].sampling.seed = 7;
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, N_SEQS);
    quire_stats s = harness_idle_stats(&h);
    harness_close(&h);
    for (int32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(runs[i].finish, FINISH_LENGTH);
        assert_int_equal(runs[i].n_tokens, 60);
    }
    return s;
}

static void same_tokens(const harness_run *a, const harness_run *b) {
    for (int32_t i = 0; i < N_SEQS; i++) {
        assert_memory_equal(a[i].tokens, b[i].tokens, 60 * sizeof(int32_t));
    }
}

static int64_t rows_at_least(void) {
    int64_t n = 0;
    for (int32_t i = 0; i < N_SEQS; i++) {
        n += N_LONG - i + 60 - 1;
    }
    return n;
}

static void swapped(compute_mode compute, dtype kv, int32_t page_tokens, prefix_cache cache,
                    int32_t n_shared) {
    static harness_run roomy[N_SEQS], tight[N_SEQS], swaps[N_SEQS], forbidden[N_SEQS], chosen[N_SEQS];
    harness_options o = small_model();
    o.starts_paused = true;
    o.preempt = PREEMPT_SWAP;
    o.compute = compute;
    o.kv = kv;
    o.page_tokens = page_tokens;
    o.prefix_cache = cache;
    assert_int_equal(run_together(&o, n_shared, roomy).preemptions, 0);
    o.n_pages = 320 / page_tokens;
    quire_stats without = run_together(&o, n_shared, tight);
    o.swap_bytes = 64 << 20;
    quire_stats with = run_together(&o, n_shared, swaps);
    same_tokens(roomy, tight);
    same_tokens(roomy, swaps);
    assert_true(without.preemptions > 0 && without.swapped_out == 0 && without.swapped_pages == 0);
    assert_true(with.preemptions > 0 && with.swapped_out > 0 && with.swapped_in > 0);
    assert_true(with.swapped_pages >= with.swapped_out + with.swapped_in);
    o.preempt = PREEMPT_RECOMPUTE;
    quire_stats never = run_together(&o, n_shared, forbidden);
    same_tokens(roomy, forbidden);
    assert_true(never.preemptions > 0 && never.swapped_out == 0 && never.swapped_pages == 0);
    o.preempt = PREEMPT_AUTO; /* what it chooses is a matter of time, what comes out is not */
    quire_stats any = run_together(&o, n_shared, chosen);
    same_tokens(roomy, chosen);
    assert_true(any.preemptions > 0 && any.swapped_out <= any.preemptions);
    if (cache == PREFIX_CACHE_NONE) { /* nothing is computed twice */
        assert_int_equal(with.step_rows, rows_at_least());
        assert_int_equal(with.swapped_in, with.preemptions);
        assert_true(without.step_rows > with.step_rows);
    } else {
        assert_true(with.step_rows <= rows_at_least());
    }
}

TEST(preempted_sequences_come_back_from_swap_space_bit_for_bit) {
    swapped(COMPUTE_F32, DTYPE_F32, 16, PREFIX_CACHE_NONE, 0);
    swapped(COMPUTE_BF16, DTYPE_BF16, 4, PREFIX_CACHE_NONE, 0);
    swapped(COMPUTE_INT8, DTYPE_F16, 1, PREFIX_CACHE_NONE, 0);
    swapped(COMPUTE_F32, DTYPE_F32, 16, PREFIX_CACHE_TOKEN, 0);
    swapped(COMPUTE_INT8, DTYPE_BF16, 4, PREFIX_CACHE_TOKEN, 0);
    swapped(COMPUTE_INT8, DTYPE_BF16, 4, PREFIX_CACHE_TOKEN, 37);
    swapped(COMPUTE_INT8, DTYPE_I8, 16, PREFIX_CACHE_TOKEN, 37);
    swapped(COMPUTE_F32, DTYPE_F8_E4M3, 8, PREFIX_CACHE_TOKEN, 37);
    swapped(COMPUTE_INT8, DTYPE_I4, 16, PREFIX_CACHE_TOKEN, 37);
}

/* Swap space for a few pages: who finds none is computed again. */
TEST(swap_space_that_is_too_small_is_used_as_far_as_it_goes) {
    static harness_run roomy[N_SEQS], swaps[N_SEQS];
    harness_options o = small_model();
    run_together(&o, 20, roomy);
    o.n_pages = 20;
    o.preempt = PREEMPT_SWAP;
    harness h = {0};
    harness_open(&o, &h);
    int64_t page_bytes = h.layout.page_bytes;
    harness_close(&h);
    for (int32_t n = 1; n < 20; n += 3) {
        o.swap_bytes = n * page_bytes;
        o.prefix_cache = n % 2 ? PREFIX_CACHE_NONE : PREFIX_CACHE_TOKEN;
        quire_stats s = run_together(&o, 20, swaps);
        same_tokens(roomy, swaps);
        assert_true(s.preemptions >= s.swapped_out && s.swapped_out >= s.swapped_in);
    }
}

TEST(cancelled_sequences_leave_no_frame_behind) {
    harness_options o = small_model();
    static harness_run runs[N_SEQS], after[N_SEQS], roomy[N_SEQS];
    run_together(&o, 0, roomy);
    o.n_pages = 20;
    o.prefix_cache = PREFIX_CACHE_NONE;
    o.preempt = PREEMPT_SWAP;
    o.swap_bytes = 1 << 20;
    harness h = {0};
    harness_open(&o, &h);
    o.swap_bytes = 30 * h.layout.page_bytes; /* enough for all at once, not for leaks */
    harness_close(&h);
    h = (harness){0};
    harness_open(&o, &h);
    for (int round = 0; round < 5; round++) {
        for (int32_t i = 0; i < N_SEQS; i++) {
            runs[i] = (harness_run){.prompt = strangers[i], .n_prompt = N_LONG, .sampling = greedy(200)};
            harness_submit(&h, &runs[i]);
        }
        quire_stats now;
        int64_t first = -1;
        do {
            engine_stats_read(h.e, &now);
            first = first < 0 ? now.swapped_out : first;
        } while (now.swapped_out == first && now.n_requests_running + now.n_requests_waiting > 0);
        for (int32_t i = 0; i < N_SEQS; i++) {
            engine_cancel(h.e, runs[i].id);
        }
        harness_wait(&h, N_SEQS);
    }
    quire_stats before, s;
    engine_stats_read(h.e, &before);
    harness_hold(&h);
    for (int32_t i = 0; i < N_SEQS; i++) {
        after[i] = (harness_run){.prompt = strangers[i], .n_prompt = N_LONG - i, .sampling = greedy(60)};
        after[i].sampling.temperature = 0.9f;
        after[i].sampling.seed = 7;
        harness_submit(&h, &after[i]);
    }
    harness_wait(&h, N_SEQS);
    s = harness_idle_stats(&h);
    same_tokens(roomy, after);
    assert_true(s.swapped_out > before.swapped_out);
    harness_close(&h);
}

int main(void) {
    draw_seed();
    random_prompt(&seed, 2048, N_PROMPT, prompt);
    for (int i = 0; i < N_STRANGERS; i++) {
        random_prompt(&seed, 2048, N_PROMPT, strangers[i]);
        /* no page of theirs is the prompt's, pages of one token neither */
        strangers[i][0] = (prompt[0] + 1 + i) % 2048;
    }
    return tests_run(NULL, NULL);
}
