/* Records, directories and the host tier: what is given back is what was put in, behind
 * what it was put in, or nothing. */
#include <stdio.h>

#include "test.h"
#include "tier_world.h"

/* ---- records ---- */

static kv_record some_record(const int32_t *tokens) {
    return (kv_record){.key = {.namespace = "tenant",
                               .n_namespace = 6,
                               .group = 1,
                               .parent = {3, 4},
                               .id = {5, 6},
                               .tokens = tokens},
                       .stamp = 8,
                       .sum = 9};
}

TEST(a_head_says_what_was_written) {
    int32_t tokens[PAGE_TOKENS] = {1, -2, INT32_MAX, 0};
    kv_record r = some_record(tokens), back;
    unsigned char *head = mem_new(1, kv_record_head_bytes(&shape));
    kv_record_write(&shape, &r, head);
    assert_true(kv_record_read(&shape, head, &back));
    assert_true(kv_record_same_key(&shape, &r.key, &back.key));
    assert_true(back.stamp == 8 && back.sum == 9);
    mem_free(head);
}

TEST(a_head_with_any_bit_changed_is_no_head) {
    int32_t tokens[PAGE_TOKENS] = {1, 2, 3, 4};
    kv_record r = some_record(tokens), back;
    size_t n = kv_record_head_bytes(&shape);
    unsigned char *head = mem_new(1, n);
    kv_record_write(&shape, &r, head);
    for (size_t i = 0; i < n; i++) {
        for (int bit = 0; bit < 8; bit++) {
            head[i] ^= (unsigned char)(1 << bit);
            assert_false(kv_record_read(&shape, head, &back));
            head[i] ^= (unsigned char)(1 << bit);
        }
    }
    assert_true(kv_record_read(&shape, head, &back));
    mem_free(head);
}

/* One bit more or less in what comes before, in a namespace's name, or in a token:
 * another name. The same in every process, so the numbers are stored; they are those of a
 * SHA-256 made elsewhere. */
TEST(names_of_prefixes_tell_them_apart) {
    int32_t tokens[PAGE_TOKENS] = {1, 2, 3, 4}, others[PAGE_TOKENS] = {1, 2, 3, 5};
    const kv_tier_id none = {0, 0};
    kv_tier_id root = kv_tier_id_root(none, "tenant", 6, false),
               page = kv_tier_id_page(root, tokens, PAGE_TOKENS);
    kv_tier_id names[] = {none,
                          root,
                          kv_tier_id_root(none, "tenant", 6, true),
                          kv_tier_id_root(none, "tenan", 5, false),
                          kv_tier_id_root(none, NULL, 0, false),
                          kv_tier_id_root(page, "tenant", 6, false),
                          page,
                          kv_tier_id_page(root, others, PAGE_TOKENS),
                          kv_tier_id_page(root, tokens, PAGE_TOKENS - 1),
                          kv_tier_id_page(page, tokens, PAGE_TOKENS),
                          kv_tier_id_root(root, tokens, sizeof tokens, false)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_false(kv_tier_id_equal(names[i], names[k]));
        }
    }
    assert_true(kv_tier_id_equal(page, (kv_tier_id){0x856c6f15e7ca44beu, 0xfd3490975d911f7cu}));
}

TEST(a_head_of_another_shape_or_version_is_no_head) {
    int32_t tokens[8] = {1, 2, 3, 4};
    kv_record r = some_record(tokens), back;
    unsigned char head[1024] = {0};
    kv_record_shape other[] = {shape, shape, shape, shape, shape};
    other[0].version = "model 2, f32";
    other[1].n_version = 11;
    other[2].page_tokens = 8;
    other[3].page_bytes = 256;
    other[4].n_groups = 3;
    kv_record_write(&shape, &r, head);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        assert_false(kv_record_read(&other[i], head, &back));
    }
    assert_true(kv_record_read(&shape, head, &back));
}

static kv_tiers *open_host(int32_t n_pages, int32_t hash_bits) {
    kv_tiers *t;
    quire_error err;
    kv_tiers_options o = {.shape = shape, .host_bytes = n_pages * record_bytes(), .hash_bits = hash_bits};
    assert_int_equal(kv_tiers_open(&o, &t, &err), QUIRE_OK);
    return t;
}

/* ---- the host tier ---- */

