/* A workload of requests of every kind, run without drafts and with drafts in many ways,
 * to test that speculation changes no token, log-probability, finish reason or cached
 * page: results are compared byte by byte. In a debug build the engine checks pages and
 * index after each step (kv_check, kv_index_check). */
#ifndef TESTS_ENGINE_DRAFT_CASE_H
#define TESTS_ENGINE_DRAFT_CASE_H

#include <stdio.h>

#include "core/params.h"
#define MODEL DRAFTED
#include "adapter_world.h"
#include "sample/constraints.h"
#include "second_model.h"
#include "test.h"

enum { N_REQUESTS = 15, N_SAMPLES = 3, MAX_TOKENS = 48, WIDTH = 3 };

/* The result of one sequence. */
typedef struct outcome {
    int32_t tokens[MAX_TOKENS], n;
    token_logprob logprobs[MAX_TOKENS][WIDTH];
    finish_reason finish;
    bool stopped_by_eos;
} outcome;

typedef struct workload {
    int32_t prompts[N_REQUESTS][96], n_prompt[N_REQUESTS];
    sampling_params sampling[N_REQUESTS];
    int32_t logprobs_width[N_REQUESTS];
    constraint *constraints[N_REQUESTS];
    outcome outcomes[N_REQUESTS + N_SAMPLES - 1];
    quire_stats stats;
} workload;

static sampling_lists *only_few;
static engine_outside outsiders; /* runs work on constraints outside of steps; default: nothing does */
static prediction *predictions[N_REQUESTS];
/* called between the run without drafts and those with them, to make `predictions` from
 * its results; NULL: not called */
static void (*predict)(const workload *base, int32_t n_vocab);
static bool have_adapters; /* every other request has an adapter; draft models have none */
static world_adapters their_adapters;
static bool drafts_share;    /* the draft and target models' pages share a memory budget */
static constraint *brackets; /* a constraint for all workloads, made for the vocabulary of the first */

/* Returns the counters after all requests have ended, waiting for them: an end event may
 * arrive before its step is counted. */
static inline quire_stats settled(const harness *h) {
    quire_stats s;
    do {
        engine_stats_read(h->e, &s);
    } while (s.n_requests_running + s.n_requests_waiting > 0);
    return s;
}

/* Fills a workload with prompts that repeat themselves, so that drafts can be guessed,
 * and with every kind of sampling. */
static inline void workload_init(workload *w, int32_t n_vocab) {
    uint64_t seed = 77;
    *w = (workload){0};
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        int32_t period[5 + N_REQUESTS], n = 5 + i;
        random_prompt(&seed, n_vocab, n, period);
        w->n_prompt[i] = 40 + 4 * i;
        for (int32_t k = 0; k < w->n_prompt[i]; k++) {
            w->prompts[i][k] = period[k % n];
        }
        w->sampling[i] = greedy(MAX_TOKENS - i % 3);
        w->sampling[i].seed = 1000 + (uint64_t)i;
    }
    w->sampling[1].temperature = 0.4f;
    w->sampling[2].temperature = 1.0f;
    w->sampling[2].top_p = 0.6f;
    w->sampling[3].repetition_penalty = 1.1f;
    w->sampling[3].frequency_penalty = 0.2f;
    w->sampling[4].temperature = 0.5f;
    w->sampling[4].mirostat = MIROSTAT_2;
    w->sampling[4].mirostat_tau = 2.0f;
    w->sampling[4].mirostat_eta = 0.1f;
    w->sampling[5].temperature = 0.7f;
    w->sampling[5].top_k = 5;
    w->sampling[5].xtc_probability = 0.3f;
    w->sampling[5].xtc_threshold = 0.1f;
    w->sampling[6].dry_multiplier = 0.5f;
    w->sampling[6].dry_base = 1.75f;
    w->sampling[6].dry_allowed_length = 4;
    w->sampling[7].min_tokens = 20;
    w->sampling[7].lists = only_few;
    w->sampling[7].temperature = 0.3f;
    w->sampling[7].n_stop_tokens = 1;
    w->sampling[7].stop_tokens[0] = only_few->allowed[0];
    w->sampling[8].lists = only_few;
    w->sampling[8].temperature = 0.2f;
    w->sampling[9].lists = only_few;
    w->sampling[9].no_repeat_ngram_size = 9;
    w->logprobs_width[0] = w->logprobs_width[2] = w->logprobs_width[7] = WIDTH;
    w->sampling[10].ignore_eos = false;
    brackets = brackets != NULL ? brackets : brackets_new(n_vocab);
    for (int32_t i = 11; i < N_REQUESTS; i++) { /* the last request has N_SAMPLES samples */
        w->constraints[i] = brackets;
        w->sampling[i].temperature = 0.2f * (float)(i - 11);
        w->sampling[i].ignore_eos = i == 11;
    }
    w->logprobs_width[13] = WIDTH;
}

