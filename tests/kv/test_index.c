#include "cache_world.h"

/* One sequence that comes, is computed and ends. Returns what it reused. */
static int32_t visit(world *w, const char *namespace, const int32_t *tokens, int32_t n) {
    int32_t matched = world_start(w, 0, namespace, tokens, n);
    world_check(w);
    world_finish(w, 0);
    world_check(w);
    return matched;
}

/* Worked example 20. */
TEST(a_match_takes_the_longest_cached_prefix) {
    world w;
    world_open(&w, 64, 1, 1, NULL);
    visit(&w, "", (int32_t[]){1, 2, 3, 4}, 4);
    visit(&w, "", (int32_t[]){1, 2, 9}, 3);
    w.n_computed = 0;
    assert_int_equal(visit(&w, "", (int32_t[]){1, 2, 3, 4, 7, 8}, 6), 4);
    assert_int_equal(w.n_computed, 2);
    assert_int_equal(world_peek(&w, "", (int32_t[]){2, 3}, 2), 0);
    world_close(&w);
}

/* Worked example 21. */
TEST(a_request_wholly_cached_computes_its_last_token) {
    for (int32_t size = 1; size <= 16; size *= 2) {
        world w;
        int32_t tokens[40];
        numbers(tokens, 0, 40);
        world_open(&w, 100, size, 1, NULL);
        visit(&w, "", tokens, 40);
        for (int32_t n = 1; n <= 40; n++) {
            w.n_computed = 0;
            assert_int_equal(visit(&w, "", tokens, n), n - 1);
            assert_int_equal(w.n_computed, 1);
        }
        world_close(&w);
    }
}

/* A tenant's namespaces are those of its name, also with a 0 byte and more after it. What
 * others have cached is not looked at. */
TEST(a_tenant_s_pages_go_and_no_others) {
    for (int32_t size = 1; size <= 16; size *= 4) {
        world w;
        int32_t tokens[40], other[40];
        numbers(tokens, 0, 40);
        numbers(other, 20, 40);
        world_open(&w, 400, size, 1, NULL);
        const char *const names[] = {"ann", "anna", "bob", ""};
        for (int i = 0; i < 4; i++) {
            visit(&w, names[i], tokens, 40);
            visit(&w, names[i], other, 40);
        }
        (void)world_start(&w, 0, "ann", tokens, 40); /* it holds its pages */
        assert_int_equal(kv_index_clear_tenant(w.ix, "ann", 3), 2 * ((40 + size - 1) / size));
        world_check(&w);
        world_finish(&w, 0);
        assert_int_equal(world_peek(&w, "ann", other, 40), 0);
        assert_true(world_peek(&w, "ann", tokens, 40) >= 39 / size * size);
        assert_int_equal(kv_index_clear_tenant(w.ix, "ann", 3), (40 + size - 1) / size);
        world_check(&w);
        assert_int_equal(world_peek(&w, "ann", tokens, 40), 0);
        assert_int_equal(kv_index_clear_tenant(w.ix, "ann", 3), 0);
        for (int i = 1; i < 4; i++) {
            assert_true(world_peek(&w, names[i], tokens, 40) >= 39 &&
                        world_peek(&w, names[i], other, 40) >= 39);
        }
        world_close(&w);
    }
}

/* Worked example 23. */
TEST(an_insert_splits_an_edge_and_an_eviction_merges_it_again) {
    world w;
    world_open(&w, 64, 1, 1, NULL);
    visit(&w, "", (int32_t[]){1, 2, 3}, 3);
    assert_int_equal(kv_index_count(w.ix).n_nodes, 1 + 1); /* the root and one edge */
    visit(&w, "", (int32_t[]){1, 2, 4}, 3);
    assert_int_equal(kv_index_count(w.ix).n_nodes, 1 + 3);
    assert_int_equal(kv_index_count(w.ix).n_entries, 4);
    assert_int_equal(kv_index_evict(w.ix, kv_pool_counts(w.pool).n_free + 1), QUIRE_OK);
    world_check(&w);
    assert_int_equal(kv_index_count(w.ix).n_nodes, 1 + 1);
    assert_int_equal(world_peek(&w, "", (int32_t[]){1, 2, 3}, 3), 2);
    assert_int_equal(world_peek(&w, "", (int32_t[]){1, 2, 4}, 3), 3);
    world_close(&w);
}

