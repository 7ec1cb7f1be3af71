/* Masks and states: every bit of masks along random walks, forks and rollbacks, forced
 * tokens, budgets, threads. */
#include "grammar_case.h"

#include <pthread.h>

#include "base/rng.h"

typedef struct subject {
    grammar_kind kind;
    const char *text;
    grammar_space space;
    grammar_order order;
} subject;

static const subject subjects[] = {
    {GRAMMAR_REGEX, "(hello|hel*o|[ab]{2,5}\xC3\xA9?)+", 0, 0},
    {GRAMMAR_REGEX, "[^\\n]{3,40}", 0, 0},
    {GRAMMAR_EBNF, "root ::= \"(\" root \")\" root | \"\" | [a-c]\n", 0, 0},
    {GRAMMAR_EBNF,
     "root ::= v (\",\" \" \"? v)*\nv ::= \"\\\"\" [^\"]* \"\\\"\" | \"[\" (v (\",\" v)*)? \"]\"\n", 0, 0},
    {GRAMMAR_JSON_OBJECT, "", GRAMMAR_SPACE_ANY, 0},
    {GRAMMAR_JSON_OBJECT, "", GRAMMAR_SPACE_COMPACT, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":5}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"object\",\"minProperties\":3}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"object\",\"not\":{\"patternProperties\":{\"b\":{\"type\":\"integer\"}}}}",
     GRAMMAR_SPACE_ANY, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":40}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":3}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^x]*b\"}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z]{2,}$\"}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^\u00e9 ]*$\"}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[^0-9]*[0-9]?$\",\"minLength\":2}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^([a-c]|12|\u00e9)*$\",\"maxLength\":9}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-c]*x?(12)*$\",\"minLength\":5,\"maxLength\":60}",
     0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z]*0\",\"minLength\":12}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"pattern\":\"[^\\\\n]$\",\"maxLength\":200}", 0, 0},
    {GRAMMAR_SCHEMA, "{\"type\":\"string\",\"format\":\"uri\",\"maxLength\":30}", 0, 0},
    {GRAMMAR_SCHEMA,
     "{\"anyOf\":[{\"type\":\"string\",\"minLength\":3,\"maxLength\":3},{\"const\":\"hello\"}]}", 0, 0},
    {GRAMMAR_SCHEMA,
     "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"type\":\"string\",\"pattern\":\"^a\"},{\"type\":"
     "\"string\",\"minLength\":4}]}",
     0, 0},
    {GRAMMAR_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"a\":{\"type\":\"number\"}},"
     "\"required\":[\"a\"]}",
     GRAMMAR_SPACE_ANY, GRAMMAR_ORDER_ANY},
    {GRAMMAR_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"enum\":[\"abc\",\"ab\\u00e9\"]},\"a\":{\"type\":"
     "\"integer\",\"minimum\":-5,"
     "\"maximum\":12}},\"additionalProperties\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},"
     "\"maxItems\":2}}",
     GRAMMAR_SPACE_COMPACT, GRAMMAR_ORDER_SCHEMA},
};

/* One walk of random allowed tokens; each state's mask is compared with all tokens. */
static void walk_at_random(grammar_case *c, uint64_t *random) {
    grammar_state s = grammar_start(c->r), states[40];
    for (int step = 0; step < 40; step++) {
        case_mask(c, s);
        states[step] = s;
        int32_t allowed[CASE_TOKENS], n = 0;
        for (int32_t t = 0; t < CASE_END; t++) {
            if (grammar_allows(c->r, s, t)) {
                allowed[n++] = t;
            }
        }
        if (n == 0) { /* complete, or the vocabulary has no token for what must follow */
            break;
        }
        assert_int_equal(grammar_accept(c->r, &s, allowed[rng_next(random) % (uint64_t)n]), QUIRE_OK);
        if (step > 5 && rng_next(random) % 10 == 0) {
            s = states[step / 2]; /* back to an earlier position */
        }
    }
}

TEST(every_bit_of_a_mask_is_what_taking_the_token_says) {
    uint64_t seed = 20260722;
    print_message("seed %llu\n", (unsigned long long)seed);
    uint64_t random = seed;
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        grammar_options o = {.space = subjects[i].space, .order = subjects[i].order};
        grammar_case c = case_open(subjects[i].kind, subjects[i].text, &o);
        for (int k = 0; k < 12; k++) {
            walk_at_random(&c, &random);
        }
        case_close(&c);
    }
}

