/* Limits of templates: refuses what would take too much time, memory or stack. */
#include "jinja/jinja_case.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

/* Of 40 lists, tuples or dictionaries that hold the one before twice, 2^40 paths lead to
 * the first. */
#define DOUBLED(name, first, next)                                                                           \
    "{% set " name " = namespace(a=" first ") %}{% for i in range(40) %}{% set " name ".a = " next           \
    " %}{% endfor %}"

TEST(shared_values_are_compared_within_the_bounds) {
    expect(
        DOUBLED(
            "n", "[1]",
            "[n.a, n.a]") "{{ [n.a] == [n.a] }}{{ n.a in [n.a] }}{{ [n.a, n.a].count(n.a) }}{{ n.a < n.a }}",
        "{}", "TrueTrue2False");
    expect(DOUBLED("n", "{}", "{'a': n.a, 'b': n.a}") "{{ n.a == n.a }}{{ [n.a].index(n.a) }}", "{}",
           "True0");
    static const char *const sources[] = {
        DOUBLED("n", "[1]", "[n.a, n.a]") DOUBLED("m", "[1]", "[m.a, m.a]") "{{ n.a == m.a }}",
        DOUBLED("n", "[1]", "[n.a, n.a]") DOUBLED("m", "[1]", "[m.a, m.a]") "{{ n.a < m.a }}",
        DOUBLED("n", "[1]", "[n.a, n.a]")
            DOUBLED("m", "[1]", "[m.a, m.a]") "{% for i in [n.a, m.a] %}{{ loop.changed(i) }}{% endfor %}",
        DOUBLED("n", "{}", "{'a': n.a, 'b': n.a}")
            DOUBLED("m", "{}", "{'a': m.a, 'b': m.a}") "{{ n.a == m.a }}",
        DOUBLED("n", "(1,)", "(n.a, n.a)") "{{ {n.a: 1}|length }}",
        DOUBLED("n", "(1,)", "(n.a, n.a)") "{{ [n.a, n.a]|unique|list|length }}",
        "{% set a = range(999)|list + [1] %}{% set b = range(999)|list + [2] %}{{ ([a] * 99999).count(b) }}",
        "{% set a = 'x' * 999999 ~ 'a' %}{% set b = 'x' * 999999 ~ 'b' %}{{ b in [a] * 99999 }}",
        /* ways in to the same loops: with QUIRE_TEST_LONG only, as each takes a second or
         * two */
        DOUBLED("n", "[1]", "[n.a, n.a]") DOUBLED("m", "[1]", "[m.a, m.a]") "{{ n.a in [m.a] }}",
        DOUBLED("n", "[1]", "[n.a, n.a]") DOUBLED("m", "[1]", "[m.a, m.a]") "{{ [n.a].count(m.a) }}",
        DOUBLED("n", "(1,)", "(n.a, n.a)") "{{ {}[n.a] }}",
        "{% set a = range(999)|list + [1] %}{% set b = range(999)|list + [2] %}{{ ([a] * 99999).index(b) }}",
        "{% set a = range(999)|list + [1] %}{% set b = range(999)|list + [2] %}{{ b in [a] * 99999 }}",
        DOUBLED("n", "[1]", "[n.a, n.a]") "{% for i in range(99) %}{{ [1][n.a] is defined }}{% endfor %}",
    };
    enum { N_WAYS_IN = 6 };
    size_t n = sizeof sources / sizeof *sources - (getenv("QUIRE_TEST_LONG") != NULL ? 0 : N_WAYS_IN);
    for (size_t i = 0; i < n; i++) {
        refuse(sources[i], "{}", QUIRE_TOO_LARGE, "the template takes more than 20000000 steps");
    }
}

/* Numbers whose hashes, which are a product with an odd number, end in the same 24
 * bits. */
