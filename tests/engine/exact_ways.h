/* Runs one prompt in many ways (page sizes, chunks, other requests beside it, threads,
 * preemption), and checks that logits and tokens are the same. */
#ifndef TESTS_ENGINE_EXACT_WAYS_H
#define TESTS_ENGINE_EXACT_WAYS_H

#include "harness.h"
#include "test.h"

#define N_PROMPT    70
#define N_STRANGERS 7

static int32_t prompt[N_PROMPT], strangers[N_STRANGERS][96];

static inline void random_prompts(int32_t n_vocab, uint64_t seed) {
    random_prompt(&seed, n_vocab, N_PROMPT, prompt);
    for (int i = 0; i < N_STRANGERS; i++) {
        random_prompt(&seed, n_vocab, 96, strangers[i]);
    }
}

/* The result of one way: logits of the prompt, and 24 greedily sampled tokens. */
typedef struct outcome {
    float *logits;
    int32_t tokens[24];
    size_t n_bytes;
} outcome;

static inline void run_way(const harness_options *o, bool with_strangers, bool mine_last, outcome *out) {
    harness h = {0};
    harness_open(o, &h);
    static harness_run runs[N_STRANGERS + 1];
    memset(runs, 0, sizeof runs);
    out->n_bytes = (size_t)N_PROMPT * (size_t)h.n_vocab * sizeof(float);
    out->logits = mem_new(1, out->n_bytes);
    runs[0] =
        (harness_run){.prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(24), .logits = out->logits};
    int32_t n = with_strangers ? N_STRANGERS : 0;
    for (int32_t i = 0; i < n; i++) {
        runs[i + 1] =
            (harness_run){.prompt = strangers[i], .n_prompt = 5 + 13 * i, .sampling = greedy(10 + 3 * i)};
    }
    if (!mine_last) {
        harness_submit(&h, &runs[0]);
    }
    for (int32_t i = 0; i < n; i++) {
        harness_submit(&h, &runs[i + 1]);
    }
    if (mine_last) {
        harness_submit(&h, &runs[0]);
    }
    harness_wait(&h, n + 1);
    assert_int_equal(runs[0].finish, FINISH_LENGTH);
    assert_int_equal(runs[0].n_tokens, 24);
    memcpy(out->tokens, runs[0].tokens, sizeof out->tokens);
    harness_close(&h);
}

static inline void same(const outcome *a, const outcome *b, const char *what, int32_t n) {
    if (memcmp(a->logits, b->logits, a->n_bytes) != 0 ||
        memcmp(a->tokens, b->tokens, sizeof a->tokens) != 0) {
        size_t i = 0;
        while (i < a->n_bytes / sizeof(float) - 1 && a->logits[i] == b->logits[i]) {
            i++;
        }
        fail_msg("%s %d: logits differ first at %zu: %a and %a", what, (int)n, i, (double)a->logits[i],
                 (double)b->logits[i]);
    }
}

static inline void compare(const outcome *base, const harness_options *o, bool with_strangers, bool mine_last,
                           const char *what, int32_t n) {
    outcome other;
    run_way(o, with_strangers, mine_last, &other);
    same(base, &other, what, n);
    mem_free(other.logits);
}

/* Runs the prompt with the options o and in all other ways, and checks that results are
 * equal. *base: the result with o; the caller frees its logits. */
static inline void all_ways(const harness_options *o, outcome *base) {
    static const int32_t pages[] = {1, 4, 64, 256}, chunks[] = {1, 3, 16};
    run_way(o, false, false, base);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        harness_options v = *o;
        v.page_tokens = pages[i];
        v.n_pages = 16384 / pages[i];
        compare(base, &v, i % 2, false, "page size", pages[i]);
    }
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        harness_options v = *o;
        v.chunk = chunks[i];
        compare(base, &v, i % 2 == 0, i % 2 == 1, "chunk", chunks[i]);
    }
    harness_options v = *o;
    compare(base, &v, true, false, "strangers after", N_STRANGERS);
    compare(base, &v, true, true, "strangers before", N_STRANGERS);
    v.n_threads = 2;
    compare(base, &v, false, false, "threads", 2);
    compare(base, &v, true, true, "threads with strangers", 2);
    v.n_pages = 12; /* room for 192 tokens, while requests have 94 and up to 111: preempts */
    v.page_tokens = 16;
    compare(base, &v, true, true, "preempted, pages", v.n_pages);
}

/* Instruction sets whose results have the same bits. */
static const char *const equal_isas[] = {"plain", "avx2",      "avxvnni",   "avx512",
                                         "amx",   "amx-model", "avx512bf16"};
static inline int n_equal_isas(compute_mode compute) {
    const int n = (int)(sizeof equal_isas / sizeof *equal_isas);
    return compute == COMPUTE_BF16 ? n - 1 : n; /* avx512bf16's dot product rounds differently */
}

static inline bool runs_here(const char *isa) {
    backend *b;
    quire_error err;
    if (backend_cpu_open(&(backend_options){.compute = COMPUTE_F32, .isa = isa, .n_threads = 1}, &b, &err) !=
        QUIRE_OK) {
        print_message("SKIP: %s: %s\n", isa, err.message);
        return false;
    }
    b->ops->close(b);
    return true;
}

#endif
