/* Strings of limited length with a pattern or format: counted beside the automaton,
 * without dead ends, and in characters. */
#include "schema_case.h"

/* ---- against every text of a small alphabet ---- */

enum { LONGEST = 8, LETTERS = 3 };

typedef struct walk {
    grammar_case whole; /* the pattern alone */
    grammar_case c;
    size_t min, max;
    const char *schema;
} walk;

/* Compares what may follow a text with what some longer text of the pattern and length
 * begins with. Returns whether one does. */
static bool compare(walk *w, char *text, size_t n) {
    bool whole, quoted, ends, any = false;
    char json[LONGEST + 4];
    text[n] = 0;
    if (case_take(&w->whole, text, &whole) < n) {
        return false;
    }
    for (int i = 0; n < LONGEST && i < LETTERS; i++) {
        text[n] = (char)('a' + i);
        any = compare(w, text, n + 1) || any;
        text[n] = 0;
    }
    ends = whole && n >= w->min && n <= w->max;
    (void)snprintf(json, sizeof json, "\"%s\"", text);
    size_t taken = case_take(&w->c, json, &quoted);
    if (quoted != ends || (n < LONGEST && (taken > n) != (ends || any))) {
        fail_msg("%s: %s taken up to %zu, %s; it %s and %s", w->schema, json, taken,
                 quoted ? "complete" : "not complete", ends ? "is one" : "is none",
                 any ? "can go on" : "cannot go on");
    }
    return ends || any;
}

TEST(a_text_goes_on_only_where_it_can_end_within_its_length) {
    static const char *const patterns[] = {"(ab)*",  "a(bc|b)?c*", "(aa|bbb)+", "a{2,5}",
                                           "[ab]*c", "(aaa)*",     "a*(bbb)?",  "[abc]*ab(cc)*"};
    static const size_t lengths[][2] = {{0, 0}, {0, 1}, {0, 4}, {1, 3}, {2, 5},
                                        {3, 3}, {4, 4}, {5, 7}, {6, 8}};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            char schema[160], text[LONGEST + 1];
            (void)snprintf(schema, sizeof schema,
                           "{\"type\":\"string\",\"pattern\":\"^%s$\",\"minLength\":%zu,\"maxLength\":%zu}",
                           patterns[i], lengths[k][0], lengths[k][1]);
            grammar *g;
            quire_err e = grammar_compile(GRAMMAR_SCHEMA, str_of(schema), NULL, &g, NULL);
            walk w = {.whole = case_open(GRAMMAR_REGEX, patterns[i], NULL),
                      .min = lengths[k][0],
                      .max = lengths[k][1],
                      .schema = schema};
            if (e == QUIRE_OK) {
                w.c = case_open(GRAMMAR_SCHEMA, schema, NULL);
                assert_true(compare(&w, text, 0));
                case_close(&w.c);
            } else { /* only where no text fits */
                assert_int_equal(e, QUIRE_INVALID);
            }
            case_close(&w.whole);
            grammar_drop(g);
        }
    }
}

/* ---- usual ones ---- */

