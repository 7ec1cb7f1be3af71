#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/audit.h"
#include "test.h"

enum { MAX_TABLES = 16, MAX_COPIES = 64 };

/* A pool, some tables and a copy list, audited after every operation. */
typedef struct world {
    kv_pool *pool;
    kv_table tables[MAX_TABLES];
    int32_t n_tables, page_tokens;
    kv_copies copies;
} world;

static void open_world(world *w, int32_t n_pages, int32_t page_tokens, int32_t n_tables) {
    *w = (world){.n_tables = n_tables, .page_tokens = page_tokens};
    assert_int_equal(kv_pool_open(n_pages, &w->pool), QUIRE_OK);
    for (int32_t i = 0; i < n_tables; i++) {
        assert_int_equal(kv_table_init(&w->tables[i], 4), QUIRE_OK);
    }
    w->copies.pairs = mem_new(MAX_COPIES, sizeof *w->copies.pairs);
    w->copies.cap = MAX_COPIES;
}

static void audit(const world *w) {
    const kv_table *tables[MAX_TABLES];
    for (int32_t i = 0; i < w->n_tables; i++) {
        const kv_table *t = tables[i] = &w->tables[i];
        assert_int_equal(t->n_pages, (t->n_tokens + w->page_tokens - 1) / w->page_tokens);
    }
    quire_error err;
    if (kv_check(w->pool, tables, w->n_tables, NULL, 0, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static void close_world(world *w) {
    for (int32_t i = 0; i < w->n_tables; i++) {
        kv_table_deinit(w->pool, &w->tables[i]);
    }
    kv_counts c = kv_pool_counts(w->pool);
    assert_int_equal(c.n_free, c.n_pages);
    kv_pool_close(w->pool);
    mem_free(w->copies.pairs);
}

static void append(world *w, int32_t i, int32_t n_tokens) {
    assert_int_equal(kv_table_append(w->pool, &w->tables[i], n_tokens, w->page_tokens, &w->copies), QUIRE_OK);
    audit(w);
}

static void fork_to(world *w, int32_t from, int32_t to) {
    assert_int_equal(kv_table_fork(w->pool, &w->tables[from], &w->tables[to]), QUIRE_OK);
    audit(w);
}

static int32_t held(const world *w) {
    return kv_pool_counts(w->pool).n_held;
}

/* A write to a token that is there already: drop it and append it again. */
static void rewrite_last(world *w, int32_t i) {
    kv_table_truncate(w->pool, &w->tables[i], w->tables[i].n_tokens - 1, w->page_tokens);
    append(w, i, 1);
}

/* Worked examples 1 and 2. */
TEST(forks_share_full_pages_and_grow_on_their_own) {
    world w;
    open_world(&w, 64, 16, 4);
    append(&w, 0, 64);
    for (int i = 1; i < 4; i++) {
        fork_to(&w, 0, i);
    }
    assert_int_equal(held(&w), 4);
    assert_int_equal(kv_pool_counts(w.pool).n_free, 60);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kv_pool_count(w.pool, w.tables[0].pages[i]), 4);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kv_table_needs(w.pool, &w.tables[i], 10, 16), 1);
        append(&w, i, 10);
    }
    assert_int_equal(held(&w), 8);
    assert_int_equal(w.copies.n, 0); /* the prompt ended on a page boundary */
    close_world(&w);
}

/* Worked examples 3 and 4. */
TEST(a_forked_table_copies_only_the_page_it_writes) {
    world w;
    open_world(&w, 64, 16, 4);
    append(&w, 0, 64);
    for (int i = 1; i < 4; i++) {
        fork_to(&w, 0, i);
    }
    page_id tail = w.tables[0].pages[3];
    rewrite_last(&w, 1);
    assert_int_equal(held(&w), 5);
    assert_int_equal(kv_pool_counts(w.pool).n_free, 59);
    assert_int_equal(kv_pool_count(w.pool, tail), 3);
    assert_int_equal(kv_pool_count(w.pool, w.tables[1].pages[3]), 1);
    assert_int_equal(w.copies.n, 1);
    assert_int_equal(w.copies.pairs[0].src.v, tail.v);
    assert_int_equal(w.copies.pairs[0].dst.v, w.tables[1].pages[3].v);
    rewrite_last(&w, 2);
    rewrite_last(&w, 3);
    assert_int_equal(held(&w), 7);
    assert_int_equal(w.tables[0].pages[3].v, tail.v);
    rewrite_last(&w, 0); /* the last holder keeps the original */
    assert_int_equal(held(&w), 7);
    assert_int_equal(w.tables[0].pages[3].v, tail.v);
    assert_int_equal(w.copies.n, 3);
    for (int i = 0; i < 4; i++) {
        append(&w, i, 10);
    }
    assert_int_equal(held(&w), 11);
    close_world(&w);
}

