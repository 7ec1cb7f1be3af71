/* Reuse at the engine: what requests say they found in the cache, and how many rows were
 * computed for it. */
#include <stdio.h>
#include <time.h>

#include "harness.h"
#include "sample/logprobs.h"
#include "seed.h"

static harness_options small_model;

/* Runs r alone; the rows that were computed meanwhile. */
static int64_t rows_of(harness *h, harness_run *r) {
    int64_t before = harness_idle_stats(h).step_rows;
    harness_submit(h, r);
    harness_wait(h, 1);
    assert_int_equal(r->finish, FINISH_LENGTH);
    return harness_idle_stats(h).step_rows - before;
}

static void same_run(const harness_run *a, const harness_run *b, size_t first_row, size_t width) {
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof(int32_t));
    size_t n = ((size_t)a->n_prompt - first_row) * width * sizeof(float);
    assert_memory_equal(a->logits + first_row * width, b->logits + first_row * width, n);
}

/* 37 common tokens at page 16: two whole pages, and 5 tokens of a third that is copied
 * and continued. */
TEST(a_common_prefix_of_37_tokens_is_37_cached_tokens) {
    enum { COMMON = 37, N = 60, NEW = 8 };
    harness warm = {0}, cold = {0};
    harness_options o = small_model;
    int32_t a[N], b[N];
    harness_open(&o, &warm);
    o.prefix_cache = PREFIX_CACHE_NONE;
    harness_open(&o, &cold);
    size_t width = (size_t)warm.n_vocab;
    random_prompt(&seed, warm.n_vocab, N, a);
    random_prompt(&seed, warm.n_vocab, N, b);
    memcpy(b, a, COMMON * sizeof *a);
    b[COMMON] = a[COMMON] == 7 ? 8 : 7;
    harness_run first = {.prompt = a, .n_prompt = N, .sampling = greedy(NEW)}, second = first, again, alone;
    assert_int_equal(rows_of(&warm, &first), N + NEW - 1);
    assert_int_equal(first.n_cached, 0);
    second.prompt = b;
    second.logits_first = COMMON;
    alone = second;
    second.logits = mem_new(N, width * sizeof(float));
    alone.logits = mem_new(N, width * sizeof(float));
    assert_int_equal(rows_of(&warm, &second), N - COMMON + NEW - 1);
    assert_int_equal(second.n_cached, COMMON);
    assert_int_equal(rows_of(&cold, &alone), N + NEW - 1);
    assert_int_equal(alone.n_cached, 0);
    same_run(&second, &alone, COMMON, width);
    again = (harness_run){.prompt = b, .n_prompt = N, .sampling = greedy(NEW)};
    assert_int_equal(rows_of(&warm, &again), 1 + NEW - 1); /* the last token only, for its logits */
    assert_int_equal(again.n_cached, N - 1);
    assert_memory_equal(again.tokens, alone.tokens, NEW * sizeof(int32_t));
    quire_stats s = harness_idle_stats(&warm);
    assert_int_equal(s.prefix_queries, 3 * N);
    assert_int_equal(s.prefix_hits, COMMON + N - 1);
    mem_free(second.logits);
    mem_free(alone.logits);
    harness_close(&warm);
    harness_close(&cold);
}

TEST(wanted_rows_are_computed_though_they_are_cached) {
    enum { N = 50 };
    harness h = {0};
    int32_t p[N];
    harness_open(&small_model, &h);
    random_prompt(&seed, h.n_vocab, N, p);
    harness_run r = {.prompt = p, .n_prompt = N, .sampling = greedy(1)};
    assert_int_equal(rows_of(&h, &r), N);
    r.logits = mem_new(N, (size_t)h.n_vocab * sizeof(float));
    assert_int_equal(rows_of(&h, &r), N); /* every row is wanted */
    assert_int_equal(r.n_cached, 0);
    r.logits_first = 21;
    assert_int_equal(rows_of(&h, &r), N - 21);
    assert_int_equal(r.n_cached, 21);
    mem_free(r.logits);
    harness_close(&h);
}