static void random_pages(int32_t n_pages, int32_t hash_bits, int32_t n_rounds) {
    kv_tiers *t = open_host(n_pages, hash_bits);
    int32_t n_got = 0;
    for (int32_t i = 0; i < n_rounds; i++) {
        prefix p = random_prefix();
        if (below(2) == 0) {
            put(t, &p);
            assert_true(get(t, &p));
        } else {
            n_got += get(t, &p);
        }
    }
    quire_tier_stats s[KV_N_TIERS];
    kv_tiers_stats(t, s);
    assert_true(n_got > 0);
    assert_int_equal(s[KV_TIER_HOST].errors, 0);
    assert_true(s[KV_TIER_HOST].bytes <= n_pages * record_bytes());
    kv_tiers_close(t);
}

TEST(pages_come_back_as_they_were_put_in_the_host_tier) {
    random_pages(1, 0, 5000);
    random_pages(7, 0, 3000);
    random_pages(100, 0, 3000);
}

TEST(a_hash_of_no_worth_finds_the_same) {
    random_pages(7, 1, 2000);
    random_pages(100, 1, 2000);
}

TEST(the_longest_unused_page_is_forgotten_first) {
    kv_tiers *t = open_host(3, 0);
    prefix p[4] = {0};
    for (int32_t i = 0; i < 4; i++) {
        p[i].n_pages = 1;
        p[i].tokens[0] = i;
    }
    assert_true(put(t, &p[0]) && put(t, &p[1]) && put(t, &p[2]));
    assert_true(get(t, &p[0]));
    assert_false(put(t, &p[1])); /* it is there: nothing to write, but it was of use */
    assert_true(put(t, &p[3]));
    assert_true(get(t, &p[0]) && get(t, &p[1]) && get(t, &p[3]));
    assert_false(get(t, &p[2]));
    kv_tiers_close(t);
}

TEST(equal_tokens_behind_another_prefix_are_another_page) {
    kv_tiers *t = open_host(10, 0);
    prefix p = {.n_pages = 2}, q = {.n_pages = 2};
    q.tokens[0] = 1; /* the first page differs, the second is the same */
    assert_true(put(t, &p));
    assert_false(get(t, &q));
    prefix other_namespace = p, other_group = p, shorter = p;
    other_namespace.namespace = 1;
    other_group.group = 1;
    shorter.n_pages = 1;
    assert_false(get(t, &other_namespace) || get(t, &other_group) || get(t, &shorter));
    assert_true(get(t, &p));
    kv_tiers_close(t);
}

/* Pages are so large that the least number of staging frames is there, and groups so many
 * that a page of tokens takes more. */
TEST(a_page_of_tokens_finds_frames_in_every_group) {
    enum { N_WIDE = 20 };
    kv_tiers *t;
    quire_error err;
    prefix p = {.n_pages = 1};
    int32_t frames[N_WIDE];
    kv_record_shape wide = shape;
    wide.n_groups = N_WIDE;
    wide.page_bytes = 4 << 20;
    kv_tiers_options o = {.shape = wide, .host_bytes = 2 * wide.page_bytes};
    assert_int_equal(kv_tiers_open(&o, &t, &err), QUIRE_OK);
    for (p.group = 0; p.group < N_WIDE; p.group++) {
        kv_tier_key key = key_of(&p);
        assert_true(kv_tiers_has_room(t));
        assert_non_null(kv_tiers_put_begin(t, &key, KV_PUT_ALL, &frames[p.group]));
        check(t);
    }
    for (int32_t i = 0; i < N_WIDE; i++) {
        kv_tiers_release(t, frames[i]);
        check(t);
    }
    kv_tiers_close(t);
}

TEST(a_page_that_is_being_read_outlives_its_place) {
    kv_tiers *t = open_host(1, 0);
    prefix p = {.n_pages = 1}, q = {.n_pages = 1};
    q.tokens[0] = 1;
    assert_true(put(t, &p));
    kv_tier_key key = key_of(&p);
    int32_t frame;
    assert_int_equal(kv_tiers_fetch(t, &key, &frame), KV_FETCH_STARTED);
    assert_true(put(t, &q));
    assert_false(get(t, &p));
    unsigned char expected[PAGE_BYTES];
    content(&p, expected);
    assert_memory_equal(kv_tiers_take(t, frame), expected, PAGE_BYTES);
    kv_tiers_release(t, frame);
    check(t);
    kv_tiers_close(t);
}

TEST_MAIN_SEEDED(NULL, NULL)
