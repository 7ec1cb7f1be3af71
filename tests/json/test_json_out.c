/* JSON text that is written: escapes, invalid UTF-8, numbers, trees, and what a failure
 * leaves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "test.h"
#include "json/json.h"
#include "json/json_out.h"

static void expect(const char *text, size_t n, const char *json) {
    strbuf b = {0};
    json_out o = {.to = &b};
    json_text(&o, text, n);
    assert_int_equal(o.err, QUIRE_OK);
    assert_string_equal(b.p, json);
    strbuf_deinit(&b);
}

TEST(text_is_escaped) {
    expect("", 0, "\"\"");
    expect("a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\"");
    expect("\n\r\t\b\x1f\0z", 7, "\"\\n\\r\\t\\u0008\\u001f\\u0000z\"");
    expect("\x7f", 1, "\"\x7f\"");
    expect("h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", 12, "\"h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\"");
}

#define BAD "\xEF\xBF\xBD"

TEST(invalid_utf8_becomes_the_replacement_character) {
    expect("\x80", 1, "\"" BAD "\"");
    expect("\xC0\xAF", 2, "\"" BAD BAD "\"");         /* overlong */
    expect("\xE0\x9F\xBF", 3, "\"" BAD BAD BAD "\""); /* overlong */
    expect("\xF0\x8F\xBF\xBF", 4, "\"" BAD BAD BAD BAD "\"");
    expect("\xED\xA0\x80", 3, "\"" BAD BAD BAD "\"");         /* a surrogate */
    expect("\xF4\x90\x80\x80", 4, "\"" BAD BAD BAD BAD "\""); /* over U+10FFFF */
    expect("\xE2\x82", 2, "\"" BAD BAD "\"");                 /* cut short */
    expect("\xE2\x82x", 3, "\"" BAD BAD "x\"");
    expect("\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF", 10, "\"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\"");
}

/* Any valid text comes back from a parser as it was. */
TEST(random_bytes_make_valid_json) {
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
        json_fault fault;
        json_value *v;
        assert_int_equal(json_read((str){b.p, b.n}, &json_limits_file, JSON_WIDE_REFUSED, &v, &fault),
                         QUIRE_OK);
        if (ascii) {
            assert_int_equal(json_str(v).n, n);
            assert_memory_equal(json_str(v).p, text, n);
        }
        json_drop(v);
        strbuf_deinit(&b);
    }
}

TEST(the_first_failure_is_kept) {
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

/* What is in the buffer already counts. */
TEST(nothing_is_written_past_the_bound) {
    for (size_t max = 1; max < 12; max++) {
        strbuf b = {0};
        json_out o = {.to = &b, .max = max};
        assert_int_equal(strbuf_add(&b, "#", 1), QUIRE_OK);
        json_begin(&o, '[');
        json_cstr(json_item(&o), "abc");
        json_int(json_item(&o), 12);
        json_end(&o, ']'); /* #["abc",12] has 11 bytes */
        assert_int_equal(o.err, max < 11 ? QUIRE_TOO_LARGE : QUIRE_OK);
        assert_true(b.n <= max);
        strbuf_deinit(&b);
    }
}

TEST(integers_and_lists) {
    strbuf b = {0};
    json_out o = {.to = &b};
    json_ints(&o, (const int32_t[]){-1, 0, 2147483647}, 3);
    json_ints(&o, NULL, 0);
    json_int(&o, INT64_MIN);
    json_cstr(&o, NULL);
    json_row(&o, (const int64_t[]){-7}, 1);
    int64_t row[JSON_ROW_MAX];
    for (int i = 0; i < JSON_ROW_MAX; i++) {
        row[i] = INT64_MIN;
    }
    json_row(&o, row, 2);
    assert_string_equal(
        b.p, "[-1,0,2147483647][]-9223372036854775808null[-7][-9223372036854775808,-9223372036854775808]");
    json_row(&o, row, JSON_ROW_MAX);
    strbuf_deinit(&b);
}

TEST(objects_and_arrays_get_their_commas_and_lines) {
    static const char *const expected[] = {
        "{\"a\":[1,{}],\"b\":[],\"c,{\":\"[\",\"d\":true}",
        "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": [],\n  \"c,{\": \"[\",\n  \"d\": true\n}",
    };
    for (int i = 0; i < 2; i++) {
        strbuf b = {0};
        json_out o = {.to = &b, .indent = 2 * i};
        json_begin(&o, '{');
        json_begin(json_name(&o, "a"), '[');
        json_int(json_item(&o), 1);
        json_begin(json_item(&o), '{');
        json_end(&o, '}');
        json_end(&o, ']');
        json_begin(json_name(&o, "b"), '[');
        json_end(&o, ']');
        json_cstr(json_name(&o, "c,{"), "[");
        json_bool(json_name(&o, "d"), true);
        json_end(&o, '}');
        assert_int_equal(o.err, QUIRE_OK);
        assert_int_equal(o.depth, 0);
        assert_string_equal(b.p, expected[i]);
        strbuf_deinit(&b);
    }
}

TEST(what_is_not_finite_is_null) {
    const double v[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        strbuf b = {0};
        json_out o = {.to = &b};
        json_number(json_item(&o), v[i]);
        json_exact(json_item(&o), v[i]);
        assert_string_equal(b.p, "null,null");
        strbuf_deinit(&b);
    }
}

static double read_real(str text) {
    json_fault fault;
    json_value *v;
    assert_int_equal(json_read(text, &json_limits_file, JSON_WIDE_REFUSED, &v, &fault), QUIRE_OK);
    assert_int_equal(json_kind_of(v), JSON_KIND_REAL);
    double d = json_double(v);
    json_drop(v);
    return d;
}

/* Reals are read again as the very same bits, and as reals; nine digits tell any
 * float. */
TEST(reals_read_back_to_the_last_bit) {
    uint64_t seed = rng_os_seed(), random = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    const double fixed[] = {0.0,  -0.0, 1,    -3,     0.1,    1e15,      1e16,
                            1e17, 1e22, 1e23, 0x1p53, 0x1p63, 0x1p-1074, 0x1.fffffffffffffp1023};
    enum { N_FIXED = sizeof fixed / sizeof *fixed };
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = rng_next(&random);
        double v;
        memcpy(&v, &bits, sizeof v);
        v = i < N_FIXED ? fixed[i] : i % 2 == 0 ? v : (double)(float)v;
        if (!isfinite(v)) {
            continue;
        }
        strbuf b = {0};
        json_out o = {.to = &b};
        json_exact(&o, v);
        double again = read_real((str){b.p, b.n});
        assert_memory_equal(&again, &v, sizeof v);
        float f = (float)v, f_again;
        strbuf_clear(&b);
        json_number(&o, (double)f);
        f_again = strtof(b.p, NULL);
        assert_true(isfinite(f) ? f_again == f : strcmp(b.p, "null") == 0);
        strbuf_deinit(&b);
    }
}

