/* Pooled requests: one row has the same bits alone, in chunks, in company, preempted,
 * from the cache, and leaves nothing behind. */
#include <math.h>

#include "engine/harness.h"
#include "test.h"

#define N_PROMPT 90

static uint64_t test_seed;
static int32_t prompt[N_PROMPT];

static const pooling_params kinds[] = {{POOLING_MEAN, 0, false}, {POOLING_MEAN, 40, true},
                                       {POOLING_CLS, 0, false},  {POOLING_LAST, 0, true},
                                       {POOLING_LAST, 7, false}, {POOLING_CLS, 33, true}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static harness_run pooled(const int32_t *tokens, int32_t n, pooling_params p) {
    return (harness_run){.prompt = tokens, .n_prompt = n, .pooling = p};
}

static float *row_of(harness *h, harness_run *r) {
    harness_submit(h, r);
    harness_wait(h, 1);
    assert_int_equal(r->finish, FINISH_STOP);
    assert_int_equal(r->n_tokens, 0);
    assert_non_null(r->row);
    return r->row;
}

/* The rows of every kind for the prompt, each alone in an engine that computes it at
 * once. */
static void rows_alone(float *rows[N_KINDS], int32_t widths[N_KINDS]) {
    harness_options o = harness_defaults;
    harness h = {0};
    o.prefix_cache = PREFIX_CACHE_NONE;
    harness_open(&o, &h);
    for (int k = 0; k < N_KINDS; k++) {
        harness_run r = pooled(prompt, N_PROMPT, kinds[k]);
        rows[k] = row_of(&h, &r);
        widths[k] = r.n_row;
        assert_int_equal(r.n_row,
                         kinds[k].dimensions > 0 ? kinds[k].dimensions : model_description(h.m)->d_model);
    }
    harness_idle_stats(&h);
    harness_close(&h);
}

static void free_rows(float *rows[N_KINDS]) {
    for (int k = 0; k < N_KINDS; k++) {
        mem_free(rows[k]);
    }
}

static float *alone[N_KINDS];
static int32_t widths[N_KINDS];

/* Ways to run all kinds at once, beside text requests. */
static quire_stats expect_same_bits(const harness_options *o, bool with_texts, const char *what) {
    enum { N_TEXTS = 4 };
    static harness_run runs[N_KINDS], texts[N_TEXTS];
    harness h = {0};
    quire_stats s = {0};
    harness_open(o, &h);
    for (int round = 0; round < 2; round++) { /* the second finds what the first left in the cache */
        harness_hold(&h);
        for (int i = 0; i < N_TEXTS && with_texts; i++) {
            texts[i] = (harness_run){.prompt = prompt + i, .n_prompt = 20 + 9 * i, .sampling = greedy(30)};
            harness_submit(&h, &texts[i]);
        }
        for (int k = 0; k < N_KINDS; k++) {
            runs[k] = pooled(prompt, N_PROMPT, kinds[k]);
            harness_submit(&h, &runs[k]);
        }
        harness_wait(&h, N_KINDS + (with_texts ? N_TEXTS : 0));
        for (int k = 0; k < N_KINDS; k++) {
            assert_int_equal(runs[k].finish, FINISH_STOP);
            assert_int_equal(runs[k].n_row, widths[k]);
            if (memcmp(runs[k].row, alone[k], (size_t)widths[k] * sizeof(float)) != 0) {
                fail_msg("%s: kind %d, round %d: %a and %a", what, k, round, (double)runs[k].row[0],
                         (double)alone[k][0]);
            }
            mem_free(runs[k].row);
        }
        for (int i = 0; i < N_TEXTS && with_texts; i++) {
            assert_int_equal(texts[i].finish, FINISH_LENGTH);
        }
        s = harness_idle_stats(&h);
    }
    harness_close(&h);
    return s;
}

TEST(a_row_has_the_same_bits_however_it_is_run) {
    static const int32_t chunks[] = {1, 7, 16, 64};
    rows_alone(alone, widths);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        harness_options o = harness_defaults;
        o.chunk = chunks[i];
        (void)expect_same_bits(&o, i % 2 == 0, "chunks");
        o.prefix_cache = PREFIX_CACHE_NONE;
        o.n_threads = 2;
        (void)expect_same_bits(&o, i % 2 == 1, "no cache");
    }
    harness_options o = harness_defaults;
    o.max_rows = 512;
    (void)expect_same_bits(&o, false, "together");
    (void)expect_same_bits(&o, true, "beside texts");
    o.n_pages = 14; /* of 16 tokens: two of the requests fit */
    o.chunk = 16;
    quire_stats s = expect_same_bits(&o, true, "preempted");
    assert_true(s.preemptions > 0);
    o.prefix_cache = PREFIX_CACHE_NONE; /* what was gathered before is computed again */
    s = expect_same_bits(&o, true, "preempted without a cache");
    assert_true(s.preemptions > 0);
    o.prefix_cache = PREFIX_CACHE_TOKEN;
    o.swap_bytes = 1 << 24;
    o.preempt = PREEMPT_SWAP;
    s = expect_same_bits(&o, true, "swapped");
    assert_true(s.swapped_out > 0);
    o = harness_defaults; /* the texts draft, the rows do not */
    o.draft = (draft_options){.method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4};
    (void)expect_same_bits(&o, true, "beside drafts");
    o.draft = (draft_options){.method = DRAFT_METHOD_SUFFIX,
                              .n_tokens = 8,
                              .suffix_depth = 24,
                              .suffix_texts = 100,
                              .suffix_factor = 1.0,
                              .suffix_min_prob = 0.1};
    (void)expect_same_bits(&o, true, "beside suffix drafts");
    free_rows(alone);
}

