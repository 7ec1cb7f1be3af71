/* Public prefixes: held once for all tenants, and nothing else ever passes between
 * them. */
#include "cache_world.h"

#include "base/fault.h"

enum { SIZE = 4, NAMESPACES = 8, PUBLIC = 10 /* tokens: two whole pages and two tokens */ };

/* A prompt of n tokens: the public prefix, then a tenant's own from `own` on. */
static void prompt(int32_t *tokens, int32_t own, int32_t n) {
    numbers(tokens, 0, PUBLIC);
    numbers(tokens + PUBLIC, own, n - PUBLIC);
}

static void open_public(world *w, int32_t n_pages) {
    int32_t tokens[PUBLIC];
    numbers(tokens, 0, PUBLIC);
    world_open_with(w, n_pages,
                    &(kv_index_options){.page_tokens = SIZE, .n_groups = 1, .max_namespaces = NAMESPACES});
    assert_int_equal(kv_index_add_public(w->ix, "model", 5, tokens, PUBLIC), QUIRE_OK);
}

TEST(two_tenants_share_the_pages_of_a_public_prefix_and_nothing_else) {
    world w;
    int32_t a[20];
    prompt(a, 100, 20);
    open_public(&w, 32);
    assert_int_equal(world_start(&w, 0, "alice", a, 20), 0);
    /* the same tokens throughout, but only the public pages are found */
    assert_int_equal(world_start(&w, 1, "bob", a, 20), 8);
    world_check(&w);
    assert_int_equal(w.n_computed, 20 + 12);
    for (int i = 0; i < 5; i++) {
        bool same = w.seqs[0].tables[0].pages[i].v == w.seqs[1].tables[0].pages[i].v;
        assert_int_equal(same, i < 2);
    }
    assert_int_equal(kv_pool_counts(w.pool).n_held, 2 + 3 + 3);
    assert_int_equal(world_start(&w, 2, "alice", a, 20), 19);
    assert_int_equal(world_start(&w, 3, "carol", a, 20), 8);
    world_finish(&w, 0);
    world_finish(&w, 1);
    assert_int_equal(world_peek(&w, "bob", a, 20), 20);
    assert_int_equal(world_peek(&w, "dave", a, 20), 8);
    assert_int_equal(world_peek(&w, "", a, 20), 8);
    /* a tenant that is called as the scope is one of many */
    assert_int_equal(world_peek(&w, "model", a, 20), 8);
    world_close(&w);
}

TEST(reuse_to_the_token_behind_the_prefix_stays_within_the_tenant) {
    world w;
    int32_t a[20], b[20];
    prompt(a, 100, 20);
    prompt(b, 100, 20);
    numbers(b + 15, 500, 5);
    open_public(&w, 32);
    assert_int_equal(world_start(&w, 0, "alice", a, 20), 0);
    world_finish(&w, 0);
    assert_int_equal(world_peek(&w, "alice", b, 20), 15);
    assert_int_equal(world_peek(&w, "bob", b, 20), 8);
    /* a public prefix's last two tokens fill no page: each tenant's own */
    assert_int_equal(world_peek(&w, "bob", a, 9), 8);
    assert_int_equal(world_peek(&w, "alice", a, 10), 10);
    assert_int_equal(world_start(&w, 0, "alice", b, 20), 15);
    world_close(&w);
}

TEST(a_prompt_that_does_not_begin_with_the_prefix_is_its_tenants_alone) {
    world w;
    int32_t a[20], b[20];
    numbers(a, 0, 20);
    a[7] = -1;
    numbers(b, 0, 7); /* the public prefix cut short */
    open_public(&w, 32);
    assert_int_equal(world_start(&w, 0, "alice", a, 20), 0);
    assert_int_equal(world_start(&w, 1, "alice", b, 7), 6);
    world_finish(&w, 0);
    world_finish(&w, 1);
    assert_int_equal(world_peek(&w, "alice", a, 20), 20);
    assert_int_equal(world_peek(&w, "bob", a, 20), 0);
    assert_int_equal(world_peek(&w, "bob", b, 7), 0);
    prompt(b, 100, 20);
    assert_int_equal(world_peek(&w, "bob", b, 20), 0); /* nobody computed the prefix in public yet */
    world_close(&w);
}

/* A sequence that entered after a public prefix, rolled back into it and went on with
 * other tokens. */