TEST(keys_whose_hashes_fall_together_are_found_within_the_bounds) {
    enum { N_KEYS = 40000 };
    const uint64_t factor = 0x9e3779b97f4a7c15u, begin = 0x51ed270b;
    uint64_t inverse = factor;
    for (int i = 0; i < 5; i++) { /* Newton: each round doubles the bits that are right */
        inverse *= 2 - factor * inverse;
    }
    strbuf v = {0};
    strbuf_add_str(&v, "{\"l\":[0");
    for (uint64_t i = 1; i <= N_KEYS; i++) {
        char number[32];
        uint64_t hash = i << 24, product = hash ^ (hash >> 32);
        snprintf(number, sizeof number, ",%lld", (long long)((product * inverse) ^ begin));
        strbuf_add_str(&v, number);
    }
    strbuf_add_str(&v, "]}");
    refuse("{{ l|unique|list|length }}", v.p, QUIRE_TOO_LARGE, "steps");
    strbuf_deinit(&v);
}

static strbuf repeated(const char *before, const char *part, int times, const char *after) {
    strbuf s = {0};
    strbuf_add_str(&s, before);
    for (int i = 0; i < times; i++) {
        strbuf_add_str(&s, part);
    }
    strbuf_add_str(&s, after);
    return s;
}

TEST(conditions_without_else_form_a_bounded_chain) {
    strbuf s = repeated("{{ 1", " if 1", 100000, " }}");
    refuse(s.p, "{}", QUIRE_TOO_LARGE, "a chain of more than 500 operators");
    strbuf_deinit(&s);
    s = repeated("{{ 1", " if 1", 400, " }}");
    expect(s.p, "{}", "1");
    strbuf_deinit(&s);
}

static void *open_on_a_small_stack(void *source) {
    jinja_program *p;
    quire_err e = jinja_open(str_of(source), chat, &p, NULL);
    jinja_close(p);
    return e == QUIRE_OK ? source : NULL;
}

/* Right operands at the ends of long chains: 190 levels of 490. */
TEST(a_deep_tree_is_walked_within_the_bounds) {
    strbuf chain = repeated("", "|string", 490, ")"), close = repeated("", chain.p, 190, " }}");
    strbuf s = repeated("{{ ", "(1 + ", 190, "1");
    strbuf_add_str(&s, close.p);
    pthread_attr_t attributes;
    pthread_t thread;
    void *opened;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)2 << 20);
    assert_int_equal(pthread_create(&thread, &attributes, open_on_a_small_stack, s.p), 0);
    assert_int_equal(pthread_join(thread, &opened), 0);
    assert_non_null(opened);
    pthread_attr_destroy(&attributes);
    refuse(s.p, "{}", QUIRE_BAD_REQUEST, "recurses");
    strbuf_deinit(&s);
    strbuf_deinit(&close);
    strbuf_deinit(&chain);
}

TEST(filter_blocks_that_call_themselves_end_with_an_error) {
    strbuf s = repeated("{% macro f() %}{% filter default(f())", "|string", 490,
                        "%}x{% endfilter %}{% endmacro %}{{ f() }}");
    refuse(s.p, "{}", QUIRE_BAD_REQUEST, "recurses");
    strbuf_deinit(&s);
    s = repeated("{% filter upper", "|string", 490, "%}x{% endfilter %}");
    expect(s.p, "{}", "X");
    strbuf_deinit(&s);
}

