/* Regexes and choices: what they accept, where they end, what is refused. */
#include "grammar_case.h"

TEST(a_regex_must_match_the_whole_text) {
    grammar_case c = case_open(GRAMMAR_REGEX, "ab+c?", NULL);
    case_accepts(&c, "ab");
    case_accepts(&c, "abbbc");
    case_rejects(&c, "a", -1);
    case_rejects(&c, "abcc", 3);
    case_rejects(&c, "xab", 0);
    case_close(&c);
}

TEST(counted_repeats_are_counted_and_not_written_out) {
    grammar_case c = case_open(GRAMMAR_REGEX, "(?:(?:a|bc){2,3}x){50,51}", NULL);
    char text[52 * 4 + 1] = "";
    for (int i = 0; i < 49; i++) {
        strcat(text, i % 2 == 0 ? "aax" : "bcax");
    }
    case_rejects(&c, text, -1);
    strcat(text, "aaax");
    case_accepts(&c, text);
    strcat(text, "aax");
    case_accepts(&c, text);
    strcat(text, "a");
    case_rejects(&c, text, (int)strlen(text) - 1);
    case_close(&c);
}

TEST(stacked_repeats_are_the_one_that_says_both) {
    static const struct {
        const char *regex;
        int min, max; /* letters; -1: any number */
    } cases[] = {{"a??*", 0, -1},    {"(?:a?)*", 0, -1},   {"(?:a*)+", 0, -1},    {"(?:a+)*", 0, -1},
                 {"(?:a+)+", 1, -1}, {"(?:a+)?", 0, -1},   {"(?:a?)?", 0, 1},     {"(?:a?)+", 0, -1},
                 {"(?:a*)?", 0, -1}, {"(?:a{2})*", 0, -2}, {"(?:a{2,3})?", 0, -3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        grammar_case c = case_open(GRAMMAR_REGEX, cases[i].regex, NULL);
        char text[8] = "";
        for (int n = 0; n < 7; n++, text[n - 1] = 'a') {
            bool final, fits = n >= cases[i].min && (cases[i].max < 0 || n <= cases[i].max);
            fits = cases[i].max == -2 ? n % 2 == 0 : cases[i].max == -3 ? n == 0 || n == 2 || n == 3 : fits;
            (void)case_take(&c, text, &final);
            if (final != fits) {
                fail_msg("%s: %d letters are %s", cases[i].regex, n, final ? "accepted" : "rejected");
            }
        }
        case_close(&c);
    }
}

TEST(characters_are_whole_even_where_tokens_cut_them) {
    grammar_case c = case_open(GRAMMAR_REGEX, "[\\u00e0-\\u00ff]\xE6\x97\xA5?[^\\x00-\\uffff]", NULL);
    case_accepts(&c, "\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80");
    case_accepts(&c, "\xC3\xA9\xF0\x9F\x98\x80");
    case_rejects(&c, "\xC3\x9F", 1); /* U+00DF is below the range */
    case_rejects(&c, "\xC3\xA9\xE6\x98", 3);
    case_close(&c);
    c = case_open(GRAMMAR_REGEX, ".", NULL);
    case_rejects(&c, "\n", 0);
    case_rejects(&c, "\xED\xA0\x80", 1); /* a surrogate */
    case_rejects(&c, "\xC0\xAF", 0);     /* too long */
    case_rejects(&c, "\xF4\x90\x80\x80", 1);
    case_close(&c);
}

TEST(white_space_is_that_of_json_schema) {
    grammar_case c = case_open(GRAMMAR_REGEX, "\\s[\\s]\\S[^\\S ]", NULL);
    case_accepts(&c, "\t\xE3\x80\x80"
                     "a\xC2\xA0"); /* U+3000, U+00A0 */
    case_rejects(&c, "a", 0);
    case_rejects(&c, "  \xE3\x80\x80", 4);
    case_rejects(&c, "  a ", 3);
    case_close(&c);
}

TEST(anchors_count_at_the_edges_alone) {
    grammar_case c = case_open(GRAMMAR_REGEX, "^(?:^ab|x)$", NULL);
    case_accepts(&c, "ab");
    case_accepts(&c, "x");
    case_close(&c);
    case_refused(GRAMMAR_REGEX, "a^b", QUIRE_UNSUPPORTED, "anchor");
    case_refused(GRAMMAR_REGEX, "(?=a)b", QUIRE_UNSUPPORTED, "group");
    case_refused(GRAMMAR_REGEX, "(a)\\1", QUIRE_UNSUPPORTED, "\\1");
    case_refused(GRAMMAR_REGEX, "\\012", QUIRE_UNSUPPORTED, "octal");
    case_refused(GRAMMAR_REGEX, "a\\b", QUIRE_UNSUPPORTED, "\\b");
    case_refused(GRAMMAR_REGEX, "a*+", QUIRE_UNSUPPORTED, "possessive");
    case_refused(GRAMMAR_REGEX, "(a", QUIRE_INVALID, "( without");
    case_refused(GRAMMAR_REGEX, "a)", QUIRE_INVALID, ") without");
    case_refused(GRAMMAR_REGEX, "[b-a]", QUIRE_INVALID, "range");
    case_refused(GRAMMAR_REGEX, "*a", QUIRE_INVALID, "nothing comes before");
    case_refused(GRAMMAR_REGEX, "[^\\x00-\\U0010ffff]", QUIRE_INVALID, "matches no text");
}

TEST(a_choice_is_one_of_its_texts) {
    grammar_case c = case_open(GRAMMAR_CHOICE, "[\"yes\",\"yes sir\",\"\\u00e9\"]", NULL);
    case_accepts(&c, "yes");
    case_accepts(&c, "yes sir");
    case_accepts(&c, "\xC3\xA9");
    case_rejects(&c, "yes ma", 4);
    case_close(&c);
    case_refused(GRAMMAR_CHOICE, "[]", QUIRE_INVALID, "at least one");
    case_refused(GRAMMAR_CHOICE, "[1]", QUIRE_INVALID, "not a string");
}

TEST(a_hostile_regex_is_refused_in_its_budgets) {
    char *deep = mem_new(60001, 1);
    assert_non_null(deep);
    memset(deep, '(', 30000);
    memset(deep + 30000, ')', 30000);
    case_refused(GRAMMAR_REGEX, deep, QUIRE_TOO_LARGE, "too deep");
    mem_free(deep);
    case_refused(GRAMMAR_REGEX, "((((a{0,99}){0,99}){0,99}){0,99}){0,99}", QUIRE_TOO_LARGE, "repeats expand");
    case_refused(GRAMMAR_REGEX, "a{100001}", QUIRE_TOO_LARGE, "count");
    grammar_options few = {.max_steps = 20};
    grammar *g = NULL;
    quire_error err = {0};
    assert_int_equal(grammar_compile(GRAMMAR_REGEX, str_of("(a|b|c){1,40}(d|e|f){1,40}"), &few, &g, &err),
                     QUIRE_TOO_LARGE);
}

static bool matches(const char *regex, str text) {
    int64_t steps = 1000000;
    bool does;
    quire_error err = {0};
    if (grammar_regex_matches(str_of(regex), text, &steps, &does, &err) != QUIRE_OK) {
        fail_msg("%s: %s", regex, err.message);
    }
    assert_true(steps > 0 && steps < 1000000);
    return does;
}

TEST(a_regex_is_looked_for_in_a_text) {
    static const struct {
        const char *regex, *text;
        bool does;
    } cases[] = {{"b+", "abbc", true},
                 {"^b+", "abbc", false},
                 {"b+c$", "abbc", true},
                 {"b+$", "abbc", false},
                 {"^(yes|no)$", "no", true},
                 {"^(yes|no)$", "not", false},
                 {"", "", true},
                 {"x", "", false},
                 {"(?i)YES", "so yes", true},
                 {"\\d{2,3}:", "at 7:, 12:", true},
                 {"^.$", "\xC3\xA9", true},
                 {"^.$", "\n", false},
                 {"[\xE6\x97\xA5-\xE6\x9C\xAC]", "\xE6\x97\xA6", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (matches(cases[i].regex, str_of(cases[i].text)) != cases[i].does) {
            fail_msg("%s in %s", cases[i].regex, cases[i].text);
        }
    }
    /* bytes that are no UTF-8 are one character each, and a text that ends within one is
     * read to its end */
    assert_true(matches("^a\\x{fffd}b.$", (str){"a\xFF"
                                                "b\xE6\x97",
                                                5}));
    assert_false(matches("^ab", (str){"a\xFF"
                                      "b",
                                      3}));
}

/* Whatever the regex and the text are: steps are counted, and no more are taken. */
TEST(looking_for_a_regex_takes_bounded_steps) {
    static const char *const bad[] = {"[", "(", "a{2,1}", "a\\1", "(?=a)"};
    static char text[100000];
    quire_error err = {0};
    bool does;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t steps = 1000;
        quire_err e = grammar_regex_matches(str_of(bad[i]), str_of("aa"), &steps, &does, &err);
        assert_true(e == QUIRE_INVALID || e == QUIRE_UNSUPPORTED);
        assert_true(steps >= 0 && !does && err.message[0] != 0);
    }
    static const char *const large[] = {"(a|b)*a(a|b){30}", "((a{1,100}){1,100}){1,100}",
                                        "(.*)*(.*)*x{4000}y", "[a-z]{0,60000}b"};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        int64_t steps = 1 << 30;
        assert_int_equal(grammar_regex_matches(str_of(large[i]), str_of("ab"), &steps, &does, &err),
                         QUIRE_TOO_LARGE);
        assert_true(steps >= (1 << 30) - GRAMMAR_MATCH_STEPS);
    }
    memset(text, 'a', sizeof text);
    int64_t steps = 3 * (int64_t)sizeof text;
    assert_int_equal(grammar_regex_matches(str_of("(a+)+b"), (str){text, sizeof text}, &steps, &does, &err),
                     QUIRE_OK);
    assert_true(!does && steps > 0); /* one pass, however it is written */
    steps = sizeof text / 2;
    assert_int_equal(grammar_regex_matches(str_of("(a+)+b"), (str){text, sizeof text}, &steps, &does, &err),
                     QUIRE_TOO_LARGE);
    for (steps = -1; steps <= 0; steps++) {
        int64_t none = steps;
        assert_int_equal(grammar_regex_matches(str_of("a"), str_of("a"), &none, &does, &err),
                         QUIRE_TOO_LARGE);
    }
}

TEST_MAIN(NULL, NULL)
