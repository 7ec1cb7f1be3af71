/* Text for a terminal: nothing that a terminal obeys comes through, whatever the
 * pieces. */

#include "base/rng.h"
#include "base/utf8.h"
#include "test.h"

/* The whole text in pieces of at most `piece` bytes. */
static void show(str text, size_t piece, strbuf *out) {
    visible v = {0};
    for (size_t at = 0; at < text.n; at += piece) {
        assert_int_equal(visible_add(&v, text.p + at, text.n - at < piece ? text.n - at : piece, out),
                         QUIRE_OK);
    }
    assert_int_equal(visible_end(&v, out), QUIRE_OK);
    assert_int_equal(v.n_held, 0);
}

static void shown_as(const char *text, const char *wanted) {
    for (size_t piece = 1; piece <= 8; piece++) {
        strbuf out = {0};
        show(str_of(text), piece, &out);
        assert_string_equal(out.n > 0 ? out.p : "", wanted);
        strbuf_deinit(&out);
    }
}

TEST(control_characters_are_shown_as_escapes) {
    shown_as("a\x1b[31mred\x07", "a\\x1b[31mred\\x07");
    shown_as("one\ntwo\tthree", "one\ntwo\tthree");
    shown_as("over\rwritten\x7f\b", "over\\x0dwritten\\x7f\\x08");
    /* C1, and the space after it */
    shown_as("\xc2\x80\xc2\x9b"
             "31m\xc2\x9f\xc2\xa0",
             "\\u0080\\u009b31m\\u009f\xc2\xa0");
    shown_as("a\xe2\x80\xae"
             "b\xe2\x81\xa6"
             "c",
             "a\\u202eb\\u2066c");
    shown_as("", "");
}

TEST(characters_stay_as_they_are_however_they_are_cut) {
    shown_as("Napol\xc3\xa9on \xe2\x80\x94 \xe6\xbc\xa2\xe5\xad\x97 \xf0\x9f\x99\x82",
             "Napol\xc3\xa9on \xe2\x80\x94 \xe6\xbc\xa2\xe5\xad\x97 \xf0\x9f\x99\x82");
}

TEST(bytes_that_are_no_utf8_are_shown_as_bytes) {
    shown_as("\xff\xfe", "\\xff\\xfe");
    shown_as("caf\xe9 noir", "caf\\xe9 noir");
    shown_as("\xe2\x80", "\\xe2\\x80");   /* cut short */
    shown_as("\xe2\x80z", "\\xe2\\x80z"); /* the rest is another character */
    shown_as("\xf0\x9f\x1b", "\\xf0\\x9f\\x1b");
    shown_as("\xed\xa0\x80\x9b", "\\xed\\xa0\\x80\\x9b"); /* a surrogate; C1 as a lone byte */
}

TEST(random_bytes_never_reach_a_terminal_as_controls) {
    uint64_t seed = 0x5eed;
    print_message("seed %llu\n", (unsigned long long)seed);
    uint64_t r = seed;
    for (int round = 0; round < 2000; round++) {
        char text[64];
        size_t n = (size_t)(rng_next(&r) % sizeof text), length;
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)(rng_next(&r) % 3 == 0 ? rng_next(&r) % 0x30 : rng_next(&r));
        }
        strbuf out = {0}, whole = {0};
        show((str){text, n}, 1 + (size_t)(rng_next(&r) % 5), &out);
        show((str){text, n}, sizeof text, &whole);
        assert_true(str_eq((str){out.p, out.n}, (str){whole.p, whole.n}));
        for (size_t at = 0; at < out.n; at += length) {
            int32_t c = utf8_decode(out.p + at, out.n - at, &length);
            assert_true(c == '\n' || c == '\t' || (c >= 0x20 && c < 0x7f) || c >= 0xa0);
        }
        strbuf_deinit(&out);
        strbuf_deinit(&whole);
    }
}

TEST_MAIN(NULL, NULL)