/* The log-probability of token t is of row t - 1: rows before it may come from the
 * cache. */
TEST(log_probabilities_from_a_token_on_have_the_bits_of_a_whole_run) {
    enum { N = 70, WIDTH = 3 };
    harness h = {0}, chunked = {0};
    harness_options o = small_model;
    int32_t p[N];
    static token_logprob whole[N * WIDTH], some[N * WIDTH];
    harness_open(&o, &h);
    o.max_rows = 16;
    harness_open(&o, &chunked);
    random_prompt(&seed, h.n_vocab, N, p);
    harness_run r = {.prompt = p,
                     .n_prompt = N,
                     .sampling = greedy(4),
                     .prompt_logprobs = whole,
                     .prompt_width = WIDTH,
                     .prompt_logprobs_start = 1};
    assert_int_equal(rows_of(&h, &r), N + 3);
    r.prompt_logprobs = some;
    for (int32_t start = 1; start <= N; start += start < 5 ? 1 : 13) {
        size_t n = (size_t)(N - start) * WIDTH;
        r.prompt_logprobs_start = start;
        memset(some, 0, sizeof some);
        assert_int_equal(rows_of(&h, &r), N - (start - 1) + 3);
        assert_int_equal(r.n_cached, start - 1);
        assert_memory_equal(some, whole + (start - 1) * WIDTH, n * sizeof *some);
        memset(some, 0, sizeof some);
        (void)rows_of(&chunked, &r);
        assert_memory_equal(some, whole + (start - 1) * WIDTH, n * sizeof *some);
        assert_true(some[n].id == 0 && some[n].rank == 0);
    }
    harness_close(&h);
    harness_close(&chunked);
}

TEST(logits_and_log_probabilities_may_begin_at_different_rows) {
    enum { N = 40 };
    harness h = {0};
    int32_t p[N];
    token_logprob some[N];
    harness_open(&small_model, &h);
    random_prompt(&seed, h.n_vocab, N, p);
    harness_run r = {.prompt = p, .n_prompt = N, .sampling = greedy(1)};
    assert_int_equal(rows_of(&h, &r), N);
    r.logits = mem_new(N, (size_t)h.n_vocab * sizeof(float));
    r.prompt_logprobs = some;
    r.prompt_width = 1;
    r.prompt_logprobs_start = 31;
    r.logits_first = 20;
    assert_int_equal(rows_of(&h, &r), N - 20);
    r.prompt_logprobs_start = 12;
    assert_int_equal(rows_of(&h, &r), N - 11);
    const float *row = r.logits + (size_t)(N - 2) * (size_t)h.n_vocab;
    token_logprob last = logprobs_of(row, h.n_vocab, logprobs_normalizer(row, h.n_vocab), p[N - 1]);
    assert_memory_equal(&last, &some[N - 1 - 12], sizeof last);
    mem_free(r.logits);
    harness_close(&h);
}

TEST(another_tenant_computes_every_token_of_the_same_prompt) {
    enum { N = 50 };
    harness h = {0};
    int32_t p[N];
    harness_open(&small_model, &h);
    random_prompt(&seed, h.n_vocab, N, p);
    harness_run r = {.prompt = p, .n_prompt = N, .sampling = greedy(1), .namespace = "one"}, other = r;
    other.namespace = "two";
    assert_int_equal(rows_of(&h, &r), N);
    assert_int_equal(rows_of(&h, &other), N);
    assert_int_equal(other.n_cached, 0);
    assert_int_equal(rows_of(&h, &r), 1);
    assert_int_equal(rows_of(&h, &other), 1);
    other.namespace = "on"; /* a name that begins another is another name */
    assert_int_equal(rows_of(&h, &other), N);
    harness_close(&h);
}

