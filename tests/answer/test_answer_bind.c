/* A request bound to the formats of its model: these, the rule of its calls, the grammars
 * of custom tools, and how the response begins. */
#include <stdio.h>
#include <string.h>

#include "answer/answer_bind.h"
#include "answer/unescape.h"
#include "base/clock.h"
#include "test.h"

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}"

#define CUSTOM(format) "{\"type\":\"custom\",\"custom\":{\"name\":\"c\",\"format\":" format "}}"
#define NAMED(name)    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"

static const request_context plain = {.n_vocab = 100,
                                      .max_model_len = 128,
                                      .has_vocabulary = true,
                                      .trusts_templates = true,
                                      .bind = answer_bind};

/* Of several errors the one of tools and formats comes before those of streams. */
TEST(what_the_model_cannot_answer_is_refused_by_name) {
    static const struct {
        quire_endpoint endpoint;
        const char *body, *param, *says;
    } cases[] = {
        {QUIRE_CHAT, "{" USER ",\"tools\":[" TOOL "],\"tool_choice\":\"required\",\"regex\":\"a\"}",
         "tool_choice", "one of them"},
        {QUIRE_CHAT,
         "{" USER ",\"stream_options\":{},\"tools\":[" TOOL "],\"regex\":\"a\","
         "\"tool_choice\":" NAMED("f") "}",
         "tool_choice", "one of them"},
        {QUIRE_CHAT, "{" USER ",\"stream_options\":{},\"thinking_token_budget\":3}", "thinking_token_budget",
         "cannot find the response's reasoning"},
        {QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":0,\"thinking_token_budget\":3}",
         "thinking_token_budget", "cannot find the response's reasoning"},
        {QUIRE_CHAT,
         "{" USER ",\"stream_options\":{},\"min_tokens\":3,\"max_tokens\":2,\"regex\":\"a\","
         "\"tools\":[" TOOL "],\"tool_choice\":\"required\"}",
         "min_tokens", "at most max_tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quire_request *r;
        quire_error err = {0};
        assert_int_equal(
            request_parse(&plain, cases[i].endpoint, cases[i].body, strlen(cases[i].body), &r, &err),
            QUIRE_BAD_REQUEST);
        assert_string_equal(err.param, cases[i].param);
        if (strstr(err.message, cases[i].says) == NULL) {
            fail_msg("%s: %s", cases[i].body, err.message);
        }
    }
}

/* A server's loop parses small bodies: what takes long waits for a text thread, and all
 * of a request's grammars have one budget. */
TEST(grammars_of_custom_tools_are_compiled_apart) {
    strbuf body = {0};
    quire_request *r;
    quire_error err = {0};
    assert_int_equal(strbuf_add_str(&body, "{" USER ",\"tools\":["), QUIRE_OK);
    for (int i = 0; i < 400; i++) {
        const char *definition = i < 399 ? "(a|b){1,200}.*(c|d){1,99}" : "a)|(b";
        assert_int_equal(strbuf_addf(&body,
                                     "%s{\"type\":\"custom\",\"custom\":{\"name\":\"c%d\",\"format\":{"
                                     "\"type\":\"grammar\",\"grammar\":{"
                                     "\"syntax\":\"regex\",\"definition\":\"%s\"}}}}",
                                     i > 0 ? "," : "", i, definition),
                         QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&body, "]}"), QUIRE_OK);
    int64_t us = INT64_MAX;
    /* others disturb a measurement now and then */
    for (int try = 0; try < 8 && us >= 3 * GRAMMAR_MAX_US; try++) {
        assert_int_equal(request_parse(&plain, QUIRE_CHAT, body.p, body.n, &r, &err), QUIRE_OK);
        int64_t from = clock_thread_us();
        assert_int_equal(bind_calls_check_customs(r, NULL, 0, &err), QUIRE_BAD_REQUEST);
        us = clock_thread_us() - from;
        assert_non_null(strstr(err.message, ".custom.format.grammar.definition: "));
        request_free(r);
    }
    printf("%zu bytes: %lld us: %s\n", body.n, (long long)us, err.message);
    assert_true(us < 3 * GRAMMAR_MAX_US);
    strbuf_deinit(&body);
}

static grammar *compile_calls(const char *fields, grammar_cache *cache, uint64_t tenant) {
    request_context context = plain;
    char body[512];
    quire_request *r;
    quire_error err = {0};
    grammar *g = NULL;
    const reasoning_frame frame = {0};
    const grammar_marks marks = {0};
    context.formats = (output_formats){"hermes", NULL};
    snprintf(body, sizeof body, "{" USER ",%s}", fields);
    assert_int_equal(request_parse(&context, QUIRE_CHAT, body, strlen(body), &r, &err), QUIRE_OK);
    const rule_context c = {.frame = &frame, .marks = &marks, .cache = cache, .tenant = tenant};
    if (answer_compile(r, &c, &g, &err) != QUIRE_OK) {
        fail_msg("%s: %s", fields, err.message);
    }
    request_free(r);
    return g;
}

TEST(the_grammar_of_calls_is_kept_for_its_tenant) {
    static const char *const others[] = {
        "\"tools\":[" TOOL "],\"tool_choice\":\"required\"",
        "\"tools\":[" TOOL "],\"tool_choice\":" NAMED("f"),
        "\"tools\":[" TOOL "],\"parallel_tool_calls\":false",
        "\"tools\":[" TOOL "," CUSTOM("{\"type\":\"text\"}") "]",
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}]",
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"required\":[\"a\"]}"
        "}}]"};
    const char *fields = "\"tools\":[" TOOL "]";
    grammar_cache *cache;
    assert_int_equal(grammar_cache_open(GRAMMAR_CACHE_BYTES, &cache), QUIRE_OK);
    grammar *first = compile_calls(fields, cache, 1), *again = compile_calls(fields, cache, 1),
            *theirs = compile_calls(fields, cache, 2);
    assert_ptr_equal(first, again);
    assert_ptr_not_equal(first, theirs);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        grammar *other = compile_calls(others[i], cache, 1);
        assert_ptr_not_equal(first, other);
        grammar_drop(other);
    }
    grammar_drop(first);
    grammar_drop(again);
    grammar_drop(theirs);
    grammar_cache_close(cache);
}

