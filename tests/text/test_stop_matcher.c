#include "text/stop_matcher.h"

#include <stdlib.h>

#include "base/rng.h"
#include "test.h"

/* Feeds text in pieces of at most piece_bytes (0: of random sizes) and flushes; *match is
 * the string that stopped it. */
static void run(const str *stops, size_t n, str text, size_t piece_bytes, bool include, uint64_t *rng,
                strbuf *out, int32_t *match) {
    stop_matcher *s;
    assert_int_equal(stop_matcher_open(stops, n, &s), QUIRE_OK);
    strbuf_clear(out);
    *match = -1;
    for (size_t i = 0; i < text.n && *match < 0;) {
        size_t size = piece_bytes > 0 ? piece_bytes : (size_t)(rng_next(rng) % 5);
        size = size < text.n - i ? size : text.n - i;
        assert_int_equal(stop_matcher_feed(s, (str){text.p + i, size}, include, out, match), QUIRE_OK);
        i += size;
    }
    assert_int_equal(stop_matcher_flush(s, out), QUIRE_OK);
    stop_matcher_close(s);
}

static void expect(const char *text, const char *stop_a, const char *stop_b, bool include, const char *shown,
                   int32_t match) {
    str stops[2] = {str_of(stop_a), str_of(stop_b != NULL ? stop_b : "")};
    strbuf out = {0};
    for (size_t piece = 1; piece <= 8; piece++) {
        int32_t found;
        run(stops, stop_b != NULL ? 2 : 1, str_of(text), piece, include, NULL, &out, &found);
        assert_int_equal(found, match);
        assert_true(str_is((str){out.p, out.n}, shown));
    }
    strbuf_deinit(&out);
}

TEST(text_before_a_stop_string_is_shown_and_the_rest_dropped) {
    expect("one two three", "two", NULL, false, "one ", 0);
    expect("one two three", "two", NULL, true, "one two", 0);
    expect("one two three", "four", NULL, false, "one two three", -1);
    expect("two", "two", NULL, false, "", 0);
}

TEST(a_stop_string_that_overlaps_its_own_false_start_is_found) {
    expect("aab aaab x", "aaab", NULL, false, "aab ", 0);
    expect("ababac", "abac", NULL, false, "ab", 0);
}

TEST(the_match_that_ends_first_wins) {
    expect("abcd", "abcd", "bc", false, "a", 1);
    expect("xyz", "z", "y", false, "x", 1);
}

TEST(of_matches_that_end_together_the_longest_wins_and_of_equals_the_first) {
    expect("abc", "c", "bc", false, "a", 1);
    expect("abc", "bc", "bc", false, "a", 0);
}

TEST(what_may_become_a_stop_string_is_held_back_until_it_cannot) {
    str stop = str_of("\n\nHuman:");
    stop_matcher *s;
    strbuf out = {0};
    int32_t match;
    assert_int_equal(stop_matcher_open(&stop, 1, &s), QUIRE_OK);
    stop_matcher_feed(s, str_of("Hi\n"), false, &out, &match);
    assert_true(str_is((str){out.p, out.n}, "Hi"));
    stop_matcher_feed(s, str_of("\nHum"), false, &out, &match);
    assert_true(str_is((str){out.p, out.n}, "Hi"));
    stop_matcher_feed(s, str_of("s"), false, &out, &match);
    assert_true(str_is((str){out.p, out.n}, "Hi\n\nHums"));
    assert_int_equal(match, -1);
    stop_matcher_close(s);
    strbuf_deinit(&out);
}

TEST(what_may_not_stop_yet_passes_but_may_begin_a_stop_string) {
    str stop = str_of("abab");
    stop_matcher *s;
    strbuf out = {0};
    int32_t match;
    assert_int_equal(stop_matcher_open(&stop, 1, &s), QUIRE_OK);
    assert_int_equal(stop_matcher_pass(s, str_of("xabab"), &out), QUIRE_OK);
    assert_true(str_is((str){out.p, out.n}, "xab")); /* the second ab may begin another */
    stop_matcher_feed(s, str_of("a"), false, &out, &match);
    assert_int_equal(match, -1);
    stop_matcher_feed(s, str_of("bc"), false, &out, &match);
    assert_int_equal(match, 0);
    assert_true(str_is((str){out.p, out.n}, "xab"));
    stop_matcher_close(s);
    strbuf_deinit(&out);
}

