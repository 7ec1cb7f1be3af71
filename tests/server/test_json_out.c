/* JSON text: escapes, invalid UTF-8, and what a failure leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <json-c/json.h>
#include <string.h>

#include "base/rng.h"
#include "server/error_body.h"
#include "server/json_out.h"

static void expect(const char *text, size_t n, const char *json) {
    strbuf b = {0};
    json_out o = {.to = &b};
    json_text(&o, text, n);
    assert_int_equal(o.err, QUIRE_OK);
    assert_string_equal(b.p, json);
    strbuf_deinit(&b);
}

static void text_is_escaped(void **state) {
    (void)state;
    expect("", 0, "\"\"");
    expect("a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\"");
    expect("\n\r\t\b\x1f\0z", 7, "\"\\n\\r\\t\\u0008\\u001f\\u0000z\"");
    expect("\x7f", 1, "\"\x7f\"");
    expect("h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", 12, "\"h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\"");
}

#define BAD "\xEF\xBF\xBD"

static void invalid_utf8_becomes_the_replacement_character(void **state) {
    (void)state;
    expect("\x80", 1, "\"" BAD "\"");
    expect("\xC0\xAF", 2, "\"" BAD BAD "\"");             /* overlong */
    expect("\xE0\x9F\xBF", 3, "\"" BAD BAD BAD "\"");     /* overlong */
    expect("\xF0\x8F\xBF\xBF", 4, "\"" BAD BAD BAD BAD "\"");
    expect("\xED\xA0\x80", 3, "\"" BAD BAD BAD "\"");     /* a surrogate */
    expect("\xF4\x90\x80\x80", 4, "\"" BAD BAD BAD BAD "\""); /* over U+10FFFF */
    expect("\xE2\x82", 2, "\"" BAD BAD "\"");             /* cut short */
    expect("\xE2\x82x", 3, "\"" BAD BAD "x\"");
    expect("\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF", 10, "\"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\"");
}

/* Any valid text comes back from a parser as it was. */
static void random_bytes_make_valid_json(void **state) {
    (void)state;
    uint64_t seed = rng_os_seed(), random = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 5000; round++) {
        char text[64];
        size_t n = rng_next(&random) % sizeof(text);
        bool ascii = round % 2 == 0;
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)(ascii ? rng_next(&random) % 128 : rng_next(&random) % 256);
        }
        strbuf b = {0};
        json_out o = {.to = &b};
        json_text(&o, text, n);
        json_tokener *t = json_tokener_new();
        json_tokener_set_flags(t, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
        json_object *v = json_tokener_parse_ex(t, b.p, (int)b.n + 1);
        assert_non_null(v);
        if (ascii) {
            assert_int_equal(json_object_get_string_len(v), n);
            assert_memory_equal(json_object_get_string(v), text, n);
        }
        json_object_put(v);
        json_tokener_free(t);
        strbuf_deinit(&b);
    }
}

static void the_first_failure_is_kept(void **state) {
    (void)state;
    strbuf b = {.max = 6};
    json_out o = {.to = &b};
    json_raw(&o, "[1,");
    json_text(&o, "long enough", 11);
    assert_int_equal(o.err, QUIRE_TOO_LARGE);
    size_t n = b.n;
    json_raw(&o, "]");
    assert_int_equal(b.n, n);
    strbuf_deinit(&b);
}

static void errors_have_openais_shape(void **state) {
    (void)state;
    strbuf b = {0};
    json_out o = {.to = &b};
    error_body(&o, 400, "top_p", "top_p is \"x\"");
    assert_string_equal(b.p, "{\"error\":{\"message\":\"top_p is \\\"x\\\"\",\"type\":\"invalid_request_error\",\"param\":\"top_p\",\"code\":400}}");
    strbuf_clear(&b);
    error_body(&o, 404, "", "m");
    assert_string_equal(b.p, "{\"error\":{\"message\":\"m\",\"type\":\"not_found_error\",\"param\":null,\"code\":404}}");
    strbuf_deinit(&b);
    assert_int_equal(error_status(QUIRE_TOO_LARGE), 400);
    assert_int_equal(error_status(QUIRE_BUSY), 429);
    assert_int_equal(error_status(QUIRE_NUMERIC), 500);
}

static void integers_and_lists(void **state) {
    (void)state;
    strbuf b = {0};
    json_out o = {.to = &b};
    json_ints(&o, (const int32_t[]){-1, 0, 2147483647}, 3);
    json_ints(&o, NULL, 0);
    json_int(&o, INT64_MIN);
    json_string(&o, NULL);
    json_row(&o, (const int64_t[]){-7}, 1);
    int64_t row[JSON_ROW_MAX];
    for (int i = 0; i < JSON_ROW_MAX; i++) {
        row[i] = INT64_MIN;
    }
    json_row(&o, row, 2);
    assert_string_equal(b.p, "[-1,0,2147483647][]-9223372036854775808null[-7][-9223372036854775808,-9223372036854775808]");
    json_row(&o, row, JSON_ROW_MAX);
    strbuf_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(invalid_utf8_becomes_the_replacement_character),
        cmocka_unit_test(random_bytes_make_valid_json),
        cmocka_unit_test(the_first_failure_is_kept),
        cmocka_unit_test(errors_have_openais_shape),
        cmocka_unit_test(integers_and_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