/* Worked example 5. */
TEST(an_append_into_a_shared_part_filled_page_copies_it_for_all_but_the_last) {
    world w;
    open_world(&w, 64, 16, 4);
    append(&w, 0, 60);
    for (int i = 1; i < 4; i++) {
        fork_to(&w, 0, i);
    }
    assert_int_equal(held(&w), 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kv_table_needs(w.pool, &w.tables[i], 10, 16), i < 3 ? 2 : 1);
        append(&w, i, 10);
    }
    assert_int_equal(w.copies.n, 3);
    assert_int_equal(held(&w), 11);
    close_world(&w);
}

/* Prompts of the worked examples 2 and 6 by sequences that share nothing, and with 10
 * tokens more each. */
static int32_t held_without_sharing(int32_t prompt, int32_t more) {
    world w;
    open_world(&w, 128, 16, 4);
    for (int i = 0; i < 4; i++) {
        append(&w, i, prompt);
        append(&w, i, more);
    }
    int32_t n = held(&w);
    close_world(&w);
    return n;
}

/* Worked example 6. */
TEST(four_sequences_of_one_prompt_hold_its_pages_once) {
    world w;
    open_world(&w, 128, 16, 4);
    append(&w, 0, 256);
    for (int i = 1; i < 4; i++) {
        fork_to(&w, 0, i);
    }
    assert_int_equal(held(&w), 16);
    for (int i = 0; i < 4; i++) {
        append(&w, i, 10);
    }
    assert_int_equal(held(&w), 20);
    close_world(&w);
    assert_int_equal(held_without_sharing(64, 0), 16);
    assert_int_equal(held_without_sharing(64, 10), 20);
    assert_int_equal(held_without_sharing(256, 0), 64);
    assert_int_equal(held_without_sharing(256, 10), 68);
}

/* Worked examples 9 and 11. */
TEST(a_position_lies_at_its_page_times_the_page_size_plus_its_offset) {
    page_id pages[] = {{7}, {3}, {12}};
    kv_table t = {.pages = pages, .n_pages = 3, .cap_pages = 3, .n_tokens = 48};
    assert_int_equal(kv_table_slot(&t, 47, 16), 207);
    assert_int_equal(kv_table_slot(&t, 0, 16), 112);
    world w;
    open_world(&w, 128, 16, 1);
    append(&w, 0, 2048);
    assert_int_equal(w.tables[0].n_pages, 128);
    assert_int_equal((size_t)w.tables[0].n_pages * sizeof *w.tables[0].pages, 512);
    close_world(&w);
}

/* Worked examples 19, 28, 29 and 30. */
TEST(pages_are_taken_when_the_one_before_is_full) {
    world w;
    open_world(&w, 128, 2, 1);
    append(&w, 0, 5);
    assert_int_equal(w.tables[0].n_pages, 3);
    close_world(&w);

    open_world(&w, 128, 16, 2);
    append(&w, 0, 29);
    append(&w, 1, 1295);
    assert_int_equal(w.tables[0].n_pages, 2);
    assert_int_equal(w.tables[1].n_pages, 81);
    close_world(&w);

    open_world(&w, 128, 16, 1);
    append(&w, 0, 16);
    assert_int_equal(w.tables[0].n_pages, 1);
    append(&w, 0, 8);
    assert_int_equal(w.tables[0].n_pages, 2);
    for (int i = 0; i < 61; i++) {
        append(&w, 0, 1);
    }
    assert_int_equal(w.tables[0].n_pages, 6);
    assert_int_equal(w.tables[0].n_tokens - 5 * 16, 5);
    close_world(&w);

    open_world(&w, 8, 4, 1);
    for (int p = 0; p < 5; p++) {
        assert_int_equal(kv_table_needs(w.pool, &w.tables[0], 1, 4), p == 0 || p == 4);
        append(&w, 0, 1);
        static const int offsets[] = {0, 1, 2, 3, 0};
        assert_int_equal(kv_table_slot(&w.tables[0], p, 4) % 4, offsets[p]);
    }
    assert_int_equal(held(&w), 2);
    kv_table_clear(w.pool, &w.tables[0]);
    audit(&w);
    assert_int_equal(held(&w), 0);
    close_world(&w);
}