/* Around the length at which the longest token just fits, right after the opening
 * quote. */
TEST(a_limited_string_takes_the_longest_token_only_where_it_fits) {
    const int32_t quote = 13;
    int32_t n_longest = 0;
    assert_string_equal(case_tokens[quote], "\"");
    for (int32_t t = 0; t < CASE_END; t++) {
        int32_t n = (int32_t)strlen(case_tokens[t]);
        n_longest = n > n_longest ? n : n_longest;
    }
    for (int32_t most = n_longest - 2; most <= n_longest + 2; most++) {
        char schema[64];
        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"maxLength\":%d}", (int)most);
        grammar_case c = case_open(GRAMMAR_SCHEMA, schema, NULL);
        grammar_state s = grammar_start(c.r);
        assert_int_equal(grammar_accept(c.r, &s, quote), QUIRE_OK);
        case_mask(&c, s);
        for (int32_t t = 0; t < CASE_END; t++) {
            if ((int32_t)strlen(case_tokens[t]) == n_longest) {
                assert_int_equal(grammar_allows(c.r, s, t), most >= n_longest);
            }
        }
        case_close(&c);
    }
}

TEST(an_end_token_is_allowed_where_the_answer_is_complete) {
    grammar_case c = case_open(GRAMMAR_REGEX, "ab?", NULL);
    grammar_state s = grammar_start(c.r), behind;
    assert_int_equal(grammar_accept(c.r, &s, CASE_END), QUIRE_INVALID);
    assert_int_equal(grammar_accept(c.r, &s, 1), QUIRE_OK);
    behind = s;
    assert_int_equal(grammar_accept(c.r, &s, CASE_END), QUIRE_OK);
    assert_int_equal(s.id, behind.id);
    assert_false(grammar_is_over(c.r, s));
    assert_int_equal(grammar_accept(c.r, &s, 2), QUIRE_OK);
    assert_true(grammar_is_over(c.r, s));
    assert_int_equal(grammar_accept(c.r, &s, 2), QUIRE_INVALID);
    assert_int_equal(grammar_accept(c.r, &s, 0), QUIRE_INVALID); /* without bytes */
    assert_int_equal(grammar_accept(c.r, &s, CASE_TOKENS), QUIRE_INVALID);
    case_close(&c);
}

TEST(forced_tokens_are_the_only_ones) {
    int32_t tokens[16], parents[16];
    grammar_case c = case_open(GRAMMAR_REGEX, "x\\.x[01]", NULL);
    int32_t n = grammar_forced(c.r, grammar_start(c.r), tokens, 16);
    assert_int_equal(n, 3);
    assert_string_equal(case_tokens[tokens[1]], ".");
    assert_int_equal(grammar_forced(c.r, grammar_start(c.r), tokens, 2), 2);
    case_close(&c);
    /* after x the answer may end, so nothing is forced there */
    c = case_open_over(case_vocab(0), GRAMMAR_REGEX, "x(\\.x[01])?", NULL);
    assert_int_equal(grammar_forced(c.r, grammar_start(c.r), tokens, 16), 1);
    case_close(&c);
    c = case_open(GRAMMAR_REGEX, "hello[01]", NULL); /* "hel" may come, and nothing spells "h" */
    n = grammar_guess(c.r, grammar_start(c.r), &(grammar_guess_bounds){16, 1.0f, 0.5f, 0.0f}, tokens,
                      parents);
    assert_int_equal(n, 1);
    assert_string_equal(case_tokens[tokens[0]], "hello");
    assert_int_equal(grammar_forced(c.r, grammar_start(c.r), tokens, 16), 0);
    case_close(&c);
}

/* The spellings of known bytes: likeliest first, each allowed after its parent, as many
 * as are likely enough. */