static void write_random(json_out *o, uint64_t *random, int depth) {
    char text[12];
    size_t n = rng_next(random) % sizeof text;
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)(rng_next(random) % 128);
    }
    switch (rng_next(random) % (depth > 0 ? 7 : 5)) {
    case 0:
        json_raw(o, "null");
        return;
    case 1:
        json_bool(o, n % 2 == 0);
        return;
    case 2:
        json_int(o, (int64_t)(rng_next(random) >> (rng_next(random) % 64)));
        return;
    case 3:
        json_exact(o, (double)(int64_t)rng_next(random) * 1e-9);
        return;
    case 4:
        json_text(o, text, n);
        return;
    case 5:
        json_begin(o, '[');
        for (size_t i = 0; i < n; i++) {
            write_random(json_item(o), random, depth - 1);
        }
        json_end(o, ']');
        return;
    default:
        break;
    }
    json_begin(o, '{');
    for (size_t i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "%zu\xC3\xA9\n\"%c", i, (char)(1 + rng_next(random) % 127));
        write_random(json_name(o, name), random, depth - 1);
    }
    json_end(o, '}');
}

/* A tree that is written, with lines or without, is the text that it was read from;
 * members keep their order. */
TEST(a_tree_is_written_as_it_was_read) {
    uint64_t seed = rng_os_seed(), random = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 300; round++) {
        strbuf first = {0}, second = {0};
        json_out o = {.to = &first, .indent = round % 3}, again = {.to = &second, .indent = round % 3};
        json_fault fault;
        json_value *v;
        write_random(&o, &random, 5);
        assert_int_equal(o.err, QUIRE_OK);
        if (json_read((str){first.p, first.n}, &json_limits_file, JSON_WIDE_REFUSED, &v, &fault) !=
            QUIRE_OK) {
            fail_msg("%s at byte %zu of %s", fault.what, fault.at, first.p);
        }
        json_add(&again, v);
        assert_int_equal(again.err, QUIRE_OK);
        assert_string_equal(second.p, first.p);
        json_drop(v);
        strbuf_deinit(&first);
        strbuf_deinit(&second);
    }
}

TEST(named_integers_make_an_object_in_their_order) {
    strbuf b = {0};
    json_out o = {.to = &b};
    json_begin(&o, '{');
    json_named_ints(json_name(&o, "n"), (const json_named_int[]){{"b", -1}, {"a", INT64_MAX}, {NULL, 0}});
    json_named_ints(json_name(&o, "none"), (const json_named_int[]){{NULL, 0}});
    json_end(&o, '}');
    assert_string_equal(b.p, "{\"n\":{\"b\":-1,\"a\":9223372036854775807},\"none\":{}}");
    strbuf_deinit(&b);
}

TEST_MAIN(NULL, NULL)