TEST(what_a_preempted_request_finds_again_is_no_hit_of_its_prompt) {
    harness h = {0};
    harness_options o = small_model;
    static int32_t prompts[24][40];
    static harness_run runs[24];
    o.n_pages = 24;
    o.starts_paused = true;
    harness_open(&o, &h);
    for (int i = 0; i < 24; i++) {
        random_prompt(&seed, h.n_vocab, 40, prompts[i]);
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = 40, .sampling = greedy(60)};
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, 24);
    quire_stats s = harness_idle_stats(&h);
    int64_t said = 0;
    for (int i = 0; i < 24; i++) {
        said += runs[i].n_cached;
    }
    assert_true(s.preemptions > 0);
    assert_int_equal(s.prefix_queries, 24 * 40); /* each once */
    assert_int_equal(s.prefix_hits, said);
    assert_true(said < 24 * 2); /* strangers: no more than a chance token */
    assert_true(s.preempted_queries >= s.preemptions * 40);
    assert_true(s.preempted_hits <= s.preempted_queries);
    harness_close(&h);
}

TEST(page_granularity_reuses_whole_pages_only) {
    enum { N = 60 };
    harness h = {0};
    harness_options o = small_model;
    int32_t a[N], b[N];
    o.prefix_cache = PREFIX_CACHE_PAGE;
    harness_open(&o, &h);
    random_prompt(&seed, h.n_vocab, N, a);
    memcpy(b, a, sizeof b);
    b[37] = a[37] == 7 ? 8 : 7;
    harness_run first = {.prompt = a, .n_prompt = N, .sampling = greedy(1)},
                second = {.prompt = b, .n_prompt = N, .sampling = greedy(1)};
    assert_int_equal(rows_of(&h, &first), N);
    assert_int_equal(rows_of(&h, &second), N - 32);
    assert_int_equal(second.n_cached, 32);
    assert_int_equal(rows_of(&h, &second), N - 48); /* 59 might be reused; three pages are */
    harness_close(&h);
}

TEST(tenants_share_a_public_prefix_and_nothing_behind_it) {
    enum { PUBLIC = 70, WHOLE = 64, N = 120 }; /* four whole pages are public */
    harness h = {0};
    harness_options o = small_model;
    int32_t p[N];
    random_prompt(&seed, 2048, N, p);
    engine_prefix prefix = {p, PUBLIC};
    o.prefixes = &prefix;
    o.n_prefixes = 1;
    harness_open(&o, &h);
    harness_run one = {.prompt = p, .n_prompt = N, .sampling = greedy(4), .namespace = "one"}, two = one,
                shorter = one;
    two.namespace = "two";
    assert_int_equal(rows_of(&h, &one), N + 3);
    assert_int_equal(rows_of(&h, &two), N - WHOLE + 3);
    assert_int_equal(two.n_cached, WHOLE);
    assert_memory_equal(one.tokens, two.tokens, 4 * sizeof(int32_t));
    assert_int_equal(rows_of(&h, &two), 1 + 3);
    shorter.namespace = "three";
    shorter.n_prompt = 40; /* it ends inside the prefix, so it is no prompt that begins with it */
    assert_int_equal(rows_of(&h, &shorter), 40 + 3);
    harness_close(&h);
    /* tenants that arrive together wait for the public pages, too */
    h = (harness){0};
    o.chunk = 8;
    harness_open(&o, &h);
    harness_submit(&h, &one);
    harness_submit(&h, &two);
    harness_wait(&h, 2);
    assert_int_equal(harness_idle_stats(&h).step_rows, N + N - WHOLE + 2 * 3);
    assert_memory_equal(one.tokens, two.tokens, 4 * sizeof(int32_t));
    harness_close(&h);
}

/* Three prompts of which the pool holds two: which one goes is the policy's choice, or
 * the request's. */
