/* Structured output through quire.h: the fields that set a grammar, and that responses
 * obey it with every other feature. */
#include <regex.h>

#include "api_world.h"
#include "request/request.h"

static quire_engine *e;

/* ---- fields ---- */

typedef struct field_case {
    const char *body, *param; /* param NULL: it is taken */
    grammar_kind kind;
} field_case;

TEST(a_rule_is_read_from_the_field_that_names_it) {
    static const request_context context = {.n_vocab = 64, .max_model_len = 1024, .has_vocabulary = true};
    static const field_case cases[] = {
        {"\"regex\":\"a+\"", NULL, GRAMMAR_REGEX},
        {"\"guided_regex\":\"\"", NULL, GRAMMAR_REGEX},
        {"\"guided_choice\":[\"a\",\"b\"]", NULL, GRAMMAR_CHOICE},
        {"\"grammar\":\"root ::= [a]\"", NULL, GRAMMAR_EBNF},
        {"\"ebnf\":\"root ::= [a]\"", NULL, GRAMMAR_EBNF},
        {"\"grammar\":\"start: /a/\"", NULL, GRAMMAR_LARK},
        {"\"structured_outputs\":{\"grammar\":\"start: /a/\"}", NULL, GRAMMAR_LARK},
        {"\"grammar\":\"// not root ::= x\\n# s ::= x\\nstart: \\\"::=\\\"\\n  | \\\"x ::= y\\\" // a ::= "
         "b\"",
         NULL, GRAMMAR_LARK},
        {"\"grammar\":\"# rules\\n\\n  a-b.c\\n ::= x\"", NULL, GRAMMAR_EBNF},
        {"\"json_schema\":{}", NULL, GRAMMAR_SCHEMA},
        {"\"guided_json\":\"{}\"", NULL, GRAMMAR_SCHEMA},
        {"\"response_format\":{\"type\":\"json_object\"}", NULL, GRAMMAR_JSON_OBJECT},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{}}}",
         NULL, GRAMMAR_SCHEMA},
        {"\"structured_outputs\":{\"regex\":\"a\",\"choice\":null,\"json_object\":false}", NULL,
         GRAMMAR_REGEX},
        {"\"structured_outputs\":{\"json\":{\"type\":\"object\"},\"whitespace_pattern\":\" ?\"}", NULL,
         GRAMMAR_SCHEMA},
        {"\"structured_outputs\":{\"json_object\":true,\"disable_any_whitespace\":true}", NULL,
         GRAMMAR_JSON_OBJECT},
        {"\"regex\":\"a\",\"response_format\":{\"type\":\"text\"}", NULL, GRAMMAR_REGEX},
        {"\"json_schema\":{},\"json_whitespace\":\"any\",\"json_property_order\":\"schema\"", NULL,
         GRAMMAR_SCHEMA},
        {"\"json_schema\":{},\"json_whitespace\":null,\"json_property_order\":\"any\"", NULL, GRAMMAR_SCHEMA},
        {"\"json_schema\":{},\"json_whitespace\":\"some\"", "json_whitespace", 0},
        {"\"json_schema\":{},\"json_property_order\":\"compact\"", "json_property_order", 0},
        {"\"json_schema\":{},\"json_property_order\":1", "body.json_property_order", 0},
        {"\"json_schema\":{},\"json_numbers\":\"any\"", NULL, GRAMMAR_SCHEMA},
        {"\"json_schema\":{},\"json_numbers\":\"long\"", "json_numbers", 0},
        {"\"json_schema\":{},\"json_additional_properties\":\"schema\"", NULL, GRAMMAR_SCHEMA},
        {"\"json_schema\":{},\"json_additional_properties\":null", NULL, GRAMMAR_SCHEMA},
        {"\"json_schema\":{},\"json_additional_properties\":\"open\"", "json_additional_properties", 0},
        {"\"structured_outputs\":{\"json\":{},\"additional_properties\":\"closed\"}", NULL, GRAMMAR_SCHEMA},
        {"\"structured_outputs\":{\"json\":{},\"additional_properties\":null,\"disable_additional_"
         "properties\":false}",
         NULL, GRAMMAR_SCHEMA},
        {"\"structured_outputs\":{\"json\":{},\"additional_properties\":true}", "structured_outputs", 0},
        {"\"regex\":\"a\",\"guided_choice\":[\"b\"]", "guided_choice", 0},
        {"\"regex\":5", "body.regex", 0},
        {"\"guided_choice\":[]", "body.guided_choice", 0},
        {"\"guided_choice\":[\"a\",1]", "body.guided_choice", 0},
        {"\"json_schema\":[1]", "body.json_schema", 0},
        {"\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}", "structured_outputs", 0},
        {"\"structured_outputs\":{}", "structured_outputs", 0},
        {"\"structured_outputs\":{\"regex\":\"a\",\"structural_tag\":\"b\"}", "structured_outputs", 0},
        {"\"response_format\":{\"type\":\"structural_tag\",\"format\":{}}", NULL, 0},
        {"\"structured_outputs\":{\"structural_tag\":\"{}\"}", NULL, 0},
        {"\"structured_outputs\":{\"structural_tag\":5}", "structured_outputs", 0},
        {"\"response_format\":{\"type\":\"json_schema\"}", "response_format", 0},
        {"\"response_format\":{\"type\":\"xml\"}", "body.response_format.type", 0},
        {"\"structured_outputs\":{\"choice\":[]}", "", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        quire_request *r = NULL;
        quire_error err = {0};
        snprintf(body, sizeof body, "{\"prompt\":\"x\",%s}", cases[i].body);
        quire_err got = request_parse(&context, QUIRE_COMPLETIONS, body, strlen(body), &r, &err);
        if ((got == QUIRE_OK) != (cases[i].param == NULL)) {
            fail_msg("%s: %s", cases[i].body, err.message);
        }
        if (cases[i].param != NULL) {
            assert_string_equal(err.param, cases[i].param);
            continue;
        }
        assert_non_null(r->rule.field);
        assert_int_equal(r->rule.kind, cases[i].kind);
        quire_request *copy;
        assert_int_equal(request_copy(r, &copy, &err), QUIRE_OK); /* a fork obeys the same */
        assert_ptr_equal(copy->rule.field, r->rule.field);
        assert_true(str_eq(copy->rule.text, r->rule.text));
        quire_request_free(copy);
        assert_int_equal(request_change(r, "{\"regex\":\"b\"}", 13, &err), QUIRE_BAD_REQUEST);
        quire_request_free(r);
    }
}

