/* The most pages of a sequence, compared with what sequences hold at their peaks: random
 * groups, windows, pages and steps, with and without cached prefixes. The cache is
 * audited after each operation. */
#include <stdio.h>

#include "base/mem.h"
#include "kv/kv_seq.h"
#include "kv/most_pages.h"
#include "seed.h"

enum { N_CASES = 300, MAX_GROUPS = 4, LEN = 160, N_PAGES = 2048, N_SEQS = 6 };

static void audit(const kv_cache *c, const kv_seq *s) {
    const kv_table *tables[MAX_GROUPS];
    quire_error err = {0};
    int32_t n = kv_seq_list_tables(s, tables);
    assert_int_equal(kv_seq_check(c, s, &err), QUIRE_OK);
    assert_int_equal(kv_cache_check(c, tables, n, &err), QUIRE_OK);
}

static kv_cache_options any_groups(int32_t n_states) {
    kv_cache_options o = {.n_pages = N_PAGES,
                          .page_tokens = 1 << any(5),
                          .n_groups = 1 + any(MAX_GROUPS - n_states),
                          .max_namespaces = 1};
    for (int32_t g = 0; g < o.n_groups; g++) {
        o.windows[g] = any(3) == 0 ? 0 : 1 + any(LEN / 2);
    }
    for (int32_t i = 0; i < n_states; i++) {
        o.state_pages[o.n_groups++] = 1 + any(3);
    }
    return o;
}

/* Computes n more tokens of s in one step; returns the pages that are held meanwhile. */
static int32_t step(kv_cache *c, kv_seq *s, const int32_t *tokens, int32_t n) {
    kv_copies copies = {.pairs = mem_new(64, sizeof *copies.pairs), .cap = 64};
    kv_cache_make_free(c, (int32_t)kv_seq_needs(c, s, n));
    assert_int_equal(kv_seq_reserve(c, s, n, &copies), QUIRE_OK);
    int32_t held = kv_pool_counts(c->pool).n_held;
    audit(c, s);
    kv_seq_advance(s, n);
    kv_seq_publish(c, s, tokens);
    kv_seq_forget(c, s);
    audit(c, s);
    mem_free(copies.pairs);
    return held;
}

static int32_t least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* A sequence in random steps of at most n_rows; what of it is cached varies. Nothing else
 * holds a page. */
static void run_any(kv_cache *c, const kv_most *m, int32_t n_rows) {
    int32_t tokens[LEN], len = 1 + any(LEN);
    kv_seq s;
    for (int32_t i = 0; i < LEN; i++) {
        tokens[i] = i < any(LEN) ? 0 : any(2);
    }
    assert_int_equal(kv_seq_init(&s, c->n_groups, LEN), QUIRE_OK);
    assert_int_equal(kv_seq_open(c, &s, "s", 1, "a", 1, tokens, len), QUIRE_OK);
    assert_int_equal(kv_seq_admit(c, &s, tokens, len - 1), QUIRE_OK);
    while (s.n_computed < len) {
        int32_t held = step(c, &s, tokens, least(1 + any(n_rows), len - s.n_computed));
        assert_in_range(held, 1, kv_most_pages(m, s.n_computed));
    }
    kv_seq_release(c, &s, tokens, KV_KEEP);
    audit(c, &s);
    kv_seq_close(c, &s);
    kv_seq_deinit(&s);
}

TEST(no_sequence_holds_more_than_the_bound) {
    for (int32_t i = 0; i < N_CASES; i++) {
        kv_cache_options o = any_groups(0);
        int32_t n_rows = 1 + any(i % 2 == 0 ? 4 : LEN);
        kv_cache c;
        o.no_index = any(3) == 0;
        o.seed = 1;
        assert_int_equal(kv_cache_open(&o, &c), QUIRE_OK);
        kv_most m = kv_most_of_cache(&c, n_rows);
        for (int32_t k = 0; k < N_SEQS; k++) {
            run_any(&c, &m, n_rows);
        }
        kv_cache_close(&c);
    }
}