static inline void submit(harness *h, workload *w, int32_t i) {
    quire_error err = {0};
    request_id ids[N_SAMPLES];
    void *users[N_SAMPLES];
    int32_t *tokens = mem_new((size_t)w->n_prompt[i], sizeof *tokens);
    memcpy(tokens, w->prompts[i], (size_t)w->n_prompt[i] * sizeof *tokens);
    for (int32_t k = 0; k < N_SAMPLES; k++) {
        users[k] = &w->outcomes[i + k];
    }
    const int k = have_adapters && i % 2 == 0 ? i / 2 % WORLD_ADAPTERS : -1;
    const char *namespace = adapter_namespace(k);
    engine_request r = {.tokens = tokens,
                        .n_tokens = w->n_prompt[i],
                        .sampling = w->sampling[i],
                        .logprobs_width = w->logprobs_width[i],
                        .constraint = w->constraints[i],
                        .outside = outsiders,
                        .prediction = predictions[i],
                        .adapter = k >= 0 ? &their_adapters.refs[k] : NULL,
                        .namespace = namespace,
                        .n_namespace = strlen(namespace),
                        .out = h->out};
    assert_int_equal(engine_submit_samples(h->e, &r, i == N_REQUESTS - 1 ? N_SAMPLES : 1, users, ids, &err),
                     QUIRE_OK);
}

static inline void take(const engine_event *ev) {
    outcome *o = ev->user;
    if (ev->finish != FINISH_NONE) {
        o->finish = ev->finish;
        o->stopped_by_eos = ev->stopped_by_eos;
        return;
    }
    assert_in_range(o->n, 0, MAX_TOKENS - 1);
    if (ev->logprobs) {
        memcpy(o->logprobs[o->n], ev->logprobs, sizeof o->logprobs[0]);
    }
    o->tokens[o->n++] = ev->token;
}

/* Runs the workload twice on one engine, so that the second run finds much in the cache.
 * Both must give the same results. */
static inline void run(const harness_options *o, workload *w) {
    harness h = {0};
    harness_options own = *o;
    own.max_adapters = have_adapters ? 2 : 0;
    harness_open(&own, &h);
    if (have_adapters) {
        adapters_load(&h, &their_adapters);
    }
    workload_init(w, h.n_vocab);
    static outcome first[N_REQUESTS + N_SAMPLES - 1];
    for (int round = 0; round < 2; round++) {
        memset(w->outcomes, 0, sizeof w->outcomes);
        harness_hold(&h); /* all requests must share the first step */
        for (int32_t i = 0; i < N_REQUESTS; i++) {
            submit(&h, w, i);
        }
        engine_release(h.e);
        for (int32_t n = N_REQUESTS + N_SAMPLES - 1; n > 0;) {
            engine_event ev;
            if (!engine_out_pop(h.out, &ev)) {
                wake_wait(&h.reader, -1);
                continue;
            }
            take(&ev);
            n -= ev.finish != FINISH_NONE;
        }
        if (round == 0) {
            memcpy(first, w->outcomes, sizeof first);
        }
    }
    assert_memory_equal(first, w->outcomes, sizeof first);
    for (int32_t i = 11; i < N_REQUESTS + N_SAMPLES - 1; i++) {
        const outcome *out = &w->outcomes[i];
        bool is_final;
        assert_true(out->n > 0);
        assert_int_equal(constraint_obeyed(brackets, out->tokens, out->n, &is_final),
                         out->n - out->stopped_by_eos);
        assert_true(is_final || !out->stopped_by_eos);
    }
    w->stats = settled(&h);
    engine_stop(h.e);
    if (have_adapters) {
        adapters_drop(&h, &their_adapters);
    }
    harness_close(&h);
}