/* Worked example 10. */
TEST(the_mean_waste_in_the_tail_is_half_a_page_less_half_a_token) {
    for (int32_t size = 1; size <= 256; size *= 4) { /* 1, 4, 16, 64, 256 */
        world w;
        open_world(&w, 16 * 8, size, 1);
        int32_t wasted = 0, longest = 8 * size;
        for (int32_t n = 1; n <= longest; n++) {
            append(&w, 0, n);
            wasted += held(&w) * size - w.tables[0].n_tokens;
            kv_table_clear(w.pool, &w.tables[0]);
        }
        assert_int_equal(2 * wasted, (size - 1) * longest); /* 7.5 on average at 16 */
        close_world(&w);
    }
}

TEST(an_append_without_room_changes_nothing) {
    world w;
    open_world(&w, 4, 4, 2);
    append(&w, 0, 10);
    fork_to(&w, 0, 1);
    kv_table before = w.tables[1];
    assert_int_equal(kv_table_needs(w.pool, &w.tables[1], 3, 4), 2);
    assert_int_equal(kv_table_append(w.pool, &w.tables[1], 3, 4, &w.copies), QUIRE_NO_ROOM);
    assert_int_equal(w.tables[1].n_tokens, before.n_tokens);
    assert_int_equal(w.tables[1].n_pages, before.n_pages);
    assert_int_equal(w.copies.n, 0);
    audit(&w);
    w.copies.cap = 0; /* a full copy list, with a page free */
    assert_int_equal(kv_table_append(w.pool, &w.tables[1], 1, 4, &w.copies), QUIRE_NO_ROOM);
    audit(&w);
    w.copies.cap = MAX_COPIES;
    append(&w, 1, 1);
    close_world(&w);
}

TEST(an_append_up_to_the_initial_capacity_allocates_nothing) {
    world w;
    open_world(&w, 64, 4, 2);
    kv_table t;
    assert_int_equal(kv_table_init(&t, 3), QUIRE_OK);
    append(&w, 0, 11);
    assert_int_equal(kv_table_fork(w.pool, &w.tables[0], &t), QUIRE_OK);
    mem_guard_enter();
    /* copies its tail with the table full */
    assert_int_equal(kv_table_append(w.pool, &t, 1, 4, &w.copies), QUIRE_OK);
    kv_table_truncate(w.pool, &t, 3, 4);
    kv_table_deinit(w.pool, &t);
    mem_guard_leave();
    close_world(&w);
}

TEST(nothing_appended_to_and_dropped_from_nothing_is_nothing) {
    world w;
    open_world(&w, 4, 4, 1);
    kv_table t = {0};
    assert_int_equal(kv_table_append(w.pool, &t, 0, 4, &w.copies), QUIRE_OK);
    kv_table_truncate(w.pool, &t, 0, 4);
    kv_table_forget(w.pool, &t, 0, 4);
    kv_table_deinit(w.pool, &t);
    close_world(&w);
}

TEST(an_indexed_tail_is_copied_before_it_is_written) {
    world w;
    open_world(&w, 8, 4, 1);
    append(&w, 0, 6);
    page_id tail = w.tables[0].pages[1];
    kv_pool_index(w.pool, tail, 0);
    append(&w, 0, 1);
    assert_int_equal(w.copies.n, 1);
    assert_int_not_equal(w.tables[0].pages[1].v, tail.v);
    assert_int_equal(kv_pool_counts(w.pool).n_cached, 1);
    kv_pool_unindex(w.pool, tail);
    close_world(&w);
}