/* Worked example 24: eight users' chats, of whom those share that are in one
 * namespace. */
static void chat_of_eight_users(kv_granularity granularity, const char *const namespaces[8],
                                int32_t n_computed, int32_t n_held) {
    const kv_index_options o = {
        .page_tokens = 16, .n_groups = 1, .max_namespaces = 8, .granularity = granularity};
    world w;
    int32_t prompt[2030], answer[150];
    numbers(prompt, 0, 2000);
    world_open_with(&w, 1200, &o);
    for (int32_t user = 0; user < 8; user++) {
        numbers(prompt + 2000, 10000 * (user + 1), 30);
        bool is_shared = user > 0 && namespaces[user] == namespaces[0];
        assert_int_equal(world_start(&w, user, namespaces[user], prompt, 2030), is_shared ? 2000 : 0);
    }
    assert_int_equal(w.n_computed, n_computed);
    assert_int_equal(w.n_computed + w.n_reused, 16240);
    for (int32_t user = 0; user < 8; user++) {
        numbers(answer, 100000 * (user + 1), 150);
        assert_true(world_extend(&w, user, answer, 150));
    }
    world_check(&w);
    assert_int_equal(kv_pool_counts(w.pool).n_held, n_held);
    world_close(&w);
}

TEST(a_chat_of_eight_users_computes_the_shared_prompt_once) {
    static const char all[] = "all";
    static const char *const together[8] = {all, all, all, all, all, all, all, all}, *const apart[8] = {
                                                                                         "a", "b", "c", "d",
                                                                                         "e", "f", "g", "h"};
    chat_of_eight_users(KV_GRANULARITY_TOKEN, together, 2240, 221);
    chat_of_eight_users(KV_GRANULARITY_PAGE, together, 2240, 221); /* 2000 is 125 pages */
    chat_of_eight_users(KV_GRANULARITY_TOKEN, apart, 16240, 1096);
}

TEST(a_match_that_ends_inside_a_page_reuses_its_tokens) {
    world w;
    int32_t a[60], b[50];
    numbers(a, 0, 60);
    numbers(b, 0, 50);
    numbers(b + 37, 1000, 13);
    world_open(&w, 64, 16, 1, NULL);
    visit(&w, "", a, 60);
    assert_int_equal(visit(&w, "", b, 50), 37);
    assert_int_equal(world_peek(&w, "", b, 50), 50); /* both branches are there now */
    assert_int_equal(world_peek(&w, "", a, 60), 60);
    world_close(&w);
}

TEST(the_sibling_that_agrees_longest_is_copied) {
    world w;
    world_open(&w, 64, 8, 1, NULL);
    for (int32_t i = 0; i < 8; i++) { /* eight pages that agree in 0, 1, ... 7 tokens with the request */
        int32_t tokens[8] = {0};
        tokens[i] = i % 2 == 0 ? -5 : 5;
        visit(&w, "", tokens, 8);
    }
    for (int32_t i = 0; i < 7; i++) {
        int32_t tokens[9] = {0};
        tokens[i] = 77; /* leaves the zeros after i: page i + 1.. agree in i tokens, page i as well */
        assert_int_equal(world_peek(&w, "", tokens, 8), i);
    }
    int32_t zeros[8] = {0};
    assert_int_equal(world_peek(&w, "", zeros, 8), 7);
    world_close(&w);
}

/* Whole pages, as vLLM has them: worked examples 20, 21 and 24 at that granularity. */
TEST(at_page_granularity_only_whole_pages_are_reused_and_tails_are_not_kept) {
    const kv_index_options o = {
        .page_tokens = 16, .n_groups = 1, .max_namespaces = 4, .granularity = KV_GRANULARITY_PAGE};
    world w;
    int32_t a[60], b[50];
    numbers(a, 0, 60);
    numbers(b, 0, 37);
    numbers(b + 37, 1000, 13);
    world_open_with(&w, 64, &o);
    visit(&w, "", a, 60);
    assert_int_equal(kv_pool_counts(w.pool).n_cached, 3);
    assert_int_equal(visit(&w, "", b, 50), 32); /* 37 to the token */
    assert_int_equal(kv_index_count(w.ix).n_entries, 4);
    for (int32_t n = 1; n <= 60; n++) {
        int32_t whole = (n - 1) / 16 * 16;
        assert_int_equal(world_peek(&w, "", a, n - 1), whole);
        assert_int_equal(visit(&w, "", a, n), whole);
    }
    world_close(&w);
}

