/* Replays of traces: hits, evictions and peaks compared with hand calculations. */
#include "replaying.h"

/* docs/lab/worked-examples.md, 24: 8 users of one system prompt. With a tenant each they
 * share nothing. */
TEST(a_shared_system_prompt_is_computed_and_stored_once) {
    char shared[2048] = "", apart[2048] = "";
    for (int i = 0; i < 8; i++) {
        size_t n = strlen(shared), m = strlen(apart);
        snprintf(shared + n, sizeof shared - n,
                 "{\"prompt\": [[\"system\", 2000], [\"user %d\", 30]], \"output\": 150}\n", i);
        snprintf(
            apart + m, sizeof apart - m,
            "{\"tenant\": \"%d\", \"prompt\": [[\"system\", 2000], [\"user %d\", 30]], \"output\": 150}\n", i,
            i);
    }
    replay_result r = replay_text(shared, KV_EVICT_LRU, 0, 16, 8);
    assert_int_equal(r.prompt_tokens, 16240);
    assert_int_equal(r.prompt_tokens - r.hit_tokens, 2240);
    assert_int_equal(r.peak_held, 221);
    assert_int_equal(r.peak_pages, 221);
    r = replay_text(apart, KV_EVICT_LRU, 0, 16, 8);
    assert_int_equal(r.hit_tokens, 0);
    assert_int_equal(r.peak_held, 1096);
    /* one after the other: only one holds at a time, all stay cached */
    r = replay_text(shared, KV_EVICT_LRU, 0, 16, 1);
    assert_int_equal(r.prompt_tokens - r.hit_tokens, 2240);
    assert_int_equal(r.peak_held, 137);
    assert_int_equal(r.peak_pages, 221);
}

TEST(a_prompt_that_comes_again_computes_its_last_token) {
    for (int32_t page_tokens = 1; page_tokens <= 512; page_tokens *= 2) {
        replay_result r = replay_text("{\"prompt\": [[\"a\", 37]]}\n{\"prompt\": [[\"a\", 37]]}\n",
                                      KV_EVICT_LRU, 0, page_tokens, 1);
        assert_int_equal(r.hit_tokens, 36);
    }
}

TEST(reuse_is_token_granular) {
    static const char text[] =
        "{\"prompt\": [[\"a\", 37], [\"b\", 50]], \"output\": 9}\n{\"prompt\": [[\"a\", 37], [\"c\", 50]]}\n";
    assert_int_equal(replay_text(text, KV_EVICT_LRU, 0, 16, 1).hit_tokens, 37);
}

TEST(by_page_only_whole_pages_are_reused) {
    trace t = parse("{\"prompt\": [[\"a\", 37]]}\n{\"prompt\": [[\"a\", 37], [\"c\", 50]]}\n{\"prompt\": "
                    "[[\"a\", 32]]}\n");
    for (kv_policy policy = 0; policy < REPLAY_N_POLICIES; policy++) {
        replay_options o = {.policy = policy,
                            .n_pages = 20,
                            .page_tokens = 16,
                            .concurrency = 1,
                            .granularity = KV_GRANULARITY_PAGE,
                            .checks = true};
        replay_result r;
        quire_error err = {.message = ""};
        assert_int_equal(replay_run(&t, &o, &r, &err), QUIRE_OK);
        assert_int_equal(r.hit_tokens, 32 + 16);
    }
    trace_deinit(&t);
}

TEST(an_answer_is_found_by_the_next_turn) {
    static const char chat[] = "{\"prompt\": [[\"s\", 20]], \"output\": [[\"a\", 12]]}\n{\"prompt\": "
                               "[[\"s\", 20], [\"a\", 12], [\"q\", 5]]}\n";
    assert_int_equal(replay_text(chat, KV_EVICT_LRU, 0, 16, 1).hit_tokens, 32);
    assert_int_equal(replay_text(chat, KV_EVICT_LRU, 0, 4, 1).hit_tokens, 32);
    assert_int_equal(replay_text(chat, KV_EVICT_LRU, 0, 512, 1).hit_tokens, 32);
}