TEST(what_objects_may_hold_is_the_engines_to_say_unless_a_request_does) {
    static const struct {
        bool opens;
        const char *field;
        grammar_additional wanted;
    } cases[] = {
        {false, "", GRAMMAR_ADDITIONAL_CLOSED},
        {true, "", GRAMMAR_ADDITIONAL_SCHEMA},
        {true, ",\"json_additional_properties\":null", GRAMMAR_ADDITIONAL_SCHEMA},
        {true, ",\"json_additional_properties\":\"closed\"", GRAMMAR_ADDITIONAL_CLOSED},
        {false, ",\"json_additional_properties\":\"schema\"", GRAMMAR_ADDITIONAL_SCHEMA},
        {true, ",\"structured_outputs\":{\"json\":{},\"disable_additional_properties\":true}",
         GRAMMAR_ADDITIONAL_CLOSED},
        {false, ",\"structured_outputs\":{\"json\":{},\"additional_properties\":\"schema\"}",
         GRAMMAR_ADDITIONAL_SCHEMA},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const request_context context = {
            .n_vocab = 64, .max_model_len = 1024, .has_vocabulary = true, .opens_objects = cases[i].opens};
        char body[256];
        quire_request *r = NULL;
        snprintf(body, sizeof body, "{\"prompt\":\"x\"%s}", cases[i].field);
        assert_int_equal(request_parse(&context, QUIRE_COMPLETIONS, body, strlen(body), &r, NULL), QUIRE_OK);
        assert_int_equal(request_rule_additional(&r->rule, r->g.json_additional), cases[i].wanted);
        quire_request_free(r);
    }
}

TEST(white_space_is_the_engines_to_say_unless_a_request_does) {
    static const struct {
        grammar_space engine;
        const char *field;
        grammar_space wanted;
    } cases[] = {
        {GRAMMAR_SPACE_COMPACT, "", GRAMMAR_SPACE_COMPACT},
        {GRAMMAR_SPACE_LINES, "", GRAMMAR_SPACE_LINES},
        {GRAMMAR_SPACE_LINES, ",\"json_whitespace\":null", GRAMMAR_SPACE_LINES},
        {GRAMMAR_SPACE_ANY, ",\"json_whitespace\":\"compact\"", GRAMMAR_SPACE_COMPACT},
        {GRAMMAR_SPACE_COMPACT, ",\"json_whitespace\":\"any\"", GRAMMAR_SPACE_ANY},
        {GRAMMAR_SPACE_ANY, ",\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":true}",
         GRAMMAR_SPACE_COMPACT},
        {GRAMMAR_SPACE_LINES, ",\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":false}",
         GRAMMAR_SPACE_ANY},
        {GRAMMAR_SPACE_LINES, ",\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":null}",
         GRAMMAR_SPACE_LINES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const request_context context = {
            .n_vocab = 64, .max_model_len = 1024, .has_vocabulary = true, .json_space = cases[i].engine};
        char body[256];
        quire_request *r = NULL;
        snprintf(body, sizeof body, "{\"prompt\":\"x\"%s}", cases[i].field);
        assert_int_equal(request_parse(&context, QUIRE_COMPLETIONS, body, strlen(body), &r, NULL), QUIRE_OK);
        assert_int_equal(request_rule_space(&r->rule, r->g.json_space), cases[i].wanted);
        quire_request_free(r);
    }
}

