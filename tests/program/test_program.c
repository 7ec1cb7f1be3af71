/* The steps of programs, one by one, in JSON and by calls. */
#include <math.h>

#include "execute/engine_call.h"
#include "program_world.h"

static quire_engine *e;
static quire_programs *ps;

static int open_world(void **state) {
    (void)state;
    e = world_open(512, 8);
    return quire_programs_open(e, &ps) == QUIRE_OK ? 0 : -1;
}

static int close_world(void **state) {
    (void)state;
    quire_programs_close(ps);
    wait_until_none_is_parked(e);
    wait_until_idle(e);
    quire_engine_close(e);
    return 0;
}

/* The text that a completion of the same text gives. */
static void expect_completion(const char *prompt, const char *fields, const quire_variable *v) {
    quire_request *r;
    quire_error err = {0};
    char *text;
    size_t n;
    assert_int_equal(quire_request_text(e, prompt, strlen(prompt), &r, &err), QUIRE_OK);
    assert_int_equal(quire_request_set_all(r, fields, strlen(fields), &err), QUIRE_OK);
    assert_int_equal(quire_generate(e, r, &text, &n, &err), QUIRE_OK);
    assert_int_equal(n, v->n_text);
    assert_memory_equal(text, v->text, n);
    quire_free(text);
}