TEST(what_is_kept_is_what_requests_say) {
    enum { N = 96 };
    harness_options o = small_model;
    int32_t p[3][N];
    o.n_pages = 15;
    for (int i = 0; i < 3; i++) {
        random_prompt(&seed, 2048, N, p[i]);
        p[i][0] = 10 + i;
    }
    for (int way = 0; way < 3; way++) {
        harness h = {0};
        harness_open(&o, &h);
        harness_run runs[3];
        for (int i = 0; i < 3; i++) {
            runs[i] = (harness_run){.prompt = p[i], .n_prompt = N, .sampling = greedy(1)};
        }
        runs[0].retains = way == 1; /* the oldest is dear */
        runs[0].retention = (kv_retention){.priority = 90};
        runs[1].retains = way == 2; /* the second is dear for a moment only: it goes before the first */
        runs[1].retention = (kv_retention){.priority = 90, .ttl_us = 1};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(rows_of(&h, &runs[i]), N);
            nanosleep(&(struct timespec){0, 2000000}, NULL);
        }
        harness_run again = {.prompt = p[0], .n_prompt = N, .sampling = greedy(1)};
        assert_int_equal(rows_of(&h, &again) == 1, way != 0);
        harness_close(&h);
    }
}

/* A lone request that fills the pool goes on inside a page of another's: there is no
 * page to copy that into. It goes back to the page's start, which lets that page be
 * evicted. */
TEST(who_finds_no_page_for_a_copy_goes_back_to_the_pages_start) {
    enum { PAGE = 16, N_PAGES = 4, AGREED = 54, N = 58, N_OUT = 6 };
    harness h = {0};
    harness_options o = small_model;
    int32_t first[60], prompt[N];
    random_prompt(&seed, 2048, 60, first);
    memcpy(prompt, first, sizeof prompt);
    for (int32_t i = AGREED; i < N; i++) {
        prompt[i] = first[i] % 2000 + 1;
    }
    harness_run cold = {.prompt = prompt, .n_prompt = N, .sampling = greedy(N_OUT)},
                filler = {.prompt = first, .n_prompt = 60, .sampling = greedy(4)}, r = cold;
    harness_open(&o, &h);
    (void)rows_of(&h, &cold);
    harness_close(&h);
    o.n_pages = N_PAGES;
    h = (harness){0};
    harness_open(&o, &h);
    harness_take_over(&h);
    harness_submit(&h, &filler);
    harness_steps(&h, 10);
    assert_int_equal(filler.finish, FINISH_LENGTH);
    assert_int_equal(kv_pool_counts(h.e->kv.pool).n_cached, N_PAGES);
    harness_submit(&h, &r);
    int64_t rows = h.e->stats.step_rows;
    assert_int_equal(harness_steps(&h, 100), 1 + N_OUT); /* one more, for what it gave back */
    assert_int_equal(h.e->stats.step_rows - rows, N - AGREED / PAGE * PAGE + N_OUT - 1);
    assert_int_equal(r.finish, FINISH_LENGTH);
    assert_int_equal(r.n_cached, AGREED / PAGE * PAGE);
    assert_memory_equal(r.tokens, cold.tokens, N_OUT * sizeof(int32_t));
    harness_close(&h);
}

TEST(more_tenants_than_spaces_find_room_when_the_oldest_have_gone) {
    enum { N_TENANTS = 4200, N = 17 };
    harness h = {0};
    harness_options o = small_model;
    static char names[N_TENANTS][8];
    int32_t p[N];
    o.n_pages = 2 * N_TENANTS;
    harness_open(&o, &h);
    random_prompt(&seed, h.n_vocab, N, p);
    harness_run r = {.prompt = p, .n_prompt = N, .sampling = greedy(1)};
    for (int i = 0; i < N_TENANTS; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        r.namespace = names[i];
        harness_submit(&h, &r);
        harness_wait(&h, 1);
    }
    assert_int_equal(rows_of(&h, &r), 1); /* the last one has a namespace */
    r.namespace = names[0];
    assert_int_equal(rows_of(&h, &r), N); /* the first one's went */
    harness_close(&h);
}

int main(void) {
    draw_seed();
    small_model = harness_defaults;
    small_model.path = "models/builtin-small.gguf";
    return tests_run(NULL, NULL);
}