TEST(guesses_branch_where_texts_may_be_spelt_in_several_ways) {
    int32_t tokens[GRAMMAR_MAX_GUESSES], parents[GRAMMAR_MAX_GUESSES];
    grammar_state states[GRAMMAR_MAX_GUESSES];
    grammar_case c = case_open(GRAMMAR_REGEX, "abcab[01]", NULL);
    int32_t n = grammar_guess(c.r, grammar_start(c.r), &(grammar_guess_bounds){32, 0.8f, 0.5f, 0.0f}, tokens,
                              parents);
    assert_int_equal(n, 2);
    assert_string_equal(case_tokens[tokens[0]], "abc");
    assert_string_equal(case_tokens[tokens[1]], "ab");
    assert_true(parents[0] == -1 && parents[1] == 0);
    n = grammar_guess(c.r, grammar_start(c.r), &(grammar_guess_bounds){32, 0.0f, 0.01f, 0.0f}, tokens,
                      parents);
    int32_t n_first = 0;
    for (int32_t i = 0; i < n; i++) {
        states[i] = parents[i] < 0 ? grammar_start(c.r) : states[parents[i]];
        assert_true(parents[i] < i);
        assert_int_equal(grammar_accept(c.r, &states[i], tokens[i]), QUIRE_OK);
        n_first += parents[i] < 0;
        for (int32_t k = 0; k < i; k++) {
            assert_true(parents[k] != parents[i] || tokens[k] != tokens[i]);
        }
    }
    assert_int_equal(n_first, 3); /* abc, ab, a; */
    assert_int_equal(n, 15);      /* below them ab, a b; c ab, c a b; b c ab, b c a b */
    assert_int_equal(grammar_guess(c.r, grammar_start(c.r), &(grammar_guess_bounds){5, 0.0f, 0.01f, 0.0f},
                                   tokens, parents),
                     5);
    assert_int_equal(grammar_guess(c.r, grammar_start(c.r), &(grammar_guess_bounds){32, 0.0f, 0.5f, 0.0f},
                                   tokens, parents),
                     0);
    case_close(&c);
}

/* What comes with a token is lost with it where it is wrong: the more there is, the surer
 * it has to be. */
TEST(guesses_are_worth_what_is_lost_where_they_are_wrong) {
    int32_t tokens[GRAMMAR_MAX_GUESSES], parents[GRAMMAR_MAX_GUESSES];
    grammar_case c = case_open(GRAMMAR_REGEX, "abcab[01]", NULL);
    grammar_guess_bounds bounds = {32, 0.8f, 0.01f, 5.0f};
    /* abc of three: 0.867 */
    assert_int_equal(grammar_guess(c.r, grammar_start(c.r), &bounds, tokens, parents), 1);
    bounds.row = 3.0f;
    /* ab of two after it: 0.78 */
    assert_int_equal(grammar_guess(c.r, grammar_start(c.r), &bounds, tokens, parents), 2);
    case_close(&c);
    c = case_open(GRAMMAR_REGEX, "abxx[01]", NULL);
    bounds.row = 2.9f; /* ab of two: 0.9, with two x after it */
    assert_int_equal(grammar_guess(c.r, grammar_start(c.r), &bounds, tokens, parents), 3);
    assert_string_equal(case_tokens[tokens[0]], "ab");
    assert_true(parents[0] == -1 && parents[1] == 0 && parents[2] == 1);
    bounds.row = 3.1f;
    assert_int_equal(grammar_guess(c.r, grammar_start(c.r), &bounds, tokens, parents), 0);
    case_close(&c);
}

TEST(a_run_allocates_nothing_after_it_is_open) {
    grammar_case c = case_open(GRAMMAR_JSON_OBJECT, "", NULL);
    uint64_t bits[(CASE_TOKENS + 63) / 64];
    grammar_state s = grammar_start(c.r);
    mem_guard_enter();
    quire_err e = grammar_accept_bytes(c.r, &s, str_of("{\"a\":[1,2,{\"b\":"), NULL);
    quire_err mask = grammar_mask(c.r, s, bits);
    mem_guard_leave();
    assert_int_equal(e, QUIRE_OK);
    assert_int_equal(mask, QUIRE_OK);
    case_close(&c);
}

