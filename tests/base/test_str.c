#include "base/size.h"
#include "base/str.h"
#include "test.h"

TEST(slices_compare_by_bytes) {
    assert_true(str_is((str){"abc", 2}, "ab"));
    assert_false(str_is((str){"abc", 3}, "ab"));
    assert_true(str_eq((str){NULL, 0}, (str){"x", 0}));
    assert_false(str_eq((str){"a\0b", 3}, (str){"a\0c", 3}));
}

TEST(a_buffer_grows_and_stays_terminated) {
    strbuf b = {0};
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(strbuf_addf(&b, "%d,", i % 10), QUIRE_OK);
        assert_int_equal(b.p[b.n], 0);
    }
    assert_int_equal(b.n, 2000);
    assert_memory_equal(b.p + 1990, "5,6,7,8,9,", 11);
    strbuf_clear(&b);
    assert_string_equal(b.p, "");
    assert_int_equal(strbuf_add_str(&b, "one"), QUIRE_OK);
    assert_int_equal(strbuf_add_char(&b, ' '), QUIRE_OK);
    assert_int_equal(strbuf_add(&b, "a\0b", 3), QUIRE_OK);
    assert_int_equal(b.n, 7);
    assert_memory_equal(b.p, "one a\0b", 8);
    strbuf_deinit(&b);
    assert_null(b.p);
    assert_int_equal(b.n, 0);
}

TEST(an_append_past_the_maximum_changes_nothing) {
    strbuf b = {.max = 8};
    assert_int_equal(strbuf_add_str(&b, "12345678"), QUIRE_OK);
    assert_int_equal(strbuf_add_char(&b, '9'), QUIRE_TOO_LARGE);
    assert_int_equal(strbuf_addf(&b, "%d", 9), QUIRE_TOO_LARGE);
    assert_string_equal(b.p, "12345678");
    assert_int_equal(strbuf_add(&b, "", SIZE_MAX), QUIRE_TOO_LARGE);
    assert_int_equal(b.n, 8);
    strbuf_deinit(&b);
    assert_int_equal(b.max, 8);
}

TEST(adding_nothing_to_an_empty_buffer_makes_a_string) {
    strbuf b = {0};
    assert_int_equal(strbuf_add(&b, NULL, 0), QUIRE_OK);
    assert_string_equal(b.p, "");
    strbuf_deinit(&b);
}

TEST(a_part_is_found_anywhere_and_the_empty_one_everywhere) {
    assert_true(str_contains(str_of("abcd"), str_of("ab")));
    assert_true(str_contains(str_of("abcd"), str_of("cd")));
    assert_false(str_contains(str_of("abcd"), str_of("ce")));
    assert_false(str_contains(str_of("ab"), str_of("abc")));
    assert_true(str_contains((str){NULL, 0}, (str){NULL, 0}));
}

TEST(a_name_is_one_of_alternatives_only_as_a_whole) {
    assert_true(str_is_one_of(str_of("mamba"), "mamba|linear"));
    assert_true(str_is_one_of(str_of("linear"), "mamba|linear"));
    assert_false(str_is_one_of(str_of("mam"), "mamba|linear"));
    assert_false(str_is_one_of(str_of("mamba|linear"), "mamba|linear"));
    assert_false(str_is_one_of((str){NULL, 0}, "mamba|linear"));
}

/* The published values of FNV-1a with 64 bits. */
TEST(a_hash_is_fnv_1a_and_can_be_continued) {
    assert_true(str_hash(STR_HASH_START, str_of("")) == STR_HASH_START);
    assert_true(str_hash(STR_HASH_START, str_of("a")) == 0xaf63dc4c8601ec8cu);
    assert_true(str_hash(STR_HASH_START, str_of("foobar")) == 0x85944171f73967e8u);
    assert_true(str_hash(str_hash(STR_HASH_START, str_of("foo")), str_of("bar")) == 0x85944171f73967e8u);
}

TEST(the_least_power_of_two_is_at_least_the_number) {
    const size_t cases[][2] = {
        {0, 1}, {1, 1}, {2, 2}, {3, 4}, {4, 4}, {1000, 1024}, {(size_t)1 << 40, (size_t)1 << 40}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(size_power_of_two(cases[i][0]), cases[i][1]);
    }
}

TEST_MAIN(NULL, NULL)