TEST(usual_limits_of_formats_are_enforced) {
    static const schema_case cases[] = {
        {"{\"format\":\"email\",\"maxLength\":254,\"type\":\"string\"}", {"\"a@b.de\""}, {"\"a\"", "\"@b\""}},
        {"{\"format\":\"uri\",\"maxLength\":2048,\"type\":\"string\"}",
         {"\"http://a/b?c#d\"", "\"x:\""},
         {"\"a b\""}},
        {"{\"format\":\"hostname\",\"minLength\":3,\"maxLength\":253,\"type\":\"string\"}",
         {"\"a.b\""},
         {"\"ab\"", "\"a.\""}},
        {"{\"pattern\":\"^[a-z]*$\",\"maxLength\":65536,\"type\":\"string\"}",
         {"\"abc\"", "\"\""},
         {"\"A\""}},
        {"{\"format\":\"email\",\"maxLength\":8,\"type\":\"string\"}",
         {"\"ab@c.def\""},
         {"\"ab@c.defg\"", "\"abcdefg@\""}},
        {"{\"format\":\"uuid\",\"maxLength\":36,\"type\":\"string\"}",
         {"\"00000000-0000-0000-0000-000000000000\""},
         {"\"0\""}},
        {"{\"pattern\":\"^[\\u00e9\\ud83d\\ude00n\\n]*$\",\"maxLength\":3,\"type\":\"string\"}",
         {"\"\xC3\xA9\xF0\x9F\x98\x80n\"", "\"\\u00e9\\ud83d\\ude00\\n\""},
         {"\"\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\"", "\"\\u00e9\\u00e9\\u00e9\\u00e9\"", "\"\\n\\n\\n\\n\""}},
        {"{\"allOf\":[{\"pattern\":\"^a\"},{\"maxLength\":300},{\"pattern\":\"b$\"},{\"minLength\":4}],"
         "\"type\":\"string\"}",
         {"\"axxb\""},
         {"\"ab\"", "\"axb\"", "\"axxx\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^a\",\"maxLength\":300}}",
         {"\"b\""},
         {"\"a\"", "\"ab\""}},
        {"{\"type\":\"string\",\"anyOf\":[{\"format\":\"email\",\"maxLength\":254},{\"maxLength\":1}]}",
         {"\"a@b\"", "\"x\""},
         {"\"xy\""}},
    };
    CHECK_ALL(cases, NULL);
}

/* A text of n letters between two others. */
static const char *long_text(char *to, const char *before, size_t n, const char *behind) {
    size_t at = strlen(before);
    memcpy(to, before, at);
    memset(to + at, 'a', n);
    memcpy(to + at + n, behind, strlen(behind) + 1);
    return to;
}

/* Compiling goes past its budget where the pattern meets the limit. */
TEST(a_pattern_that_takes_too_much_beside_a_limit_is_named) {
    static const char schema[] = "{\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":1000,\"pattern\":"
                                 "\"^([a-z]{1,100} ){1,100}$\"}}}";
    const grammar_options options = {.max_steps = 2000000};
    grammar *g = NULL;
    quire_error err = {0};
    assert_int_equal(grammar_compile(GRAMMAR_SCHEMA, str_of(schema), &options, &g, &err), QUIRE_TOO_LARGE);
    assert_non_null(strstr(err.message, "pattern at \"/properties/a\": the grammar takes too many steps"));
}

TEST(the_longest_text_ends_where_its_limit_is) {
    static char text[70000];
    grammar_case c =
        case_open(GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"email\",\"maxLength\":254}", NULL);
    case_accepts(&c, long_text(text, "\"", 250, "@a.b\""));
    case_rejects(&c, long_text(text, "\"", 251, "@a.b\""), 1 + 251 + 2);
    case_rejects(&c, long_text(text, "\"", 253, ""), 1 + 252); /* "@a" must still fit */
    case_close(&c);
    c = case_open(GRAMMAR_SCHEMA,
                  "{\"type\":\"string\",\"pattern\":\"^[a-z]*$\",\"minLength\":2,\"maxLength\":65536}", NULL);
    case_accepts(&c, long_text(text, "\"", 65536, "\""));
    case_rejects(&c, long_text(text, "\"", 65537, "\""), 1 + 65536);
    case_rejects(&c, "\"a\"", 2);
    case_close(&c);
}

/* Most places in a long text have one mask. */
TEST(places_far_from_a_limit_share_a_mask) {
    grammar_case c =
        case_open(GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"uri\",\"maxLength\":2048}", NULL);
    grammar_state s = grammar_start(c.r);
    assert_int_equal(grammar_accept_bytes(c.r, &s, str_of("\"http://a/"), NULL), QUIRE_OK);
    grammar_run_stats before, after;
    uint64_t bits[(CASE_TOKENS + 63) / 64];
    for (int i = 0; i < 500; i++) {
        if (i == 2) {
            grammar_run_get_stats(c.r, &before);
        }
        assert_int_equal(grammar_mask(c.r, s, bits), QUIRE_OK);
        assert_int_equal(grammar_accept_bytes(c.r, &s, str_of("x"), NULL), QUIRE_OK);
    }
    grammar_run_get_stats(c.r, &after);
    assert_int_equal(after.n_masks, before.n_masks);
    case_close(&c);
}

TEST_MAIN(NULL, NULL)
