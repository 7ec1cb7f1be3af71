#include "base/rng.h"
#include "kv/tree.h"
#include "test.h"

static void check(const kv_tree *t) {
    quire_error err = {.message = ""};
    if (kv_tree_check(t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static int32_t depth_of(const kv_tree *t, int32_t n) {
    if (n == TREE_NONE) {
        return 0;
    }
    int32_t left = depth_of(t, t->nodes[n].left), right = depth_of(t, t->nodes[n].right);
    return 1 + (left > right ? left : right);
}

/* Whoever sends prompts chooses the order in which siblings come; the treap over them
 * stays shallow. */
TEST(siblings_that_come_in_order_stay_logn_deep) {
    enum { N = 20000 };
    kv_tree t;
    assert_int_equal(kv_tree_open(&t, 1, 1, N, 1), QUIRE_OK);
    t.random = rng_os_seed();
    int32_t root = kv_tree_add_root(&t, 0), n_shared;
    for (int32_t token = 0; token < N; token++) {
        assert_int_not_equal(kv_tree_insert(&t, root, TREE_NONE, TREE_NONE, &token, 1), TREE_NONE);
    }
    check(&t);
    /* 2^14 < N < 2^15; expected 2 ln N, about 35 at most */
    assert_in_range(depth_of(&t, t.nodes[root].children), 15, 80);
    for (int32_t token = 0; token < N; token += 97) {
        int32_t e = kv_tree_best(&t, root, TREE_NONE, &token, 1, &n_shared);
        assert_int_equal(n_shared, 1);
        assert_int_equal(*kv_tree_tokens(&t, e), token);
        kv_tree_remove(&t, e);
    }
    check(&t);
    kv_tree_close(&t);
}

/* One root's entries follow an entry under another. */
TEST(an_entry_that_another_roots_entries_follow_is_not_the_last) {
    kv_tree t;
    assert_int_equal(kv_tree_open(&t, 2, 1, 8, 2), QUIRE_OK);
    int32_t all = kv_tree_add_root(&t, 0), own = kv_tree_add_root(&t, 1), n_shared;
    const int32_t ab[] = {1, 2}, cd[] = {3, 4}, ce[] = {3, 5}, f[] = {6};
    int32_t base = kv_tree_insert(&t, all, TREE_NONE, TREE_NONE, ab, 2);
    assert_true(kv_tree_is_last(&t, base));
    int32_t first = kv_tree_insert(&t, own, TREE_NONE, base, cd, 2);
    check(&t);
    assert_false(kv_tree_is_last(&t, base));
    assert_int_equal(kv_tree_entry(&t, first)->up, base);
    int32_t second = kv_tree_insert(&t, own, TREE_NONE, base, ce, 2),
            tail = kv_tree_insert(&t, own, second, second, f, 1);
    check(&t);
    int32_t more = kv_tree_insert(&t, all, base, base, cd, 2); /* the public prefix goes on in its own node */
    check(&t);
    assert_int_equal(kv_tree_entry(&t, more)->node, kv_tree_entry(&t, base)->node);
    assert_int_equal(kv_tree_best(&t, own, TREE_NONE, cd, 2, &n_shared), first);
    assert_int_equal(kv_tree_best(&t, all, base, cd, 2, &n_shared), more);
    kv_tree_remove(&t, more);
    kv_tree_remove(&t, tail);
    kv_tree_remove(&t, first);
    check(&t);
    assert_false(kv_tree_is_last(&t, base));
    kv_tree_remove(&t, second);
    check(&t);
    assert_true(kv_tree_is_last(&t, base));
    kv_tree_remove(&t, base);
    kv_tree_remove_root(&t, own);
    kv_tree_remove_root(&t, all);
    check(&t);
    assert_int_equal(t.n_entries + t.n_nodes, 0);
    kv_tree_close(&t);
}

TEST_MAIN(NULL, NULL)
