/* The turn store: what is found by whom, where, and what goes when there is no room. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "stream/turn_store.h"
#include "test.h"

#define ROOM 4096

static turn_store *open_store(size_t max_bytes) {
    turn_store *s;
    assert_int_equal(turn_store_open(max_bytes, &s), QUIRE_OK);
    return s;
}

/* Keeps a turn "text" of ids 1, 2 after `before`. */
static void keep(turn_store *s, uint64_t tenant, const char *id, const char *before, const char *text) {
    static const int32_t ids[] = {1, 2};
    turn_store_keep(s, tenant, id, turn_place_after(str_of(before)), str_of(text), ids, 2);
}

static turn_counts asked; /* what was found for one request */

static bool finds(turn_store *s, uint64_t tenant, const char *id, const char *text, size_t from) {
    token_list ids = {0};
    size_t at = 0, end = 0;
    bool found = turn_store_find(s, tenant, id, str_of(text), from, &ids, &at, &end, &asked);
    if (found) {
        assert_true(ids.n == 2 && ids.ids[0] == 1 && ids.ids[1] == 2 && at >= from && end > at);
    }
    token_list_deinit(&ids);
    return found;
}

TEST(a_turn_is_found_after_its_own_beginning_only) {
    turn_store *s = open_store(ROOM);
    keep(s, 7, "abcdefghi", "user: hi\n", "answer");
    asked = (turn_counts){0};
    assert_true(finds(s, 7, "abcdefghi", "user: hi\nanswer", 0));
    assert_true(finds(s, 7, "abcdefghi", "user: hi\nanswer and more", 9));
    assert_false(finds(s, 7, "abcdefghi", "user: hi\nanswer", 10)); /* another turn stands there */
    assert_false(finds(s, 7, "abcdefghi", "user: ho\nanswer", 0));
    assert_false(finds(s, 7, "abcdefghi", "user: hi\nanswe", 0));
    assert_false(finds(s, 7, "abcdefghi", "user: hi\nAnswer", 0));
    assert_false(finds(s, 7, "abcdefghi", "", 0));
    assert_false(finds(s, 8, "abcdefghi", "user: hi\nanswer", 0)); /* another tenant's */
    assert_false(finds(s, 7, "abcdefghj", "user: hi\nanswer", 0));
    const turn_counts n = turn_store_count(s);
    assert_true(n.n_reused == 2 && n.n_differ == 5 && n.n_gone == 2);
    assert_memory_equal(&asked, &n, sizeof n);
    turn_store_close(s);
}

/* As the samples of one answer. */
TEST(of_two_turns_with_one_id_the_one_in_the_text_counts) {
    turn_store *s = open_store(ROOM);
    keep(s, 7, "abcdefghi", "a", "old");
    keep(s, 7, "abcdefghi", "a", "new");
    assert_true(finds(s, 7, "abcdefghi", "anew", 0));
    assert_true(finds(s, 7, "abcdefghi", "aold", 0));
    assert_false(finds(s, 7, "abcdefghi", "aodd", 0));
    const turn_counts n = turn_store_count(s);
    assert_true(n.n_reused == 2 && n.n_differ == 1 && n.n_gone == 0);
    turn_store_close(s);
}

/* The id is a client's choice, and each place costs the hash of the text before it. */
TEST(the_turns_of_one_id_are_looked_for_at_few_places) {
    char text[64] = "";
    for (int32_t n_others = TURN_STORE_PLACES - 1; n_others <= TURN_STORE_PLACES; n_others++) {
        turn_store *s = open_store((size_t)1 << 20);
        memset(text, 'x', sizeof text - 1);
        keep(s, 7, "abcdefghi", "x", "x");
        for (int32_t i = 0; i < 2 * n_others; i++) { /* two at each place */
            text[0] = 'y';
            text[2 + i / 2] = '\0';
            keep(s, 7, "abcdefghi", text, i % 2 ? "x" : "xx");
            text[2 + i / 2] = 'x';
        }
        text[0] = 'x';
        assert_int_equal(finds(s, 7, "abcdefghi", text, 0), n_others < TURN_STORE_PLACES);
        assert_true(turn_store_count(s).n_differ == (n_others == TURN_STORE_PLACES));
        turn_store_close(s);
    }
}

TEST(what_is_too_large_or_empty_is_not_kept) {
    turn_store *s = open_store(1600);
    char text[200] = "";
    memset(text, 'x', 150);
    keep(s, 7, "abcdefghi", "a", text);
    keep(s, 7, "abcdefghj", "a", "");
    text[80] = '\0';
    keep(s, 7, "abcdefghk", "a", text);
    char whole[200] = "a";
    strcat(whole, text);
    assert_true(finds(s, 7, "abcdefghk", whole, 0));
    assert_false(finds(s, 7, "abcdefghj", "a", 0));
    assert_true(turn_store_count(s).n_gone == 1);
    turn_store_close(s);
}

/* A tenant that keeps without end drives out its own turns; those of another stay. */
TEST(a_tenant_has_half_of_the_store_at_most) {
    turn_store *s = open_store(64 << 10);
    char id[16];
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "%09d", i);
        keep(s, 1, id, "a", "text");
    }
    for (int i = 0; i < 10000; i++) {
        snprintf(id, sizeof id, "%09d", i);
        keep(s, 2, id, "a", "text");
    }
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "%09d", i);
        assert_true(finds(s, 1, id, "atext", 0));
        assert_false(finds(s, 2, id, "atext", 0));
    }
    assert_true(finds(s, 2, "000009999", "atext", 0));
    turn_store_close(s);
}

/* Against a list of all that was kept: what is found is the newest of its id, and the
 * last few turns of every tenant are found always. */
TEST(random_turns) {
    enum { N_TENANTS = 3, N = 20000 };
    uint64_t seed = rng_os_seed(), random = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    turn_store *s = open_store(256 << 10);
    char last[N_TENANTS][16], text[N_TENANTS][32];
    memset(last, 0, sizeof last);
    for (int i = 0; i < N; i++) {
        uint64_t tenant = rng_next(&random) % N_TENANTS;
        snprintf(last[tenant], sizeof last[tenant], "%09u", (unsigned)(rng_next(&random) % 500));
        snprintf(text[tenant], sizeof text[tenant], "turn %u", (unsigned)(rng_next(&random) % 1000));
        keep(s, tenant, last[tenant], "a", text[tenant]);
        for (uint64_t t = 0; t < N_TENANTS; t++) {
            char whole[40];
            snprintf(whole, sizeof whole, "a%s and on", text[t]);
            assert_true(last[t][0] == '\0' || t != tenant || finds(s, t, last[t], whole, 0));
        }
    }
    turn_store_close(s);
}

TEST_MAIN(NULL, NULL)