static inline void same(const workload *a, const workload *b, const char *what) {
    for (int32_t i = 0; i < N_REQUESTS + N_SAMPLES - 1; i++) {
        const outcome *x = &a->outcomes[i], *y = &b->outcomes[i];
        if (memcmp(x, y, sizeof *x) != 0) {
            int32_t k = 0;
            while (k < x->n && x->tokens[k] == y->tokens[k]) {
                k++;
            }
            fail_msg("%s: sequence %d differs: %d and %d tokens, alike up to %d", what, (int)i, (int)x->n,
                     (int)y->n, (int)k);
        }
    }
}

static const draft_options ngram = {
    .method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4};

static inline void print_stats(const char *what, const workload *w) {
    print_message("%s: %d steps, %d drafts of %d tokens, %d accepted, %d preemptions\n", what,
                  (int)w->stats.steps, (int)w->stats.drafts, (int)w->stats.draft_tokens,
                  (int)w->stats.draft_accepted, (int)w->stats.preemptions);
}

/* Compares runs with drafts, in all ways or some, with one run without. */
static inline void matrix(compute_mode compute, dtype kv, const draft_options *draft, engine_ablations off,
                          const char *name, bool all) {
    static workload base, with;
    harness_options o = harness_defaults;
    o.compute = compute;
    o.kv = kv;
    run(&o, &base);
    assert_int_equal(base.stats.drafts, 0);
    if (predict != NULL) {
        predict(&base, 2048);
    }
    o.draft = *draft;
    o.shares_budget = drafts_share;
    o.ablations = off;
    const struct {
        const char *what;
        int32_t page_tokens, n_pages, chunk, max_rows, max_seqs, n_threads;
        prefix_cache cache;
        int64_t swap_bytes;
    } ways[] = {
        {"plain", 16, 1024, 0, 128, 16, 1, PREFIX_CACHE_TOKEN, 0},
        {"pages of 1", 1, 4096, 0, 128, 16, 1, PREFIX_CACHE_TOKEN, 0},
        {"pages of 64", 64, 256, 0, 128, 16, 2, PREFIX_CACHE_PAGE, 0},
        {"no cache", 4, 2048, 0, 512, 16, 1, PREFIX_CACHE_NONE, 0},
        {"chunk 3", 4, 2048, 3, 24, 5, 1, PREFIX_CACHE_TOKEN, 0},
        {"few rows", 16, 1024, 0, 17, 16, 1, PREFIX_CACHE_TOKEN, 0},
        {"preempted", 4, 80, 0, 64, 16, 1, PREFIX_CACHE_TOKEN, 0},
        {"preempted, no cache", 8, 36, 16, 64, 16, 1, PREFIX_CACHE_NONE, 0},
        {"swapped", 4, 80, 0, 64, 16, 1, PREFIX_CACHE_TOKEN, 1 << 26},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += all ? 1 : 3) {
        harness_options v = o;
        v.page_tokens = ways[i].page_tokens;
        v.n_pages = ways[i].n_pages;
        v.chunk = ways[i].chunk;
        v.max_rows = ways[i].max_rows;
        v.max_seqs = ways[i].max_seqs;
        v.n_threads = ways[i].n_threads;
        v.prefix_cache = ways[i].cache;
        v.swap_bytes = ways[i].swap_bytes;
        run(&v, &with);
        print_stats(ways[i].what, &with);
        same(&base, &with, ways[i].what);
        assert_true(with.stats.draft_accepted > 0 && with.stats.draft_accepted < with.stats.draft_tokens);
        assert_true(strncmp(ways[i].what, "preempted", 9) != 0 || with.stats.preemptions > 0);
        assert_int_equal(with.stats.n_requests_running, 0);
        if (i == 0) {
            print_message("%s: %d steps without, %d with\n", name, (int)base.stats.steps,
                          (int)with.stats.steps);
            assert_true(with.stats.steps < base.stats.steps);
        }
    }
}

static const draft_options suffix = {.method = DRAFT_METHOD_SUFFIX,
                                     .n_tokens = 6,
                                     .suffix_depth = 12,
                                     .suffix_texts = 100,
                                     .suffix_factor = 2.0,
                                     .suffix_min_prob = 0.1};

static inline int lists_open(void **state) {
    (void)state;
    static const int32_t few[] = {17, 300, 4, 1200, 55, 90};
    only_few = sampling_lists_new();
    return only_few == NULL || sampling_lists_set_allowed(only_few, few, 6) != QUIRE_OK;
}

static inline int lists_close(void **state) {
    (void)state;
    sampling_lists_drop(only_few);
    constraint_drop(brackets);
    return 0;
}

#endif
