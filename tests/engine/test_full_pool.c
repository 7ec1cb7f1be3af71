/* Full pools: what is admitted ends, though samples and forks share a part-filled page
 * that each must copy before it writes on, and the pool has none. */

#define MODEL "models/builtin-small.gguf"
#include "base/clock.h"
#include "engine/harness.h"
#include "test.h"

enum { N_MOST = 8, PATIENCE_US = 60000000 };

static const prefix_cache caches[] = {PREFIX_CACHE_NONE, PREFIX_CACHE_PAGE, PREFIX_CACHE_TOKEN};
static harness_run runs[N_MOST];
static int32_t prompt[64];
static request_id ids[N_MOST];

static void open_pool(harness *h, int32_t n_pages, prefix_cache cache) {
    harness_options o = harness_defaults;
    o.n_pages = n_pages;
    o.prefix_cache = cache;
    *h = (harness){0};
    harness_open(&o, h);
    memset(runs, 0, sizeof runs);
    uint64_t seed = 5;
    random_prompt(&seed, h->n_vocab, 64, prompt);
}

/* n samples of the first n_prompt tokens. */
static void submit_samples(harness *h, int32_t n_prompt, int32_t n, int32_t max_tokens) {
    void *users[N_MOST];
    quire_error err = {0};
    int32_t *tokens = mem_new((size_t)n_prompt, sizeof *tokens);
    memcpy(tokens, prompt, (size_t)n_prompt * sizeof *tokens);
    for (int32_t i = 0; i < n; i++) {
        users[i] = &runs[i];
    }
    engine_request r = {.tokens = tokens,
                        .n_tokens = n_prompt,
                        .sampling = greedy(max_tokens),
                        .namespace = "test",
                        .n_namespace = 4,
                        .out = h->out};
    assert_int_equal(engine_submit_samples(h->e, &r, n, users, ids, &err), QUIRE_OK);
}

/* The next event's run, or NULL when none came for a minute: the engine stands still. */
static harness_run *next_event(harness *h) {
    engine_event ev;
    int64_t until = clock_us() + PATIENCE_US;
    while (!engine_out_pop(h->out, &ev)) {
        if (clock_us() > until) {
            return NULL;
        }
        wake_wait(&h->reader, 100000);
    }
    harness_run *r = ev.user;
    if (ev.finish == FINISH_NONE) {
        r->tokens[r->n_tokens++] = ev.token;
    } else {
        r->finish = ev.finish;
        r->error = ev.error;
    }
    return r;
}

/* Reads until n runs have ended. */
static void await_ends(harness *h, int32_t n) {
    for (int32_t ended = 0; ended < n;) {
        const harness_run *r = next_event(h);
        if (r == NULL) {
            fail_msg("the engine stands still after %d of %d ends", (int)ended, (int)n);
            return;
        }
        ended += r->finish != FINISH_NONE;
    }
}

TEST(samples_whose_shared_tail_fills_the_pool_end) {
    static const struct {
        int32_t n_pages, n_prompt, n, max_tokens;
    } cases[] = {{4, 56, 2, 4}, {5, 56, 3, 4}, {4, 50, 4, 14}, {4, 33, 8, 20}, {5, 64, 3, 10}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (size_t k = 0; k < 3; k++) {
            harness h;
            open_pool(&h, cases[c].n_pages, caches[k]);
            submit_samples(&h, cases[c].n_prompt, cases[c].n, cases[c].max_tokens);
            await_ends(&h, cases[c].n);
            for (int32_t i = 0; i < cases[c].n; i++) {
                assert_int_equal(runs[i].finish, FINISH_LENGTH);
                assert_int_equal(runs[i].n_tokens, cases[c].max_tokens);
                assert_memory_equal(runs[i].tokens, runs[0].tokens,
                                    sizeof(int32_t) * (size_t)runs[0].n_tokens);
            }
            harness_close(&h);
        }
    }
}

/* Sample 1 ends while sample 0 stands in the same page: what it leaves in the cache must
 * not stop sample 0, which is alone in the pool. */
TEST(a_lone_sequence_goes_on_in_the_page_that_an_ended_sample_shared) {
    for (size_t k = 0; k < 3; k++) {
        harness h;
        open_pool(&h, 4, caches[k]);
        submit_samples(&h, 56, 2, 6);
        assert_non_null(next_event(&h));
        engine_cancel(h.e, ids[1]); /* as a stop string does */
        while (runs[0].finish == FINISH_NONE || runs[1].finish == FINISH_NONE) {
            if (next_event(&h) == NULL) {
                fail_msg("sample 0 stands still at %d of 6 tokens", (int)runs[0].n_tokens);
            }
        }
        assert_int_equal(runs[0].finish, FINISH_LENGTH);
        assert_int_equal(runs[0].n_tokens, 6);
        harness_close(&h);
    }
}

