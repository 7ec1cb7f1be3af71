/* Limited nesting of objects and arrays: the grammar accepts the same texts as without
 * limit up to that depth, and no prefix is a dead end. */
#include "grammar_case.h"

#include "base/rng.h"

enum { MAX_TEXT = 160, N_WALKS = 60, MAX_LEVELS = 5 };

static const char *const schemas[] = {
    /* an object needs three levels */
    "{\"$defs\":{\"n\":{\"anyOf\":[{\"enum\":[0,1]},{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
    "n\"},\"maxItems\":2},"
    "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
    "n\"},\"b\":{\"type\":\"array\",\"items\":{\"type\":\"array\",\"items\":{"
    "\"$ref\":\"#/$defs/"
    "n\"},\"minItems\":1,\"maxItems\":1},\"minItems\":1,\"maxItems\":1}},\"required\":[\"b\"],"
    "\"additionalProperties\":false}]}},\"$ref\":\"#/$defs/n\"}",
    /* an item that needs more than the one before it */
    "{\"$defs\":{\"d\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":2,\"items\":{\"anyOf\":[{\"const\":"
    "true},{\"$ref\":\"#\"}]}}},"
    "\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"$ref\":\"#/$defs/"
    "d\"},{\"const\":2}],\"items\":false}",
    /* as many members as fit */
    "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"anyOf\":[{\"$ref\":\"#\"},{\"const\":["
    "]}]},\"c\":{\"$ref\":\"#\"},"
    "\"d\":{\"type\":\"boolean\"}},\"minProperties\":2,\"additionalProperties\":false}",
    /* each value once */
    "{\"$defs\":{\"n\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":2,\"items\":{\"anyOf\":[{\"$ref\":\"#/"
    "$defs/"
    "n\"},{\"type\":\"array\","
    "\"uniqueItems\":true,\"minItems\":2,\"items\":{\"enum\":[1,[2],[[3]],{\"a\":[[4]]}]}}]}}},\"$ref\":\"#/"
    "$defs/n\"}",
    /* an item that counts */
    "{\"$defs\":{\"n\":{\"anyOf\":[{\"const\":1},{\"type\":\"array\",\"maxItems\":3,\"items\":{\"$ref\":\"#/"
    "$defs/n\"},"
    "\"contains\":{\"anyOf\":[{\"const\":1},{\"type\":\"array\",\"minItems\":2}]}}]}},\"$ref\":\"#/$defs/"
    "n\"}",
    /* rules about members that nothing lists */
    "{\"$defs\":{\"n\":{\"anyOf\":[{\"enum\":[1,true]},{\"$ref\":\"#\"}]}},\"type\":\"object\","
    "\"maxProperties\":3,\"propertyNames\":{"
    "\"pattern\":"
    "\"^[ab]$\"},\"additionalProperties\":{\"$ref\":\"#/$defs/"
    "n\"},\"not\":{\"patternProperties\":{\"^a\":{\"type\":\"integer\"}}}}"};

/* How deep brackets are nested; no string of these schemas holds one. */
static uint32_t depth_of(const char *text) {
    uint32_t depth = 0, most = 0;
    for (; *text != 0; text++) {
        depth += *text == '[' || *text == '{';
        depth -= *text == ']' || *text == '}';
        most = depth > most ? depth : most;
    }
    return most;
}

/* Walks at random over printable bytes; false: the text was not complete after MAX_TEXT
 * of them, or too ambiguous. */
static bool walk(const grammar_case *c, uint64_t *seed, char *text) {
    grammar_state s = grammar_start(c->r);
    for (size_t n = 0; n < MAX_TEXT; n++) {
        char allowed[128];
        size_t n_allowed = 0;
        text[n] = 0;
        if (grammar_is_final(c->r, s) && (grammar_is_over(c->r, s) || rng_next(seed) % 4 == 0)) {
            return true;
        }
        for (char b = ' '; b < 127; b++) {
            grammar_state to = s;
            quire_err e = grammar_accept_bytes(c->r, &to, (str){&b, 1}, NULL);
            if (e == QUIRE_OK) {
                allowed[n_allowed++] = b;
            } else if (e == QUIRE_TOO_LARGE) {
                return false;
            }
        }
        if (n_allowed == 0) {
            fail_msg("nothing may follow '%s'", text);
        }
        text[n] = allowed[rng_next(seed) % n_allowed];
        assert_int_equal(grammar_accept_bytes(c->r, &s, (str){text + n, 1}, NULL), QUIRE_OK);
    }
    return false;
}