TEST(at_page_granularity_page_size_one_is_token_granularity) {
    const kv_index_options o = {
        .page_tokens = 1, .n_groups = 1, .max_namespaces = 4, .granularity = KV_GRANULARITY_PAGE};
    world w;
    world_open_with(&w, 64, &o);
    visit(&w, "", (int32_t[]){1, 2, 3, 4}, 4);
    visit(&w, "", (int32_t[]){1, 2, 9}, 3);
    assert_int_equal(visit(&w, "", (int32_t[]){1, 2, 3, 4, 7, 8}, 6), 4);
    world_close(&w);
}

TEST(a_longer_tail_takes_the_place_of_its_prefix) {
    world w;
    int32_t tokens[12];
    numbers(tokens, 0, 12);
    world_open(&w, 64, 8, 1, NULL);
    visit(&w, "", tokens, 3);
    assert_int_equal(kv_pool_counts(w.pool).n_cached, 1);
    assert_int_equal(visit(&w, "", tokens, 6), 3);
    assert_int_equal(kv_pool_counts(w.pool).n_cached, 1);
    assert_int_equal(visit(&w, "", tokens, 12), 6);
    assert_int_equal(kv_index_count(w.ix).n_entries, 2);
    assert_int_equal(visit(&w, "", tokens, 5), 4);
    assert_int_equal(kv_index_count(w.ix).n_entries, 2); /* a prefix of what is there adds nothing */
    world_close(&w);
}

TEST(a_prefix_is_not_found_in_another_space) {
    world w;
    int32_t tokens[40];
    numbers(tokens, 0, 40);
    world_open(&w, 64, 4, 1, NULL);
    visit(&w, "alice", tokens, 40);
    assert_int_equal(world_peek(&w, "bob", tokens, 40), 0);
    assert_int_equal(world_peek(&w, "alic", tokens, 40), 0);
    assert_int_equal(world_peek(&w, "", tokens, 40), 0);
    assert_int_equal(visit(&w, "bob", tokens, 40), 0);
    assert_int_equal(world_peek(&w, "alice", tokens, 40), 40);
    world_close(&w);
}

/* Equal tokens of one tenant under two adapters are two prefixes: the adapter's number is
 * a part of the name, and so of every page's hash. */
TEST(one_tenants_adapters_share_nothing) {
    world w;
    int32_t tokens[40];
    uint64_t hashes[2][10];
    static const char *const names[] = {"alice/1", "alice/2"};
    numbers(tokens, 0, 40);
    world_open(&w, 64, 4, 1, NULL);
    for (int32_t a = 0; a < 2; a++) {
        w.n_computed = 0;
        assert_int_equal(world_start(&w, a, names[a], tokens, 40), 0);
        assert_int_equal(w.n_computed, 40);
        world_check(&w);
    }
    for (int32_t a = 0; a < 2; a++) {
        assert_int_equal(world_peek(&w, names[a], tokens, 40), 40);
        for (int32_t i = 0; i < 10; i++) {
            hashes[a][i] = world_page_hash(&w, w.seqs[a].tables[0].pages[i]);
            assert_int_not_equal(hashes[a][i], 0);
            assert_int_not_equal(w.seqs[0].tables[0].pages[i].v, w.seqs[1].tables[0].pages[i].v);
        }
    }
    for (int32_t i = 0; i < 10; i++) {
        assert_true(hashes[0][i] != hashes[1][i]);
    }
    world_close(&w);
}