TEST(after_a_match_feeds_and_flush_give_nothing) {
    str stop = str_of("x");
    stop_matcher *s;
    strbuf out = {0};
    int32_t match;
    assert_int_equal(stop_matcher_open(&stop, 1, &s), QUIRE_OK);
    stop_matcher_feed(s, str_of("axb"), false, &out, &match);
    assert_int_equal(match, 0);
    stop_matcher_feed(s, str_of("cx"), false, &out, &match);
    assert_int_equal(match, -1);
    stop_matcher_flush(s, &out);
    assert_true(str_is((str){out.p, out.n}, "a"));
    stop_matcher_close(s);
    strbuf_deinit(&out);
}

TEST(without_stop_strings_everything_passes) {
    stop_matcher *s;
    strbuf out = {0};
    int32_t match;
    assert_int_equal(stop_matcher_open(NULL, 0, &s), QUIRE_OK);
    stop_matcher_feed(s, str_of("abc"), false, &out, &match);
    assert_int_equal(match, -1);
    assert_true(str_is((str){out.p, out.n}, "abc"));
    stop_matcher_close(s);
    strbuf_deinit(&out);
}

TEST(an_empty_stop_string_is_refused) {
    str stops[] = {str_of("a"), str_of("")};
    stop_matcher *s;
    assert_int_equal(stop_matcher_open(stops, 2, &s), QUIRE_INVALID);
    assert_null(s);
}

/* The rule, by trying every end and every start. Returns how much of text is shown. */
static size_t first_match(const str *stops, size_t n, str text, bool include, int32_t *match) {
    for (size_t end = 1; end <= text.n; end++) {
        for (size_t start = 0; start < end; start++) {
            for (size_t i = 0; i < n; i++) {
                if (str_eq(stops[i], (str){text.p + start, end - start})) {
                    *match = (int32_t)i;
                    return include ? end : start;
                }
            }
        }
    }
    *match = -1;
    return text.n;
}

TEST(random_texts_in_random_pieces_stop_where_the_rule_says) {
    uint64_t seed = rng_os_seed(), rng = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    strbuf out = {0};
    for (int round = 0; round < 20000; round++) {
        char text[24], words[3][4];
        str stops[3];
        size_t n = rng_next(&rng) % 3 + 1;
        for (size_t i = 0; i < sizeof text; i++) {
            text[i] = (char)('a' + rng_next(&rng) % 3);
        }
        for (size_t i = 0; i < n; i++) {
            stops[i] = (str){words[i], rng_next(&rng) % 4 + 1};
            for (size_t k = 0; k < stops[i].n; k++) {
                words[i][k] = (char)('a' + rng_next(&rng) % 3);
            }
        }
        bool include = rng_next(&rng) & 1;
        int32_t expected, found;
        size_t shown = first_match(stops, n, (str){text, sizeof text}, include, &expected);
        run(stops, n, (str){text, sizeof text}, 0, include, &rng, &out, &found);
        assert_int_equal(found, expected);
        assert_true(str_eq((str){out.p, out.n}, (str){text, shown}));
    }
    strbuf_deinit(&out);
}

TEST(a_text_that_nearly_stops_at_every_byte_takes_linear_time) {
    enum { LENGTH = 1 << 20 };
    char *stop = malloc(LENGTH / 2);
    memset(stop, 'a', LENGTH / 2);
    stop[LENGTH / 2 - 1] = 'b';
    str stops = {stop, LENGTH / 2};
    stop_matcher *s;
    strbuf out = {0};
    int32_t match;
    assert_int_equal(stop_matcher_open(&stops, 1, &s), QUIRE_OK);
    for (int i = 0; i < LENGTH; i++) {
        assert_int_equal(stop_matcher_feed(s, str_of("a"), false, &out, &match), QUIRE_OK);
    }
    assert_int_equal(out.n, LENGTH - LENGTH / 2 + 1);
    stop_matcher_close(s);
    strbuf_deinit(&out);
    free(stop);
}

TEST_MAIN(NULL, NULL)