/* ---- responses ---- */

static bool matches(const char *pattern, const strbuf *text) {
    regex_t r;
    char whole[256], copy[4096];
    snprintf(whole, sizeof whole, "^(%s)$", pattern);
    snprintf(copy, sizeof copy, "%.*s", (int)text->n, text->p != NULL ? text->p : "");
    assert_int_equal(regcomp(&r, whole, REG_EXTENDED | REG_NOSUB), 0);
    bool is = regexec(&r, copy, 0, NULL, 0) == 0;
    regfree(&r);
    return is;
}

#define IP "([0-9]{1,3}\\.){3}[0-9]{1,3}"
#define SCHEMA                                                                                               \
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":99},\"b\":{" \
    "\"enum\":[\"x\",\"y\"]}},"                                                                              \
    "\"required\":[\"a\",\"b\"],\"additionalProperties\":false}"
#define OBJECT "\\{\"a\":[0-9]{1,2},\"b\":\"(x|y)\"\\}"
#define S      "[[:space:]]*"
#define A      "\"a\"" S ":" S "[0-9]{1,2}" S
#define B      "\"b\"" S ":" S "\"(x|y)\"" S
#define LOOSE  "\\{" S "(" A "," S B "|" B "," S A ")\\}"
#define WORDS  "[A-Z][a-z]{2,9}( [a-z]{2,9}){3,5}\\."

TEST(every_kind_of_request_gets_texts_that_obey) {
    static const struct {
        const char *fields, *pattern;
    } cases[] = {
        {"\"temperature\":0,\"regex\":\"([0-9]{1,3}\\\\.){3}[0-9]{1,3}\"", IP},
        {"\"seed\":3,\"temperature\":1.4,\"n\":5,\"regex\":\"([0-9]{1,3}\\\\.){3}[0-9]{1,3}\"", IP},
        {"\"seed\":4,\"n\":3,\"logprobs\":2,\"structured_outputs\":{\"regex\":\"[A-Z][a-z]{2,9}( "
         "[a-z]{2,9}){3,5}\\\\.\"}",
         WORDS},
        {"\"temperature\":0,\"beam_width\":4,\"n\":4,\"regex\":\"[A-Z][a-z]{2,9}( [a-z]{2,9}){3,5}\\\\.\"",
         WORDS},
        {"\"seed\":5,\"ignore_eos\":true,\"n\":2,\"guided_choice\":[\"yes\",\"no\",\"perhaps not\"]",
         "yes|no|perhaps not"},
        {"\"seed\":6,\"min_tokens\":50,\"n\":2,\"guided_choice\":[\"yes\",\"no\",\"perhaps not\"]",
         "yes|no|perhaps not"},
        {"\"seed\":7,\"mirostat\":2,\"grammar\":\"root ::= (\\\"a\\\" | \\\"bc\\\"){3} \\\"!\\\"\"",
         "(a|bc){3}!"},
        {"\"seed\":8,\"n\":3,\"repetition_penalty\":1.3,\"no_repeat_ngram_size\":9,\"guided_regex\":\"(é){2}["
         "a-z]{3}\"",
         "(é){2}[a-z]{3}"},
        {"\"seed\":9,\"n\":3,\"json_schema\":" SCHEMA, LOOSE},
        {"\"seed\":9,\"n\":3,\"json_whitespace\":\"compact\",\"json_schema\":" SCHEMA, OBJECT},
        {"\"seed\":10,\"n\":6,\"json_whitespace\":\"any\",\"json_property_order\":\"any\",\"json_"
         "schema\":" SCHEMA,
         LOOSE},
        {"\"seed\":11,\"n\":3,\"structured_outputs\":{\"disable_any_whitespace\":false,\"json\":" SCHEMA "}",
         LOOSE},
        {"\"seed\":12,\"n\":3,\"structured_outputs\":{\"disable_any_whitespace\":true,\"json\":" SCHEMA "}",
         OBJECT},
        {"\"seed\":13,\"n\":12,\"temperature\":1.5,\"json_whitespace\":\"compact\",\"json_schema\":{\"type\":"
         "\"object\",\"properties\":{"
         "\"a\":{\"const\":1}}}",
         "\\{(\"a\":1)?\\}"},
        {"\"beam_width\":3,\"n\":3,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
         "\"schema\":" SCHEMA "}}",
         LOOSE},
    };
    quire_queue *q = queue_new(e);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[768];
        response a;
        snprintf(body, sizeof body, "{\"prompt\":\"The prince went\",\"max_tokens\":800,%s}",
                 cases[i].fields);
        complete(e, q, &a, body);
        assert_int_equal(a.error.code, QUIRE_OK);
        for (int32_t k = 0; k < a.n_choices; k++) {
            const outcome *c = &a.choices[k];
            if (!matches(cases[i].pattern, &c->text) || c->finish != QUIRE_FINISH_STOP) {
                fail_msg("%s: %.*s", cases[i].fields, (int)c->text.n, c->text.p);
            }
        }
        response_clear(&a);
    }
    quire_queue_close(q);
    wait_until_idle(e);
}

