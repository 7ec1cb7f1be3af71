/* Marks in a stream: found wherever the text is cut, and special tokens only as such. */
#include "answer/mark_set.h"
#include "test.h"

enum { A, B };

static bool is_tag(const void *context, str text) {
    return str_is(text, context);
}

/* Reads a text and writes it down with (i) for mark i. */
static void expect(const mark_set *set, mark_roles roles, const char *text, const char *want) {
    mark_match m = {0};
    strbuf out = {0};
    char bytes[MARK_BYTES];
    size_t n;
    for (; *text != 0; text++) {
        int found = mark_push(&m, set, roles, *text, bytes, &n);
        assert_int_equal(strbuf_add(&out, bytes, n), QUIRE_OK);
        if (found >= 0) {
            assert_int_equal(strbuf_addf(&out, "(%d)", found), QUIRE_OK);
        }
    }
    n = mark_take(&m, bytes);
    assert_int_equal(strbuf_add(&out, bytes, n), QUIRE_OK);
    assert_string_equal(out.p, want);
    strbuf_deinit(&out);
}

TEST(marks_are_found_and_other_text_passes) {
    mark_set set = {0};
    assert_int_equal(mark_set_add(&set, A, str_of("<ab>"), (mark_test){0}), QUIRE_OK);
    assert_int_equal(mark_set_add(&set, B, str_of("aab"), (mark_test){0}), QUIRE_OK);
    mark_roles both = {1u << A | 1u << B, 0}, first = {1u << A, 0};
    expect(&set, both, "x<ab>y<a<ab>aaab<ab", "x(0)y<a(0)a(1)<ab");
    expect(&set, first, "aab<ab>", "aab(0)");
    expect(&set, (mark_roles){0, 1u << A}, "<ab>", "<ab>");
}

TEST(a_special_token_is_a_mark_only_as_a_token) {
    mark_set set = {0};
    assert_int_equal(mark_set_add(&set, A, str_of("<t> x<u>"), (mark_test){is_tag, "<t>"}), QUIRE_OK);
    assert_true(set.marks[0].is_special);
    expect(&set, (mark_roles){0, 1u << A}, "<t> x<u>\xFE<t>\xFF x<u>", "<t> x<u>(0)");
    assert_int_equal(mark_set_add(&set, B, str_of("[b]"), (mark_test){is_tag, "[b]"}), QUIRE_OK);
    assert_int_equal(mark_find_special(&set, 1u << B, str_of("[b]")), 1);
    assert_int_equal(mark_find_special(&set, 1u << A, str_of("[b]")), -1);
    assert_int_equal(mark_find_special(&set, 1u << A | 1u << B, str_of("<t>")), -1);
}

TEST(a_set_that_is_full_refuses_a_mark) {
    mark_set set = {0};
    char longest[MARK_BYTES + 2] = {0};
    memset(longest, 'x', MARK_BYTES + 1);
    assert_int_equal(mark_set_add(&set, A, str_of(longest), (mark_test){0}), QUIRE_INTERNAL);
    for (int i = 0; i < MARK_MAX; i++) {
        assert_int_equal(mark_set_add(&set, A, str_of("x"), (mark_test){0}), QUIRE_OK);
    }
    assert_int_equal(mark_set_add(&set, A, str_of("x"), (mark_test){0}), QUIRE_INTERNAL);
}

TEST_MAIN(NULL, NULL)