TEST(spaces_are_bounded_and_reclaimed_when_nothing_is_cached_in_them) {
    world w;
    kv_path paths[4], another;
    world_open(&w, 8, 4, 1, NULL);
    for (char c = 'a'; c <= 'd'; c++) {
        assert_int_equal(kv_index_enter(w.ix, &c, 1, &paths[c - 'a']), QUIRE_OK);
    }
    assert_int_equal(kv_index_enter(w.ix, "e", 1, &another), QUIRE_NO_ROOM);
    kv_index_leave(w.ix, &paths[1]);
    assert_int_equal(kv_index_enter(w.ix, "e", 1, &another), QUIRE_OK);
    kv_index_leave(w.ix, &another);
    for (int i = 0; i < 4; i++) {
        if (i != 1) {
            kv_index_leave(w.ix, &paths[i]);
        }
    }
    char name[KV_NAMESPACE_BYTES + 1] = {0};
    assert_int_equal(kv_index_enter(w.ix, name, sizeof name, &another), QUIRE_INVALID);
    /* each round's pages push the last round's out, and its namespace with them */
    for (int32_t i = 0; i < 20; i++) {
        char namespace[2] = {(char)('A' + i), 0};
        int32_t tokens[30];
        numbers(tokens, 0, 30);
        assert_int_equal(visit(&w, namespace, tokens, 30), 0);
        assert_in_range(kv_index_count(w.ix).n_namespaces, 1, 2);
    }
    world_close(&w);
}

TEST(equal_prompts_computed_side_by_side_end_up_in_the_same_pages) {
    world w;
    int32_t tokens[34];
    numbers(tokens, 0, 34);
    world_open(&w, 64, 8, 1, NULL);
    /* Neither finds the other: both prompts end before a page is full. */
    assert_int_equal(world_start(&w, 0, "", tokens, 2), 0);
    assert_int_equal(world_start(&w, 1, "", tokens, 2), 0);
    assert_true(world_extend(&w, 0, tokens + 2, 32));
    assert_true(world_extend(&w, 1, tokens + 2, 32));
    world_check(&w);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(w.seqs[0].tables[0].pages[i].v, w.seqs[1].tables[0].pages[i].v);
    }
    assert_int_equal(kv_pool_counts(w.pool).n_held, 4 + 2);
    world_close(&w);
}

TEST(a_held_prefix_is_not_evicted) {
    world w;
    int32_t a[32], b[32];
    numbers(a, 0, 32);
    numbers(b, 100, 32);
    world_open(&w, 10, 4, 1, NULL);
    visit(&w, "", a, 32);
    assert_int_equal(world_start(&w, 1, "", a, 17), 16);
    assert_int_equal(world_start(&w, 2, "", b, 32), -1); /* 8 pages, but sequence 1 holds 5 of 10 */
    world_check(&w);
    assert_int_equal(kv_index_evict(w.ix, 6), QUIRE_NO_ROOM);
    assert_int_equal(kv_pool_counts(w.pool).n_free, 5);
    world_truncate(&w, 1, 16);
    assert_int_equal(world_peek(&w, "", a, 32), 16);
    world_check(&w);
    world_close(&w);
}

TEST(a_truncated_sequence_continues_on_another_branch) {
    world w;
    int32_t a[30], b[8];
    numbers(a, 0, 30);
    numbers(b, 500, 8);
    world_open(&w, 64, 4, 1, NULL);
    assert_int_equal(world_start(&w, 0, "", a, 30), 0);
    world_truncate(&w, 0, 13);
    world_check(&w);
    assert_true(world_extend(&w, 0, b, 8)); /* writes into a published page: it is copied */
    world_check(&w);
    assert_int_equal(world_peek(&w, "", a, 30), 28);
    int32_t c[21];
    memcpy(c, a, 13 * sizeof *c);
    memcpy(c + 13, b, 8 * sizeof *c);
    assert_int_equal(world_peek(&w, "", c, 21), 20);
    world_close(&w);
}

/* Gemma 3's shape in small: one group of full layers, two of a window of 8 tokens, pages
 * of 4. */
static const int32_t windows[] = {0, 8, 8};

TEST(a_window_group_gives_back_what_lies_behind_its_window) {
    world w;
    int32_t a[42];
    numbers(a, 0, 42);
    world_open(&w, 64, 4, 3, windows);
    assert_int_equal(world_start(&w, 0, "", a, 10), 0);
    for (int32_t n = 10; n < 42; n++) {
        assert_true(world_extend(&w, 0, a + n, 1));
        world_check(&w);
    }
    /* Position 42 sees 35..41: pages 8, 9, 10. */
    assert_int_equal(kv_pool_counts(w.pool).n_held, 11 + 2 * 3);
    assert_int_equal(kv_pool_counts(w.pool).n_cached, 2 * 8); /* behind the window, but still to be found */
    world_close(&w);
}

