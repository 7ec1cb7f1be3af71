/* The prefix cache is dropped while requests wait, run and are done: what was cached is
 * computed again, held pages stay as they are, and no bit of any output changes. The
 * backend fills the pages that it is told to discard with garbage. */

#include "engine/cache.h"
#include "harness.h"
#include "test.h"

enum { PAGE = 16, N_PAGES = 64, N_PROMPT = 5 * PAGE + 3 };

static backend_ops garbling;
static int32_t n_discarded;
static bool keeps; /* the backend refuses */

static bool garble(backend *b, int32_t first, int32_t n) {
    static unsigned char garbage[1 << 20];
    memset(garbage, 0xFF, sizeof garbage); /* as floats: NaN */
    for (int32_t i = 0; !keeps && i < n; i++) {
        b->ops->kv_write_page(b, first + i, garbage);
    }
    n_discarded += n;
    return !keeps;
}

static const backend_ops *wrap(const backend_ops *ops, const model_desc *d) {
    (void)d;
    garbling = *ops;
    garbling.kv_discard = garble;
    return &garbling;
}

static harness_options options(void) {
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    o.page_tokens = PAGE;
    o.n_pages = N_PAGES;
    o.wrap = wrap;
    n_discarded = 0;
    keeps = false;
    return o;
}

static const int32_t *prompt(void) {
    static int32_t tokens[N_PROMPT];
    uint64_t seed = 11;
    random_prompt(&seed, 2048, N_PROMPT, tokens);
    return tokens;
}

static harness_run request(int32_t max_tokens) {
    return (harness_run){.prompt = prompt(), .n_prompt = N_PROMPT, .sampling = greedy(max_tokens)};
}

static void ask(harness *h, harness_run *r) {
    harness_submit(h, r);
    harness_wait(h, 1);
    assert_int_equal(r->finish, FINISH_LENGTH);
}

TEST(a_dropped_prefix_is_computed_again_to_the_same_tokens) {
    harness h = {0};
    harness_options o = options();
    harness_open(&o, &h);
    harness_run cold = request(20), warm = request(20), again = request(20), later = request(20);
    ask(&h, &cold);
    ask(&h, &warm);
    assert_int_equal(cold.n_cached, 0);
    assert_int_equal(warm.n_cached, N_PROMPT - 1);
    engine_drop_cache(h.e);
    ask(&h, &again); /* submitted after the call, so it finds nothing */
    assert_int_equal(again.n_cached, 0);
    assert_int_equal(n_discarded, N_PAGES);
    ask(&h, &later);
    assert_int_equal(later.n_cached, N_PROMPT - 1);
    for (int i = 0; i < 3; i++) {
        const harness_run *r = (const harness_run *[]){&warm, &again, &later}[i];
        assert_int_equal(r->n_tokens, cold.n_tokens);
        assert_memory_equal(r->tokens, cold.tokens, (size_t)cold.n_tokens * sizeof *cold.tokens);
    }
    harness_close(&h);
}

/* Between any two steps of one request, while another's pages are cached. */
TEST(a_running_request_keeps_its_pages) {
    harness_options o = options();
    harness h = {0};
    harness_run cold = request(40), other = request(4);
    static int32_t others[N_PROMPT];
    uint64_t seed = 12;
    random_prompt(&seed, 2048, N_PROMPT, others);
    other.prompt = others;
    harness_open(&o, &h);
    ask(&h, &cold);
    harness_take_over(&h);
    for (int32_t at = 0; at < 30; at += 7) {
        cache_drop(h.e);
        engine_audit(h.e);
        kv_counts c = kv_pool_counts(h.e->kv.pool);
        assert_int_equal(c.n_free, N_PAGES);
        harness_run r = request(40);
        harness_submit(&h, &other);
        harness_steps(&h, 1000); /* leaves its pages in the cache */
        harness_submit(&h, &r);
        for (int32_t i = 0; i <= at; i++) {
            assert_true(harness_step(&h));
        }
        c = kv_pool_counts(h.e->kv.pool);
        assert_true(c.n_held > 0 && c.n_cached > 0);
        n_discarded = 0;
        cache_drop(h.e);
        engine_audit(h.e);
        kv_counts after = kv_pool_counts(h.e->kv.pool);
        assert_int_equal(after.n_held, c.n_held);
        assert_int_equal(after.n_cached, 0);
        assert_int_equal(n_discarded, after.n_free);
        harness_steps(&h, 1000);
        assert_int_equal(r.finish, FINISH_LENGTH);
        assert_memory_equal(r.tokens, cold.tokens, (size_t)cold.n_tokens * sizeof *cold.tokens);
    }
    harness_close(&h);
}

/* Pages that leave the pool go to the tiers, here too: their bytes are read before the
 * backend may discard them. */
TEST(with_a_tier_dropped_pages_come_back_from_there) {
    harness_options o = options();
    harness h = {0};
    o.tiers = (engine_tiers){.version = "test", .host_bytes = 1 << 24, .wait_us = INT64_C(3600) * 1000000};
    harness_open(&o, &h);
    harness_run cold = request(20), warm = request(20);
    ask(&h, &cold);
    engine_drop_cache(h.e);
    ask(&h, &warm);
    assert_int_equal(n_discarded, N_PAGES);
    assert_int_equal(harness_idle_stats(&h).promoted_tokens, N_PROMPT / PAGE * PAGE);
    assert_memory_equal(warm.tokens, cold.tokens, (size_t)cold.n_tokens * sizeof *cold.tokens);
    harness_close(&h);
}

TEST(without_a_cache_or_against_the_system_s_will_nothing_breaks) {
    for (int i = 0; i < 2; i++) {
        harness_options o = options();
        harness h = {0};
        o.prefix_cache = i == 0 ? PREFIX_CACHE_NONE : PREFIX_CACHE_TOKEN;
        harness_open(&o, &h);
        keeps = i == 1;
        harness_run before = request(8), after = request(8);
        ask(&h, &before);
        engine_drop_cache(h.e);
        ask(&h, &after);
        assert_int_equal(after.n_cached, 0);
        assert_memory_equal(after.tokens, before.tokens, (size_t)before.n_tokens * sizeof *before.tokens);
        harness_close(&h);
    }
}

TEST_MAIN(NULL, NULL)