TEST(endless_and_enormous_templates_end_with_an_error) {
    refuse("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{}", QUIRE_BAD_REQUEST, "recurses");
    refuse("{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{% endfor %}{% endfor "
           "%}{% endfor %}",
           "{}", QUIRE_TOO_LARGE, "steps");
    refuse("{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
           "{}", QUIRE_TOO_LARGE, "bytes");
    refuse("{{ 'x' * 99999999999 }}", "{}", QUIRE_TOO_LARGE, "a text of");
    refuse("{{ [0] * 99999999999 }}", "{}", QUIRE_TOO_LARGE, "");
    refuse("{{ 'x'.center(99999999999) }}", "{}", QUIRE_TOO_LARGE, "steps");
    refuse("{% set s = 'x' * 1000000 %}{% for i in range(99) %}{{ s }}{% endfor %}", "{}", QUIRE_TOO_LARGE,
           "writes more than");
    refuse(
        "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
        "{}", QUIRE_TOO_LARGE, "nested");
    refuse("{{ range(1000000) }}", "{}", QUIRE_BAD_REQUEST, "Range too big");
    refuse("{% set b = 'a' * 10000 * 1000 %}{% macro m(i) %}{{ b }}{% if i < 100 %}{% set x %}{{ m(i + 1) "
           "}}{% endset %}{% endif %}{% "
           "endmacro %}{{ m(0) }}",
           "{}", QUIRE_TOO_LARGE, "bytes of values");
    refuse("{% set n = namespace(x=t ~ 'b') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
           "{\"t\":\"a\"}", QUIRE_TOO_LARGE, "bytes of values");
    refuse("{% set n = namespace(x=t ~ 'b') %}{% for i in range(24) %}{% set n.x = n.x ~ n.x %}{% endfor "
           "%}{{ n.x }}",
           "{\"t\":\"a\"}", QUIRE_TOO_LARGE, "bytes");
    refuse("{{ 9 ** (9 ** 9) }}", "{}", QUIRE_TOO_LARGE, "an integer of more than 14336 bits");
    refuse("{{ ('a' * 2000000).rfind('a' * 1000000 ~ 'b') }}", "{}", QUIRE_TOO_LARGE, "steps");
}

TEST(a_program_that_nests_too_deeply_is_refused) {
    enum { DEEP = 30000 };
    static const char *const parts[][2] = {{"(", "unexpected"}, {"-", ""},        {"not ", ""}, {"[", ""},
                                           {"{1:", ""},         {"x|upper+", ""}, {"f(", ""},   {"a.", ""}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        strbuf source = {0};
        strbuf_add_str(&source, "{{ ");
        for (int k = 0; k < DEEP; k++) {
            strbuf_add_str(&source, parts[i][0]);
        }
        strbuf_add_str(&source, "x }}");
        jinja_program *p;
        assert_int_not_equal(jinja_open((str){source.p, source.n}, chat, &p, NULL), QUIRE_OK);
        assert_null(p);
        strbuf_deinit(&source);
    }
    strbuf source = {0};
    for (int k = 0; k < DEEP; k++) {
        strbuf_add_str(&source, "{% if x %}");
    }
    jinja_program *p;
    quire_error err;
    assert_int_equal(jinja_open((str){source.p, source.n}, chat, &p, &err), QUIRE_TOO_LARGE);
    strbuf_deinit(&source);
}

/* The whole key's repr would have more bytes than an output may. */
TEST(a_long_key_is_cut_before_it_is_written_into_an_error) {
    expect("{% set k = '\\x01' * 17000000 %}{{ 1[k] is defined }}", "{}", "False");
    strbuf out = {0};
    quire_error err;
    for (int n = 100; n < 104; n++) {
        char source[64];
        (void)snprintf(source, sizeof source, "{{ {}['%.*s' ~ '\u00e9' * 99].x }}", n - 99, "aaaaa");
        assert_int_equal(render(source, "{}", &out, &err), QUIRE_BAD_REQUEST);
        assert_true(utf8_is_valid(str_of(err.message)));
        assert_non_null(strstr(err.message, "has no attribute 'a"));
    }
    strbuf_deinit(&out);
}

TEST(appending_in_a_loop_takes_linear_memory) {
    /* 20,000 pieces of 100 bytes: copying all at each step would need 20 GB. */
    expect("{% set n = namespace(s='') %}{% for i in range(20000) %}{% set n.s = n.s + 'x' * 100 %}{% endfor "
           "%}{{ n.s|length }}",
           "{}", "2000000");
}

TEST_MAIN(NULL, NULL)
