/* Records, directories and the host tier: what is given back is what was put in, behind what it was put in, or nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/hash.h"
#include "kv/tier.h"
#include "kv/tier_dir.h"

enum { PAGE_TOKENS = 4, N_GROUPS = 2, PAGE_BYTES = 192 };

static uint64_t seed;

static const kv_record_shape shape = {
    .version = "model 1, f32", .n_version = 12, .page_tokens = PAGE_TOKENS, .n_groups = N_GROUPS, .page_bytes = PAGE_BYTES};

static int32_t below(int32_t n) {
    return (int32_t)(rng_next(&seed) % (uint64_t)n);
}

/* ---- records ---- */

static kv_record some_record(const int32_t *tokens) {
    return (kv_record){.key = {.space = "tenant", .n_space = 6, .group = 1, .parent = {3, 4}, .tokens = tokens, .hash = 77},
                       .id = {5, 6},
                       .stamp = 8,
                       .sum = 9};
}

static void a_head_says_what_was_written(void **state) {
    (void)state;
    int32_t tokens[PAGE_TOKENS] = {1, -2, INT32_MAX, 0};
    kv_record r = some_record(tokens), back;
    unsigned char *head = mem_new(1, kv_record_head_bytes(&shape));
    kv_record_write(&shape, &r, head);
    assert_true(kv_record_read(&shape, head, &back));
    assert_true(kv_record_same_key(&shape, &r.key, &back.key));
    assert_true(kv_tier_id_equal(back.id, r.id));
    assert_true(back.stamp == 8 && back.sum == 9 && back.key.hash == 77);
    mem_free(head);
}