static const char a_b_c_a[] = "{\"prompt\": [[\"a\", 8]]}\n{\"prompt\": [[\"b\", 8]]}\n{\"prompt\": [[\"c\", "
                              "8]]}\n{\"prompt\": [[\"a\", 8]]}\n";

/* Prompts of two pages. Six pages hold all three: 7 of 8 tokens hit, and going on inside
 * the last page copies it, which costs one other. In four pages the third has driven the
 * first out. */
TEST(lru_evicts_what_was_used_longest_ago) {
    replay_result r = replay_text(a_b_c_a, KV_EVICT_LRU, 6, 4, 1);
    assert_int_equal(r.hit_tokens, 7);
    assert_int_equal(r.evictions, 1);
    assert_int_equal(r.peak_pages, 6);
    r = replay_text(a_b_c_a, KV_EVICT_LRU, 7, 4, 1);
    assert_int_equal(r.hit_tokens, 7);
    assert_int_equal(r.evictions, 0);
    r = replay_text(a_b_c_a, KV_EVICT_LRU, 4, 4, 1);
    assert_int_equal(r.hit_tokens, 0);
    assert_int_equal(r.evictions, 4);
}

/* Who knows that a comes again gives up b for c: one page of it in a pool of five, and
 * another for the copy. */
TEST(belady_evicts_what_is_used_last) {
    replay_result r = replay_text(a_b_c_a, KV_EVICT_CALLER, 5, 4, 1);
    assert_int_equal(r.hit_tokens, 7);
    assert_int_equal(r.evictions, 2);
    r = replay_text(a_b_c_a, KV_EVICT_CALLER, 4, 4, 1);
    assert_int_equal(r.hit_tokens, 7);
    assert_int_equal(r.evictions, 3);
}

/* In a pool that holds the prompt and nothing else there is no page for a copy of the
 * shared last one: it is computed again. */
TEST(where_no_copy_fits_reuse_ends_at_the_page) {
    static const char text[] = "{\"prompt\": [[\"a\", 8]]}\n{\"prompt\": [[\"a\", 8]]}\n";
    assert_int_equal(replay_text(text, KV_EVICT_LRU, 2, 4, 1).hit_tokens, 4);
    assert_int_equal(replay_text(text, KV_EVICT_LRU, 3, 4, 1).hit_tokens, 7);
}

TEST(a_request_that_can_never_fit_is_refused_and_evicts_nothing) {
    static const char text[] =
        "{\"prompt\": [[\"a\", 9]]}\n{\"prompt\": [[\"a\", 9]], \"output\": 8}\n{\"prompt\": [[\"a\", 9]]}\n";
    for (kv_policy policy = 0; policy < REPLAY_N_POLICIES; policy++) {
        replay_result r = replay_text(text, policy, 4, 4, 1);
        assert_int_equal(r.n_refused, 1);
        assert_int_equal(r.hit_tokens, 8);
        assert_int_equal(r.evictions, 0);
    }
}

TEST(open_requests_keep_their_pages_until_room_is_needed) {
    static const char text[] = "{\"prompt\": [[\"a\", 8]]}\n{\"prompt\": [[\"b\", 8]]}\n{\"prompt\": "
                               "[[\"c\", 8]]}\n{\"prompt\": [[\"d\", 16]]}\n";
    replay_result r = replay_text(text, KV_EVICT_LRU, 0, 4, 3);
    assert_int_equal(r.peak_held, 8); /* b, c and d */
    assert_int_equal(r.peak_pages, 10);
    r = replay_text(text, KV_EVICT_LRU, 7, 4, 3);
    assert_int_equal(r.peak_held, 6);
    assert_int_equal(r.evictions, 3); /* a's two, then one of b's, which ended for d */
    assert_int_equal(r.n_refused, 0);
}

/* ---- Mooncake ---- */

