/* Texts that are looked over and read: what is refused and at which byte, limits, names,
 * integers of any size, and the tree. */
#include <stdio.h>
#include <stdlib.h>

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/turn.h"
#include "test.h"
#include "json/json.h"
#include "json/json_out.h"

#define LIMITS(depth, values, containers, names_)                                                            \
    { .max_depth = (depth), .max_values = (values), .max_containers = (containers), .max_names = (names_) }

static json_value *read_as(str text, json_wide wide) {
    json_fault fault = {0};
    json_value *v;
    if (json_read(text, &json_limits_file, wide, &v, &fault) != QUIRE_OK) {
        fail_msg("%.*s: %s at byte %zu", (int)text.n, text.p, fault.what, fault.at);
    }
    return v;
}

static json_value *read_text(const char *text) {
    return read_as(str_of(text), JSON_WIDE_REFUSED);
}

/* The text is refused by the check and the reader alike, at byte `at`, for this
 * reason. */
static void refuse(str text, const json_limits *limits, quire_err code, size_t at, const char *what) {
    char *exact = malloc(text.n > 0 ? text.n : 1); /* its end is the allocation's, where a sanitizer looks */
    assert_non_null(exact);
    memcpy(exact, text.p, text.n);
    for (int reading = 0; reading < 2; reading++) {
        json_fault fault = {.at = SIZE_MAX};
        json_value *v = NULL;
        str t = {exact, text.n};
        quire_err e =
            reading ? json_read(t, limits, JSON_WIDE_REAL, &v, &fault) : json_check(t, limits, NULL, &fault);
        if (e != code || fault.at != at || strcmp(fault.what, what) != 0) {
            fail_msg("%.*s: %d, \"%s\" at byte %zu; not %d, \"%s\" at byte %zu", (int)text.n, text.p, (int)e,
                     fault.what, fault.at, (int)code, what, at);
        }
        assert_null(v);
    }
    free(exact);
}

typedef struct refusal {
    const char *text;
    size_t at;
    const char *what;
} refusal;