static void a_head_with_any_bit_changed_is_no_head(void **state) {
    (void)state;
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

static void a_head_of_another_shape_or_version_is_no_head(void **state) {
    (void)state;
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

/* ---- prefixes of a small world: few tokens, so that they share a lot, and a page whose bytes follow from the whole prefix ---- */

enum { MAX_DEPTH = 4, N_TOKENS = 2, N_SPACES = 3 };

typedef struct prefix {
    int32_t space, n_pages, group;
    int32_t tokens[MAX_DEPTH * PAGE_TOKENS];
} prefix;

static const char *const spaces[N_SPACES] = {"", "a", "tenant with a name"};

static prefix random_prefix(void) {
    prefix p = {.space = below(N_SPACES), .n_pages = 1 + below(MAX_DEPTH), .group = below(N_GROUPS)};
    for (int32_t i = 0; i < MAX_DEPTH; i++) {
        p.tokens[i * PAGE_TOKENS] = below(N_TOKENS); /* the rest is 0 */
    }
    return p;
}

static void content(const prefix *p, unsigned char *bytes) {
    uint64_t h =
        kv_hash_page(kv_hash_root((uint64_t)p->group, spaces[p->space], strlen(spaces[p->space])), p->tokens, p->n_pages * PAGE_TOKENS);
    for (int i = 0; i < PAGE_BYTES; i++) {
        bytes[i] = (unsigned char)rng_next(&h);
    }
}

/* The ids that an engine would have given: one for each prefix it has seen. */
typedef struct known {
    prefix p;
    kv_tier_id id;
} known;

static known *seen;
static int32_t n_seen;

static kv_tier_id id_of(const prefix *p, int32_t n_pages) {
    if (n_pages == 0) {
        return (kv_tier_id){0, 0};
    }
    size_t n_bytes = (size_t)(n_pages * PAGE_TOKENS) * sizeof(int32_t);
    for (int32_t i = 0; i < n_seen; i++) {
        if (seen[i].p.space == p->space && seen[i].p.n_pages == n_pages && memcmp(seen[i].p.tokens, p->tokens, n_bytes) == 0) {
            return seen[i].id;
        }
    }
    assert_true(n_seen < 4096);
    seen[n_seen] = (known){*p, {rng_next(&seed), rng_next(&seed)}};
    seen[n_seen].p.n_pages = n_pages;
    return seen[n_seen++].id;
}

static kv_tier_key key_of(const prefix *p) {
    uint64_t hash = kv_hash_root(0, spaces[p->space], strlen(spaces[p->space]));
    for (int32_t i = 0; i < p->n_pages; i++) {
        hash = kv_hash_page(hash, p->tokens + i * PAGE_TOKENS, PAGE_TOKENS);
    }
    return (kv_tier_key){.space = spaces[p->space],
                         .n_space = strlen(spaces[p->space]),
                         .group = p->group,
                         .parent = id_of(p, p->n_pages - 1),
                         .tokens = p->tokens + (p->n_pages - 1) * PAGE_TOKENS,
                         .hash = hash};
}

static void check(const kv_tiers *t) {
    quire_error err = {.message = ""};
    if (kv_tiers_check(t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static bool put(kv_tiers *t, const prefix *p) {
    kv_tier_key key = key_of(p);
    void *body = kv_tiers_put_begin(t, &key);
    if (body != NULL) {
        content(p, body);
        kv_tiers_put_end(t, &key, id_of(p, p->n_pages));
    }
    check(t);
    return body != NULL;
}

/* Whether the tiers give p's page; it is the right one then. */
static bool get(kv_tiers *t, const prefix *p) {
    kv_tier_key key = key_of(p);
    kv_tier_id id;
    int32_t frame;
    unsigned char expected[PAGE_BYTES];
    if (kv_tiers_fetch(t, &key, &frame) != KV_FETCH_STARTED) {
        check(t);
        return false;
    }
    while (!kv_tiers_is_ready(t, frame)) {
        kv_tiers_poll(t);
    }
    const void *body = kv_tiers_take(t, frame, key.parent, &id);
    if (body != NULL) {
        content(p, expected);
        assert_memory_equal(body, expected, PAGE_BYTES);
        assert_true(kv_tier_id_equal(id, id_of(p, p->n_pages)));
    }
    kv_tiers_release(t, frame);
    check(t);
    return body != NULL;
}

static kv_tiers *open_host(int32_t n_pages, int32_t hash_bits) {
    kv_tiers *t;
    quire_error err;
    kv_tiers_options o = {
        .shape = shape, .host_bytes = n_pages * (int64_t)(kv_record_head_bytes(&shape) + PAGE_BYTES), .hash_bits = hash_bits};
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
    kv_tier_stats s[KV_N_TIERS];
    kv_tiers_stats(t, s);
    assert_true(n_got > 0);
    assert_int_equal(s[KV_TIER_HOST].errors, 0);
    assert_true(s[KV_TIER_HOST].bytes <= n_pages * (int64_t)(kv_record_head_bytes(&shape) + PAGE_BYTES));
    kv_tiers_close(t);
}

static void pages_come_back_as_they_were_put_in_the_host_tier(void **state) {
    (void)state;
    random_pages(1, 0, 5000);
    random_pages(7, 0, 3000);
    random_pages(100, 0, 3000);
}

static void a_hash_of_no_worth_finds_the_same(void **state) {
    (void)state;
    random_pages(7, 1, 2000);
    random_pages(100, 1, 2000);
}

static void the_longest_unused_page_is_forgotten_first(void **state) {
    (void)state;
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

static void equal_tokens_behind_another_prefix_are_another_page(void **state) {
    (void)state;
    kv_tiers *t = open_host(10, 0);
    prefix p = {.n_pages = 2}, q = {.n_pages = 2};
    q.tokens[0] = 1; /* the first page differs, the second is the same */
    assert_true(put(t, &p));
    assert_false(get(t, &q));
    prefix other_space = p, other_group = p, shorter = p;
    other_space.space = 1;
    other_group.group = 1;
    shorter.n_pages = 1;
    assert_false(get(t, &other_space) || get(t, &other_group) || get(t, &shorter));
    assert_true(get(t, &p));
    kv_tiers_close(t);
}

static void a_page_that_is_being_read_outlives_its_place(void **state) {
    (void)state;
    kv_tiers *t = open_host(1, 0);
    prefix p = {.n_pages = 1}, q = {.n_pages = 1};
    q.tokens[0] = 1;
    assert_true(put(t, &p));
    kv_tier_key key = key_of(&p);
    int32_t frame;
    assert_int_equal(kv_tiers_fetch(t, &key, &frame), KV_FETCH_STARTED);
    assert_true(put(t, &q));
    assert_false(get(t, &p));
    kv_tier_id id;
    unsigned char expected[PAGE_BYTES];
    content(&p, expected);
    assert_memory_equal(kv_tiers_take(t, frame, key.parent, &id), expected, PAGE_BYTES);
    assert_null(kv_tiers_take(t, frame, (kv_tier_id){1, 1}, &id)); /* not behind that */
    kv_tiers_release(t, frame);
    check(t);
    kv_tiers_close(t);
}

int main(void) {
    seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    seen = mem_new(4096, sizeof *seen);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_says_what_was_written),
        cmocka_unit_test(a_head_with_any_bit_changed_is_no_head),
        cmocka_unit_test(a_head_of_another_shape_or_version_is_no_head),
        cmocka_unit_test(pages_come_back_as_they_were_put_in_the_host_tier),
        cmocka_unit_test(a_hash_of_no_worth_finds_the_same),
        cmocka_unit_test(the_longest_unused_page_is_forgotten_first),
        cmocka_unit_test(equal_tokens_behind_another_prefix_are_another_page),
        cmocka_unit_test(a_page_that_is_being_read_outlives_its_place),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mem_free(seen);
    return failed;
}
