/* The pull reader: values one by one, spans of them, and refusals. */
#include <stdlib.h>

#include "base/rng.h"
#include "test.h"
#include "json/json.h"
#include "json/json_scan.h"

TEST(values_come_out_one_by_one) {
    json_scan s = {.text = str_of(" { \"a\\u0062\" : [ 1 , -2 ] , \"t\":\"x\\ny\" "
                                  ",\"w\":null,\"n\":1.50e1,\"e\":{} , \"f\":[]}  ")};
    strbuf scratch = {0};
    str text;
    bool more;
    int64_t n;
    json_scan_value number;
    assert_int_equal(json_scan_open(&s, '{'), QUIRE_OK);
    assert_int_equal(json_scan_more(&s, '}', &more), QUIRE_OK);
    assert_true(more);
    assert_int_equal(json_scan_key(&s, &scratch, &text), QUIRE_OK);
    assert_true(str_is(text, "ab"));
    assert_int_equal(json_scan_open(&s, '['), QUIRE_OK);
    assert_int_equal(json_scan_more(&s, ']', &more), QUIRE_OK);
    assert_int_equal(json_scan_int(&s, &n), QUIRE_OK);
    assert_int_equal(n, 1);
    assert_int_equal(json_scan_more(&s, ']', &more), QUIRE_OK);
    assert_true(more);
    assert_int_equal(json_scan_int(&s, &n), QUIRE_OK);
    assert_true(n == -2);
    assert_int_equal(json_scan_more(&s, ']', &more), QUIRE_OK);
    assert_false(more);
    assert_int_equal(json_scan_more(&s, '}', &more), QUIRE_OK);
    assert_int_equal(json_scan_key(&s, &scratch, &text), QUIRE_OK);
    assert_int_equal(json_scan_string(&s, &scratch, &text), QUIRE_OK);
    assert_true(str_is(text, "x\ny"));
    assert_int_equal(json_scan_more(&s, '}', &more), QUIRE_OK);
    assert_int_equal(json_scan_key(&s, &scratch, &text), QUIRE_OK);
    assert_int_equal(json_scan_peek(&s), 'n');
    assert_int_equal(json_scan_word(&s, &text), QUIRE_OK);
    assert_true(str_is(text, "null"));
    assert_int_equal(json_scan_more(&s, '}', &more), QUIRE_OK);
    assert_int_equal(json_scan_key(&s, &scratch, &text), QUIRE_OK);
    assert_int_equal(json_scan_number(&s, &number), QUIRE_OK);
    assert_true(str_is(number.text, "1.50e1") && !number.is_integer && !number.fits);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(json_scan_more(&s, '}', &more), QUIRE_OK);
        assert_int_equal(json_scan_key(&s, &scratch, &text), QUIRE_OK);
        assert_int_equal(json_scan_open(&s, "{["[i]), QUIRE_OK);
        assert_int_equal(json_scan_more(&s, "}]"[i], &more), QUIRE_OK);
        assert_false(more);
    }
    assert_int_equal(json_scan_more(&s, '}', &more), QUIRE_OK);
    assert_false(more);
    assert_int_equal(json_scan_peek(&s), '\0');
    strbuf_deinit(&scratch);
}

TEST(what_is_not_there_is_refused) {
    static const char *const texts[] = {"", " ", "x", "nul", "+1", "\"", "\"a\\", "]", "-", "\"\xFF\""};
    strbuf scratch = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_scan s = {.text = str_of(texts[i])};
        str text;
        int64_t n;
        bool more;
        assert_int_not_equal(json_scan_open(&s, '['), QUIRE_OK);
        s = (json_scan){.text = s.text};
        assert_int_not_equal(json_scan_string(&s, &scratch, &text), QUIRE_OK);
        s = (json_scan){.text = s.text};
        assert_int_not_equal(json_scan_key(&s, &scratch, &text), QUIRE_OK);
        s = (json_scan){.text = s.text};
        assert_int_not_equal(json_scan_int(&s, &n), QUIRE_OK);
        s = (json_scan){.text = s.text};
        assert_int_not_equal(json_scan_word(&s, &text), QUIRE_OK);
        s = (json_scan){.text = s.text};
        assert_int_not_equal(json_scan_span(&s, &text), QUIRE_OK);
        s = (json_scan){.text = s.text};
        assert_int_not_equal(json_scan_more(&s, '}', &more), QUIRE_OK);
    }
    strbuf_deinit(&scratch);
}

TEST(an_integer_is_one_that_64_bits_hold) {
    static const struct {
        const char *text;
        bool fits;
    } table[] = {{"9223372036854775807", true},
                 {"-9223372036854775808", true},
                 {"9223372036854775808", false},
                 {"-9223372036854775809", false},
                 {"1.0", false},
                 {"1e0", false},
                 {"-0", true},
                 {"92233720368547758070", false}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_scan s = {.text = str_of(table[i].text)};
        int64_t n;
        assert_int_equal(json_scan_int(&s, &n), table[i].fits ? QUIRE_OK : QUIRE_BAD_FILE);
        assert_true(!table[i].fits || n == strtoll(table[i].text, NULL, 10));
    }
}