/* On a causal model the last row of a prefix is that row of the whole, so means and first
 * rows follow from last ones. */
TEST(a_mean_is_the_sum_of_last_rows_in_order) {
    enum { N = 33 };
    harness h = {0};
    harness_open(&harness_defaults, &h);
    const int32_t width = model_description(h.m)->d_model;
    double *sum = mem_new((size_t)width, sizeof *sum);
    for (int32_t n = 1; n <= N; n++) {
        harness_run last = pooled(prompt, n, (pooling_params){.kind = POOLING_LAST});
        harness_run cls = pooled(prompt, n, (pooling_params){.kind = POOLING_CLS});
        harness_run mean = pooled(prompt, n, (pooling_params){.kind = POOLING_MEAN});
        harness_run cut = pooled(prompt, n, (pooling_params){POOLING_MEAN, 5, true});
        row_of(&h, &last);
        for (int32_t i = 0; i < width; i++) {
            sum[i] += (double)last.row[i];
        }
        row_of(&h, &mean);
        row_of(&h, &cut);
        double length = 0;
        for (int32_t i = 0; i < width; i++) {
            assert_true(mean.row[i] == (float)(sum[i] / n));
            length += i < 5 ? (double)mean.row[i] * (double)mean.row[i] : 0.0;
        }
        for (int32_t i = 0; i < 5; i++) {
            assert_true(fabs((double)cut.row[i] - (double)mean.row[i] / sqrt(length)) < 1e-6);
        }
        static float first[4096];
        row_of(&h, &cls);
        if (n == 1) {
            memcpy(first, cls.row, (size_t)width * sizeof *first);
            assert_memory_equal(first, last.row, (size_t)width * sizeof *first);
        }
        assert_memory_equal(cls.row, first, (size_t)width * sizeof *first);
        float *rows[] = {last.row, cls.row, mean.row, cut.row};
        for (int i = 0; i < 4; i++) {
            mem_free(rows[i]);
        }
    }
    mem_free(sum);
    harness_idle_stats(&h);
    harness_close(&h);
}

static const backend_ops *real;
static backend_ops watched;
static int n_looks;

static float *look_at_logits(backend *b, int32_t i) {
    n_looks++;
    return real->logits(b, i);
}

static int32_t look_at_argmax(const backend *b, int32_t i) {
    n_looks++;
    return real->argmax(b, i);
}

static const backend_ops *watch(const backend_ops *ops, const model_desc *d) {
    (void)d;
    real = ops;
    watched = *real;
    watched.logits = look_at_logits;
    watched.argmax = real->argmax != NULL ? look_at_argmax : NULL;
    return &watched;
}

TEST(nobody_looks_at_logits_for_a_row) {
    harness_options o = harness_defaults;
    harness h = {0};
    o.wrap = watch;
    harness_open(&o, &h);
    n_looks = 0;
    for (int k = 0; k < N_KINDS; k++) {
        harness_run r = pooled(prompt, N_PROMPT - k, kinds[k]);
        mem_free(row_of(&h, &r));
    }
    assert_int_equal(n_looks, 0);
    harness_close(&h);
}