static int n_same, n_deeper;

/* Whether the text is a complete answer; *knows false: it is too ambiguous to say. */
static bool takes(const grammar_case *c, const char *text, bool *knows) {
    grammar_state s = grammar_start(c->r);
    quire_err e = grammar_accept_bytes(c->r, &s, str_of(text), NULL);
    *knows = e != QUIRE_TOO_LARGE;
    return e == QUIRE_OK && grammar_is_final(c->r, s);
}

/* What the grammars say to texts of both. */
static void compare(const grammar_case *bounded, const grammar_case *free, uint32_t levels, uint64_t *seed) {
    char text[MAX_TEXT + 1];
    bool knows;
    for (int k = 0; k < N_WALKS; k++) {
        if (walk(free, seed, text)) {
            bool taken = takes(bounded, text, &knows), fits = depth_of(text) <= levels;
            if (knows && taken != fits) {
                fail_msg("'%s' is %u levels deep, of %u, and %s", text, depth_of(text), levels,
                         taken ? "accepted" : "rejected");
            }
            n_same += knows && taken;
            n_deeper += knows && !taken;
        }
        if (walk(bounded, seed, text)) {
            bool taken = takes(free, text, &knows);
            if (depth_of(text) > levels || (knows && !taken)) {
                fail_msg("'%s' is %u levels deep, of %u, and %s without a bound", text, depth_of(text),
                         levels, taken ? "accepted" : "rejected");
            }
        }
    }
}

TEST(a_bounded_grammar_takes_the_texts_that_are_no_deeper) {
    uint64_t seed = 60;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        int n_compiled = 0;
        for (int any = 0; any < 2; any++) {
            grammar_options o = {.order = any == 1 ? GRAMMAR_ORDER_ANY : GRAMMAR_ORDER_SCHEMA};
            for (o.max_depth = 1; o.max_depth <= MAX_LEVELS; o.max_depth++) {
                grammar *g = NULL;
                quire_error err = {0};
                quire_err e = grammar_compile(GRAMMAR_SCHEMA, str_of(schemas[i]), &o, &g, &err);
                assert_true(e == QUIRE_OK || n_compiled == 0 || any == 1);
                grammar_drop(g);
                if (e == QUIRE_OK) {
                    const grammar_options free_too = {.order = o.order};
                    grammar_case c = case_open(GRAMMAR_SCHEMA, schemas[i], &o),
                                 all = case_open(GRAMMAR_SCHEMA, schemas[i], &free_too);
                    compare(&c, &all, o.max_depth, &seed);
                    case_close(&all);
                    case_close(&c);
                    n_compiled++;
                }
            }
        }
        assert_true(n_compiled > 0);
    }
    print_message("%d texts as deep as they may be or less, %d deeper\n", n_same, n_deeper);
    assert_true(n_same > 100 && n_deeper > 100);
}

TEST(what_needs_more_levels_than_there_are_matches_nothing) {
    static const char schema[] = "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"array\","
                                 "\"minItems\":1,\"items\":{\"const\":{}}}}";
    grammar *g = NULL;
    for (uint32_t levels = 2; levels <= 3; levels++) {
        const grammar_options o = {.max_depth = levels};
        quire_error err = {0};
        assert_int_equal(grammar_compile(GRAMMAR_SCHEMA, str_of(schema), &o, &g, &err),
                         levels == 2 ? QUIRE_INVALID : QUIRE_OK);
        grammar_drop(g);
    }
}

TEST_MAIN(NULL, NULL)