/* Two groups, one with a window: one step more than the window sees, then full steps. */
TEST(a_sequence_comes_within_a_page_a_group_of_the_bound) {
    static const int32_t tokens[LEN];
    for (int32_t i = 0; i < N_CASES; i++) {
        kv_cache_options o = {.n_pages = N_PAGES,
                              .page_tokens = 1 << any(5),
                              .n_groups = 2,
                              .windows = {0, 1 + any(LEN / 2)},
                              .no_index = true};
        int32_t n_rows = 1 + any(LEN / 2), n = 1 + any(LEN), held = 0;
        kv_cache c;
        kv_seq s;
        assert_int_equal(kv_cache_open(&o, &c), QUIRE_OK);
        assert_int_equal(kv_seq_init(&s, 2, LEN), QUIRE_OK);
        kv_most m = kv_most_of_cache(&c, n_rows);
        while (s.n_computed < n) {
            int32_t left_in_window = o.windows[1] - 1 - s.n_computed,
                    rows = left_in_window > 0 ? least(left_in_window, n_rows) : n_rows;
            int32_t now = step(&c, &s, tokens, least(rows, n - s.n_computed)) -
                          (int32_t)kv_pages_for(s.n_computed, o.page_tokens);
            held = now > held ? now : held; /* by the window's group */
        }
        int64_t bound = kv_most_pages(&m, n) - kv_pages_for(n, o.page_tokens);
        assert_in_range(held, bound - 1, bound);
        kv_seq_release(&c, &s, tokens, KV_DROP);
        kv_seq_deinit(&s);
        kv_cache_close(&c);
    }
}

TEST(the_longest_sequence_is_the_last_that_fits) {
    for (int32_t i = 0; i < N_CASES; i++) {
        kv_cache_options o = any_groups(any(2));
        kv_cache c;
        assert_int_equal(kv_cache_open(&o, &c), QUIRE_OK);
        kv_most m = kv_most_of_cache(&c, 1 + any(40));
        int64_t n_pages = any(400), n = kv_most_tokens(&m, n_pages);
        if (n == INT64_MAX) {
            assert_int_equal(m.n_full, 0);
            assert_true(kv_most_pages(&m, INT32_MAX) <= n_pages);
        } else {
            assert_int_equal(n % o.page_tokens, 0);
            assert_true(kv_most_pages(&m, n) <= n_pages);
            assert_true(kv_most_pages(&m, n + 1) > n_pages);
        }
        kv_cache_close(&c);
    }
}

TEST(the_bound_of_known_layouts) {
    kv_layout l = {.page_tokens = 16,
                   .n_groups = 4,
                   .groups = {{.kind = LAYER_FULL},
                              {.kind = LAYER_WINDOW, .window = 512},
                              {.kind = LAYER_WINDOW, .window = 512},
                              {.kind = LAYER_STATE, .state_pages = 3}}};
    kv_most m = kv_most_of_layout(&l, 1);
    assert_int_equal(kv_most_pages(&m, 0), 0);
    assert_int_equal(kv_most_pages(&m, 1), 3 + 3);
    assert_int_equal(kv_most_pages(&m, 512), 3 * 32 + 3);
    assert_int_equal(kv_most_pages(&m, 513), 3 * 33 + 3);
    /* 512 tokens touch 33 pages, unless the first begins one */
    assert_int_equal(kv_most_pages(&m, 16000), 1000 + 2 * 33 + 3);
    assert_int_equal(kv_most_tokens(&m, 1000 + 2 * 33 + 3), 16000);
    assert_int_equal(kv_most_tokens(&m, 2), 0);
    m = kv_most_of_layout(&l, 2048); /* 2559 tokens: 161 pages */
    assert_int_equal(kv_most_pages(&m, 16000), 1000 + 2 * 161 + 3);
    l.groups[0] = (kv_group){.kind = LAYER_WINDOW, .window = 1};
    m = kv_most_of_layout(&l, 1);
    assert_int_equal(kv_most_pages(&m, INT32_MAX), 1 + 2 * 33 + 3);
    assert_true(kv_most_tokens(&m, 1 + 2 * 33 + 3) == INT64_MAX);
    assert_int_equal(kv_most_tokens(&m, 1 + 2 * 33 + 2), 32 * 16);
}

TEST_MAIN_SEEDED(NULL, NULL)
