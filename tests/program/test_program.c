/* The steps of programs, one by one, in JSON and by calls. */
#include <math.h>

#include "base/clock.h"
#include "base/fault.h"
#include "program/program_state.h"
#include "program_world.h"

PROGRAM_TESTS(512)

TEST(a_text_and_a_gen_are_a_completion) {
    seen s;
    quire_state *p =
        program_of(ps, "{\"inputs\": {\"who\": \"prince\"}, \"steps\": [\"The {{who}}\", \" looked\", "
                       "{\"gen\": \"x\", \"max_tokens\": 12, \"temperature\": 0}]}");
    run_to_idle(ps, &s);
    assert_int_equal(s.n[QUIRE_PROGRAM_FAILED], 0);
    assert_int_equal(s.n[QUIRE_PROGRAM_VALUE], 1);
    quire_variable v = variable_of(p, "x", -1);
    expect_completion(e, "The prince looked", "{\"max_tokens\": 12, \"temperature\": 0}", &v);
    assert_int_equal(v.n_ids, 12);
    quire_state_close(p);
}

TEST(a_program_says_how_it_is_answered) {
    quire_state *p = program_of(ps, "{\"model\": \"m\", \"stream\": true, \"explain\": true, \"steps\": []}");
    const quire_program_info *info = quire_program_describe(p);
    seen s;
    assert_string_equal(info->model, "m");
    assert_true(info->stream && info->explain);
    run_to_idle(ps, &s);
    quire_state_close(p);
    p = program_of(ps, "{\"steps\": []}");
    info = quire_program_describe(p);
    assert_true(info->model == NULL && !info->stream && !info->explain);
    quire_state_close(p);
}

TEST(calls_are_the_same_program) {
    static const char fields[] = "{\"max_tokens\": 6, \"temperature\": 0}";
    quire_state *p, *forks[3];
    quire_error err = {0};
    seen s;
    assert_int_equal(quire_state_open(ps, NULL, &p, &err), QUIRE_OK);
    assert_int_equal(quire_state_text(p, "The prince", 10, &err), QUIRE_OK);
    assert_int_equal(quire_state_fork(p, 3, forks, &err), QUIRE_OK);
    for (int32_t i = 0; i < 3; i++) {
        char text[16];
        snprintf(text, sizeof text, " %d saw", (int)i);
        assert_int_equal(quire_state_text(forks[i], text, strlen(text), &err), QUIRE_OK);
        assert_int_equal(quire_state_gen(forks[i], "x", fields, sizeof fields - 1, &err), QUIRE_OK);
    }
    assert_int_equal(quire_state_join(p, &err), QUIRE_OK);
    assert_int_equal(quire_state_text(p, " then {{x[1]}} and", 18, &err), QUIRE_OK);
    assert_int_equal(quire_state_gen(p, "y", fields, sizeof fields - 1, &err), QUIRE_OK);
    run_to_idle(ps, &s);
    assert_int_equal(s.n[QUIRE_PROGRAM_FAILED], 0);
    assert_int_equal(s.n[QUIRE_PROGRAM_VALUE], 4);
    quire_variable x = variable_of(p, "x", 1), y = variable_of(p, "y", -1);
    expect_completion(e, "The prince 1 saw", fields, &x);
    char prompt[256];
    snprintf(prompt, sizeof prompt, "The prince then %.*s and", (int)x.n_text, x.text);
    expect_completion(e, prompt, fields, &y);
    quire_state_close(p);
}

/* ---- select ---- */

enum { MAX_CHOICE = 32 };

/* The log-probability of each token of ids after the one before it, by the model's own
 * logits. [n - 1] */
static void score_by_logits(const int32_t *ids, size_t n, double *logprobs) {
    size_t n_vocab = (size_t)quire_engine_info(e)->n_vocab;
    float *logits = mem_new(n * n_vocab, sizeof *logits);
    quire_request *r;
    quire_error err = {0};
    char *text;
    size_t n_text;
    assert_int_equal(quire_request_ids(e, ids, n, &r, &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "max_tokens", "1", &err), QUIRE_OK);
    quire_request_logits(r, logits);
    assert_int_equal(quire_generate(e, r, &text, &n_text, &err), QUIRE_OK);
    quire_free(text);
    for (size_t i = 1; i < n; i++) {
        const float *row = logits + (i - 1) * n_vocab;
        double max = row[0], sum = 0.0;
        for (size_t k = 1; k < n_vocab; k++) {
            max = row[k] > max ? row[k] : max;
        }
        for (size_t k = 0; k < n_vocab; k++) {
            sum += exp((double)row[k] - max);
        }
        logprobs[i - 1] = (double)row[ids[i]] - max - log(sum);
    }
    mem_free(logits);
}

