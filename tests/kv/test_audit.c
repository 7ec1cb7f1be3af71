/* The audit in bytes: the worked examples' integers, groups, padding and windows, and
 * random tables beside a naive count. */

#include "../core/layer_plan.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kv/audit.h"
#include "test.h"

enum { MAX_TABLES = 16, MAX_COPIES = 4096 };

/* A pool cut in a shape, and tables: tables[s * n_groups + g]. */
typedef struct world {
    kv_audit_shape shape;
    kv_pool *pool;
    kv_table tables[MAX_TABLES];
    int32_t n_tables;
    kv_copies copies;
    kv_audit_page *scratch;
} world;

/* One group of 16 layers of 8 heads of 64 in f16: 32,768 bytes a token, no padding. */
static kv_audit_shape plain_shape(int32_t page_tokens) {
    return (kv_audit_shape){.page_tokens = page_tokens,
                            .n_groups = 1,
                            .page_bytes = 32768 * (int64_t)page_tokens,
                            .token_bytes = {32768}};
}

static void open_world(world *w, kv_audit_shape shape, int32_t n_pages, int32_t n_seqs) {
    *w = (world){.shape = shape, .n_tables = n_seqs * shape.n_groups};
    assert_in_range(w->n_tables, 1, MAX_TABLES);
    assert_int_equal(kv_pool_open(n_pages, &w->pool), QUIRE_OK);
    for (int32_t i = 0; i < w->n_tables; i++) {
        assert_int_equal(kv_table_init(&w->tables[i], 4), QUIRE_OK);
    }
    w->copies.pairs = mem_new(MAX_COPIES, sizeof *w->copies.pairs);
    w->copies.cap = MAX_COPIES;
    w->scratch = mem_new((size_t)n_pages, sizeof *w->scratch);
}

