/* A sequence takes over the part-filled page that the tree knows, where it is the only
 * holder. */

#include "kv/index.h"
#include "test.h"

enum { SIZE = 4, N_PAGES = 8 };

typedef struct world {
    kv_pool *pool;
    kv_index *ix;
    kv_path path;
    kv_table table;
} world;

static const int32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

static void check(const world *w) {
    quire_error err = {0};
    assert_int_equal(kv_pool_check(w->pool, &err), QUIRE_OK);
    assert_int_equal(kv_index_check(w->ix, &err), QUIRE_OK);
}

/* A sequence of n tokens, all of which it has published, tail and all. */
static void begin(world *w, int32_t n) {
    kv_index_options o = {.page_tokens = SIZE, .n_groups = 1, .max_namespaces = 4};
    kv_copies copies = {0};
    *w = (world){0};
    assert_int_equal(kv_pool_open(N_PAGES, &w->pool), QUIRE_OK);
    assert_int_equal(kv_index_open(w->pool, &o, &w->ix), QUIRE_OK);
    assert_int_equal(kv_index_enter(w->ix, "t", 1, &w->path), QUIRE_OK);
    assert_int_equal(kv_table_init(&w->table, N_PAGES), QUIRE_OK);
    assert_int_equal(kv_table_append(w->pool, &w->table, n, SIZE, &copies), QUIRE_OK);
    assert_int_equal(kv_index_publish(w->ix, &w->path, tokens, n, &w->table, KV_PUBLISH_TAIL), QUIRE_OK);
    check(w);
}

static void end(world *w) {
    kv_table_deinit(w->pool, &w->table);
    kv_index_leave(w->ix, &w->path);
    check(w);
    kv_index_close(w->ix);
    kv_pool_close(w->pool);
}

TEST(a_tail_that_is_taken_over_is_written_without_a_copy_and_found_no_more) {
    world w;
    begin(&w, 6);
    assert_true(kv_table_copies_tail(w.pool, &w.table, SIZE));
    kv_path other;
    assert_int_equal(kv_index_enter(w.ix, "t", 1, &other), QUIRE_OK);
    assert_int_equal(kv_index_peek(w.ix, &other, tokens, 10), 6);
    assert_true(kv_index_take_over_tail(w.ix, &w.table, 6));
    check(&w);
    assert_false(kv_table_copies_tail(w.pool, &w.table, SIZE));
    assert_int_equal(kv_index_peek(w.ix, &other, tokens, 10), 4);
    assert_false(kv_index_take_over_tail(w.ix, &w.table, 6)); /* there is nothing to take any more */
    kv_index_leave(w.ix, &other);
    end(&w);
}

TEST(a_tail_that_somebody_else_holds_stays) {
    world w;
    begin(&w, 6);
    kv_table fork;
    assert_int_equal(kv_table_init(&fork, N_PAGES), QUIRE_OK);
    assert_int_equal(kv_table_fork(w.pool, &w.table, &fork), QUIRE_OK);
    assert_false(kv_index_take_over_tail(w.ix, &w.table, 6));
    assert_true(kv_table_copies_tail(w.pool, &w.table, SIZE));
    check(&w);
    kv_table_deinit(w.pool, &fork);
    end(&w);
}

TEST(a_full_page_is_nobodys_to_take) {
    world w;
    begin(&w, 8);
    assert_false(kv_table_copies_tail(w.pool, &w.table, SIZE));
    assert_false(kv_index_take_over_tail(w.ix, &w.table, 8));
    check(&w);
    end(&w);
}

TEST_MAIN(NULL, NULL)