TEST(a_comma_stands_between_values_only) {
    static const char *const texts[] = {"[1 2]", "[1,,2]", "[,1]", "[1,]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_scan s = {.text = str_of(texts[i])};
        bool more = true;
        int64_t n;
        quire_err e = json_scan_open(&s, '[');
        while (e == QUIRE_OK && more) {
            e = json_scan_more(&s, ']', &more);
            e = e == QUIRE_OK && more ? json_scan_int(&s, &n) : e;
        }
        assert_int_equal(e, QUIRE_BAD_FILE);
    }
}

TEST(a_span_is_a_whole_checked_value) {
    json_scan s = {.text = str_of(" {\"a\":[1,\"]\"]} , 5")};
    str span;
    assert_int_equal(json_scan_span(&s, &span), QUIRE_OK);
    assert_true(str_is(span, "{\"a\":[1,\"]\"]}"));
    assert_int_equal(json_scan_peek(&s), ',');
    s = (json_scan){.text = str_of("[1,{\"a\":}]")};
    assert_int_equal(json_scan_span(&s, &span), QUIRE_BAD_FILE);
    char deep[200];
    memset(deep, '[', sizeof deep);
    s = (json_scan){.text = {deep, sizeof deep}};
    assert_int_equal(json_scan_span(&s, &span), QUIRE_BAD_FILE);
}

TEST(a_member_is_found_by_its_name_however_it_is_written) {
    const str text = str_of("{\"x\":{\"want\":1},\"\\u0077ant\" : [2] ,\"want\":3}");
    str span;
    assert_int_equal(json_scan_member(text, "want", &span), QUIRE_OK);
    assert_true(str_is(span, "[2]"));
    assert_int_equal(json_scan_member(text, "no", &span), QUIRE_NOT_FOUND);
    assert_int_equal(json_scan_member(str_of("[1]"), "want", &span), QUIRE_BAD_FILE);
    assert_int_equal(json_scan_member(str_of("{\"want\" 1}"), "want", &span), QUIRE_BAD_FILE);
    assert_int_equal(json_scan_member(str_of("{\"want\":1}"), "wan", &span), QUIRE_NOT_FOUND);
}

/* Walks a whole value with the pull reader's calls; true when all of it is one. */
static bool walk(json_scan *s, strbuf *scratch, int depth) {
    str text;
    bool more = true, object;
    json_scan_value number;
    char c = json_scan_peek(s);
    if (c == '"') {
        return json_scan_string(s, scratch, &text) == QUIRE_OK;
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return json_scan_number(s, &number) == QUIRE_OK;
    }
    if (c != '{' && c != '[') {
        return json_scan_word(s, &text) == QUIRE_OK;
    }
    object = c == '{';
    bool fine = depth > 0 && json_scan_open(s, c) == QUIRE_OK;
    while (fine && more) {
        fine = json_scan_more(s, object ? '}' : ']', &more) == QUIRE_OK;
        fine = fine && (!more || !object || json_scan_key(s, scratch, &text) == QUIRE_OK) &&
               (!more || walk(s, scratch, depth - 1));
    }
    return fine;
}

/* One byte changed, taken out or put in: the pull reader takes what the check takes, and
 * nothing else. */
TEST(the_pull_reader_and_the_check_agree_on_damaged_texts) {
    static const char seed_text[] = "{\"a\":[1,-2.5e+3,0],\"\\u00e9\\n\":{\"t\":true,\"f\":false},"
                                    "\"\xC3\xA9\":[null,\"\\ud83d\\ude00\",[[],{}]], \"z\" : 7 }";
    static const char bytes[] = "{}[]:,\"\\ -+.0123eE\x01\xC3\xA9tfnul/\t";
    uint64_t seed = rng_os_seed(), random = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    strbuf scratch = {0};
    int taken = 0;
    for (int round = 0; round < 50000; round++) {
        char text[sizeof seed_text + 1];
        size_t n = sizeof seed_text - 1, at = rng_next(&random) % n;
        char c = bytes[rng_next(&random) % (sizeof bytes - 1)];
        memcpy(text, seed_text, n);
        switch (rng_next(&random) % 3) {
        case 0:
            text[at] = c;
            break;
        case 1:
            memmove(text + at, text + at + 1, --n - at);
            break;
        default:
            memmove(text + at + 1, text + at, n++ - at);
            text[at] = c;
        }
        json_scan s = {.text = {text, n}};
        json_fault fault;
        bool scanned = walk(&s, &scratch, 64) && json_scan_peek(&s) == '\0' && s.at == n;
        bool checked = json_check(s.text, &json_limits_config, NULL, &fault) == QUIRE_OK;
        if (scanned != checked) {
            fail_msg("%.*s: scan %d, check %d", (int)n, text, scanned, checked);
        }
        taken += checked;
    }
    assert_true(taken > 100 && taken < 45000); /* both kinds came up */
    strbuf_deinit(&scratch);
}

TEST_MAIN(NULL, NULL)