/* The sums that always hold; the scratch is clean. */
static kv_audit audit(const world *w) {
    const kv_table *tables[MAX_TABLES];
    for (int32_t i = 0; i < w->n_tables; i++) {
        tables[i] = &w->tables[i];
    }
    quire_error err;
    if (kv_check(w->pool, tables, w->n_tables, NULL, 0, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    kv_audit a = kv_audit_all(&w->shape, w->pool, tables, w->n_tables, w->scratch);
    int32_t n_pages = kv_pool_counts(w->pool).n_pages;
    assert_int_equal(a.reserved_bytes + a.cached_bytes + a.free_bytes, n_pages * w->shape.page_bytes);
    assert_int_equal(a.live_bytes + a.wasted_bytes, a.reserved_bytes);
    assert_int_equal(a.live_slots + a.wasted_slots, a.n_pages * w->shape.page_tokens);
    for (int32_t page = 0; page < n_pages; page++) {
        assert_int_equal(w->scratch[page].first | w->scratch[page].end | w->scratch[page].n_entries, 0);
    }
    return a;
}

static kv_audit audit_request(const world *w, int32_t first, int32_t n_seqs) {
    const kv_table *tables[MAX_TABLES];
    int32_t n = n_seqs * w->shape.n_groups;
    for (int32_t i = 0; i < n; i++) {
        tables[i] = &w->tables[first * w->shape.n_groups + i];
    }
    return kv_audit_request(&w->shape, w->pool, tables, n, w->scratch);
}

static void close_world(world *w) {
    for (int32_t i = 0; i < w->n_tables; i++) {
        kv_table_deinit(w->pool, &w->tables[i]);
    }
    kv_audit a = audit(w);
    assert_int_equal(a.free_bytes, kv_pool_counts(w->pool).n_pages * w->shape.page_bytes);
    assert_int_equal(a.live_bytes | a.reserved_bytes | a.wasted_bytes | a.shared_bytes | a.cached_bytes, 0);
    kv_pool_close(w->pool);
    mem_free(w->copies.pairs);
    mem_free(w->scratch);
}

static void append(world *w, int32_t seq, int32_t n_tokens) {
    for (int32_t g = 0; g < w->shape.n_groups; g++) {
        kv_table *t = &w->tables[seq * w->shape.n_groups + g];
        assert_int_equal(kv_table_append(w->pool, t, n_tokens, w->shape.page_tokens, &w->copies), QUIRE_OK);
    }
}

static void fork_table(world *w, int32_t from, int32_t to) {
    for (int32_t g = 0; g < w->shape.n_groups; g++) {
        int32_t n = w->shape.n_groups;
        assert_int_equal(kv_table_fork(w->pool, &w->tables[from * n + g], &w->tables[to * n + g]), QUIRE_OK);
    }
}

/* Worked example 13. */
TEST(sixteen_prompts_of_500_to_8000_waste_0_141_percent_at_page_16) {
    static const int32_t sizes[] = {16, 64, 128, 256}, pages[] = {4256, 1070, 538, 272},
                         wasted[] = {96, 480, 864, 1632},
                         thousandths[] = {141, 706, 1271, 2400}; /* of a percent of the live tokens */
    for (int i = 0; i < 4; i++) {
        world w;
        open_world(&w, plain_shape(sizes[i]), 5000, 16);
        for (int32_t s = 0; s < 16; s++) {
            append(&w, s, 500 * (s + 1));
        }
        kv_audit a = audit(&w);
        assert_int_equal(a.n_pages, pages[i]);
        assert_int_equal(a.live_slots, 68000);
        assert_int_equal(a.wasted_slots, wasted[i]);
        assert_int_equal((a.wasted_slots * 100000 + 34000) / 68000, thousandths[i]);
        assert_int_equal(a.live_bytes, 68000 * (int64_t)32768);
        assert_int_equal(a.wasted_bytes, wasted[i] * (int64_t)32768);
        assert_int_equal(a.shared_bytes, 0);
        close_world(&w);
    }
}

/* Worked example 15. */
TEST(a_sequence_of_100000_tokens_wastes_less_than_a_page) {
    static const int32_t sizes[] = {16, 64, 128, 256}, pages[] = {6250, 1563, 782, 391},
                         wasted[] = {0, 32, 96, 96};
    for (int i = 0; i < 4; i++) {
        world w;
        open_world(&w, plain_shape(sizes[i]), 6250, 1);
        append(&w, 0, 100000);
        kv_audit a = audit(&w);
        assert_int_equal(a.n_pages, pages[i]);
        assert_int_equal(a.wasted_slots, wasted[i]);
        close_world(&w);
    }
}

/* Worked example 24: 2,000 shared tokens, then 30 + 150 of each user's own. */
TEST(eight_chats_on_one_system_prompt_take_221_pages_against_1096) {
    world w;
    open_world(&w, plain_shape(16), 256, 8);
    append(&w, 0, 2000);
    for (int32_t s = 1; s < 8; s++) {
        fork_table(&w, 0, s);
    }
    for (int32_t s = 0; s < 8; s++) {
        append(&w, s, 180);
    }
    kv_audit a = audit(&w);
    assert_int_equal(a.n_pages, 221);
    assert_int_equal(a.n_pages + a.n_shared_pages, 1096);
    assert_int_equal(a.shared_bytes, 875 * w.shape.page_bytes);
    assert_int_equal(a.live_slots, 2000 + 8 * 180);
    assert_int_equal(a.wasted_slots, 8 * 12);
    /* one chat: 137 pages, of which the 12 of its own would go with it */
    kv_audit r = audit_request(&w, 3, 1);
    assert_int_equal(r.n_pages, 137);
    assert_int_equal(r.n_shared_pages, 125);
    assert_int_equal(r.live_slots, 2180);
    assert_int_equal(r.wasted_slots, 12);
    assert_int_equal(r.cached_bytes | r.free_bytes, 0);
    r = audit_request(&w, 0, 8); /* all in one request: nobody else holds anything */
    assert_int_equal(r.n_pages, 221);
    assert_int_equal(r.n_shared_pages, 875);
    close_world(&w);
}

/* Worked examples 1, 2 and 5, as bytes. */
TEST(a_copied_tail_counts_for_each_holder_and_the_prompt_once) {
    world w;
    open_world(&w, plain_shape(16), 64, 4);
    append(&w, 0, 60);
    for (int32_t s = 1; s < 4; s++) {
        fork_table(&w, 0, s);
    }
    kv_audit a = audit(&w);
    assert_int_equal(a.n_pages, 4);
    assert_int_equal(a.n_shared_pages, 12);
    assert_int_equal(a.live_slots, 60);
    for (int32_t s = 0; s < 4; s++) {
        append(&w, s, 10);
    }
    a = audit(&w);
    assert_int_equal(a.n_pages, 11);
    assert_int_equal(a.n_shared_pages, 9);
    assert_int_equal(a.live_slots, 48 + 4 * 22);
    assert_int_equal(a.wasted_slots, 4 * 10);
    close_world(&w);
}

TEST(the_longest_holder_of_a_page_says_how_much_of_it_is_live) {
    world w;
    open_world(&w, plain_shape(16), 8, 2);
    append(&w, 0, 30);
    fork_table(&w, 0, 1);
    kv_table_truncate(w.pool, &w.tables[0], 17, 16);
    kv_audit a = audit(&w);
    assert_int_equal(a.live_slots, 30);
    assert_int_equal(audit_request(&w, 0, 1).live_slots, 17);
    kv_table_clear(w.pool, &w.tables[1]);
    assert_int_equal(audit(&w).live_slots, 17);
    close_world(&w);
}

TEST(cached_pages_are_neither_reserved_nor_free) {
    world w;
    open_world(&w, plain_shape(16), 8, 1);
    append(&w, 0, 40);
    kv_pool_index(w.pool, w.tables[0].pages[0], 5);
    kv_audit a = audit(&w);
    assert_int_equal(a.cached_bytes, 0);
    assert_int_equal(a.reserved_bytes, 3 * w.shape.page_bytes);
    kv_table_clear(w.pool, &w.tables[0]);
    a = audit(&w);
    assert_int_equal(a.reserved_bytes, 0);
    assert_int_equal(a.cached_bytes, w.shape.page_bytes);
    assert_int_equal(a.free_bytes, 7 * w.shape.page_bytes);
    kv_pool_unindex(w.pool, kv_pool_oldest(w.pool));
    close_world(&w);
}

/* 1 head of 3 elements in f16, 16 tokens: a plane holds 96 bytes in 128. 2 layers: 4
 * planes. */
TEST(padding_of_planes_is_wasted) {
    layer_plan d = {.n_layers = 2, .n_kv_heads = 1, .d_head = 3};
    kv_layout l;
    world w;
    kv_audit_shape shape;
    assert_int_equal(lay_out(&d, DTYPE_F16, 16, &l, NULL), QUIRE_OK);
    kv_audit_shape_init(&l, &shape);
    assert_int_equal(shape.page_bytes, 512);
    assert_int_equal(shape.token_bytes[0], 24);
    open_world(&w, shape, 4, 1);
    append(&w, 0, 20);
    kv_audit a = audit(&w);
    assert_int_equal(a.live_bytes, 20 * 24);
    assert_int_equal(a.wasted_bytes, 2 * 512 - 20 * 24);
    assert_int_equal(a.wasted_slots, 12);
    close_world(&w);
}

/* Gemma 3's layers: 3 full and 15 with a window make six groups of 3 without padding. */
TEST(a_window_groups_page_is_live_from_the_first_token_it_sees) {
    layer_kind kinds[18];
    for (int i = 0; i < 18; i++) {
        kinds[i] = i % 6 == 5 ? LAYER_FULL : LAYER_WINDOW;
    }
    layer_plan d = {.n_layers = 18, .n_kv_heads = 1, .d_head = 256, .kinds = kinds, .window = 512};
    kv_layout l;
    world w;
    kv_audit_shape shape;
    assert_int_equal(lay_out(&d, DTYPE_BF16, 16, &l, NULL), QUIRE_OK);
    kv_audit_shape_init(&l, &shape);
    assert_int_equal(shape.n_groups, 6);
    assert_int_equal(shape.page_bytes, 3 * 2 * 256 * 2 * 16);
    open_world(&w, shape, 6 * 63, 1);
    append(&w, 0, 1000); /* 63 pages of 16 a group; token 1000 will see 511 before it */
    kv_audit a = audit(&w);
    assert_int_equal(a.n_pages, 6 * 63);
    assert_int_equal(a.live_slots, 1000 + 5 * 511);
    for (int32_t g = 1; g < 6; g++) { /* the first token seen is 489, in page 30 */
        kv_table_forget(w.pool, &w.tables[g], 489, 16);
    }
    a = audit(&w);
    assert_int_equal(a.n_pages, 63 + 5 * 33);
    assert_int_equal(a.live_slots, 1000 + 5 * 511);
    assert_int_equal(a.wasted_slots, 8 + 5 * (33 * 16 - 511));
    close_world(&w);
}

/* Live slots and pages of all tables, counted one by one. */
static void count_naively(const world *w, int64_t *live_slots, int64_t *n_pages, int64_t *n_entries) {
    static unsigned char seen[64 * 16], held[64];
    const int32_t size = w->shape.page_tokens;
    for (int i = 0; i < 64 * 16; i++) {
        seen[i] = held[i / 16] = 0;
    }
    *live_slots = *n_pages = *n_entries = 0;
    for (int32_t t = 0; t < w->n_tables; t++) {
        for (int32_t p = 0; p < w->tables[t].n_tokens; p++) {
            unsigned char *slot = &seen[kv_table_slot(&w->tables[t], p, size)];
            *live_slots += !*slot;
            *slot = 1;
        }
        for (int32_t i = 0; i < w->tables[t].n_pages; i++) {
            unsigned char *page = &held[w->tables[t].pages[i].v];
            *n_pages += !*page;
            *page = 1;
        }
        *n_entries += w->tables[t].n_pages;
    }
}

TEST(random_tables_agree_with_a_naive_count) {
    uint64_t seed = rng_os_seed(), r = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    world w;
    open_world(&w, plain_shape(1 << rng_next(&r) % 5), 64, 8);
    for (int step = 0; step < 20000; step++) {
        kv_table *t = &w.tables[rng_next(&r) % 8], *from = &w.tables[rng_next(&r) % 8];
        switch (rng_next(&r) % 4) {
        case 0:
        case 1:
            w.copies.n = 0;
            (void)kv_table_append(w.pool, t, (int32_t)(rng_next(&r) % 40), w.shape.page_tokens, &w.copies);
            break;
        case 2:
            kv_table_truncate(w.pool, t, (int32_t)(rng_next(&r) % (uint64_t)(t->n_tokens + 1)),
                              w.shape.page_tokens);
            break;
        default:
            if (t != from) {
                kv_table_clear(w.pool, t);
                assert_int_equal(kv_table_fork(w.pool, from, t), QUIRE_OK);
            }
        }
        int64_t live_slots, n_pages, n_entries;
        count_naively(&w, &live_slots, &n_pages, &n_entries);
        kv_audit a = audit(&w);
        assert_int_equal(a.live_slots, live_slots);
        assert_int_equal(a.n_pages, n_pages);
        assert_int_equal(a.n_shared_pages, n_entries - n_pages);
    }
    close_world(&w);
}

TEST_MAIN(NULL, NULL)