TEST(a_prefix_is_found_when_each_window_groups_last_window_is_cached) {
    world w;
    int32_t a[42];
    numbers(a, 0, 42);
    world_open(&w, 64, 4, 3, windows);
    visit(&w, "", a, 42);
    assert_int_equal(world_peek(&w, "", a, 42), 42);
    /* The pages behind the window were given back first, so they go first. */
    assert_int_equal(kv_index_evict(w.ix, kv_pool_counts(w.pool).n_free + 16), QUIRE_OK);
    world_check(&w);
    assert_int_equal(world_peek(&w, "", a, 42), 42);
    assert_int_equal(world_peek(&w, "", a, 41), 41); /* inside the last page: it sees 34..40 */
    assert_int_equal(world_peek(&w, "", a, 39), 39); /* position 39 sees 32..38: page 8 and 9 */
    /* position 38 sees 31: page 7 is gone in the window groups, and so on to the start */
    assert_int_equal(world_peek(&w, "", a, 38), 0);
    assert_int_equal(visit(&w, "", a, 40), 39);
    world_close(&w);
}

TEST(an_entry_without_pages_lives_as_long_as_a_path_stands_there) {
    world w;
    static const int32_t window_only[] = {2};
    int32_t a[6];
    numbers(a, 0, 6);
    world_open(&w, 8, 4, 1, window_only);
    assert_int_equal(world_start(&w, 0, "", a, 6), 0);
    assert_int_equal(kv_index_evict(w.ix, 7), QUIRE_OK); /* the first page lies behind the window */
    world_check(&w);
    assert_int_equal(kv_index_count(w.ix).n_entries, 1);
    world_truncate(&w, 0, 5);
    world_check(&w);
    kv_table_clear(w.pool, &w.seqs[0].tables[0]);
    kv_path path = kv_index_fork(w.ix, &w.seqs[0].path);
    kv_index_leave(w.ix, &path);
    assert_int_equal(kv_index_count(w.ix).n_entries, 1);
    w.seqs[0].n = 4;
    world_finish(&w, 0);
    world_check(&w);
    assert_int_equal(kv_index_count(w.ix).n_entries, 0);
    world_close(&w);
}

TEST(a_full_tree_stops_publishing_and_loses_nothing) {
    world w;
    static const int32_t window_only[] = {4};
    int32_t a[60];
    numbers(a, 0, 60);
    world_open(&w, 16, 4, 1, window_only);
    kv_index_close(w.ix);
    w.o.max_entries = 10;
    assert_int_equal(kv_index_open(w.pool, &w.o, &w.ix), QUIRE_OK);
    assert_int_equal(world_start(&w, 0, "", a, 20), 0);
    assert_true(world_extend(&w, 0, a + 20, 28)); /* 12 pages, of which 10 fit */
    world_check(&w);
    assert_int_equal(w.seqs[0].path.n_pages, 10);
    assert_int_equal(kv_index_publish(w.ix, &w.seqs[0].path, a, 48, w.seqs[0].tables, KV_PUBLISH_PAGES),
                     QUIRE_NO_ROOM);
    assert_int_equal(w.seqs[0].path.n_pages, 10);
    world_close(&w);
}

TEST(impossible_options_are_refused) {
    kv_pool *pool;
    kv_index *ix = NULL;
    assert_int_equal(kv_pool_open(4, &pool), QUIRE_OK);
    assert_int_equal(kv_index_open(pool, &(kv_index_options){.n_groups = 1, .max_namespaces = 1}, &ix),
                     QUIRE_INVALID);
    assert_int_equal(kv_index_open(pool, &(kv_index_options){.page_tokens = 16, .max_namespaces = 1}, &ix),
                     QUIRE_INVALID);
    assert_int_equal(
        kv_index_open(
            pool, &(kv_index_options){.page_tokens = 16, .n_groups = KV_MAX_GROUPS + 1, .max_namespaces = 1},
            &ix),
        QUIRE_INVALID);
    assert_int_equal(kv_index_open(pool, &(kv_index_options){.page_tokens = 16, .n_groups = 1}, &ix),
                     QUIRE_INVALID);
    kv_index_options bits = {.page_tokens = 16, .n_groups = 1, .max_namespaces = 1, .hash_bits = 65};
    assert_int_equal(kv_index_open(pool, &bits, &ix), QUIRE_INVALID);
    assert_null(ix);
    kv_index_close(NULL);
    kv_pool_close(pool);
}

TEST_MAIN(NULL, NULL)