/* Feeds text in pieces of n bytes. */
static void expect_input(const char *text, size_t n, const char *want) {
    custom_input c = {0};
    strbuf out = {0};
    for (size_t at = 0; at < strlen(text); at += n) {
        size_t left = strlen(text) - at;
        assert_int_equal(custom_input_feed(&c, (str){text + at, left < n ? left : n}, &out), QUIRE_OK);
    }
    assert_int_equal(out.n, strlen(want));
    assert_memory_equal(out.p, want, out.n);
    strbuf_deinit(&out);
}

TEST(the_input_of_a_custom_tool_is_its_string) {
    for (size_t n = 1; n < 12; n++) {
        expect_input("{ \"input\" : \"a\\n\\\"\\u00e9\\ud83d\\ude00\\ude00 \xC3\xA9\" }", n,
                     "a\n\"\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBD \xC3\xA9");
        expect_input("{\"input\": \"\\ud83dabc\\ude00\\ud83d\\n\\ud83d\"}", n,
                     "\xEF\xBF\xBD"
                     "abc\xEF\xBF\xBD\xEF\xBF\xBD\n\xEF\xBF\xBD");
        expect_input("{\"inputs\": \"a b\"}", n, "{\"inputs\": \"a b\"}");
        expect_input("{\"input\": 5}", n, "{\"input\":5}");
        expect_input("[1]", n, "[1]");
    }
}