/* The score of a choice, whose tokens are whole[from..n). */
static double score_of(const int32_t *whole, size_t from, size_t n, quire_select_method method) {
    double logprobs[256], alone[MAX_CHOICE] = {0}, sum = 0.0;
    assert_true(n <= 256 && n - from < MAX_CHOICE);
    score_by_logits(whole, n, logprobs);
    if (method == QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED && n - from > 1) {
        score_by_logits(whole + from, n - from, alone + 1);
    }
    for (size_t i = from; i < n; i++) {
        sum += logprobs[i - 1] - alone[i - from];
    }
    return sum / (double)(n - from);
}

/* The ids of "before" and a choice, as one text: the choices' tokens begin where these
 * differ from those of "before" alone. */
static void expect_scores(const char *before, const char *const *choices, size_t n, const char *method,
                          quire_select_method of) {
    strbuf json = {0};
    seen got;
    quire_error err = {0};
    int32_t *prefix, *whole;
    size_t n_prefix, n_whole, best = 0;
    double scores[8];
    assert_int_equal(
        strbuf_addf(&json, "{\"steps\": [\"%s\", {\"select\": \"x\", \"method\": \"%s\", \"choices\": [",
                    before, method),
        QUIRE_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(strbuf_addf(&json, "%s\"%s\"", i > 0 ? ", " : "", choices[i]), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&json, "]}]}"), QUIRE_OK);
    quire_state *p = program_of(ps, json.p);
    run_to_idle(ps, &got);
    quire_variable v = variable_of(p, "x", -1);
    assert_int_equal(v.n_scores, n);
    assert_int_equal(quire_tokenize(e, before, strlen(before), true, &prefix, &n_prefix, &err), QUIRE_OK);
    for (size_t i = 0; i < n; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s", before, choices[i]);
        assert_int_equal(quire_tokenize(e, text, strlen(text), true, &whole, &n_whole, &err), QUIRE_OK);
        size_t from = memcmp(whole, prefix, n_prefix * sizeof *whole) == 0 ? n_prefix : n_prefix - 1;
        scores[i] = score_of(whole, from, n_whole, of);
        assert_true(fabs(scores[i] - v.scores[i]) < 1e-5);
        best = scores[i] > scores[best] ? i : best;
        if (of != QUIRE_SELECT_GREEDY_TOKEN_SELECTION && (size_t)v.choice == i) {
            size_t n_ids;
            const int32_t *ids = quire_state_ids(p, &n_ids);
            assert_int_equal(n_ids, n_whole);
            assert_memory_equal(ids, whole, n_ids * sizeof *ids);
        }
        quire_free(whole);
    }
    if (of != QUIRE_SELECT_GREEDY_TOKEN_SELECTION) {
        assert_int_equal(v.choice, best);
    }
    assert_string_equal(v.text, choices[v.choice]);
    quire_free(prefix);
    quire_state_close(p);
    strbuf_deinit(&json);
}

TEST(choices_have_the_scores_of_their_logits) {
    static const char *const choices[] = {" the man", " a woman", "ing", " him and he said", "."};
    static const char *const befores[] = {"The prince looked at", "She was walk", "The prin", "It is the ho"};
    for (size_t i = 0; i < sizeof befores / sizeof *befores; i++) {
        expect_scores(befores[i], choices, 5, "token_length_normalized",
                      QUIRE_SELECT_TOKEN_LENGTH_NORMALIZED);
        expect_scores(befores[i], choices, 5, "unconditional_likelihood_normalized",
                      QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED);
        expect_scores(befores[i], choices, 5, "greedy_token_selection", QUIRE_SELECT_GREEDY_TOKEN_SELECTION);
    }
    /* the last token becomes another one with the choice: "ho" and "use" */
    static const char *const ends[] = {"use", "rse and", "t"};
    expect_scores("It is the ho", ends, 3, "token_length_normalized", QUIRE_SELECT_TOKEN_LENGTH_NORMALIZED);
}

