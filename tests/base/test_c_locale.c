/* Numbers have a point where the locale has a comma. */
#include "base/comma_locale.h"

#include "base/str.h"

COMMA_TEST(a_number_is_read_and_printed_with_a_point) {
    char text[32], *end;
    assert_true(c_locale_strtod("1.5e3x", &end) == 1500);
    assert_string_equal(end, "x");
    assert_true(c_locale_strtod("1,5", &end) == 1);
    assert_string_equal(end, ",5");
    assert_int_equal(c_locale_snprintf(text, sizeof text, "%.*g %s", 3, 0.25, "mm"), 7);
    assert_string_equal(text, "0.25 mm");
    assert_int_equal(c_locale_snprintf(text, 3, "%.2f", 0.25), 4);
    assert_string_equal(text, "0.");
}

COMMA_TEST(the_threads_locale_is_restored_afterwards) {
    char text[32];
    locale_t before = c_locale_enter();
    snprintf(text, sizeof text, "%g", 0.5);
    assert_string_equal(text, "0.5");
    assert_true(c_locale_strtod("2.5", NULL) == 2.5);
    snprintf(text, sizeof text, "%g", 0.5);
    assert_string_equal(text, "0.5"); /* it nests */
    c_locale_leave(before);
    snprintf(text, sizeof text, "%g", 0.5);
    assert_string_equal(text, "0,5");
}

TEST_MAIN(NULL, NULL)