TEST(a_text_and_a_gen_are_a_completion) {
    seen s;
    quire_state *p =
        program_of(ps, "{\"inputs\": {\"who\": \"prince\"}, \"steps\": [\"The {{who}}\", \" looked\", "
                       "{\"gen\": \"x\", \"max_tokens\": 12, \"temperature\": 0}]}");
    run_to_idle(ps, &s);
    assert_int_equal(s.n[QUIRE_PROGRAM_FAILED], 0);
    assert_int_equal(s.n[QUIRE_PROGRAM_VALUE], 1);
    quire_variable v = variable_of(p, "x", -1);
    expect_completion("The prince looked", "{\"max_tokens\": 12, \"temperature\": 0}", &v);
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
    expect_completion("The prince 1 saw", fields, &x);
    char prompt[256];
    snprintf(prompt, sizeof prompt, "The prince then %.*s and", (int)x.n_text, x.text);
    expect_completion(prompt, fields, &y);
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
            expect_completion(prompt, "{\"max_tokens\": 4, \"temperature\": 0}", &v);
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

/* More sequences than an engine takes wait for their turn. */
TEST(calls_that_are_many_wait_for_their_turn) {
    seen got;
    quire_state *p = program_of(
        ps, "{\"steps\": [\"Once\", {\"fork\": 300, \"steps\": [{\"select\": \"x\", \"choices\": [\" a\", "
            "\" b\", \" c\", \" d\"]}, {\"gen\": \"y\", \"n\": 4, \"max_tokens\": 1}]}]}");
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_OK);
    assert_int_equal(got.n[QUIRE_PROGRAM_VALUE], 600);
    quire_state_close(p);
    p = program_of(ps, "{\"steps\": [\"Once\", {\"fork\": 300, \"steps\": [{\"gen\": \"y\", \"n\": 8, "
                       "\"max_tokens\": 50}]}]}");
    quire_program_event ev;
    for (int i = 0; i < 20;) {
        if (quire_programs_next(ps, &ev)) {
            i++;
        } else {
            quire_programs_wait(ps, 1000000);
        }
    }
    quire_state_close(p); /* those that wait are given up too */
    wait_until_idle(e);
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

TEST(work_that_makes_no_text_is_bounded_too) {
    expect_too_much(50000, "{\"set\": \"half\", \"to\": \"{{x}}\"}, "
                           "{\"if\": \"{{x}}{{x}}\", \"like\": \"*{{half}}b\", \"then\": []}");
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

/* An executor whose calls never end, as over an API that does not answer. */
typedef struct silent {
    int n_calls;
    int64_t longest_us; /* that it was to wait; INT64_MAX: for ever */
} silent;

static quire_err silent_begin(void *executor, program_call *c, quire_error *err) {
    (void)c, (void)err;
    ((silent *)executor)->n_calls++;
    return QUIRE_OK;
}

static void silent_cancel(void *executor, program_call *c) {
    (void)c;
    ((silent *)executor)->n_calls--;
}

static void silent_drop(void *executor, quire_state *s) {
    (void)executor, (void)s;
}

static bool silent_poll(void *executor) {
    (void)executor;
    return false;
}

static void silent_wait(void *executor, int64_t timeout_us) {
    silent *x = executor;
    int64_t us = timeout_us < 0 ? INT64_MAX : timeout_us;
    x->longest_us = us > x->longest_us ? us : x->longest_us;
}

static void silent_close(void *executor) {
    (void)executor;
}

TEST(a_program_whose_calls_never_end_is_awaited_as_long_as_its_time) {
    static const program_ops ops = {.gen = silent_begin,
                                    .cancel = silent_cancel,
                                    .drop = silent_drop,
                                    .poll = silent_poll,
                                    .wait = silent_wait,
                                    .close = silent_close};
    static const char json[] = "{\"steps\": [\"a\", {\"gen\": \"x\"}]}";
    silent x = {0};
    quire_programs *own;
    quire_state *p;
    quire_error err = {0};
    quire_program_limits limits;
    quire_program_event ev = {.size = sizeof ev};
    bool has_failed = false;
    quire_program_limits_init(&limits);
    limits.max_us = 20000;
    quire_state_options o = {.size = sizeof o, .limits = &limits};
    assert_int_equal(programs_open(&ops, &x, &own), QUIRE_OK);
    assert_int_equal(quire_program_open(own, json, sizeof json - 1, &o, &p, &err), QUIRE_OK);
    while (ev.kind != QUIRE_PROGRAM_IDLE) {
        if (!quire_programs_next(own, &ev)) {
            ev.kind = QUIRE_PROGRAM_TEXT;
            quire_programs_wait(own, -1);
        }
        has_failed = has_failed || ev.kind == QUIRE_PROGRAM_FAILED;
    }
    assert_true(has_failed && x.longest_us <= limits.max_us);
    assert_int_equal(x.n_calls, 0);
    quire_state_close(p);
    quire_programs_close(own);
}

/* ---- calls that wait for others ---- */

static bool is_waiting(const quire_state *s) {
    return s->call != NULL && ((const engine_call *)s->call->of_executor)->is_waiting;
}

/* Appends a gen of n outputs to s; events come until it waits for its turn, if it is to. */
static void append_gen(quire_state *s, int n, bool waits) {
    char fields[64];
    quire_program_event ev;
    quire_error err = {0};
    int length = snprintf(fields, sizeof fields, "{\"n\": %d, \"max_tokens\": 1}", n);
    assert_int_equal(quire_state_gen(s, "x", fields, (size_t)length, &err), QUIRE_OK);
    for (int i = 0; waits && !is_waiting(s); i++) {
        if (!quire_programs_next(ps, &ev)) {
            quire_programs_wait(ps, 1000000);
        }
        assert_true(i < 1000);
    }
}

static const program_record *last_record(const quire_state *s) {
    return &s->root->records[s->record];
}

/* The first turn is that of the shallow gen, which the deeper one of its program takes; then
 * comes another program's, and the one that was given in return. */
TEST(calls_that_wait_go_depth_first) {
    static const int32_t ids[] = {300, 301};
    engine_executor *x = ps->executor;
    quire_state *p, *forks[2], *q;
    quire_error err = {0};
    seen got;
    x->n_running += MAX_RUNNING - 1; /* as if others ran */
    assert_int_equal(quire_state_open(ps, NULL, &p, &err), QUIRE_OK);
    assert_int_equal(quire_state_tokens(p, ids, 2, &err), QUIRE_OK);
    assert_int_equal(quire_state_fork(p, 2, forks, &err), QUIRE_OK);
    append_gen(forks[0], 200, true);
    assert_int_equal(quire_state_open(ps, NULL, &q, &err), QUIRE_OK);
    assert_int_equal(quire_state_tokens(q, ids, 2, &err), QUIRE_OK);
    append_gen(q, MAX_RUNNING, true);
    append_gen(forks[1], 1, false);
    append_gen(forks[1], 2, true);
    x->n_running -= MAX_RUNNING - 1;
    run_to_idle(ps, &got);
    run_to_idle(ps, &got);
    assert_true(last_record(forks[1])->end_us <= last_record(q)->submitted_us);
    assert_true(last_record(q)->end_us <= last_record(forks[0])->submitted_us);
    quire_state_close(p);
    quire_state_close(q);
}

/* ---- a full engine ---- */

enum { N_PLACES = 1024 }; /* of an engine with few sequences */

/* Takes all places: rows that nobody reads as long as q is not. */
static quire_stream *take_all_places(quire_queue *q) {
    static int32_t ids[N_PLACES][2];
    static quire_input inputs[N_PLACES];
    const quire_embed_options o = {.pooling = "mean", .normalize = 0};
    const int64_t n_before = stats_of(e).step_rows;
    quire_request *r;
    quire_stream *s;
    quire_error err = {0};
    for (int i = 0; i < N_PLACES; i++) {
        ids[i][0] = 5 + i % 20;
        ids[i][1] = 30 + i / 20;
        inputs[i] = (quire_input){.ids = ids[i], .n_ids = 2};
    }
    assert_int_equal(quire_request_embed(e, inputs, N_PLACES, &o, &r, &err), QUIRE_OK);
    assert_int_equal(quire_submit(q, r, NULL, &s, &err), QUIRE_OK);
    while (stats_of(e).step_rows < n_before + N_PLACES) {
        sleep_ms(1);
    }
    wait_until_idle(e);
    return s;
}

/* Gives n of the places back. */
static void give_places(quire_queue *q, int n) {
    quire_event ev;
    while (n > 0) {
        next_event(q, &ev);
        n -= ev.kind == QUIRE_EVENT_END ? 1 : 0;
    }
}

static void give_all_places(quire_queue *q, quire_stream *s) {
    quire_event ev = {0};
    while (ev.kind != QUIRE_EVENT_DONE) {
        next_event(q, &ev);
    }
    quire_stream_release(s);
}

/* A plain request is refused: the engine is full, and what was submitted before has been
 * refused a place too. */
static void expect_refused(quire_queue *q) {
    response a;
    submit(e, q, &a, "{\"prompt\": [300], \"max_tokens\": 1}");
    wait_done(q, &a);
    assert_int_equal(a.error.code, QUIRE_BUSY);
    quire_stream_release(a.stream);
    response_clear(&a);
}

#define WAITS                                                                                                \
    "{\"steps\": [{\"tokens\": [300, 301]}, {\"fork\": [[{\"gen\": \"a\", \"n\": 3, \"max_tokens\": 2}], "   \
    "[{\"gen\": \"b\", "                                                                                     \
    "\"max_tokens\": 2}, \" and\", {\"gen\": \"d\", \"max_tokens\": 2}], [{\"select\": \"c\", \"choices\": " \
    "[\" a\", \" b\"]}]]}]}"

/* Events of the programs as far as they come while plain requests are refused; none says
 * that a step failed. */
static void run_while_full(quire_queue *plain) {
    quire_program_event ev;
    for (int i = 0; i < 4; i++) {
        while (quire_programs_next(ps, &ev)) {
            assert_int_equal(ev.kind, QUIRE_PROGRAM_VALUE);
        }
        expect_refused(plain);
    }
}

TEST(a_full_engine_lets_programs_wait_and_refuses_others) {
    quire_queue *rows = queue_new(e), *plain = queue_new(e);
    const int64_t n_refused = stats_of(e).requests_refused;
    seen got;
    quire_stream *all = take_all_places(rows);
    quire_state *p = program_of(ps, WAITS);
    run_while_full(plain);
    give_places(rows, 1); /* enough for the prefix, and then for steps of one sequence */
    for (quire_program_event ev = {.kind = QUIRE_PROGRAM_TEXT}; ev.kind != QUIRE_PROGRAM_VALUE;) {
        if (!quire_programs_next(ps, &ev)) {
            quire_programs_wait(ps, 1000000);
        }
    }
    give_all_places(rows, all);
    run_to_idle(ps, &got);
    assert_int_equal(got.n[QUIRE_PROGRAM_FAILED], 0);
    assert_int_equal(stats_of(e).requests_refused, n_refused + 4);
    quire_state_close(p);
    quire_queue_close(rows);
    quire_queue_close(plain);
}

TEST(what_waits_for_a_place_is_cancelled_and_closed) {
    quire_queue *rows = queue_new(e), *plain = queue_new(e);
    quire_program_limits limits;
    quire_program_limits_init(&limits);
    limits.max_us = 1000;
    const quire_state_options o = {.size = sizeof o, .limits = &limits};
    quire_state *p, *late;
    quire_error err = {0};
    quire_program_event ev = {.kind = QUIRE_PROGRAM_TEXT};
    seen got;
    quire_stream *all = take_all_places(rows);
    p = program_of(ps, WAITS);
    run_while_full(plain);
    quire_state_cancel(p);
    run_to_idle(ps, &got);
    assert_int_equal(got.failure.code, QUIRE_CANCELLED);
    quire_state_close(p);
    p = program_of(ps, WAITS);
    run_while_full(plain);
    quire_state_close(p);
    /* it wakes by itself when its time is over */
    assert_int_equal(quire_program_open(ps, WAITS, sizeof WAITS - 1, &o, &late, &err), QUIRE_OK);
    while (ev.kind != QUIRE_PROGRAM_FAILED) {
        if (!quire_programs_next(ps, &ev)) {
            quire_programs_wait(ps, -1);
        }
    }
    assert_int_equal(ev.error->code, QUIRE_TOO_LARGE);
    quire_state_close(late);
    while (!quire_programs_idle(ps)) {
        assert_false(quire_programs_next(ps, &ev));
        quire_programs_wait(ps, 1000000);
    }
    p = program_of(ps, WAITS); /* the programs are closed with it */
    run_while_full(plain);
    quire_programs_close(ps);
    give_all_places(rows, all);
    assert_int_equal(quire_programs_open(e, &ps), QUIRE_OK);
    quire_queue_close(rows);
    quire_queue_close(plain);
}

/* Turns are by arrival, and a program's is taken by its deepest step, which gives its own in
 * return. */
TEST(steps_wait_for_places_depth_first) {
    static const struct {
        uint64_t program;
        int32_t depth, turn;
    } steps[] = {{7, 1, 3}, {7, 1, 4}, {8, 9, 2}, {7, 2, 1}, {7, 3, 0}};
    enum { N = sizeof steps / sizeof *steps };
    quire_queue *rows = queue_new(e), *plain = queue_new(e), *q = queue_new(e);
    response a[N];
    quire_stream *all = take_all_places(rows);
    quire_event ev;
    for (int i = 0; i < N; i++) {
        quire_request *r = request_of(e, "{\"prompt\": [300], \"max_tokens\": 1}");
        quire_request_step(r, steps[i].program, steps[i].depth);
        submit_request(q, r, &a[i]);
    }
    expect_refused(plain);
    assert_false(quire_queue_next(q, &ev));
    give_places(rows, 1);
    for (int turn = 0; turn < N; turn++) { /* each gives its place to the next one */
        for (ev.kind = QUIRE_EVENT_START; ev.kind != QUIRE_EVENT_DONE; take(&ev)) {
            next_event(q, &ev);
        }
        int i = 0;
        while (steps[i].turn != turn) {
            i++;
        }
        assert_true(a[i].done);
    }
    give_all_places(rows, all);
    for (int i = 0; i < N; i++) {
        quire_stream_release(a[i].stream);
        response_clear(&a[i]);
    }
    quire_queue_close(rows);
    quire_queue_close(plain);
    quire_queue_close(q);
}

/* Who waits for a place learns of it where it waits: the ring is taken there. */
TEST(a_place_that_another_gives_back_ends_a_wait) {
    quire_queue *rows = queue_new(e), *plain = queue_new(e), *q = queue_new(e);
    response a;
    quire_event ev;
    quire_stream *all = take_all_places(rows);
    quire_request *r = request_of(e, "{\"prompt\": [300], \"max_tokens\": 1}");
    quire_request_step(r, 7, 1);
    submit_request(q, r, &a);
    expect_refused(plain);
    assert_false(quire_queue_next(q, &ev));
    give_places(rows, 1);
    quire_queue_wait(q, -1);
    wait_done(q, &a);
    assert_int_equal(a.error.code, QUIRE_OK);
    quire_stream_release(a.stream);
    response_clear(&a);
    give_all_places(rows, all);
    quire_queue_close(rows);
    quire_queue_close(plain);
    quire_queue_close(q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_and_a_gen_are_a_completion),
        cmocka_unit_test(a_program_says_how_it_is_answered),
        cmocka_unit_test(calls_are_the_same_program),
        cmocka_unit_test(choices_have_the_scores_of_their_logits),
        cmocka_unit_test(greedy_selection_compares_token_by_token),
        cmocka_unit_test(what_is_wrong_with_a_call_is_its_error_and_appends_nothing),
        cmocka_unit_test(a_state_goes_on_as_steps_are_appended),
        cmocka_unit_test(a_fork_that_is_closed_counts_as_failed_where_it_is_joined),
        cmocka_unit_test(a_program_that_is_closed_gives_all_back),
        cmocka_unit_test(an_open_state_finds_its_tokens_again),
        cmocka_unit_test(joins_within_joins_take_each_variable),
        cmocka_unit_test(calls_that_are_many_wait_for_their_turn),
        cmocka_unit_test(a_program_over_its_tokens_or_bytes_fails_as_a_whole),
        cmocka_unit_test(work_that_makes_no_text_is_bounded_too),
        cmocka_unit_test(a_select_counts_its_tokens_once_before_they_come),
        cmocka_unit_test(a_thread_with_other_work_runs_programs_in_turns),
        cmocka_unit_test(a_program_whose_calls_never_end_is_awaited_as_long_as_its_time),
        cmocka_unit_test(calls_that_wait_go_depth_first),
        cmocka_unit_test(a_full_engine_lets_programs_wait_and_refuses_others),
        cmocka_unit_test(what_waits_for_a_place_is_cancelled_and_closed),
        cmocka_unit_test(steps_wait_for_places_depth_first),
        cmocka_unit_test(a_place_that_another_gives_back_ends_a_wait),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