TEST(a_last_row_takes_what_is_cached_and_a_mean_does_not) {
    harness h = {0};
    harness_open(&harness_defaults, &h);
    harness_run runs[] = {pooled(prompt, N_PROMPT, kinds[0]), pooled(prompt, N_PROMPT, kinds[0]),
                          pooled(prompt, N_PROMPT, kinds[3]), pooled(prompt, N_PROMPT, kinds[2])};
    static const int32_t cached[] = {0, 0, N_PROMPT - 1, 0};
    for (int i = 0; i < 4; i++) {
        mem_free(row_of(&h, &runs[i]));
        assert_int_equal(runs[i].n_cached, cached[i]);
    }
    /* reuses what they have published */
    harness_run text = {.prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(2)};
    harness_submit(&h, &text);
    harness_wait(&h, 1);
    assert_int_equal(text.n_cached, N_PROMPT - 1);
    quire_stats s = harness_idle_stats(&h);
    assert_int_equal(s.prompt_tokens, 5 * N_PROMPT);
    assert_int_equal(s.prompt_tokens_cached, 2 * (N_PROMPT - 1));
    assert_int_equal(s.generation_tokens, 2);
    assert_int_equal(s.requests_finished[FINISH_STOP - 1], 4);
    harness_close(&h);
}

static void expect_refused(harness *h, harness_run r, quire_err error, const char *says) {
    quire_error err = {0};
    int32_t *tokens = mem_new((size_t)r.n_prompt, sizeof *tokens);
    memcpy(tokens, r.prompt, (size_t)r.n_prompt * sizeof *tokens);
    engine_request q = {.tokens = tokens,
                        .n_tokens = r.n_prompt,
                        .sampling = r.sampling,
                        .pooling = r.pooling,
                        .types = r.types,
                        .logits_out = r.logits,
                        .out = h->out};
    assert_int_equal(engine_submit(h->e, &q, &r.id, &err), error);
    if (strstr(err.message, says) == NULL) {
        fail_msg("%s", err.message);
    }
    mem_free(tokens);
}

static harness_options both_ways(void) {
    harness_options o = harness_defaults;
    o.two_sided = true;
    return o;
}

TEST(a_model_that_reads_both_ways_computes_an_input_in_one_step) {
    enum { N_RUNS = 7 };
    harness_options o = both_ways();
    o.chunk = 16; /* is for models that can be cut */
    static harness_run runs[N_RUNS], again[N_RUNS];
    harness h = {0}, one = {0}, causal = {0};
    harness_open(&o, &h);
    harness_open(&o, &one);
    harness_open(&harness_defaults, &causal);
    harness_hold(&h);
    for (int i = 0; i < N_RUNS; i++) {
        runs[i] = pooled(prompt + i, 30 + 10 * i > 80 ? 80 : 30 + 10 * i, kinds[i % N_KINDS]);
        runs[i].explain = true;
        again[i] = pooled(runs[i].prompt, runs[i].n_prompt, runs[i].pooling);
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, N_RUNS);
    for (int i = 0; i < N_RUNS; i++) {
        assert_int_equal(runs[i].finish, FINISH_STOP);
        assert_int_equal(runs[i].report->report.n_chunks, 1);
        assert_int_equal(runs[i].report->report.chunks[0].tokens, runs[i].n_prompt);
        assert_int_equal(runs[i].n_cached, 0);
        assert_memory_equal(runs[i].row, row_of(&one, &again[i]), (size_t)runs[i].n_row * sizeof(float));
        harness_run other = pooled(runs[i].prompt, runs[i].n_prompt, runs[i].pooling);
        assert_true(memcmp(runs[i].row, row_of(&causal, &other), (size_t)runs[i].n_row * sizeof(float)) != 0);
        mem_free(runs[i].row);
        mem_free(runs[i].report);
        mem_free(again[i].row);
        mem_free(other.row);
    }
    quire_stats s = harness_idle_stats(&h);
    assert_int_equal(s.n_pages_cached, 0);
    assert_int_equal(s.n_pages_free, s.n_pages);
    assert_true(s.steps >= 4 && s.steps < N_RUNS); /* 128 rows a step */
    harness_close(&h);
    harness_close(&one);
    harness_close(&causal);
}

/* rows with a type over 0; those with another than their token gives; batches without */
static int32_t n_typed, n_misplaced, n_untyped;

static void note_types(backend *b, const batch *rows) {
    real->step_begin(b, rows);
    if (rows->types == NULL) {
        n_untyped += rows->n_rows;
        return;
    }
    for (int32_t i = 0; i < rows->n_rows; i++) {
        n_typed += rows->types[i] > 0;
        n_misplaced += rows->types[i] != 0 && rows->types[i] != rows->tokens[i] % 3;
    }
}