TEST(a_rolled_back_sequence_puts_nothing_of_its_own_into_the_public_space) {
    world w;
    int32_t a[20], b[20];
    prompt(a, 100, 20);
    numbers(b, 0, 6);
    numbers(b + 6, 700, 14);
    open_public(&w, 32);
    assert_int_equal(world_start(&w, 0, "alice", a, 20), 0);
    world_truncate(&w, 0, 6);
    world_check(&w);
    assert_true(world_extend(&w, 0, b + 6, 14));
    world_check(&w);
    assert_int_equal(world_peek(&w, "bob", b, 20), 0);
    kv_path path;
    assert_int_equal(kv_index_enter_public(w.ix, "model", 5, "bob", 3, a, 20, &path), QUIRE_OK);
    assert_int_equal(kv_index_peek(w.ix, &path, b, 20), 6); /* the public tokens of the public page */
    kv_index_leave(w.ix, &path);
    world_truncate(&w, 0, 5);
    world_finish(&w, 0); /* with a tail inside the prefix */
    world_check(&w);
    kv_index_counts c = kv_index_count(w.ix);
    assert_int_equal(c.n_entries, 5); /* of the first 20 tokens; nothing of b */
    world_close(&w);
}

TEST(prefixes_of_one_scope_share_and_the_longest_counts) {
    world w;
    int32_t a[30], longer[16], other[8];
    numbers(a, 0, 30);
    numbers(longer, 0, 16);
    numbers(other, 0, 8);
    other[6] = 99;
    open_public(&w, 64);
    assert_int_equal(kv_index_add_public(w.ix, "model", 5, longer, 16), QUIRE_OK);
    assert_int_equal(kv_index_add_public(w.ix, "model", 5, longer, 16), QUIRE_OK); /* twice is once */
    assert_int_equal(kv_index_add_public(w.ix, "model", 5, other, 8), QUIRE_OK);
    assert_int_equal(kv_index_add_public(w.ix, "model", 5, longer, 3), QUIRE_INVALID);
    assert_int_equal(world_start(&w, 0, "alice", a, 15), 0); /* after the short one */
    assert_int_equal(world_start(&w, 1, "bob", a, 30), 8);   /* after the long one */
    assert_int_equal(world_start(&w, 2, "carol", a, 30), 16);
    assert_int_equal(world_start(&w, 3, "carol", other, 8), 6); /* public too: the page is copied */
    assert_int_equal(world_start(&w, 4, "alice", a, 14), 12);
    world_check(&w);
    for (int i = 0; i < 5; i++) {
        world_finish(&w, i);
        world_check(&w);
    }
    kv_path path;
    assert_int_equal(kv_index_enter_public(w.ix, "model2", 6, "carol", 5, a, 30, &path), QUIRE_OK);
    assert_int_equal(kv_index_peek(w.ix, &path, a, 30), 0);
    kv_index_leave(w.ix, &path);
    world_close(&w);
}

TEST(a_public_page_stays_while_a_tenants_pages_follow_it) {
    world w;
    int32_t a[20], b[20], other[60];
    prompt(a, 100, 20);
    prompt(b, 200, 20);
    numbers(other, 9000, 60);
    open_public(&w, 16);
    assert_int_equal(world_start(&w, 0, "alice", a, 20), 0);
    assert_int_equal(world_start(&w, 1, "bob", b, 20), 8);
    world_finish(&w, 0);
    world_finish(&w, 1);
    assert_int_equal(kv_index_count(w.ix).n_namespaces, 3);
    for (int32_t gone = 1; gone <= 8; gone++) { /* each eviction takes an end, the public pages last */
        assert_int_equal(kv_index_evict(w.ix, kv_pool_counts(w.pool).n_free + 1), QUIRE_OK);
        world_check(&w);
        int32_t left_a = world_peek(&w, "alice", a, 20), left_b = world_peek(&w, "bob", b, 20);
        assert_int_equal(left_a, gone < 3 ? 20 - 4 * gone : gone <= 6 ? 8 : 8 - 4 * (gone - 6));
        assert_int_equal(left_b, gone <= 3   ? 20
                                 : gone < 6  ? 20 - 4 * (gone - 3)
                                 : gone == 6 ? 8
                                             : 8 - 4 * (gone - 6));
    }
    assert_int_equal(kv_index_count(w.ix).n_namespaces, 0);
    assert_int_equal(world_start(&w, 2, "alice", a, 20), 0);
    /* 11 pages: with the other's 5 the pool is full */
    assert_int_equal(world_start(&w, 3, "bob", other, 44), 0);
    world_check(&w);
    world_close(&w);
}