TEST(what_is_no_json_is_refused_at_its_byte) {
    static const refusal table[] = {
        {"", 0, "the text ends where a value is expected"},
        {" \n\t\r", 4, "the text ends where a value is expected"},
        {"[1,", 3, "the text ends where a value is expected"},
        {"{\"a\":", 5, "the text ends where a value is expected"},
        {"[1", 2, "the text ends inside an array or object"},
        {"{\"a\":{}", 7, "the text ends inside an array or object"},
        {"[1 2]", 3, "a comma or the closing bracket is missing"},
        {"[1}", 2, "a comma or the closing bracket is missing"},
        {"{\"a\":1]", 6, "a comma or the closing bracket is missing"},
        {"[1,]", 3, "unexpected character"},
        {"[,1]", 1, "unexpected character"},
        {"{\"a\":1,}", 7, "a name in double quotes is expected"},
        {"{a:1}", 1, "a name in double quotes is expected"},
        {"{'a':1}", 1, "a name in double quotes is expected"},
        {"{1:1}", 1, "a name in double quotes is expected"},
        {"{\"a\" 1}", 5, "no colon after a name"},
        {"{\"a\"", 4, "no colon after a name"},
        {"1 2", 2, "text follows the value"},
        {"{}}", 2, "text follows the value"},
        {"01", 1, "a number that begins with 0"},
        {"[-012]", 3, "a number that begins with 0"},
        {"[-]", 2, "a number that lacks a digit"},
        {"1.", 2, "a number that lacks a digit"},
        {"1e+", 3, "a number that lacks a digit"},
        {"[.5]", 1, "unexpected character"},
        {"+1", 0, "unexpected character"},
        {"0x10", 1, "text follows the value"},
        {"[NaN]", 1, "NaN and Infinity are not JSON"},
        {"Infinity", 0, "NaN and Infinity are not JSON"},
        {"-Infinity", 1, "a number that lacks a digit"},
        {"nul", 0, "unexpected character"},
        {"TRUE", 0, "unexpected character"},
        {"truex", 4, "text follows the value"},
        {"/* */1", 0, "unexpected character"},
        {"\xEF\xBB\xBF{}", 0, "unexpected character"},
        {"\"a\nb\"", 2, "a control character in a string"},
        {"\"a", 2, "a string without its closing quote"},
        {"\"a\\\"", 4, "a string without its closing quote"},
        {"\"a\\", 2, "a string without its closing quote"},
        {"\"a\\x\"", 2, "an invalid escape"},
        {"\"\\U0041\"", 1, "an invalid escape"},
        {"\"\\u12g4\"", 1, "\\u without four hexadecimal digits"},
        {"\"\\u12", 1, "\\u without four hexadecimal digits"},
        {"\"a\\ud800\"", 2, "an unpaired surrogate"},
        {"\"a\\udc00\"", 2, "an unpaired surrogate"},
        {"\"a\\ud800\\ud800\"", 2, "an unpaired surrogate"},
        {"\"a\\ud800\\n\"", 2, "an unpaired surrogate"},
        {"\"a\\udc00\\udc00\"", 2, "an unpaired surrogate"},
        {"\"\\udfff\\udc00\"", 1, "an unpaired surrogate"},
        {"{\"\xFF\":1}", 2, "not UTF-8"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        refuse(str_of(table[i].text), &json_limits_file, QUIRE_BAD_FILE, table[i].at, table[i].what);
    }
}

TEST(a_models_file_may_have_words_for_numbers_that_json_lacks) {
    json_value *v = json_model_document(
        str_of("{\"a\": NaN, \"b\":[0.0,Infinity,-Infinity, 99999999999999999999],\"c\":\"NaN, Infinity\"}"));
    assert_non_null(v);
    assert_true(str_is(json_get_str(json_get(v, "a"), "__float__"), "NaN"));
    assert_true(str_is(json_get_str(json_at(json_get(v, "b"), 1), "__float__"), "Infinity"));
    assert_true(str_is(json_get_str(json_at(json_get(v, "b"), 2), "__float__"), "-Infinity"));
    assert_true(json_double(json_at(json_get(v, "b"), 3)) > 9e19);
    assert_true(str_is(json_get_str(v, "c"), "NaN, Infinity"));
    json_drop(v);
    v = json_model_document(str_of("NaN"));
    assert_true(str_is(json_get_str(v, "__float__"), "NaN"));
    json_drop(v);
    static const char *const wrong[] = {"Nan",     "NaNx", "Inf",        "+Infinity", "[-Inf]",
                                        "{NaN:1}", "nan",  "- Infinity", "Infinity1", "[NaN NaN]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_null(json_model_document(str_of(wrong[i])));
    }
    assert_null(json_document(str_of("[NaN]"))); /* of anything else */
    refuse(str_of("[NaN]"), &json_limits_config, QUIRE_BAD_FILE, 1, "NaN and Infinity are not JSON");
}

TEST(a_nul_byte_is_refused_wherever_it_stands) {
    refuse((str){"123\0", 4}, &json_limits_file, QUIRE_BAD_FILE, 3, "text follows the value");
    refuse((str){"\0", 1}, &json_limits_file, QUIRE_BAD_FILE, 0, "a NUL byte");
    refuse((str){"[1,\0]", 5}, &json_limits_file, QUIRE_BAD_FILE, 3, "a NUL byte");
    refuse((str){"[1\0]", 4}, &json_limits_file, QUIRE_BAD_FILE, 2,
           "a comma or the closing bracket is missing");
    refuse((str){"\"a\0b\"", 5}, &json_limits_file, QUIRE_BAD_FILE, 2, "a control character in a string");
    refuse((str){"\"a\\\0\"", 5}, &json_limits_file, QUIRE_BAD_FILE, 2, "an invalid escape");
}

TEST(every_control_character_is_refused_in_a_string) {
    for (char c = 0; c < 0x20; c++) {
        const char text[] = {'[', '"', 'a', c, '"', ']'};
        refuse((str){text, sizeof text}, &json_limits_file, QUIRE_BAD_FILE, 3,
               "a control character in a string");
    }
}

TEST(bytes_that_are_not_utf8_are_refused) {
    static const char *const bad[] = {"\x80",
                                      "\xC0\xAF",
                                      "\xC1\xBF",
                                      "\xE0\x9F\xBF",
                                      "\xED\xA0\x80",
                                      "\xF0\x8F\xBF\xBF",
                                      "\xF4\x90\x80\x80",
                                      "\xF8\x88\x80\x80",
                                      "\xE2\x82",
                                      "\xFE"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[16];
        int n = snprintf(text, sizeof text, "[\"ab%s\"]", bad[i]);
        refuse((str){text, (size_t)n}, &json_limits_file, QUIRE_BAD_FILE, 4, "not UTF-8");
    }
    refuse((str){"\"\xE2\x82", 3}, &json_limits_file, QUIRE_BAD_FILE, 1, "not UTF-8");
    json_value *v = read_text("\"\x7f\xC2\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF4\x8F\xBF\xBF\"");
    assert_int_equal(json_str(v).n, 16);
    json_drop(v);
}

TEST(every_kind_of_value_is_read) {
    json_value *v = read_text(" {\"n\":null,\"b\":[true,false],\"i\":-7,\"r\":1.5e2,\"t\":"
                              "\"\\u00e9\\ud83d\\ude00\\n\\/\\u0000x\",\"o\":{},\"\":0} ");
    assert_int_equal(json_kind_of(v), JSON_KIND_OBJECT);
    assert_int_equal(json_length(v), 7);
    assert_null(json_get(v, "n"));
    assert_true(json_has(v, "n"));
    assert_false(json_has(v, "missing"));
    assert_true(json_truth(json_at(json_get(v, "b"), 0)));
    assert_false(json_truth(json_at(json_get(v, "b"), 1)));
    assert_null(json_at(json_get(v, "b"), 2));
    assert_int_equal(json_int64(json_get(v, "i")), -7);
    assert_true(json_double(json_get(v, "r")) == 150.0);
    str t = json_get_str(v, "t");
    assert_int_equal(t.n, 10);
    assert_memory_equal(t.p, "\xC3\xA9\xF0\x9F\x98\x80\n/\0x", 11); /* and the 0 byte after it */
    assert_int_equal(json_length(json_get(v, "o")), 0);
    assert_true(json_is(json_get(v, ""), JSON_KIND_INT));
    json_drop(v);
}

TEST(a_scalar_may_be_the_whole_text) {
    json_value *v = read_text("\"a\"");
    assert_true(str_is(json_str(v), "a"));
    json_drop(v);
    assert_null(read_text("null"));
    v = read_text("-0.0");
    assert_true(json_is(v, JSON_KIND_REAL) && signbit(json_double(v)));
    json_drop(v);
}

TEST(members_keep_the_order_of_the_text) {
    json_value *v = read_text("{\"z\":1,\"a\":null,\"m\":3,\"b\":4}");
    char seen[8] = "";
    for (json_member m = {0}; json_next(v, &m);) {
        strcat(seen, m.name);
        assert_true((m.value == NULL) == (m.name[0] == 'a'));
    }
    assert_string_equal(seen, "zamb");
    for (json_member m = {0}; json_next(NULL, &m);) {
        fail_msg("null has a member");
    }
    json_drop(v);
}

TEST(a_member_of_another_kind_counts_as_missing) {
    json_value *v = read_text("{\"s\":\"x\",\"i\":5,\"large\":2147483648,\"r\":2.0,\"b\":true}");
    assert_true(str_is(json_get_str(v, "s"), "x"));
    assert_int_equal(json_get_str(v, "i").n, 0);
    assert_int_equal(json_get_int32(v, "i", 9), 5);
    assert_int_equal(json_get_int32(v, "large", 9), 9);
    assert_int_equal(json_get_int32(v, "r", 9), 9);
    assert_int_equal(json_get_int32(v, "s", 9), 9);
    assert_true(json_get_bool(v, "b", false));
    assert_true(json_get_bool(v, "i", true));
    assert_false(json_get_bool(v, "missing", false));
    json_drop(v);
}

TEST(whole_numbers_are_integers_however_they_are_written) {
    static const struct {
        const char *text;
        bool whole;
        int64_t value;
    } table[] = {
        {"3", true, 3},
        {"3.0", true, 3},
        {"-2e1", true, -20},
        {"-0.0", true, 0},
        {"9007199254740991.0", true, 9007199254740991},
        {"9223372036854775807", true, INT64_MAX},
        {"3.5", false, 0},
        {"9007199254740992.0", false, 0},
        {"1e300", false, 0},
        {"true", false, 0},
        {"\"3\"", false, 0},
        {"null", false, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_value *v = read_text(table[i].text);
        int64_t n = 0;
        assert_int_equal(json_whole(v, &n), table[i].whole);
        assert_true(n == table[i].value);
        json_drop(v);
    }
}

/* ---- integers and reals of any size ---- */

TEST(integers_of_64_bits_are_exact_and_wider_ones_are_refused_by_place) {
    json_value *v = read_text("[9223372036854775807,-9223372036854775808,-0]");
    assert_true(json_int64(json_at(v, 0)) == INT64_MAX);
    assert_true(json_int64(json_at(v, 1)) == INT64_MIN);
    json_drop(v);
    static const char *const wide[] = {"9223372036854775808", "-9223372036854775809", "18446744073709551616",
                                       "99999999999999999999999999"};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        char text[80];
        json_counts counts;
        json_fault fault;
        snprintf(text, sizeof text, "{\"a\":[1, %s,%s]}", wide[i], wide[i]);
        assert_int_equal(json_check(str_of(text), &json_limits_file, &counts, &fault), QUIRE_OK);
        assert_int_equal(counts.n_wide, 2);
        assert_int_equal(counts.wide_at, 9);
        assert_int_equal(json_read(str_of(text), &json_limits_file, JSON_WIDE_REFUSED, &v, &fault),
                         QUIRE_BAD_FILE);
        assert_string_equal(fault.what, "an integer that does not fit in 64 bits");
        assert_int_equal(fault.at, 9);
        assert_null(v);
    }
}

TEST(a_wide_integer_is_the_nearest_real_where_the_caller_takes_that) {
    const char *text = "[9223372036854775808, -99999999999999999999 "
                       ",{\"12345678901234567890\":\"12345678901234567890\"},7,12345678901234567890]";
    json_value *v = read_as(str_of(text), JSON_WIDE_REAL);
    assert_int_equal(json_length(v), 5);
    assert_true(json_is(json_at(v, 0), JSON_KIND_REAL) && json_double(json_at(v, 0)) == 0x1p63);
    assert_true(json_double(json_at(v, 1)) == -1e20);
    /* digits in texts stay */
    assert_true(str_is(json_get_str(json_at(v, 2), "12345678901234567890"), "12345678901234567890"));
    assert_true(json_is(json_at(v, 3), JSON_KIND_INT));
    assert_true(json_double(json_at(v, 4)) == 12345678901234567890.0);
    json_drop(v);
}

TEST(a_number_beyond_a_double_is_refused_by_place) {
    static const refusal table[] = {
        {"1e309", 0, "a number too large for a double"},
        {"[\"1e999\", -1e400]", 10, "a number too large for a double"},
        /* the place in the text as it came */
        {"[99999999999999999999, 99999999999999999999, 1E+0400]", 45, "a number too large for a double"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_fault fault;
        json_value *v;
        assert_int_equal(json_read(str_of(table[i].text), &json_limits_file, JSON_WIDE_REAL, &v, &fault),
                         QUIRE_BAD_FILE);
        assert_string_equal(fault.what, table[i].what);
        assert_int_equal(fault.at, table[i].at);
    }
    char digits[402];
    memset(digits, '9', sizeof digits - 1);
    digits[sizeof digits - 1] = '\0';
    json_fault fault;
    json_value *v;
    assert_int_equal(json_read(str_of(digits), &json_limits_file, JSON_WIDE_REAL, &v, &fault),
                     QUIRE_BAD_FILE);
    assert_string_equal(fault.what, "a number too large for a double");
    v = read_text("[1.7976931348623157e308,5e-324,1e-999]");
    assert_true(json_double(json_at(v, 0)) == 0x1.fffffffffffffp1023);
    assert_true(json_double(json_at(v, 1)) == 0x1p-1074);
    assert_true(json_double(json_at(v, 2)) == 0);
    json_drop(v);
}

/* ---- names ---- */

TEST(a_name_twice_is_refused_where_names_are_unique) {
    static const refusal table[] = {
        {"{\"a\":1,\"a\":2}", 7, "the duplicate name \"a\""},
        /* names of one hash */
        {"{\"!0IC=VloaY\":1,\"QvXtM>@Fp%\":2,\"!0IC=VloaY\":3}", 31, "the duplicate name \"!0IC=VloaY\""},
        {"{\"a\":1,\"b\":{\"a\":1},\"\\u0061\":2}", 19, "the duplicate name \"a\""},
        {"[{\"x\":{\"\":1,\"b\":2,\"\":1}}]", 18, "the duplicate name \"\""},
        {"{\"0123456789012345678901234567890123456789\":1,\"0123456789012345678901234567890123456789\":1}",
         46, "a duplicate name"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        refuse(str_of(table[i].text), &json_limits_file, QUIRE_BAD_FILE, table[i].at, table[i].what);
    }
    /* once in each object */
    json_value *v = read_text("{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]},\"A\":1,\"aa\":2}");
    json_drop(v);
}

TEST(of_equal_names_the_last_counts_where_the_caller_takes_them) {
    json_value *v;
    json_fault fault;
    assert_int_equal(json_read(str_of("{\"a\":1,\"b\":2,\"\\u0061\":3}"), &json_limits_config,
                               JSON_WIDE_REFUSED, &v, &fault),
                     QUIRE_OK);
    assert_int_equal(json_int64(json_get(v, "a")), 3);
    assert_int_equal(json_length(v), 2);
    json_drop(v);
}

TEST(a_name_with_a_nul_is_refused_and_never_read_as_its_beginning) {
    refuse(str_of("{\"max\":1,\"max\\u0000\":2}"), &json_limits_file, QUIRE_BAD_FILE, 9,
           "a name with a NUL character");
    refuse(str_of("{\"\\u0000\":2}"), &json_limits_file, QUIRE_BAD_FILE, 1, "a name with a NUL character");
    json_value *v;
    json_fault fault;
    assert_int_equal(json_read(str_of("{\"t\":\"\\u0000\",\"max\\u0000\":2}"), &json_limits_config,
                               JSON_WIDE_REFUSED, &v, &fault),
                     QUIRE_BAD_FILE);
    assert_string_equal(fault.what, "a name with a NUL character");
    assert_int_equal(fault.at, 14);
    assert_null(v);
}

TEST(one_equal_pair_among_many_names_is_found) {
    enum { N = 20000 };
    uint64_t seed = rng_os_seed(), random = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    int first = (int)(rng_next(&random) % (N - 1)),
        second = first + 1 + (int)(rng_next(&random) % (uint64_t)(N - first - 1));
    strbuf b = {0};
    size_t at = 0;
    assert_int_equal(strbuf_add_char(&b, '{'), QUIRE_OK);
    for (int i = 0; i < N; i++) {
        at = i == second ? b.n : at;
        assert_int_equal(strbuf_addf(&b, "\"n%d\":%d%c", i == second ? first : i, i, i < N - 1 ? ',' : '}'),
                         QUIRE_OK);
    }
    char what[64];
    snprintf(what, sizeof what, "the duplicate name \"n%d\"", first);
    refuse((str){b.p, b.n}, &json_limits_file, QUIRE_BAD_FILE, at, what);
    strbuf_deinit(&b);
}

/* ---- limits ---- */

TEST(a_limit_holds_to_the_last_one_that_it_lets_pass) {
    const str text = str_of("{\"a\":[1,{}],\"b\":[[]]}"); /* depth 3, 6 values, 5 containers, 2 names */
    json_counts counts;
    json_fault fault;
    const json_limits enough = LIMITS(3, 6, 5, 2);
    assert_int_equal(json_check(text, &enough, &counts, &fault), QUIRE_OK);
    assert_int_equal(counts.n_values, 6);
    assert_int_equal(counts.n_containers, 5);
    assert_int_equal(counts.n_names, 2);
    const json_limits depth = LIMITS(2, 6, 5, 2), values = LIMITS(3, 5, 5, 2),
                      containers = LIMITS(3, 6, 4, 2), names = LIMITS(3, 6, 5, 1);
    refuse(text, &depth, QUIRE_TOO_LARGE, 8, "nested too deeply");
    refuse(text, &values, QUIRE_TOO_LARGE, 17, "too many values");
    refuse(text, &containers, QUIRE_TOO_LARGE, 17, "too many arrays and objects");
    refuse(text, &names, QUIRE_TOO_LARGE, 12, "too many object members");
}

TEST(arrays_inside_each_other_end_at_the_rooms_depth) {
    char text[2 * (JSON_MAX_DEPTH + 1)];
    memset(text, '[', JSON_MAX_DEPTH + 1);
    memset(text + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
    const json_limits any = LIMITS(1 << 20, 1 << 20, 1 << 20, 1 << 20);
    json_fault fault;
    json_value *v;
    assert_int_equal(json_read((str){text + 1, 2 * JSON_MAX_DEPTH}, &any, JSON_WIDE_REFUSED, &v, &fault),
                     QUIRE_OK);
    json_drop(v);
    refuse((str){text, sizeof text}, &any, QUIRE_TOO_LARGE, JSON_MAX_DEPTH, "nested too deeply");
}

/* ---- bounds of bytes ---- */

TEST(a_bound_counts_text_but_no_white_space_quotes_or_escapes) {
    static const struct {
        const char *text;
        size_t n; /* the least bound that lets it pass: brackets that close it at its end do not count */
    } table[] = {
        {"\"abc\"", 3},
        {" \n 12.50 ", 5},
        {"false", 5},
        {"\"\\u0041\\n\\\"\"", 3},
        {"\"\\u00e9\\u4e2d\\ud83d\\ude00\"", 2 + 3 + 4},
        {"[ 1 , [ 22 ] , 3 ]", 9},
        {"{ \"a\\n\" : \"b\" }", 5},
        {"[{\"name\":true}]", 2 + 4 + 1 + 4},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_limits bound = json_limits_file;
        json_fault fault = {0};
        bound.max_bytes = table[i].n;
        if (json_check(str_of(table[i].text), &bound, NULL, &fault) != QUIRE_OK) {
            fail_msg("%s, %zu: %s", table[i].text, table[i].n, fault.what);
        }
        bound.max_bytes--;
        assert_int_equal(json_check(str_of(table[i].text), &bound, NULL, &fault), QUIRE_TOO_LARGE);
        assert_int_equal(fault.max_bytes, bound.max_bytes);
    }
}

TEST(a_long_text_is_refused_before_it_is_read) {
    enum { BOUND = 10000, SLACK = 2048, BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (int kind = 0; kind < 2; kind++) {
        json_limits bound = json_limits_file;
        json_fault fault = {0};
        bound.max_bytes = BOUND;
        for (size_t i = 0; i < BYTES; i++) {
            char inside = kind == 0 ? 'a' : i % 2 == 1 ? '1' : ',';
            text[i] = i == 0              ? (kind == 0 ? '"' : '[')
                      : i > BOUND + SLACK ? '\1'
                                          : inside; /* it ends as no JSON */
        }
        assert_int_equal(json_check((str){text, BYTES}, &bound, NULL, &fault), QUIRE_TOO_LARGE);
        assert_int_equal(fault.max_bytes, BOUND);
        assert_true(fault.at >= BOUND && fault.at <= BOUND + SLACK);
    }
    free(text);
}

static size_t bytes_by_name(void *user, str name) {
    (void)user;
    return str_is(name, "a") ? 5 : str_is(name, "b") ? 3 : 0;
}

TEST(members_of_the_outermost_object_have_bounds_of_their_own) {
    static const struct {
        const char *text;
        size_t bound; /* the one that is passed; 0: none */
    } table[] = {
        {"{\"a\":\"12345\",\"b\":\"123\",\"c\":\"1234567890\"}", 0},
        {"{\"b\":\"123\",\"a\":\"12345\"}", 0},
        {"{\"a\":\"123456\"}", 5},
        {"{\"\\u0061\":\"123456\"}", 5},
        {"{\"a\":\"12345\",\"b\":\"1234\"}", 3},
        {"{\"c\":{\"a\":\"123456\"},\"b\":[\"a\"]}", 0},
        {"{\"a\":[[],\"c\"]}", 0},
        {"{\"a\":[[],\"cd\"]}", 5},
        {"{\"a\":{\"a\":\"123\"}}", 5},
        {"{\"a\":1,\"a name that is longer than bounds\":2}", 0},
        {"[{\"a\":\"123456\"}]", 0},
        {"\"123456\"", 0},
    };
    json_limits bounds = json_limits_file;
    bounds.member_bytes = bytes_by_name;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_fault fault = {0};
        quire_err e = json_check(str_of(table[i].text), &bounds, NULL, &fault);
        if (e != (table[i].bound > 0 ? QUIRE_TOO_LARGE : QUIRE_OK) || fault.max_bytes != table[i].bound) {
            fail_msg("%s: %d, %zu: %s", table[i].text, (int)e, fault.max_bytes, fault.what);
        }
    }
}

typedef struct slices {
    turn t;
    int n;
} slices;

static quire_err count_slice(turn *t) {
    slices *s = (slices *)(void *)t;
    return ++s->n < 3 ? QUIRE_OK : QUIRE_CANCELLED; /* each poll is the end of a slice */
}

TEST(a_text_of_many_values_takes_turns_with_others) {
    enum { BYTES = 100001 };
    char *text = malloc(BYTES);
    json_fault fault;
    slices s = {.t = {.over = count_slice}};
    assert_non_null(text);
    for (size_t i = 0; i < BYTES; i++) {
        text[i] = i == 0 ? '[' : i == BYTES - 1 ? ']' : i % 2 == 1 ? '1' : ',';
    }
    turn_begin(&s.t);
    quire_err e = json_check((str){text, BYTES}, &json_limits_file, NULL, &fault);
    turn_begin(NULL);
    assert_int_equal(e, QUIRE_CANCELLED);
    assert_int_equal(s.n, 3);
    free(text);
}

static quire_err go_on(turn *t) {
    ((slices *)(void *)t)->n++;
    return QUIRE_OK;
}

/* How often a text is polled for that is `head`, very many times c, `tail`. */
static int polls_of(const char *head, char c, const char *tail) {
    enum { BYTES = 1 << 20 };
    strbuf text = {0};
    json_fault fault;
    slices s = {.t = {.over = go_on}}; /* each poll that reads the clock is the end of a slice */
    assert_int_equal(strbuf_add_str(&text, head), QUIRE_OK);
    for (int i = 0; i < BYTES; i++) {
        assert_int_equal(strbuf_add_char(&text, c), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, tail), QUIRE_OK);
    turn_begin(&s.t);
    quire_err e = json_check((str){text.p, text.n}, &json_limits_file, NULL, &fault);
    turn_begin(NULL);
    assert_int_equal(e, QUIRE_OK);
    strbuf_deinit(&text);
    return s.n;
}

TEST(long_runs_of_digits_spaces_and_letters_take_turns_with_others) {
    assert_in_range(polls_of("", '7', ""), 200, 2000);
    assert_in_range(polls_of("0.", '7', ""), 200, 2000);
    assert_in_range(polls_of("1e", '0', ""), 200, 2000);
    assert_in_range(polls_of("", ' ', "1"), 200, 2000);
    assert_in_range(polls_of("[1", '\n', "]"), 200, 2000);
    assert_in_range(polls_of("1", '\t', ""), 200, 2000);
    assert_in_range(polls_of("\"", 'a', "\""), 200, 2000);
}

TEST(a_run_of_digits_or_spaces_can_be_given_up) {
    enum { BYTES = 100000 };
    static char text[BYTES + 1];
    for (int i = 0; i < 2; i++) {
        json_fault fault;
        slices s = {.t = {.over = count_slice}};
        memset(text, i == 0 ? '7' : ' ', BYTES);
        text[BYTES] = '1';
        turn_begin(&s.t);
        quire_err e = json_check((str){text, sizeof text}, &json_limits_file, NULL, &fault);
        turn_begin(NULL);
        assert_int_equal(e, QUIRE_CANCELLED);
        assert_int_equal(s.n, 3);
    }
}

/* ---- values ---- */

TEST(values_are_the_same_whatever_the_order_of_members) {
    static const struct {
        const char *a, *b;
        bool same;
    } table[] = {
        {"{\"a\":1,\"b\":[true,null]}", "{\"b\":[true,null],\"a\":1}", true},
        {"[1,2]", "[2,1]", false},
        {"1", "1.0", false},
        {"null", "null", true},
        {"null", "false", false},
        {"{\"a\":null}", "{}", false},
        {"\"a\"", "\"a\\u0000\"", false},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_value *a = read_text(table[i].a), *b = read_text(table[i].b);
        assert_int_equal(json_same(a, b), table[i].same);
        json_drop(a);
        json_drop(b);
    }
}

TEST(a_shared_value_outlives_the_tree_it_came_from) {
    json_value *v = read_text("{\"a\":[\"x\"]}");
    json_value *a = json_share(json_get(v, "a"));
    json_drop(v);
    assert_true(str_is(json_str(json_at(a, 0)), "x"));
    json_drop(a);
    assert_null(json_share(NULL));
    json_drop(NULL);
}

TEST(a_document_of_the_operators_may_hold_wide_integers_and_equal_names) {
    json_value *v =
        json_document(str_of("{\"model_max_length\":1000000000000000019884624838656,\"a\":1,\"a\":2}"));
    assert_true(json_double(json_get(v, "model_max_length")) == 1e30);
    assert_int_equal(json_int64(json_get(v, "a")), 2);
    json_drop(v);
    assert_null(json_document(str_of("{\"a\":1")));
}

TEST(an_integer_of_any_size_keeps_its_digits) {
    static const char text[] = "{\"a\":[18446744073709551615,1,{\"b\":-99999999999999999999}],\"a\\u0062\":"
                               "9223372036854775807,\"c\":1.5,\"t\":\"x\"}";
    json_value *v;
    json_fault fault;
    assert_int_equal(json_read(str_of(text), &json_limits_file, JSON_WIDE_KEPT, &v, &fault), QUIRE_OK);
    const json_value *wide = json_at(json_get(v, "a"), 0);
    assert_int_equal(json_kind_of(wide), JSON_KIND_WIDE);
    assert_true(json_numeric(wide) && json_numeric(json_get(v, "c")) && !json_numeric(json_get(v, "t")) &&
                !json_numeric(NULL));
    assert_true(str_is(json_wide_str(wide), "18446744073709551615") && json_str(wide).n == 0 &&
                json_int64(wide) == 0);
    assert_true(json_double(wide) == 0x1p64 && json_wide_str(json_get(v, "t")).n == 0);
    int64_t whole;
    assert_false(json_whole(wide, &whole));
    assert_true(json_is(json_get(v, "ab"), JSON_KIND_INT));
    strbuf out = {0};
    json_out o = {.to = &out};
    json_add(&o, v);
    assert_string_equal(out.p, "{\"a\":[18446744073709551615,1,{\"b\":-99999999999999999999}],\"ab\":"
                               "9223372036854775807,\"c\":1.5,\"t\":\"x\"}");
    strbuf_deinit(&out);
    json_drop(v);
    char digits[512]; /* more than a double holds, as a whole text */
    memset(digits, '9', sizeof digits);
    assert_int_equal(json_read((str){digits, sizeof digits}, &json_limits_file, JSON_WIDE_KEPT, &v, &fault),
                     QUIRE_OK);
    assert_true(str_eq(json_wide_str(v), (str){digits, sizeof digits}) && isinf(json_double(v)));
    json_value *same;
    assert_int_equal(
        json_read((str){digits, sizeof digits}, &json_limits_file, JSON_WIDE_KEPT, &same, &fault), QUIRE_OK);
    assert_true(json_same(v, same));
    json_drop(same);
    json_drop(v);
    static const char names[] = "{\"a\":18446744073709551615,\"a\":1.25,\"b\":1,\"b\":18446744073709551616,"
                                "\"c\":18446744073709551615,\"c\":\"x\"}";
    assert_int_equal(json_read(str_of(names), &json_limits_config, JSON_WIDE_KEPT, &v, &fault), QUIRE_OK);
    assert_true(json_double(json_get(v, "a")) == 1.25 &&
                str_is(json_wide_str(json_get(v, "b")), "18446744073709551616"));
    assert_true(str_is(json_str(json_get(v, "c")), "x"));
    json_drop(v);
    assert_int_equal(
        json_read(str_of("[18446744073709551616,1e999]"), &json_limits_file, JSON_WIDE_KEPT, &v, &fault),
        QUIRE_BAD_FILE);
    assert_true(fault.at == 22 && strstr(fault.what, "too large for a double") != NULL);
}

TEST_MAIN(NULL, NULL)