static const backend_ops *watch_types(const backend_ops *ops, const model_desc *d) {
    (void)watch(ops, d);
    watched = *real;
    watched.step_begin = note_types;
    return &watched;
}

TEST(types_lie_beside_their_tokens) {
    enum { N = 50 };
    static int32_t types[N];
    int32_t expected = 0;
    harness_options o = harness_defaults;
    harness h = {0};
    o.n_token_types = 3;
    o.chunk = 7;
    o.wrap = watch_types;
    harness_open(&o, &h);
    harness_run plain = pooled(prompt, N, kinds[0]), typed = pooled(prompt, N, kinds[3]);
    for (int32_t i = 0; i < N; i++) {
        types[i] = prompt[i] % 3;
        expected += types[i] > 0;
    }
    n_typed = n_misplaced = n_untyped = 0;
    mem_free(row_of(&h, &plain));
    assert_int_equal(n_untyped, N);
    assert_int_equal(n_typed, 0);
    typed.types = types; /* a last row, which would take the pages of the other types */
    harness_hold(&h);
    harness_run text = {.prompt = prompt + 3, .n_prompt = 4, .sampling = greedy(1)};
    harness_submit(&h, &typed);
    harness_submit(&h, &text);
    harness_wait(&h, 2);
    mem_free(typed.row);
    assert_int_equal(typed.n_cached, 0);
    assert_int_equal(n_typed, expected);
    assert_int_equal(n_misplaced, 0);
    types[20] = 3;
    expect_refused(&h, typed, QUIRE_BAD_REQUEST, "token type is 3");
    types[20] = -1;
    expect_refused(&h, typed, QUIRE_BAD_REQUEST, "token type is -1");
    harness_idle_stats(&h);
    harness_close(&h);
}

TEST(what_a_model_cannot_give_is_refused) {
    static int32_t longest[2100];
    harness_options o = both_ways();
    harness h = {0};
    random_prompt(&test_seed, 2048, 2100, longest);
    harness_open(&o, &h);
    harness_run whole = pooled(longest, 128, kinds[0]);
    mem_free(row_of(&h, &whole)); /* as many rows as a step has */
    expect_refused(&h, pooled(longest, 129, kinds[0]), QUIRE_TOO_LARGE, "--max-num-batched-tokens");
    expect_refused(&h, (harness_run){.prompt = longest, .n_prompt = 5, .sampling = greedy(3)},
                   QUIRE_UNSUPPORTED, "attends in both directions");
    harness_close(&h);
    o.two_sided = false;
    o.no_head = true;
    harness_open(&o, &h);
    expect_refused(&h, (harness_run){.prompt = longest, .n_prompt = 5, .sampling = greedy(3)},
                   QUIRE_UNSUPPORTED, "no head");
    whole = pooled(longest, 2048, kinds[0]);
    mem_free(row_of(&h, &whole)); /* as many as a sequence has */
    expect_refused(&h, pooled(longest, 2049, kinds[0]), QUIRE_TOO_LARGE, "at most 2048");
    expect_refused(&h, pooled(longest, 4, (pooling_params){POOLING_MEAN, 1 << 20, false}), QUIRE_BAD_REQUEST,
                   "dimensions");
    float logits[1];
    harness_run with = pooled(longest, 4, kinds[0]);
    with.logits = logits;
    expect_refused(&h, with, QUIRE_INVALID, "one row");
    request_id ids[2];
    void *users[2] = {NULL, NULL};
    quire_error err = {0};
    const engine_request two = {.tokens = longest, .n_tokens = 4, .pooling = kinds[0], .out = h.out};
    assert_int_equal(engine_submit_samples(h.e, &two, 2, users, ids, &err), QUIRE_INVALID);
    engine_request beams = two;
    beams.beams = (beam_params){.width = 2, .n_groups = 1};
    assert_int_equal(engine_submit_samples(h.e, &beams, 1, users, ids, &err), QUIRE_INVALID);
    harness_idle_stats(&h);
    harness_close(&h);
}