TEST(greedy_selection_compares_token_by_token) {
    const double first[] = {-1.0, -3.0}, second[] = {-1.0, -2.0, -9.0}, third[] = {-0.5},
                 fourth[] = {-0.5, -0.6};
    double scores[4];
    const select_choice two[] = {{first, NULL, 2}, {second, NULL, 3}};
    assert_int_equal(select_score(two, 2, QUIRE_SELECT_GREEDY_TOKEN_SELECTION, scores), 1);
    assert_int_equal(select_score(two, 2, QUIRE_SELECT_TOKEN_LENGTH_NORMALIZED, scores), 0);
    /* one that has ended goes on with its mean, -0.5, and that is over -0.6 */
    const select_choice ended[] = {{fourth, NULL, 2}, {third, NULL, 1}};
    assert_int_equal(select_score(ended, 2, QUIRE_SELECT_GREEDY_TOKEN_SELECTION, scores), 1);
    const select_choice equal[] = {{third, NULL, 1}, {third, NULL, 1}};
    assert_int_equal(select_score(equal, 2, QUIRE_SELECT_GREEDY_TOKEN_SELECTION, scores), 0);
    const double alone[] = {0.0, -8.0};
    const select_choice both[] = {{first, alone, 2}, {fourth, alone + 0, 2}};
    assert_int_equal(select_score(both, 2, QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED, scores), 1);
    assert_true(fabs(scores[0] - (-1.0 - 3.0 + 8.0) / 2.0) < 1e-12);
}

TEST(a_value_is_tested_by_a_regex) {
    seen got;
    quire_state *p = program_of(
        ps, "{\"inputs\": {\"x\": \"Answer: 42.\", \"r\": \"[0-9]+\\\\.$\"}, \"steps\": ["
            "{\"if\": \"{{x}}\", \"matches\": [\"^[0-9]\", \"{{r}}\"], \"then\": [{\"set\": \"a\", \"to\": "
            "\"1\"}]}, "
            "{\"if\": \"{{x}}\", \"matches\": \"^[0-9]\", \"then\": [], \"else\": [{\"set\": \"b\", \"to\": "
            "\"2\"}]}, "
            "{\"set\": \"n\", \"to\": \"\"}, {\"repeat\": 9, \"until\": \"{{n}}\", \"matches\": \"^i{4}$\", "
            "\"steps\": [{\"set\": \"n\", \"to\": \"{{n}}i\"}]}, "
            "{\"fork\": 1, \"steps\": [{\"if\": \"a\", \"matches\": \"(a\", \"then\": []}]}]}");
    run_to_idle(ps, &got);
    assert_string_equal(variable_of(p, "a", -1).text, "1");
    assert_string_equal(variable_of(p, "b", -1).text, "2");
    assert_string_equal(variable_of(p, "n", -1).text, "iiii");
    assert_int_equal(got.n[QUIRE_PROGRAM_FAILED], 1);
    assert_int_equal(got.failure.code, QUIRE_BAD_REQUEST);
    assert_non_null(strstr(got.failure.message, "matches: "));
    quire_state_close(p);
}

/* ---- errors, cancelling and closing ---- */