TEST(the_audit_names_a_page_whose_count_is_wrong) {
    world w;
    open_world(&w, 8, 4, 1);
    append(&w, 0, 9);
    const kv_table *tables[] = {&w.tables[0]};
    quire_error err;
    page_id other = w.tables[0].pages[2];
    kv_pool_share(w.pool, other);
    assert_int_equal(kv_check(w.pool, tables, 1, NULL, 0, &err), QUIRE_INTERNAL);
    assert_non_null(strstr(err.message, "count 2"));
    assert_int_equal(kv_check(w.pool, tables, 1, &other, 1, &err), QUIRE_OK);
    kv_pool_release(w.pool, other);
    assert_int_equal(kv_check(w.pool, tables, 0, NULL, 0, &err), QUIRE_INTERNAL);
    page_id outside = {8};
    assert_int_equal(kv_check(w.pool, tables, 1, &outside, 1, &err), QUIRE_INTERNAL);
    close_world(&w);
}

/* What every slot would hold: tokens are numbers, copies and writes are done as a backend
 * does them. */
typedef struct memory {
    int32_t slots[40 * 8];
    int32_t tokens[MAX_TABLES][512];
} memory;

static void apply_copies(world *w, memory *m) {
    for (int32_t i = 0; i < w->copies.n; i++) {
        memcpy(&m->slots[w->copies.pairs[i].dst.v * w->page_tokens],
               &m->slots[w->copies.pairs[i].src.v * w->page_tokens],
               (size_t)w->page_tokens * sizeof m->slots[0]);
    }
    w->copies.n = 0;
}

static void random_operation(world *w, memory *m, uint64_t *s, int32_t *next_token) {
    int32_t i = (int32_t)(rng_next(s) % (uint64_t)w->n_tables),
            j = (int32_t)(rng_next(s) % (uint64_t)w->n_tables);
    kv_table *t = &w->tables[i];
    switch (rng_next(s) % 8) {
    case 0:
        if (w->tables[j].n_pages == 0 && i != j) {
            fork_to(w, i, j);
            memcpy(m->tokens[j], m->tokens[i], sizeof m->tokens[j]);
        }
        return;
    case 1:
        kv_table_clear(w->pool, t);
        return;
    case 2:
        kv_table_truncate(w->pool, t, (int32_t)(rng_next(s) % (uint64_t)(t->n_tokens + 1)), w->page_tokens);
        return;
    default: {
        int32_t n = 1 + (int32_t)(rng_next(s) % 20), from = t->n_tokens;
        bool fits = kv_table_needs(w->pool, t, n, w->page_tokens) <= kv_pool_counts(w->pool).n_free;
        assert_int_equal(kv_table_append(w->pool, t, n, w->page_tokens, &w->copies),
                         fits ? QUIRE_OK : QUIRE_NO_ROOM);
        apply_copies(w, m);
        for (int32_t p = from; fits && p < from + n; p++) {
            m->tokens[i][p] = m->slots[kv_table_slot(t, p, w->page_tokens)] = (*next_token)++;
        }
        return;
    }
    }
}

TEST(random_operations_keep_every_sequences_own_tokens) {
    uint64_t seed = rng_os_seed(), s = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int32_t page_tokens = 1; page_tokens <= 8; page_tokens *= 2) {
        static memory m;
        world w;
        int32_t next_token = 1;
        open_world(&w, 40, page_tokens, 6);
        for (int step = 0; step < 4000; step++) {
            random_operation(&w, &m, &s, &next_token);
            audit(&w);
            for (int32_t i = 0; i < w.n_tables; i++) {
                for (int32_t p = 0; p < w.tables[i].n_tokens; p++) {
                    assert_int_equal(m.slots[kv_table_slot(&w.tables[i], p, page_tokens)], m.tokens[i][p]);
                }
            }
        }
        close_world(&w);
    }
}

TEST_MAIN(NULL, NULL)
