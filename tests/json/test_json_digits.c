/* Digits of numbers: found for each value that is a double, whatever its name is and
 * whatever came before under it. */
#include <stdio.h>

#include "test.h"
#include "json/json.h"

typedef struct read_text {
    json_value *root;
    json_digits *digits;
    json_counts counts;
} read_text;

static read_text read_all(const char *text) {
    json_limits limits = json_limits_config;
    json_fault fault = {0};
    read_text r = {0};
    assert_int_equal(json_read_counted(str_of(text), &limits, JSON_WIDE_REAL, &r.root, &r.counts, &fault),
                     QUIRE_OK);
    assert_int_equal(json_digits_find(str_of(text), r.root, r.counts.n_long, &r.digits), QUIRE_OK);
    return r;
}

static void drop_all(read_text *r) {
    json_digits_drop(r->digits);
    json_drop(r->root);
}

static void has_digits(const read_text *r, const json_value *v, const char *digits) {
    str found = json_digits_of(r->digits, v);
    if (!str_eq(found, str_of(digits))) {
        fail_msg("'%.*s' was found in place of '%s'", (int)found.n, found.n > 0 ? found.p : "", digits);
    }
}

TEST(a_number_that_a_double_may_not_hold_keeps_its_digits) {
    read_text r = read_all(" [1, 1.5 ,-1234567890123456789012, 0.1234567890123456,[], "
                           "{\"a\\u0062\":1E5,\"\":[2e-400]},\"1e5\",123456789012345.5,\n"
                           "12345678901234.5,1234567890123456789] ");
    const json_value *inside = json_at(r.root, 5);
    assert_int_equal(r.counts.n_long, 6);
    has_digits(&r, json_at(r.root, 0), "");
    has_digits(&r, json_at(r.root, 1), "");
    has_digits(&r, json_at(r.root, 2), "-1234567890123456789012");
    has_digits(&r, json_at(r.root, 3), "0.1234567890123456");
    has_digits(&r, json_get(inside, "ab"), "1E5");
    has_digits(&r, json_at(json_get(inside, ""), 0), "2e-400");
    has_digits(&r, json_at(r.root, 6), "");
    has_digits(&r, json_at(r.root, 7), "123456789012345.5");
    has_digits(&r, json_at(r.root, 8), "");
    has_digits(&r, json_at(r.root, 9), ""); /* an int64 holds it */
    has_digits(&r, NULL, "");
    assert_int_equal(json_digits_of(NULL, r.root).n, 0);
    drop_all(&r);
}

TEST(of_equal_names_the_last_one_counts) {
    read_text r = read_all("{\"a\":1e3,\"b\":[1e4,{\"c\":1e5}],\"b\":[2.5,{\"c\":12345678901234567890}],"
                           "\"a\":2.5,\"d\":1e6,\"d\":[1e7]}");
    has_digits(&r, json_get(r.root, "a"), "");
    has_digits(&r, json_at(json_get(r.root, "b"), 0), "");
    has_digits(&r, json_get(json_at(json_get(r.root, "b"), 1), "c"), "12345678901234567890");
    has_digits(&r, json_at(json_get(r.root, "d"), 0), "1e7");
    drop_all(&r);
}

TEST(many_numbers_have_their_own_digits) {
    enum { N = 3000 };
    strbuf text = {0};
    for (int i = 0; i < N; i++) {
        assert_int_equal(strbuf_addf(&text, "%c%de2", i == 0 ? '[' : ',', i), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, "]"), QUIRE_OK);
    read_text r = read_all(text.p);
    for (size_t i = 0; i < N; i++) {
        char digits[16];
        (void)snprintf(digits, sizeof digits, "%zue2", i);
        has_digits(&r, json_at(r.root, i), digits);
    }
    drop_all(&r);
    strbuf_deinit(&text);
}

TEST_MAIN(NULL, NULL)
