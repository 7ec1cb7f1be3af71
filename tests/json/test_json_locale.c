/* JSON has points where the host's locale has commas, read and written. */
#include "base/comma_locale.h"

#include "json/json.h"
#include "json/json_out.h"

COMMA_TEST(numbers_are_written_with_points) {
    strbuf b = {0};
    json_out o = {.to = &b};
    json_number(&o, 0.5);
    json_raw(&o, " ");
    json_exact(&o, 0.1);
    json_raw(&o, " ");
    json_exact(&o, 1e300);
    json_raw(&o, " ");
    json_exact(&o, 3);
    assert_int_equal(o.err, QUIRE_OK);
    assert_string_equal(b.p, "0.5 0.1 1e+300 3.0");
    strbuf_deinit(&b);
}

COMMA_TEST(numbers_are_read_with_points) {
    json_value *v = json_document(str_of("{\"a\": 1.25e-1, \"b\": 100000000000000000000}"));
    assert_true(json_double(json_get(v, "a")) == 0.125);
    assert_true(json_double(json_get(v, "b")) == 1e20);
    json_drop(v);
    assert_null(json_document(str_of("[1.5e999]")));
    v = json_document(str_of("[15e-1]"));
    assert_true(json_double(json_at(v, 0)) == 1.5);
    json_drop(v);
}

TEST_MAIN(NULL, NULL)
