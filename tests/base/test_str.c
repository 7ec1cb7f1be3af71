#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/str.h"

static void slices_compare_by_bytes(void **state) {
    (void)state;
    assert_true(str_is((str){"abc", 2}, "ab"));
    assert_false(str_is((str){"abc", 3}, "ab"));
    assert_true(str_eq((str){NULL, 0}, (str){"x", 0}));
    assert_false(str_eq((str){"a\0b", 3}, (str){"a\0c", 3}));
}

static void a_buffer_grows_and_stays_terminated(void **state) {
    (void)state;
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

static void an_append_past_the_maximum_changes_nothing(void **state) {
    (void)state;
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

static void adding_nothing_to_an_empty_buffer_makes_a_string(void **state) {
    (void)state;
    strbuf b = {0};
    assert_int_equal(strbuf_add(&b, NULL, 0), QUIRE_OK);
    assert_string_equal(b.p, "");
    strbuf_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_compare_by_bytes),
        cmocka_unit_test(a_buffer_grows_and_stays_terminated),
        cmocka_unit_test(an_append_past_the_maximum_changes_nothing),
        cmocka_unit_test(adding_nothing_to_an_empty_buffer_makes_a_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