/* The engine is opened with a length that the pool does not hold. */
TEST(a_lone_sequence_ends_where_the_pool_does) {
    harness_options o = harness_defaults;
    harness h = {0};
    o.n_pages = 4;
    o.max_model_len = 2048;
    harness_open(&o, &h);
    memset(runs, 0, sizeof runs);
    uint64_t seed = 5;
    random_prompt(&seed, h.n_vocab, 50, prompt);
    submit_samples(&h, 50, 1, 500);
    await_ends(&h, 1);
    assert_int_equal(runs[0].finish, FINISH_LENGTH);
    assert_int_equal(runs[0].n_tokens, 14);
    harness_close(&h);
}

/* A sequence that was given a page in whose middle its tokens end writes on in it, where
 * the pool has no page for a copy and nobody else holds it. */
TEST(a_cached_tail_is_taken_over_where_there_is_no_page_for_a_copy) {
    harness h;
    open_pool(&h, 4, PREFIX_CACHE_TOKEN);
    submit_samples(&h, 50, 1, 8);
    await_ends(&h, 1);
    /* all that it left in the cache, and the pool's last page among it */
    memcpy(prompt + 50, runs[0].tokens, 7 * sizeof *prompt);
    runs[1] = (harness_run){.finish = FINISH_NONE};
    int32_t *tokens = mem_new(58, sizeof *tokens);
    memcpy(tokens, prompt, 57 * sizeof *tokens);
    tokens[57] = runs[0].tokens[7];
    engine_request r = {.tokens = tokens,
                        .n_tokens = 58,
                        .sampling = greedy(5),
                        .namespace = "test",
                        .n_namespace = 4,
                        .out = h.out,
                        .user = &runs[1]};
    quire_error err;
    assert_int_equal(engine_submit(h.e, &r, &ids[1], &err), QUIRE_OK);
    await_ends(&h, 1);
    assert_int_equal(runs[1].n_tokens, 5);
    harness_close(&h);
}

/* A fork of a running stream whose part-filled tail is in the last page. */
TEST(a_stream_and_its_fork_end_in_a_full_pool) {
    for (size_t k = 0; k < 3; k++) {
        harness h;
        open_pool(&h, 4, caches[k]);
        submit_samples(&h, 50, 1, 14);
        int32_t n_ended = 0;
        bool forked = false;
        while (n_ended < 1 + forked) {
            const harness_run *r = next_event(&h);
            if (r == NULL) {
                fail_msg("stream at %d, fork at %d of 14 tokens", (int)runs[0].n_tokens,
                         (int)runs[1].n_tokens);
            }
            n_ended += r->finish != FINISH_NONE;
            engine_fork *fork_from;
            if (!forked && engine_fork_acquire(h.e, ids[0], &fork_from) == QUIRE_OK) {
                int32_t *tokens = mem_new(50, sizeof *tokens);
                memcpy(tokens, prompt, 50 * sizeof *tokens);
                engine_request q = {.tokens = tokens,
                                    .n_tokens = 50,
                                    .n_prompt = 50,
                                    .fork_from = fork_from,
                                    .fork_position = 50,
                                    .sampling = greedy(14),
                                    .namespace = "test",
                                    .n_namespace = 4,
                                    .out = h.out,
                                    .user = &runs[1]};
                quire_error err;
                forked = engine_submit(h.e, &q, &ids[1], &err) == QUIRE_OK;
                if (!forked) {
                    mem_free(tokens);
                }
                engine_fork_release(fork_from);
            }
        }
        assert_int_equal(runs[0].n_tokens, 14);
        if (forked) {
            assert_memory_equal(runs[1].tokens, runs[0].tokens, 14 * sizeof(int32_t));
        }
        harness_close(&h);
    }
}

/* A place of the table that was used 2^31 times since its last cancel. */
TEST(a_cancel_counts_whatever_the_generation) {
    static const uint32_t generations[] = {1, 0x7fffffffu, 0x80000001u, 0xfffffff0u};
    for (size_t k = 0; k < sizeof generations / sizeof *generations; k++) {
        harness_options o = harness_defaults;
        harness h = {0};
        o.starts_paused = true;
        harness_open(&o, &h);
        for (int i = 0; i < 256; i++) {
            h.e->entries[i].generation = generations[k];
        }
        harness_run r = {.prompt = prompt, .n_prompt = 3, .sampling = greedy(500)};
        harness_submit(&h, &r);
        /* of a request that is gone: nothing */
        engine_cancel(h.e, (request_id){r.id.index, r.id.generation - 1});
        engine_cancel(h.e, r.id);
        harness_wait(&h, 1);
        assert_int_equal(r.finish, FINISH_CANCELLED);
        assert_int_equal(r.n_tokens, 0);
        harness_close(&h);
    }
}

TEST_MAIN(NULL, NULL)
