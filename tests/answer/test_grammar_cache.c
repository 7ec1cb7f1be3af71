/* The cache of compiled grammars: what a hit is, whose it is, and its limit. */
#include <stdio.h>

#include "answer/grammar_constraint.h"
#include "test.h"

static grammar *compile(const grammar_key *k) {
    quire_error err = {0};
    grammar *g = NULL;
    grammar_options o = {.space = k->space, .order = k->order, .whitespace_pattern = k->whitespace_pattern};
    if (grammar_compile(k->kind, k->text, &o, &g, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return g;
}

static bool knows(grammar_cache *c, const grammar_key *k) {
    grammar *g = grammar_cache_find(c, k);
    grammar_drop(g);
    return g != NULL;
}

static void keep(grammar_cache *c, const grammar_key *k) {
    grammar *g = compile(k);
    grammar_cache_keep(c, k, g);
    grammar_drop(g);
}

TEST(a_grammar_is_found_under_all_that_it_was_compiled_from) {
    grammar_cache *c;
    const grammar_key key = {.tenant = 7,
                             .kind = GRAMMAR_SCHEMA,
                             .space = GRAMMAR_SPACE_ANY,
                             .order = GRAMMAR_ORDER_SCHEMA,
                             .numbers = GRAMMAR_NUMBERS_SHORT,
                             .whitespace_pattern = str_of(" ?"),
                             .text = str_of("{\"type\":\"object\"}")};
    grammar_key others[11];
    for (int i = 0; i < 11; i++) {
        others[i] = key;
    }
    others[0].tenant = 8;
    others[1].kind = GRAMMAR_EBNF;
    others[2].space = GRAMMAR_SPACE_COMPACT;
    others[3].order = GRAMMAR_ORDER_ANY;
    others[4].whitespace_pattern = str_of(" *");
    others[5].text = str_of("{\"type\":\"array\"}");
    others[6].form = RULE_CALLS;
    others[7].frame.format = reasoning_format_named("qwen3");
    others[8].frame.start = OUTPUT_START_MARKED;
    others[9].numbers = GRAMMAR_NUMBERS_ANY;
    others[10].additional = GRAMMAR_ADDITIONAL_CLOSED;
    assert_int_equal(grammar_cache_open(GRAMMAR_CACHE_BYTES, &c), QUIRE_OK);
    assert_false(knows(c, &key));
    keep(c, &key);
    for (int i = 0; i < 11; i++) {
        assert_false(knows(c, &others[i]));
    }
    size_t bytes = grammar_cache_bytes(c);
    grammar *first = grammar_cache_find(c, &key);
    assert_non_null(first);
    keep(c, &key); /* known already */
    grammar *again = grammar_cache_find(c, &key);
    assert_ptr_equal(first, again);
    assert_int_equal(grammar_cache_bytes(c), bytes);
    grammar_cache_close(c);
    assert_true(grammar_bytes(first) > 0); /* references outlive the cache */
    grammar_drop(first);
    grammar_drop(again);
}

TEST(a_tenant_with_many_grammars_drives_out_its_own_oldest) {
    enum { LIMIT = 64 << 10 };
    grammar_cache *c;
    const grammar_key quiet = {.tenant = 1, .kind = GRAMMAR_REGEX, .text = str_of("[a-f]{3}")};
    char texts[400][16];
    grammar_key loud = {.tenant = 2, .kind = GRAMMAR_REGEX};
    assert_int_equal(grammar_cache_open(LIMIT, &c), QUIRE_OK);
    keep(c, &quiet);
    for (int i = 0; i < 400; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "[a-f]{%d}", i + 1);
        loud.text = str_of(texts[i]);
        keep(c, &loud);
        assert_true(grammar_cache_bytes(c) <= LIMIT);
        loud.text = str_of(texts[0]);
        assert_int_equal(knows(c, &loud), true); /* used all the time */
    }
    assert_true(knows(c, &quiet));
    loud.text = str_of(texts[399]);
    assert_true(knows(c, &loud));
    loud.text = str_of(texts[1]);
    assert_false(knows(c, &loud));
    grammar_cache_close(c);
}

TEST_MAIN(NULL, NULL)