static int compare_ids(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Tokens found when every block that was there before is: in these traces the same block
 * always has the same ones before it. */
static int64_t count_known(const trace *t) {
    const trace_request *last = &t->requests[t->n_requests - 1];
    int32_t *seen = calloc((size_t)(last->first_run + last->n_runs), sizeof *seen), n_seen = 0;
    int64_t hits = 0;
    for (int32_t i = 0; i < t->n_requests; i++) {
        const trace_request *q = &t->requests[i];
        int32_t found = 0, n_before = n_seen;
        for (int32_t j = 0, at = 0; j < q->n_runs && at < q->n_prompt; j++) {
            trace_run run = t->runs[q->first_run + j];
            bool there = bsearch(&run.first, seen, (size_t)n_before, sizeof *seen, compare_ids) != NULL;
            found += there && found == at ? run.n : 0;
            seen[n_seen] = run.first;
            n_seen += !there;
            at += run.n;
        }
        hits += found < q->n_prompt ? found : q->n_prompt - 1;
        qsort(seen, (size_t)n_seen, sizeof *seen, compare_ids);
    }
    free(seen);
    return hits;
}

TEST(an_unlimited_cache_finds_every_block_that_was_there_before) {
    static const char *const names[] = {"conversation_trace_first6000", "synthetic_trace"};
    const char *shared = getenv("QUIRE_SHARED");
    for (int file = 0; file < 2; file++) {
        char path[512];
        trace t;
        quire_error err = {.message = ""};
        snprintf(path, sizeof path, "%s/data/traces/mooncake/%s.jsonl", shared != NULL ? shared : "../shared",
                 names[file]);
        if (trace_read(path, 400, &t, &err) != QUIRE_OK) {
            assert_int_equal(err.code, QUIRE_NOT_FOUND);
            print_message("SKIP: %s\n", err.message);
            skip();
        }
        int64_t hits = count_known(&t);
        assert_true(hits > 100000);
        for (int32_t page_tokens = 16; page_tokens <= 512; page_tokens *= 32) {
            replay_options o = {.policy = KV_EVICT_LRU, .page_tokens = page_tokens, .concurrency = 1};
            replay_result r;
            assert_int_equal(replay_run(&t, &o, &r, &err), QUIRE_OK);
            assert_int_equal(r.hit_tokens, hits);
            assert_int_equal(r.evictions, 0);
        }
        trace_deinit(&t);
    }
}

/* ---- random ---- */

TEST(every_policy_keeps_every_invariant_on_random_traces) {
    uint64_t seed = rng_os_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int32_t round = 0; round < 12; round++) {
        trace t = random_trace(&seed, 120);
        int32_t page_tokens = 1 << round % 6, concurrency = 1 + round % 4;
        int64_t all = replay(&t, KV_EVICT_LRU, 0, page_tokens, concurrency).hit_tokens;
        int32_t least = (t.longest + page_tokens - 1) / page_tokens;
        for (kv_policy policy = 0; policy < REPLAY_N_POLICIES; policy++) {
            for (int32_t n_pages = least; n_pages <= 4 * least; n_pages += least) {
                replay_result r = replay(&t, policy, n_pages, page_tokens, concurrency);
                assert_int_equal(r.n_refused, 0);
                assert_true(r.hit_tokens <= all);
                assert_true(r.peak_pages <= n_pages);
            }
        }
        trace_deinit(&t);
    }
}

TEST(options_out_of_range_are_refused) {
    trace t = parse("{\"prompt\": 1}\n");
    static const replay_options bad[] = {{.n_pages = -1, .page_tokens = 16, .concurrency = 1},
                                         {.page_tokens = 0, .concurrency = 1},
                                         {.page_tokens = 513, .concurrency = 1},
                                         {.page_tokens = 16, .concurrency = 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        replay_result r;
        quire_error err = {.message = ""};
        assert_int_equal(replay_run(&t, &bad[i], &r, &err), QUIRE_INVALID);
        assert_true(err.message[0] != 0);
    }
    trace_deinit(&t);
}

TEST_MAIN(NULL, NULL)