TEST(a_run_at_its_budget_fails_and_keeps_the_state) {
    grammar *g = NULL;
    grammar_vocab *v = case_vocab(1);
    grammar_run *r = NULL, *other = NULL;
    quire_error err = {0};
    assert_int_equal(
        grammar_compile(GRAMMAR_EBNF, str_of("root ::= \"\" | \"(\" root \")\"\n"), NULL, &g, &err),
        QUIRE_OK);
    assert_int_equal(grammar_run_open(g, v, 65536, &r), QUIRE_OK);
    grammar_state s = grammar_start(r), before = s;
    quire_err e = QUIRE_OK;
    for (int i = 0; i < 100000 && e == QUIRE_OK; i++) {
        before = s;
        e = grammar_accept_bytes(r, &s, str_of("("), NULL);
    }
    assert_int_equal(e, QUIRE_TOO_LARGE);
    assert_int_equal(s.id, before.id);
    assert_int_equal(grammar_run_open(g, v, 65536, &other), QUIRE_OK);
    grammar_run_stats full, new;
    grammar_run_get_stats(r, &full);
    grammar_run_get_stats(other, &new);
    assert_true(new.n_states < full.n_states); /* nobody is taken in where so much is used */
    grammar_run_close(other);
    grammar_run_close(r);
    grammar_drop(g);
    grammar_vocab_drop(v);
}

static size_t nest(grammar_run *r, grammar_state *s, size_t most) {
    size_t n = 0;
    while (n < most && grammar_accept_bytes(r, s, str_of("("), NULL) == QUIRE_OK) {
        n++;
    }
    return n;
}

/* Others go on from where it ended, each as far as it would get alone. */
TEST(one_that_uses_up_its_budget_ends_alone) {
    enum { N_RUNS = 5, BUDGET = 65536, MOST = 1000000 };
    grammar *g = NULL;
    grammar_vocab *v = case_vocab(1);
    grammar_run *r[N_RUNS];
    grammar_state s[N_RUNS];
    size_t reached = 0;
    quire_error err = {0};
    assert_int_equal(
        grammar_compile(GRAMMAR_EBNF, str_of("root ::= \"\" | \"(\" root \")\"\n"), NULL, &g, &err),
        QUIRE_OK);
    for (int i = 0; i < N_RUNS; i++) { /* room is made for each, wherever the states lie then */
        assert_int_equal(grammar_run_open(g, v, BUDGET, &r[i]), QUIRE_OK);
        s[i] = grammar_start(r[i]);
        assert_int_equal(nest(r[i], &s[i], 10), 10);
    }
    for (int i = 0; i < N_RUNS; i++) {
        size_t n = nest(r[i], &s[i], MOST);
        assert_int_equal(grammar_accept_bytes(r[i], &s[i], str_of("("), NULL), QUIRE_TOO_LARGE);
        assert_true(n > reached + 100); /* those before it have made its first states */
        reached = n;
    }
    for (int i = 0; i < N_RUNS; i++) {
        grammar_run_close(r[i]);
    }
    grammar_drop(g);
    grammar_vocab_drop(v);
}

TEST(runs_of_one_grammar_share_their_states) {
    grammar_case c = case_open(GRAMMAR_REGEX, "a*", NULL);
    grammar_run *second = NULL;
    grammar_state s = grammar_start(c.r);
    grammar_run_stats stats;
    assert_int_equal(grammar_run_open(c.g, c.v, 0, &second), QUIRE_OK);
    assert_int_equal(grammar_accept_bytes(c.r, &s, str_of("aa"), NULL), QUIRE_OK);
    grammar_run_get_stats(c.r, &stats);
    int64_t n = stats.n_states;
    s = grammar_start(second);
    assert_int_equal(grammar_accept_bytes(second, &s, str_of("aa"), NULL), QUIRE_OK);
    grammar_run_get_stats(second, &stats);
    assert_int_equal(stats.n_states, n);
    grammar_run_close(second);
    case_close(&c);
}

static void *use_run(void *arg) {
    grammar_case *c = arg;
    uint64_t random = 7;
    walk_at_random(c, &random);
    walk_at_random(c, &random);
    return NULL;
}

TEST(threads_may_use_one_run_at_once) {
    grammar_case c = case_open(GRAMMAR_JSON_OBJECT, "", &((grammar_options){.space = GRAMMAR_SPACE_ANY}));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, use_run, &c), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    case_close(&c);
}

TEST_MAIN(NULL, NULL)