TEST(a_full_queue_and_a_full_pool_are_survived) {
    enum { N_RUNS = 24 };
    static harness_run runs[N_RUNS];
    for (int sides = 1; sides <= 2; sides++) {
        harness_options o = harness_defaults;
        o.two_sided = sides == 2;
        o.max_requests = 16;
        o.n_pages = 8; /* of 16 tokens: one of the inputs, which has exactly so many */
        o.chunk = 48;
        harness h = {0};
        harness_open(&o, &h);
        harness_hold(&h);
        for (int i = 0; i < N_RUNS; i++) {
            static int32_t inputs[N_RUNS][128];
            random_prompt(&test_seed, 2048, 128, inputs[i]);
            runs[i] = pooled(inputs[i], i % 3 == 0 ? 128 : 20 + i, kinds[i % N_KINDS]);
            harness_submit(&h, &runs[i]);
            assert_int_equal(runs[i].error, i < 16 ? QUIRE_OK : QUIRE_BUSY);
        }
        harness_wait(&h, 16);
        for (int i = 0; i < 16; i++) {
            assert_int_equal(runs[i].finish, FINISH_STOP);
            mem_free(runs[i].row);
        }
        harness_idle_stats(&h);
        harness_close(&h);
    }
}

/* Steps by the test's own hand; harness_step audits pages and index after each. */
TEST(requests_end_at_any_moment_and_hold_nothing) {
    enum { N_RUNS = 12 };
    static harness_run runs[N_RUNS];
    int n_cancelled = 0, n_stopped = 0;
    for (int round = 0; round < 20; round++) {
        harness_options o = harness_defaults;
        o.two_sided = round % 2 == 1;
        o.chunk = 8;
        o.max_rows = 96;
        o.n_pages = 20;
        o.prefix_cache = round % 3 == 0 ? PREFIX_CACHE_NONE : PREFIX_CACHE_TOKEN;
        harness h = {0};
        harness_open(&o, &h);
        harness_take_over(&h);
        int n_ended = 0;
        for (int i = 0; i < N_RUNS; i++) {
            runs[i] = pooled(prompt + i, 20 + 5 * i, kinds[rng_next(&test_seed) % N_KINDS]);
            if (o.two_sided == false && i % 4 == 3) {
                runs[i] = (harness_run){.prompt = prompt, .n_prompt = 10 + i, .sampling = greedy(12)};
            }
            harness_submit(&h, &runs[i]);
        }
        for (int n = 0; n_ended < N_RUNS; n++) {
            bool ended;
            (void)harness_step(&h);
            if (n % 2 == 0) {
                engine_cancel(h.e, runs[rng_next(&test_seed) % N_RUNS].id);
            }
            while (harness_read(&h, &ended)) {
                n_ended += ended;
            }
            assert_true(n < 10000);
        }
        for (int i = 0; i < N_RUNS; i++) {
            bool stopped = runs[i].finish == FINISH_STOP || runs[i].finish == FINISH_LENGTH;
            assert_true(stopped || runs[i].finish == FINISH_CANCELLED);
            assert_int_equal(runs[i].row != NULL, runs[i].finish == FINISH_STOP);
            n_cancelled += !stopped;
            n_stopped += stopped;
            mem_free(runs[i].row);
        }
        assert_int_equal(kv_pool_counts(h.e->kv.pool).n_held, 0);
        harness_close(&h);
    }
    assert_true(n_cancelled > 20 && n_stopped > 20);
}

TEST(a_late_row_is_refused) {
    enum { N_RUNS = 12 };
    static harness_run warm[N_RUNS];
    harness h = {0};
    harness_open(&harness_defaults, &h);
    for (int i = 0; i < N_RUNS; i++) { /* so that steps have a measured cost */
        warm[i] = pooled(prompt + i, 40, kinds[0]);
        mem_free(row_of(&h, &warm[i]));
    }
    harness_run late = pooled(prompt, N_PROMPT, kinds[0]);
    late.deadline_us = 1;
    harness_submit(&h, &late);
    harness_wait(&h, 1);
    assert_int_equal(late.finish, FINISH_ERROR);
    assert_int_equal(late.error, QUIRE_BUSY);
    assert_null(late.row);
    harness_idle_stats(&h);
    harness_close(&h);
}

/* Requests that the engine's end meets give their blocks back, as the leak check of the
 * sanitizers sees. */
TEST(an_engine_closes_over_pooled_requests) {
    harness h = {0};
    static harness_run runs[6];
    harness_open(&harness_defaults, &h);
    harness_hold(&h);
    for (int i = 0; i < 6; i++) {
        runs[i] = pooled(prompt, N_PROMPT, kinds[i]);
        harness_submit(&h, &runs[i]);
        engine_cancel(h.e, runs[i].id);
    }
    harness_wait(&h, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(runs[i].finish, FINISH_CANCELLED);
        assert_null(runs[i].row);
    }
    harness_close(&h);
}

int main(void) {
    test_seed = 7;
    random_prompt(&test_seed, 2048, N_PROMPT, prompt);
    return tests_run(NULL, NULL);
}