TEST(what_cannot_be_obeyed_is_refused_with_its_field) {
    static const char *const bodies[][2] = {
        {"{\"prompt\":\"x\",\"regex\":\"a(b\"}", "regex"},
        {"{\"prompt\":\"x\",\"grammar\":\"root ::= missing\"}", "grammar"},
        {"{\"prompt\":\"x\",\"regex\":\"a\",\"beam_width\":2,\"ignore_eos\":true}", "ignore_eos"},
    };
    quire_queue *q = queue_new(e);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        response a;
        submit(e, q, &a, bodies[i][0]);
        wait_done(q, &a);
        quire_stream_release(a.stream);
        print_message("%s\n", a.error.message);
        assert_int_equal(a.error.code, QUIRE_BAD_REQUEST);
        assert_string_equal(a.error.param, bodies[i][1]);
        response_clear(&a);
    }
    quire_queue_close(q);
    wait_until_idle(e);
}

/* Begins a response and steers it by a tail that its rule forbids. False: it ended
 * first. */
static bool submit_and_refuse(quire_queue *q, const char *body, int32_t position, const quire_tail *tail,
                              response *a) {
    quire_error err = {0};
    submit(e, q, a, body);
    read_to(q, a, 0, 12);
    assert_int_equal(quire_stream_steer(a->stream, 0, position, tail, NULL, 0, &err), QUIRE_OK);
    read_command(q, a, 1);
    assert_int_equal(a->n_rollbacks, 0);
    return a->n_refused == 1 && !a->choices[0].ended;
}

TEST(branches_obey_and_a_forbidden_tail_is_refused) {
    static const char body[] =
        "{\"prompt\":\"The prince went\",\"seed\":2,\"max_tokens\":900,\"regex\":\"([a-z]{3,8} "
        "){100,120}end\"}";
    static const char bad[] = "NO ", good[] = "abc def ";
    quire_queue *q = queue_new(e);
    quire_error err = {0};
    response plain, a, fork;
    quire_request *r;
    complete(e, q, &plain, body);
    assert_true(matches("([a-z]{3,8} ){100,120}end", &plain.choices[0].text));
    quire_tail tail = {.text = bad, .n_text = sizeof bad - 1};
    /* its END was delivered before the refusal */
    while (!submit_and_refuse(q, body, plain.prompt_tokens, &tail, &a)) {
        quire_stream_release(a.stream);
        response_clear(&a);
    }
    print_message("%s\n", a.refusal.message);
    assert_int_equal(quire_stream_fork(a.stream, 0, plain.prompt_tokens + 7, &r, &err), QUIRE_OK);
    submit_request(q, r, &fork);
    assert_int_equal(quire_stream_rollback(a.stream, 0, plain.prompt_tokens + 3, NULL, 0, &err), QUIRE_OK);
    wait_done(q, &a);
    wait_done(q, &fork);
    assert_int_equal(a.n_rollbacks, 1);
    assert_int_equal(a.choices[0].text.n, plain.choices[0].text.n);
    assert_memory_equal(a.choices[0].text.p, plain.choices[0].text.p, plain.choices[0].text.n);
    assert_true(fork.choices[0].finish == QUIRE_FINISH_STOP && fork.choices[0].text.n > 3);
    quire_stream_release(a.stream);
    quire_stream_release(fork.stream);
    response_clear(&a);
    response_clear(&fork);
    submit(e, q, &a, body);
    read_to(q, &a, 0, 12);
    tail = (quire_tail){.text = good, .n_text = sizeof good - 1};
    assert_int_equal(quire_stream_steer(a.stream, 0, plain.prompt_tokens, &tail, NULL, 0, &err), QUIRE_OK);
    wait_done(q, &a);
    assert_int_equal(a.n_rollbacks, 1);
    assert_memory_equal(a.choices[0].text.p, good, sizeof good - 1);
    assert_true(matches("([a-z]{3,8} ){100,120}end", &a.choices[0].text));
    quire_stream_release(a.stream);
    response_clear(&a);
    response_clear(&plain);
    quire_queue_close(q);
    wait_until_idle(e);
}

ENGINE_FIXTURES(e, 1024, 8)
TEST_MAIN(open_e, close_e)
