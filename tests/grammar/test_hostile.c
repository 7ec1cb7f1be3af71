/* Hostile grammars: each is refused within its budgets of processor time, and lets other
 * jobs run while it is compiled. */
#include "grammar_case.h"

#include "base/clock.h"
#include "base/turn.h"

/* Processor time, of which other programs disturb a measurement now and then. Builds with
 * checks take up to eight times as long as those that serve, where a refusal takes at
 * most 250 ms and a slice 2 ms. */
enum { MOST_US = 8 * 250000, MOST_SLICE_US = 8 * 2000, N_TRIES = 8 };

typedef struct watch {
    turn t;
    int64_t since_us, longest_us, cancel_after, n;
} watch;

static quire_err slice_over(turn *t) {
    watch *w = (watch *)(void *)t;
    int64_t now = clock_thread_us();
    w->longest_us = now - w->since_us > w->longest_us ? now - w->since_us : w->longest_us;
    w->since_us = now;
    t->slice_ends_us = 0; /* over again at the next poll */
    return ++w->n == w->cancel_after ? QUIRE_CANCELLED : QUIRE_OK;
}

static watch begin(int64_t cancel_after) {
    return (watch){.t = {.over = slice_over}, .since_us = clock_thread_us(), .cancel_after = cancel_after};
}

static quire_err compile(grammar_kind kind, str text, watch *w, quire_error *err) {
    grammar *g = NULL;
    turn_begin(&w->t);
    quire_err e = grammar_compile(kind, text, NULL, &g, err);
    turn_begin(NULL);
    (void)slice_over(&w->t);
    grammar_drop(g);
    return e;
}

static void refused(grammar_kind kind, str text, quire_err want) {
    bool in_time = false;
    for (int try = 0; try < N_TRIES && !in_time; try++) {
        quire_error err = {0};
        watch w = begin(0);
        int64_t from = clock_thread_us();
        quire_err e = compile(kind, text, &w, &err);
        int64_t took = clock_thread_us() - from;
        print_message("%.40s: %lld us, the longest slice %lld us: %s\n", text.p, (long long)took,
                      (long long)w.longest_us, err.message);
        assert_int_equal(e, want);
        in_time = took < MOST_US && w.longest_us < MOST_SLICE_US;
    }
    assert_true(in_time);
}

static char *repeated(const char *before, const char *piece, int n, const char *behind) {
    strbuf b = {0};
    assert_int_equal(strbuf_add_str(&b, before), QUIRE_OK);
    for (int i = 0; i < n; i++) {
        assert_int_equal(strbuf_add_str(&b, piece), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&b, behind), QUIRE_OK);
    return b.p;
}

TEST(hostile_grammars_are_refused_in_time_and_hold_nobody_up) {
    char *deep = repeated("", "(", 30000, "a"), *wide = repeated("{\"enum\":[", "\"a\",", 2500000, "\"b\"]}");
    char *all = repeated("{\"allOf\":[",
                         "{\"anyOf\":[{\"minimum\":1},{\"type\":\"string\"},{\"required\":[\"a\"]}]},", 3000,
                         "true]}");
    char *dots = repeated("{\"pattern\":\"", "(a|ab|abc|.*x)", 60, "$\",\"maxLength\":5000}");
    assert_true(strlen(wide) > (size_t)10000000);
    refused(GRAMMAR_REGEX, str_of(deep), QUIRE_TOO_LARGE);
    refused(GRAMMAR_REGEX, str_of("(((((a{0,99}){0,99}){0,99}){0,99}){0,99})"), QUIRE_TOO_LARGE);
    refused(GRAMMAR_SCHEMA, str_of("{\"$ref\":\"#\"}"), QUIRE_INVALID);
    refused(GRAMMAR_SCHEMA,
            str_of("{\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"}]}},\"$ref\":\"#/$defs/a\"}"),
            QUIRE_INVALID);
    refused(GRAMMAR_SCHEMA, str_of(wide), QUIRE_TOO_LARGE);
    refused(GRAMMAR_SCHEMA, str_of(all), QUIRE_OK); /* large, and no more than that */
    refused(GRAMMAR_SCHEMA, str_of(dots), QUIRE_TOO_LARGE);
    mem_free(deep);
    mem_free(wide);
    mem_free(all);
    mem_free(dots);
}

/* Where repeats stand behind each other, no limit of groups or sizes bounds the
 * recursion. */
TEST(stacked_repeats_nest_as_little_as_groups) {
    enum { N = 190000 };
    const struct {
        grammar_kind kind;
        const char *before, *piece;
        int n;
        const char *behind;
        quire_err want;
    } cases[] = {
        {GRAMMAR_REGEX, "a", "*", N, "", QUIRE_OK},
        {GRAMMAR_REGEX, "a", "{0}", N, "", QUIRE_TOO_LARGE},
        {GRAMMAR_REGEX, "(?:ab", "?{0}", N, ")", QUIRE_TOO_LARGE},
        {GRAMMAR_SCHEMA, "{\"pattern\":\"a", "*", N, "\"}", QUIRE_OK},
        {GRAMMAR_SCHEMA, "{\"pattern\":\"a", "{0}", N, "\"}", QUIRE_TOO_LARGE},
        {GRAMMAR_EBNF, "root ::= \"a\"", "*", N, "", QUIRE_OK},
        {GRAMMAR_EBNF, "root ::= \"a\"", "{0}", N, "", QUIRE_TOO_LARGE},
        {GRAMMAR_LARK, "start: /a", "*", N, "/", QUIRE_OK},
        {GRAMMAR_LARK, "start: /a", "{0}", N, "/", QUIRE_TOO_LARGE},
        {GRAMMAR_LARK, "start: ", "(", 240, "\"a\"", QUIRE_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = repeated(cases[i].before, cases[i].piece, cases[i].n, cases[i].behind);
        refused(cases[i].kind, str_of(text), cases[i].want);
        mem_free(text);
    }
    char *spaces = repeated("a", "{0}", N, "");
    grammar *g = NULL;
    quire_error err = {0};
    assert_int_equal(grammar_compile(GRAMMAR_SCHEMA, str_of("{}"),
                                     &(grammar_options){.whitespace_pattern = str_of(spaces)}, &g, &err),
                     QUIRE_TOO_LARGE);
    mem_free(spaces);
}

TEST(a_cancelled_turn_ends_a_compilation) {
    char *dots = repeated("{\"pattern\":\"", "(a|ab|abc|.*x)", 60, "$\",\"maxLength\":5000}");
    quire_error err = {0};
    watch w = begin(3);
    assert_int_equal(compile(GRAMMAR_SCHEMA, str_of(dots), &w, &err), QUIRE_CANCELLED);
    mem_free(dots);
}

TEST_MAIN(NULL, NULL)
