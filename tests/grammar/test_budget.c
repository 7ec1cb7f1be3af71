/* The memory budget counts what vectors hold: freed memory is returned, so that in the
 * end only the grammar itself is charged. */
#include "grammar_case.h"

#include "grammar/compile.h"
#include "grammar/dfa.h"

static void same_bytes(grammar_kind kind, const char *text) {
    build b;
    quire_error err = {0};
    build_init(&b, NULL, &err);
    compile_rule(&b, kind, str_of(text));
    if (b.failed != QUIRE_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    if (GRAMMAR_MAX_BYTES - b.bytes != (int64_t)nfa_size_bytes(&b.a)) {
        fail_msg("%s: %lld bytes are counted, %zu are held", text, (long long)(GRAMMAR_MAX_BYTES - b.bytes),
                 nfa_size_bytes(&b.a));
    }
    nfa_deinit(&b.a);
}

TEST(what_is_counted_is_what_the_grammar_holds) {
    same_bytes(GRAMMAR_REGEX, "(a|bc){2,40}[^x-z]*\\w+");
    same_bytes(GRAMMAR_CHOICE, "[\"one\",\"another\",\"\"]");
    same_bytes(GRAMMAR_EBNF, "root ::= item+\nitem ::= \"a\" | root \"b\" | [0-9]{3}\n");
    same_bytes(GRAMMAR_LARK, "start: start \"+\" WORD | WORD\nWORD: /[a-z]+/\n");
    same_bytes(GRAMMAR_SCHEMA, "{\"type\":\"integer\"}");
    same_bytes(GRAMMAR_SCHEMA,
               "{\"type\":\"string\",\"pattern\":\"^(a|b){3,9}.*$\",\"minLength\":4,\"maxLength\":30}");
    same_bytes(GRAMMAR_SCHEMA, "{\"type\":\"number\",\"minimum\":0.5,\"maximum\":12,\"multipleOf\":0.25}");
    same_bytes(GRAMMAR_SCHEMA, "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/"
                               "$defs/n\"},\"b\":{\"enum\":[1,\"x\"]}},"
                               "\"patternProperties\":{\"^z\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":"
                               "\"array\",\"items\":{\"$ref\":"
                               "\"#/$defs/n\"}}]}},\"required\":[\"b\"]}},\"$ref\":\"#/$defs/n\"}");
}

TEST(a_vector_is_counted_as_it_grows_and_given_back_when_freed) {
    NFA_VEC(uint32_t) v = {0};
    build b;
    quire_error err = {0};
    build_init(&b, NULL, &err);
    int64_t left = b.bytes;
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t *p = NFA_PUSH(&b, v);
        assert_non_null(p);
        *p = i;
        assert_int_equal(left - b.bytes, v.cap * sizeof *v.p);
    }
    NFA_FREE(&b, v);
    assert_int_equal(b.bytes, left);
    nfa_deinit(&b.a);
}

/* Thirty rules that begin with each other beside a rule of 15,000 nodes: each has a map
 * of all nodes for each of them. */
TEST(what_turns_left_recursion_around_is_counted) {
    strbuf text = {0};
    quire_error err = {0};
    grammar *g = NULL;
    assert_int_equal(strbuf_add_str(&text, "root ::= r0 | \"x\""), QUIRE_OK);
    for (int i = 0; i < 15000; i++) {
        assert_int_equal(strbuf_add_str(&text, "|\"x\""), QUIRE_OK);
    }
    for (int i = 0; i < 30; i++) {
        assert_int_equal(strbuf_addf(&text, "\nr%d ::= r%d \"a\" | \"b\"", i, (i + 1) % 30), QUIRE_OK);
    }
    grammar_options o = {.max_bytes = 2 << 20};
    assert_int_equal(grammar_compile(GRAMMAR_EBNF, (str){text.p, text.n}, &o, &g, &err), QUIRE_TOO_LARGE);
    assert_non_null(strstr(err.message, "memory"));
    o.max_bytes = 8 << 20;
    assert_int_equal(grammar_compile(GRAMMAR_EBNF, (str){text.p, text.n}, &o, &g, &err), QUIRE_OK);
    grammar_drop(g);
    strbuf_deinit(&text);
}

TEST(a_pool_of_automata_gives_all_back) {
    build b;
    dfa_pool p;
    quire_error err = {0};
    build_init(&b, NULL, &err);
    int64_t left = b.bytes;
    dfa_pool_init(&p, &b);
    uint32_t x = dfa_pattern(&p, str_of("^a+(b|c)")),
             y = dfa_names(&p, (str[]){str_of("abc"), str_of("aac")}, 2);
    (void)dfa_combine(&p, x, dfa_length(&p, 2, 9), DFA_AND);
    (void)dfa_combine(&p, x, y, DFA_OR);
    (void)dfa_quoted(&p, y, '"');
    (void)dfa_search(&p, (str[]){str_of("</a>"), str_of("</b>")}, 2, 1, DFA_FIRST);
    dfa_merge(&p, x);
    assert_int_equal(b.failed, QUIRE_OK);
    assert_true(b.bytes < left);
    dfa_pool_deinit(&p);
    assert_int_equal(b.bytes, left);
    nfa_deinit(&b.a);
}

TEST_MAIN(NULL, NULL)