TEST(what_is_wrong_with_a_call_is_its_error_and_appends_nothing) {
    static const char bad[] = "{\"stream\": true}", no_json[] = "{";
    quire_state *p, *forks[2];
    quire_error err = {0};
    const char *choice = "a";
    const size_t size = 1;
    seen got;
    assert_int_equal(quire_state_open(ps, NULL, &p, &err), QUIRE_OK);
    assert_int_equal(quire_state_text(p, "a {{b", 5, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_state_gen(p, "1x", NULL, 0, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_state_gen(p, "x", bad, sizeof bad - 1, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_state_gen(p, "x", no_json, 1, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_state_select(p, "x", NULL, NULL, 0, 0, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_state_select(p, "", &choice, &size, 1, 0, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_state_fork(p, 0, forks, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_state_fork(p, 5000, forks, &err), QUIRE_TOO_LARGE);
    assert_int_equal(quire_state_steps(p, "[{}]", 4, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_state_role(p, "", &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_state_text(p, "The", 3, &err), QUIRE_OK);
    assert_int_equal(quire_state_gen(p, "x", "{\"max_tokens\": 3}", 17, &err), QUIRE_OK);
    run_to_idle(ps, &got);
    assert_int_equal(got.n[QUIRE_PROGRAM_FAILED], 0);
    quire_variable v = variable_of(p, "x", -1);
    assert_int_equal(v.completion_tokens, 3);
    assert_int_equal(quire_state_get(p, "y", -1, &v, &err), QUIRE_NOT_FOUND);
    assert_int_equal(quire_state_get(p, "x", 0, &v, &err), QUIRE_NOT_FOUND);
    quire_state_close(p);
    quire_state *json = program_of(ps, "{\"steps\": []}");
    assert_int_equal(quire_state_text(json, "x", 1, &err), QUIRE_INVALID);
    run_to_idle(ps, &got);
    quire_state_close(json);
}

#ifdef QUIRE_DEBUG
/* Runs a program whose n-th allocation fails. Returns its error's code; an error must have
 * a text, and a program without one its variables. */
static quire_err run_short_of_memory(int64_t n, bool *is_past) {
    static const char chat[] =
        "{\"fields\": {\"max_tokens\": 2, \"temperature\": 0}, \"steps\": [{\"role\": \"user\", \"text\": "
        "\"Who came?\"}, "
        "{\"gen\": \"a\"}, {\"set\": \"x\", \"to\": \"{{a}}\"}, {\"role\": \"user\", \"text\": \"And "
        "{{x}}?\"}, "
        "{\"gen\": \"b\"}]}";
    quire_state *s = NULL;
    quire_program_event ev = {0};
    quire_error why = {0};
    fault_at(n);
    quire_err opened = quire_program_open(ps, chat, sizeof chat - 1, NULL, &s, &why);
    while (opened == QUIRE_OK && ev.kind != QUIRE_PROGRAM_IDLE) {
        if (!quire_programs_next(ps, &ev)) {
            quire_programs_wait(ps, 1000000);
        } else if (ev.kind == QUIRE_PROGRAM_FAILED && why.code == QUIRE_OK) {
            why = *ev.error;
        }
    }
    *is_past = !fault_happened();
    fault_at(0);
    if (why.code != QUIRE_OK && why.message[0] == '\0') {
        fail_msg("allocation %lld: %s without a text", (long long)n, quire_err_name(why.code));
    }
    if (opened == QUIRE_OK && why.code == QUIRE_OK) {
        assert_int_equal(variable_of(s, "b", -1).completion_tokens, 2);
    }
    quire_state_close(s);
    return why.code;
}

TEST(a_program_without_memory_fails_with_a_text) {
    bool is_past = false;
    int32_t n_failed = 0;
    for (int64_t n = 1; !is_past; n++) {
        n_failed += run_short_of_memory(n, &is_past) != QUIRE_OK;
    }
    assert_true(n_failed > 10);
}
#endif

TEST(a_state_goes_on_as_steps_are_appended) {
    quire_state *p;
    quire_error err = {0};
    quire_variable v = {.size = sizeof v};
    seen got;
    char prompt[256] = "The prince";
    assert_int_equal(quire_state_open(ps, NULL, &p, &err), QUIRE_OK);
    assert_int_equal(quire_state_text(p, prompt, strlen(prompt), &err), QUIRE_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(quire_state_gen(p, "x", "{\"max_tokens\": 4, \"temperature\": 0}", 35, &err),
                         QUIRE_OK);
        assert_int_equal(quire_state_get(p, "y", -1, &v, &err), QUIRE_BUSY);
        run_to_idle(ps, &got);
        v = variable_of(p, "x", -1);
        if (i == 0) {
            expect_completion(e, prompt, "{\"max_tokens\": 4, \"temperature\": 0}", &v);
        }
        assert_int_equal(quire_state_text(p, " so", 3, &err), QUIRE_OK);
        run_to_idle(ps, &got);
    }
    quire_state_close(p);
}

TEST(a_fork_that_is_closed_counts_as_failed_where_it_is_joined) {
    quire_state *p, *forks[3];
    quire_error err = {0};
    quire_variable v = {.size = sizeof v};
    seen got;
    assert_int_equal(quire_state_open(ps, NULL, &p, &err), QUIRE_OK);
    assert_int_equal(quire_state_text(p, "The prince", 10, &err), QUIRE_OK);
    assert_int_equal(quire_state_fork(p, 3, forks, &err), QUIRE_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(quire_state_gen(forks[i], "x", "{\"max_tokens\": 4}", 17, &err), QUIRE_OK);
    }
    quire_state_close(forks[1]);
    assert_int_equal(quire_state_join(p, &err), QUIRE_OK);
    run_to_idle(ps, &got);
    assert_int_equal(got.n[QUIRE_PROGRAM_FAILED], 0); /* its events do not come */
    assert_int_equal(got.n[QUIRE_PROGRAM_VALUE], 2);
    assert_int_equal(quire_state_get(p, "x", 1, &v, &err), QUIRE_CANCELLED);
    (void)variable_of(p, "x", 0);
    (void)variable_of(p, "x", 2);
    assert_int_equal(quire_state_text(forks[1], "x", 1, &err), QUIRE_CANCELLED);
    quire_state_close(p);
}

/* Closed at any time, a program gives everything back. */
TEST(a_program_that_is_closed_gives_all_back) {
    quire_program_event ev;
    for (int n = 0; n < 40; n++) {
        quire_state *p =
            program_of(ps, "{\"steps\": [\"Once upon a time\", {\"fork\": 4, \"steps\": [{\"gen\": "
                           "\"x\", \"max_tokens\": 6, \"n\": 2}, {\"select\": \"s\", \"choices\": [\" a\", "
                           "\" b\"]}, {\"gen\": \"y\", \"max_tokens\": 300}]}]}");
        for (int i = 0; i < n;) {
            if (quire_programs_next(ps, &ev)) {
                i++;
            } else {
                quire_programs_wait(ps, 1000000);
            }
        }
        quire_state_close(p);
        assert_false(quire_programs_next(ps, &ev));
    }
    wait_until_idle(e);
}

/* What an open state has stays, however much others compute; closing it gives that up. */
TEST(an_open_state_finds_its_tokens_again) {
    static const char gen[] = "{\"max_tokens\": 4, \"ignore_eos\": true}", one[] = "{\"max_tokens\": 1}";
    quire_state *p;
    quire_error err = {0};
    quire_parked_stats parked = {.size = sizeof parked};
    seen got;
    char text[400] = "";
    for (int i = 0; i < 30; i++) {
        strcat(text, " the prince");
    }
    assert_int_equal(quire_state_open(ps, NULL, &p, &err), QUIRE_OK);
    assert_int_equal(quire_state_text(p, text, strlen(text), &err), QUIRE_OK);
    assert_int_equal(quire_state_gen(p, "x", gen, sizeof gen - 1, &err), QUIRE_OK);
    run_to_idle(ps, &got);
    for (int i = 0; i < 12; i++) { /* the pool has room for 8,192 tokens */
        quire_state *other;
        int32_t ids[900];
        for (int k = 0; k < 900; k++) {
            ids[k] = 20 + (i * 900 + k) % 400;
        }
        assert_int_equal(quire_state_open(ps, NULL, &other, &err), QUIRE_OK);
        assert_int_equal(quire_state_tokens(other, ids, 900, &err), QUIRE_OK);
        assert_int_equal(quire_state_gen(other, "x", one, sizeof one - 1, &err), QUIRE_OK);
        run_to_idle(ps, &got);
        quire_state_close(other);
    }
    assert_int_equal(quire_state_text(p, " so", 3, &err), QUIRE_OK);
    assert_int_equal(quire_state_gen(p, "y", gen, sizeof gen - 1, &err), QUIRE_OK);
    run_to_idle(ps, &got);
    quire_variable y = variable_of(p, "y", -1);
    assert_int_equal(y.computed_tokens, 2); /* the last token of x, and " so" */
    quire_engine_parked(e, &parked);
    assert_int_equal(parked.n_parks, 1);
    quire_state_close(p);
    wait_until_none_is_parked(e);
}

/* A branch that has joined before joins its own branches' variables anew. */
TEST(joins_within_joins_take_each_variable) {
    seen got;
    quire_state *p = program_of(ps, "{\"steps\": [{\"fork\": [[{\"set\": \"a\", \"to\": \"1\"}], [{\"set\": "
                                    "\"b\", \"to\": \"2\"}]]}, {\"join\": true}, "
                                    "{\"fork\": 2, \"steps\": [{\"fork\": [[{\"set\": \"a\", \"to\": "
                                    "\"3\"}], [{\"set\": \"c\", \"to\": \"4\"}]]}, {\"join\": true}, "
                                    "{\"set\": \"d\", \"to\": \"{{a}}{{b}}{{c}}\"}]}, {\"join\": true}]}");
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_OK);
    assert_string_equal(variable_of(p, "d", 0).text, "324");
    assert_string_equal(variable_of(p, "d", 1).text, "324");
    assert_string_equal(variable_of(p, "a", 1).text, "3");
    assert_string_equal(variable_of(p, "b", -1).text, "2");
    quire_state_close(p);
}

TEST(a_program_over_its_tokens_or_bytes_fails_as_a_whole) {
    quire_program_limits limits;
    quire_program_limits_init(&limits);
    quire_state_options o = {.size = sizeof o, .limits = &limits};
    quire_state *p;
    quire_error err = {0};
    seen got;
    static const char json[] =
        "{\"steps\": [\"Once upon a time\", {\"fork\": 4, \"steps\": [{\"gen\": \"x\", "
        "\"max_tokens\": 100, \"ignore_eos\": true}]}, {\"join\": true}]}";
    limits.max_tokens = 90; /* no gen has as many left, however they are delivered */
    assert_int_equal(quire_program_open(ps, json, sizeof json - 1, &o, &p, &err), QUIRE_OK);
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_TOO_LARGE);
    assert_int_equal(got.n[QUIRE_PROGRAM_FAILED], 5);
    assert_int_equal(got.n[QUIRE_PROGRAM_VALUE], 0);
    quire_state_close(p);
    limits.max_tokens = 100000;
    limits.max_bytes = 700;
    assert_int_equal(quire_program_open(ps, json, sizeof json - 1, &o, &p, &err), QUIRE_OK);
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_TOO_LARGE);
    quire_state_close(p);
}

/* Runs steps after an input x of n bytes, each 'a', to their failure. */
static void expect_too_much(size_t n, const char *steps) {
    quire_program_limits limits;
    quire_program_limits_init(&limits);
    limits.max_bytes = 1 << 20;
    quire_state_options o = {.size = sizeof o, .limits = &limits};
    strbuf json = {0};
    quire_state *p;
    quire_error err = {0};
    seen got;
    assert_int_equal(strbuf_add_str(&json, "{\"inputs\": {\"x\": \""), QUIRE_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(strbuf_add_char(&json, 'a'), QUIRE_OK);
    }
    assert_int_equal(strbuf_addf(&json, "\"}, \"steps\": [%s]}", steps), QUIRE_OK);
    assert_int_equal(quire_program_open(ps, json.p, json.n, &o, &p, &err), QUIRE_OK);
    strbuf_deinit(&json);
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_TOO_LARGE);
    assert_non_null(strstr(got.failure.message, "compares"));
    quire_state_close(p);
}

/* Runs a program that may make a mebibyte: it fails as a whole, with an error that has said. */
static void expect_too_large(const char *json, const char *said) {
    quire_program_limits limits;
    quire_program_limits_init(&limits);
    limits.max_bytes = 1 << 20;
    const quire_state_options o = {.size = sizeof o, .limits = &limits};
    quire_state *p;
    quire_error err = {0};
    seen got;
    assert_int_equal(quire_program_open(ps, json, strlen(json), &o, &p, &err), QUIRE_OK);
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_TOO_LARGE);
    assert_non_null(strstr(got.failure.message, said));
    quire_state_close(p);
}

/* Writes a part n times between two others, with a comma between. */
static void expect_parts_too_many(const char *before, const char *part, int n, const char *after) {
    strbuf json = {0};
    assert_int_equal(strbuf_add_str(&json, before), QUIRE_OK);
    for (int i = 0; i < n; i++) {
        assert_int_equal(strbuf_addf(&json, "%s%s", i > 0 ? "," : "", part), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&json, after), QUIRE_OK);
    expect_too_large(json.p, "bytes of texts, tokens and lists");
    strbuf_deinit(&json);
}

/* Short programs that make much in each of many branches. */
TEST(lists_and_tokens_count_as_what_a_program_makes) {
    expect_parts_too_many("{\"steps\": [\"a\", {\"fork\": 60, \"steps\": [{\"set\": \"l\", \"to\": [", "\"\"",
                          200, "]}]}]}");
    expect_parts_too_many("{\"inputs\": {\"t\": \"", "x", 1000,
                          "\"}, \"steps\": [\"a\", {\"fork\": 20, \"steps\": "
                          "[{\"set\": \"l\", \"to\": \"{{t}}\", \"split\": \",\"}]}]}");
    expect_parts_too_many("{\"steps\": [\"a\", {\"fork\": 60, \"steps\": [{\"tokens\": [", "5", 6000,
                          "]}]}]}");
    expect_parts_too_many("{\"inputs\": {\"x\": \"y\"}, \"steps\": [{\"repeat\": 100, \"steps\": [\"",
                          "{{x}}", 1000, "\"]}]}");
    expect_parts_too_many("{\"inputs\": {\"t\": \"[", "\\\"\\\"", 9000,
                          "]\"}, \"steps\": [{\"fork\": \"i\", \"over\": \"t\", \"steps\": []}]}");
}

/* Items of lists are references: what says that a branch has not set a variable is there
 * once, however many variables the others have set. */
TEST(branches_share_what_they_have_not_set) {
    seen got;
    quire_state *p = program_of(
        ps, "{\"steps\": [\"a\", {\"fork\": \"i\", \"over\": [\"0\", \"1\", \"2\", \"3\"], \"steps\": ["
            "{\"if\": \"{{i}}\", \"is\": \"0\", \"then\": [{\"set\": \"v\", \"to\": \"x\"}]}, "
            "{\"if\": \"{{i}}\", \"is\": \"1\", \"then\": [{\"set\": \"w\", \"to\": \"y\"}]}, "
            "{\"if\": \"{{i}}\", \"is\": \"3\", \"then\": [\"{{none}}\"]}]}, {\"join\": true}]}");
    run_to_idle(ps, &got);
    const program_value *v = program_state_find(p, "v"), *w = program_state_find(p, "w");
    assert_int_equal(v->n_items, 4);
    assert_string_equal(v->items[0]->text.p, "x");
    assert_string_equal(w->items[1]->text.p, "y");
    assert_ptr_equal(v->items[2], w->items[2]);
    assert_ptr_equal(v->items[3], w->items[3]);
    assert_int_equal(v->items[2]->error->code, QUIRE_NOT_FOUND);
    assert_int_equal(v->items[3]->error->code, QUIRE_BAD_REQUEST);
    quire_state_close(p);
}

#define FIVE "\"b\", \"b\", \"b\", \"b\", \"b\", "

/* Fields of the whole program are read anew by each of its requests. */
TEST(fields_that_many_requests_have_count_for_each) {
    static const char *const programs[][2] = {
        {"{\"fields\": {\"prediction\": {\"type\": \"content\", \"content\": \"",
         "\"}}, \"steps\": [\"a\", {\"fork\": 60, \"steps\": [{\"gen\": \"g\", \"max_tokens\": 1}]}]}"},
        {"{\"fields\": {\"cache_salt\": \"",
         "\"}, \"steps\": [\"a\", {\"select\": \"s\", \"choices\": [" FIVE FIVE FIVE FIVE FIVE FIVE FIVE FIVE
             FIVE FIVE FIVE "\"b\"]}]}"},
        {"{\"chat\": {\"chat_template_kwargs\": {\"k\": \"",
         "\"}}, \"steps\": [{\"role\": \"user\", \"text\": \"a\"}, {\"fork\": 60, \"steps\": [{\"select\": "
         "\"s\", "
         "\"choices\": [\" b\"]}]}]}"},
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        strbuf json = {0};
        assert_int_equal(strbuf_add_str(&json, programs[i][0]), QUIRE_OK);
        for (int k = 0; k < 20000; k++) {
            assert_int_equal(strbuf_add_char(&json, 'y'), QUIRE_OK);
        }
        assert_int_equal(strbuf_add_str(&json, programs[i][1]), QUIRE_OK);
        expect_too_large(json.p, "fields");
        strbuf_deinit(&json);
    }
}

TEST(work_that_makes_no_text_is_bounded_too) {
    expect_too_much(50000, "{\"set\": \"half\", \"to\": \"{{x}}\"}, "
                           "{\"if\": \"{{x}}{{x}}\", \"like\": \"*{{half}}b\", \"then\": []}");
    expect_too_much(10, "{\"if\": \"{{x}}\", \"matches\": \"(a|b)*a(a|b){30}\", \"then\": []}");
    expect_too_much(
        0,
        "{\"repeat\": 65536, \"steps\": [{\"if\": \"b\", \"matches\": \"[a-z]{0,99}[0-9]\", \"then\": []}]}");
    strbuf steps = {0};
    assert_int_equal(strbuf_add_str(&steps, "{\"repeat\": 30000, \"steps\": [\""), QUIRE_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(strbuf_add_str(&steps, "{{x}}"), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&steps, "\"]}"), QUIRE_OK);
    expect_too_much(0, steps.p);
    strbuf_deinit(&steps);
}

TEST(a_select_counts_its_tokens_once_before_they_come) {
    static const char json[] = "{\"steps\": [\"Once upon a time\", {\"select\": \"x\", \"choices\": "
                               "[\" there was\", \" a prince\", \"e\"], "
                               "\"method\": \"unconditional_likelihood_normalized\"}]}";
    quire_program_limits limits;
    quire_program_limits_init(&limits);
    quire_state_options o = {.size = sizeof o, .limits = &limits};
    for (int i = 0; i < 3; i++) { /* with many, as many as it has, one fewer */
        quire_state *p;
        quire_error err = {0};
        seen got;
        quire_program_usage u = {.size = sizeof u};
        assert_int_equal(quire_program_open(ps, json, sizeof json - 1, &o, &p, &err), QUIRE_OK);
        run_to_idle(ps, &got);
        assert_int_equal(got.failure.code, i == 2 ? QUIRE_TOO_LARGE : QUIRE_OK);
        quire_state_usage(p, &u);
        limits.max_tokens = u.prompt_tokens - i;
        quire_state_close(p);
    }
}

TEST(a_thread_with_other_work_runs_programs_in_turns) {
    static const char json[] = "{\"steps\": [{\"repeat\": 30000, \"steps\": [{\"if\": \"a\", \"is\": \"b\", "
                               "\"then\": []}]}, "
                               "{\"repeat\": 100, \"steps\": [{\"set\": \"x\", \"to\": \"y\"}]}]}";
    quire_state *p = program_of(ps, json);
    quire_program_event ev = {.size = sizeof ev};
    int n_cut = 0, n_values = 0;
    while (ev.kind != QUIRE_PROGRAM_IDLE) {
        quire_programs_turn(ps, 1); /* far less than the steps take */
        while (ev.kind != QUIRE_PROGRAM_IDLE && quire_programs_next(ps, &ev)) {
            n_values += ev.kind == QUIRE_PROGRAM_VALUE ? 1 : 0;
        }
        n_cut += quire_programs_has_more(ps) ? 1 : 0;
    }
    quire_programs_turn(ps, 0);
    assert_false(quire_programs_has_more(ps));
    assert_true(n_cut > 100);
    assert_int_equal(n_values, 100);
    quire_state_close(p);
}

TEST(a_turn_that_is_over_before_its_first_step_makes_progress) {
    quire_state *p =
        program_of(ps, "{\"steps\": [{\"repeat\": 20, \"steps\": [{\"set\": \"x\", \"to\": \"y\"}]}]}");
    quire_program_event ev = {.size = sizeof ev};
    for (int i = 0; i < 1000 && ev.kind != QUIRE_PROGRAM_IDLE; i++) {
        quire_programs_turn(ps, 1);
        for (int64_t began_us = clock_us(); clock_us() < began_us + 2;) {
        }
        while (ev.kind != QUIRE_PROGRAM_IDLE && quire_programs_next(ps, &ev)) {
        }
    }
    quire_programs_turn(ps, 0);
    assert_int_equal(ev.kind, QUIRE_PROGRAM_IDLE);
    quire_state_close(p);
}