/* The formats of a request under a context with some, "tools/reasoning/parts". */
static void expect_formats(const request_context *c, const char *fields, const char *want) {
    char body[512], got[128];
    quire_request *r;
    quire_error err;
    snprintf(body, sizeof body, "{" USER "%s}", fields);
    if (request_parse(c, QUIRE_CHAT, body, strlen(body), &r, &err) != QUIRE_OK) {
        fail_msg("%s: %s", fields, err.message);
    }
    snprintf(got, sizeof got, "%s/%s/%d", r->formats.tools ? r->formats.tools : "-",
             r->formats.reasoning ? r->formats.reasoning : "-", (int)quire_request_describe(r)->has_parts);
    assert_string_equal(got, want);
    request_free(r);
}

TEST(a_response_has_parts_where_reasoning_or_offered_tools_have_a_format) {
    request_context none = plain, both = none, tools = none;
    both.formats = (output_formats){"hermes", "qwen3"};
    tools.formats = (output_formats){"hermes", NULL};
    expect_formats(&none, "", "-/-/0");
    expect_formats(&none, ",\"tools\":[" TOOL "]", "-/-/0");
    expect_formats(&tools, "", "-/-/0");
    expect_formats(&tools, ",\"tools\":[]", "-/-/0");
    expect_formats(&tools, ",\"tools\":[" TOOL "]", "hermes/-/1");
    expect_formats(&tools, ",\"tools\":[" TOOL "],\"tool_choice\":\"auto\"", "hermes/-/1");
    expect_formats(&tools, ",\"tools\":[" TOOL "],\"tool_choice\":\"none\"", "-/-/0");
    expect_formats(&none, ",\"tools\":[" TOOL "],\"tool_choice\":\"required\"", "json/-/1");
    expect_formats(&tools, ",\"tools\":[" TOOL "],\"tool_choice\":{\"function\":{\"name\":\"f\"}}",
                   "hermes/-/1");
    expect_formats(&both, "", "-/qwen3/1");
    expect_formats(&both, ",\"tools\":[" TOOL "]", "hermes/qwen3/1");
    expect_formats(&both, ",\"chat_template\":\"{{ 1 }}[THINK]\",\"tools\":[" TOOL "]", "-/mistral/1");
    both.names_tools = true;
    expect_formats(&both, ",\"chat_template\":\"{{ 1 }}[THINK]\",\"tools\":[" TOOL "]", "hermes/mistral/1");
}

TEST(the_prompts_end_says_how_the_response_begins) {
    request_context context = plain;
    context.formats = (output_formats){"hermes", "qwen3"};
    const char *body = "{" USER "}";
    quire_request *r;
    quire_error err;
    assert_int_equal(request_parse(&context, QUIRE_CHAT, body, strlen(body), &r, &err), QUIRE_OK);
    text_marks marks = {0};
    const str opened = str_of("user: </think>\nassistant: <think>\n"),
              closed = str_of("user: x\nassistant: <think>\n\n</think>\n\n");
    assert_int_equal(answer_output_start(r, opened, &marks), OUTPUT_START_REASONING);
    assert_int_equal(answer_output_start(r, closed, &marks), OUTPUT_START_CONTENT);
    r->rule.field = request_field("regex", FIELD_CHAT); /* which binds what stands after the reasoning */
    assert_int_equal(answer_output_start(r, opened, &marks), OUTPUT_START_REASONING);
    r->rule.field = NULL;
    assert_int_equal(answer_output_start(r, str_of("user: x\n"), &marks), OUTPUT_START_MARKED);
    assert_int_equal(text_marks_add(&marks, 6, opened.n), QUIRE_OK); /* a client's marks are none */
    assert_int_equal(answer_output_start(r, opened, &marks), OUTPUT_START_MARKED);
    r->context.names_reasoning = true;
    assert_int_equal(answer_output_start(r, opened, &marks), OUTPUT_START_UNKNOWN);
    text_marks_deinit(&marks);
    request_free(r);
}

TEST_MAIN(NULL, NULL)
