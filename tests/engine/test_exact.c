/* The determinism rule: a logits row depends on weights, prefix and numeric configuration
 * only. Everything here compares bytes. */
#include <stdio.h>

#include "exact_ways.h"
#include "test.h"

static void all_ways_of(compute_mode compute, dtype kv, const char *isa) {
    harness_options o = harness_defaults;
    outcome base;
    o.compute = compute;
    o.kv = kv;
    o.isa = isa;
    all_ways(&o, &base);
    mem_free(base.logits);
}

TEST(f32_logits_do_not_depend_on_how_they_were_run) {
    all_ways_of(COMPUTE_F32, DTYPE_F32, "auto");
}

TEST(bf16_logits_do_not_depend_on_how_they_were_run) {
    all_ways_of(COMPUTE_BF16, DTYPE_BF16, "auto");
}

TEST(bf16_logits_by_the_dot_instruction_do_not_depend_on_how_they_were_run) {
    if (runs_here("avx512bf16")) {
        all_ways_of(COMPUTE_BF16, DTYPE_BF16, "avx512bf16");
    }
}

TEST(int8_logits_do_not_depend_on_how_they_were_run) {
    all_ways_of(COMPUTE_INT8, DTYPE_F16, "auto");
}

TEST(logits_over_int8_pages_do_not_depend_on_how_they_were_run) {
    all_ways_of(COMPUTE_F32, DTYPE_I8, "auto");
}

TEST(logits_over_fp8_pages_do_not_depend_on_how_they_were_run) {
    all_ways_of(COMPUTE_F32, DTYPE_F8_E4M3, "auto");
}

TEST(logits_over_int4_pages_do_not_depend_on_how_they_were_run) {
    all_ways_of(COMPUTE_F32, DTYPE_I4, "auto");
}

/* The same prompt after prefixes of every length that were cached before: the last rows'
 * logits and the tokens are those of a first run. */
static void reuse(compute_mode compute, dtype kv, int32_t page_tokens) {
    harness_options o = harness_defaults;
    harness h = {0};
    static harness_run first, again, prefix;
    const int32_t from = N_PROMPT - 5;
    o.compute = compute;
    o.kv = kv;
    o.page_tokens = page_tokens;
    o.prefix_cache = PREFIX_CACHE_NONE;
    harness_open(&o, &h);
    size_t width = (size_t)h.n_vocab, n_bytes = N_PROMPT * width * sizeof(float);
    first = again =
        (harness_run){.prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(24), .logits_first = from};
    first.logits = mem_new(1, n_bytes);
    again.logits = mem_new(1, n_bytes);
    harness_submit(&h, &first);
    harness_wait(&h, 1);
    harness_close(&h);
    o.prefix_cache = PREFIX_CACHE_TOKEN;
    for (int32_t n = 1; n < from; n += 9) {
        int64_t reused = 0;
        h = (harness){0};
        harness_open(&o, &h);
        for (int round = 0; round < 3; round++) {
            prefix = (harness_run){.prompt = prompt, .n_prompt = n, .sampling = greedy(1)};
            harness_submit(&h, &prefix);
            harness_wait(&h, 1);
            memset(again.logits, 0, n_bytes);
            harness_submit(&h, &again);
            harness_wait(&h, 1);
            assert_memory_equal(again.logits + (size_t)from * width, first.logits + (size_t)from * width,
                                5 * width * sizeof(float));
            assert_memory_equal(again.tokens, first.tokens, 24 * sizeof(int32_t));
        }
        quire_stats stats;
        do {
            engine_stats_read(h.e, &stats);
        } while (stats.n_requests_running > 0);
        reused = stats.prefix_hits;
        /* the first run reuses the prefix, the others all they may */
        assert_int_equal(reused, n + 2 * (n - 1) + 2 * from);
        harness_close(&h);
    }
    mem_free(first.logits);
    mem_free(again.logits);
}

TEST(logits_do_not_depend_on_what_was_cached) {
    reuse(COMPUTE_F32, DTYPE_F32, 16);
    reuse(COMPUTE_BF16, DTYPE_BF16, 4);
    reuse(COMPUTE_INT8, DTYPE_F16, 64);
    reuse(COMPUTE_INT8, DTYPE_BF16, 1);
    reuse(COMPUTE_INT8, DTYPE_I8, 16);
    reuse(COMPUTE_INT8, DTYPE_F8_E4M3, 8);
    reuse(COMPUTE_F32, DTYPE_I4, 16);
}

static uint64_t fnv(const void *p, size_t n) {
    const unsigned char *b = p;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ b[i]) * 1099511628211u;
    }
    return h;
}

/* The prompt's logits by every instruction set that runs here, each with the same stored
 * hash. */
static void hash_of_mode(compute_mode compute, dtype kv, uint64_t expected) {
    uint64_t fixed = 20240601;
    random_prompt(&fixed, 2048, N_PROMPT, prompt);
    for (int i = 0; i < n_equal_isas(compute); i++) {
        if (!runs_here(equal_isas[i])) {
            continue;
        }
        harness_options o = harness_defaults;
        outcome got;
        o.path = BUILTIN;
        o.isa = equal_isas[i];
        o.compute = compute;
        o.kv = kv;
        run_way(&o, false, false, &got);
        uint64_t hash = fnv(got.logits, got.n_bytes);
        if (hash != expected) {
            fail_msg("%s on %s: hash %016llx, stored %016llx", compute_name(compute), equal_isas[i],
                     (unsigned long long)hash, (unsigned long long)expected);
        }
        mem_free(got.logits);
    }
}

TEST(f32_logits_have_the_stored_hash_on_every_instruction_set) {
    hash_of_mode(COMPUTE_F32, DTYPE_F32, 0x92000725dd8e2877);
}

TEST(bf16_logits_have_the_stored_hash_on_every_instruction_set_that_widens) {
    hash_of_mode(COMPUTE_BF16, DTYPE_BF16, 0x3c1583a1ae4591df);
}

TEST(int8_logits_have_the_stored_hash_on_every_instruction_set) {
    hash_of_mode(COMPUTE_INT8, DTYPE_BF16, 0x2d3d1327070f36a9);
}

TEST(logits_over_int8_pages_have_the_stored_hash_on_every_instruction_set) {
    hash_of_mode(COMPUTE_INT8, DTYPE_I8, 0x854e0bb669f995c1);
}

TEST(logits_over_fp8_pages_have_the_stored_hash_on_every_instruction_set) {
    hash_of_mode(COMPUTE_INT8, DTYPE_F8_E4M3, 0x5d29423fefaba8bf);
}

TEST(logits_over_int4_pages_have_the_stored_hash_on_every_instruction_set) {
    hash_of_mode(COMPUTE_INT8, DTYPE_I4, 0x1c721afa339f2221);
}

int main(void) {
    uint64_t seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    random_prompts(2048, seed);
    return tests_run(NULL, NULL);
}