TEST(a_tenants_retention_does_not_reach_public_pages) {
    world w;
    int32_t a[20], b[12];
    const kv_retention soon_gone = {.priority = 0, .ttl_us = 1};
    prompt(a, 100, 20);
    numbers(b, 500, 12);
    open_public(&w, 16);
    assert_int_equal(world_start(&w, 0, "bob", b, 12), 0);
    world_finish(&w, 0);
    assert_int_equal(world_start(&w, 0, "alice", a, 20), 0);
    assert_int_equal(kv_index_retain(w.ix, &w.seqs[0].path, &soon_gone), QUIRE_OK);
    world_finish(&w, 0);
    assert_int_equal(world_start(&w, 0, "alice", a, 20), 19);
    assert_int_equal(kv_index_retain(w.ix, &w.seqs[0].path, &soon_gone), QUIRE_OK);
    world_truncate(&w, 0, 0); /* preempted, and back */
    assert_int_equal(kv_index_match(w.ix, &w.seqs[0].path, a, 20, w.seqs[0].tables, &w.seqs[0].n), QUIRE_OK);
    world_finish(&w, 0);
    kv_index_set_time(w.ix, 1000);
    for (int32_t gone = 1; gone <= 6; gone++) {
        assert_true(world_evict(&w, kv_pool_counts(w.pool).n_free + 1));
        world_check(&w);
        /* her own three go first */
        assert_int_equal(world_peek(&w, "alice", a, 20), gone < 3 ? 20 - 4 * gone : 8);
        /* then what is older */
        assert_int_equal(world_peek(&w, "bob", b, 12), gone <= 3 ? 12 : 12 - 4 * (gone - 3));
    }
    world_close(&w);
}

#ifdef QUIRE_DEBUG
TEST(naming_a_prefix_without_memory_changes_nothing) {
    world w;
    int32_t a[20];
    prompt(a, 100, 20);
    world_open(&w, 16, SIZE, 1, NULL);
    const int64_t points[] = {1, 1, 2}; /* the list, which stays grown; the scope; the tokens */
    for (int i = 0; i < 3; i++) {
        fault_at(points[i]);
        assert_int_equal(kv_index_add_public(w.ix, "model", 5, a, 8), QUIRE_NO_MEMORY);
        assert_true(fault_happened());
        assert_int_equal(world_start(&w, 0, "alice", a, 20), 0);
        assert_int_equal(w.seqs[0].path.n_public, 0);
        world_finish(&w, 0);
        kv_index_clear(w.ix);
    }
    fault_at(0);
    assert_int_equal(kv_index_add_public(w.ix, "model", 5, a, 8), QUIRE_OK);
    assert_int_equal(world_start(&w, 0, "alice", a, 20), 0);
    assert_int_equal(w.seqs[0].path.n_public, 2);
    world_close(&w);
}
#else
TEST(naming_a_prefix_without_memory_changes_nothing) {
    print_message("SKIP: no fault injection in this build\n");
}
#endif

TEST(entering_without_room_for_both_spaces_changes_nothing) {
    world w;
    int32_t a[20];
    kv_path paths[NAMESPACES - 1], another;
    prompt(a, 100, 20);
    open_public(&w, 16);
    for (char i = 0; i < NAMESPACES - 1; i++) {
        assert_int_equal(kv_index_enter(w.ix, &i, 1, &paths[(int)i]), QUIRE_OK);
    }
    assert_int_equal(kv_index_enter_public(w.ix, "model", 5, "d", 1, a, 20, &another), QUIRE_NO_ROOM);
    assert_int_equal(kv_index_count(w.ix).n_namespaces, NAMESPACES - 1);
    char name[KV_NAMESPACE_BYTES + 1] = {0};
    assert_int_equal(kv_index_enter_public(w.ix, "model", 5, name, sizeof name, a, 20, &another),
                     QUIRE_INVALID);
    assert_int_equal(kv_index_add_public(w.ix, name, sizeof name, a, 20), QUIRE_INVALID);
    assert_int_equal(kv_index_count(w.ix).n_namespaces, NAMESPACES - 1);
    kv_index_leave(w.ix, &paths[0]);
    assert_int_equal(kv_index_enter_public(w.ix, "model", 5, "d", 1, a, 20, &another), QUIRE_OK);
    paths[0] = kv_index_fork(w.ix, &another);
    kv_index_leave(w.ix, &another);
    assert_int_equal(kv_index_count(w.ix).n_namespaces, NAMESPACES);
    for (int i = 0; i < NAMESPACES - 1; i++) {
        kv_index_leave(w.ix, &paths[i]);
    }
    world_close(&w);
}

TEST(window_groups_reach_back_across_the_boundary) {
    static const int32_t windows[] = {0, 7};
    world w;
    int32_t a[30], tokens[PUBLIC];
    prompt(a, 100, 30);
    numbers(tokens, 0, PUBLIC);
    world_open(&w, 64, SIZE, 2, windows);
    assert_int_equal(kv_index_add_public(w.ix, "model", 5, tokens, PUBLIC), QUIRE_OK);
    assert_int_equal(world_start(&w, 0, "alice", a, 13), 0);
    assert_int_equal(world_start(&w, 1, "bob", a, 13), 8);
    /* position 12 sees 6..12: a public page among them */
    assert_int_equal(world_start(&w, 2, "alice", a, 13), 12);
    world_check(&w);
    assert_true(world_extend(&w, 2, a + 13, 17));
    world_check(&w);
    world_truncate(&w, 1, 9);
    world_check(&w);
    world_close(&w);
}

TEST_MAIN(NULL, NULL)
