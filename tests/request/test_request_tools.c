/* A chat's tools: what is wrong with them, the template that they reach, the formats of
 * its response, and how that begins. */
#include <stdio.h>
#include <string.h>

#include "answer/custom_input.h"
#include "base/clock.h"
#include "request/request.h"
#include "test.h"
#include "json/json_out.h"

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}"

#define CUSTOM(format) "{\"type\":\"custom\",\"custom\":{\"name\":\"c\",\"format\":" format "}}"
#define NAMED(name)    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define ALLOWED(mode, name)                                                                                  \
    "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"" mode "\",\"tools\":["                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}]}}"

static const request_context plain = {
    .n_vocab = 100, .max_model_len = 128, .has_vocabulary = true, .trusts_templates = true};

TEST(what_is_wrong_with_tools_is_refused_by_name) {
    static const char *const cases[][3] = {
        {"\"tools\":{}", "body.tools", "an array"},
        {"\"tools\":[1]", "body.tools.0", "an object"},
        {"\"tools\":[{\"type\":\"web\"}]", "tools", "type"},
        {"\"tools\":[{\"type\":\"function\"}]", "tools", "name"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":3}}]", "tools",
         "parameters"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get "
         "weather\"}}],\"tool_choice\":\"required\"",
         "tools", "tools[0].function.name must be a word"},
        {"\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"f(x)\"}}]", "tools",
         "tools[0].custom.name must be a word"},
        {"\"functions\":[{\"name\":\"a\\u00a0=\"}]", "functions", "functions[0].name must be a word"},
        {"\"tools\":[" TOOL "],\"tool_choice\":3", "tool_choice", "auto"},
        {"\"tools\":[" TOOL "],\"tool_choice\":\"any\"", "tool_choice", "auto"},
        {"\"tools\":[" TOOL "],\"tool_choice\":{\"function\":{\"name\":\"g\"}}", "tool_choice", "names g"},
        {"\"tools\":[" TOOL "],\"tool_choice\":\"required\",\"regex\":\"a\"", "tool_choice", "one of them"},
        {"\"tool_choice\":\"required\"", "tool_choice", "no tools"},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":1}}]", "tools", "strict"},
        {"\"tools\":[{\"type\":\"custom\",\"custom\":{}}]", "tools", "custom.name"},
        {"\"tools\":[" CUSTOM("{\"type\":\"xml\"}") "]", "tools", "format.type"},
        {"\"tools\":[" CUSTOM("{\"type\":\"grammar\","
                              "\"grammar\":{\"syntax\":\"bnf\",\"definition\":\"start: /a/\"}}") "]",
         "tools", "lark"},
        {"\"tools\":[" CUSTOM("{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"regex\"}}") "]", "tools",
         "definition"},
        {"\"tools\":[" TOOL "],\"tool_choice\":" ALLOWED("any", "f"), "tool_choice", "mode"},
        {"\"tools\":[" TOOL "],\"tool_choice\":" ALLOWED("auto", "g"), "tool_choice", "allows g"},
        {"\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[]}",
         "tool_choice", "at least one"},
        {"\"functions\":[{\"name\":\"f\"}],\"tools\":[" TOOL "]", "functions", "tools alone"},
        {"\"tools\":[" TOOL "],\"tool_choice\":\"auto\",\"function_call\":\"none\"", "function_call",
         "one of them"},
        {"\"tools\":[" CUSTOM("{\"type\":\"grammar\","
                              "\"grammar\":{\"syntax\":\"lark\",\"definition\":\"\"}}") "]",
         "tools", "definition"},
        {"\"tools\":[" TOOL "],\"tool_choice\":" NAMED("z") ",\"function_call\":null", "tool_choice",
         "names z"},
        {"\"function_call\":null,\"tools\":[" TOOL "],\"tool_choice\":" NAMED("z"), "tool_choice", "names z"},
        {"\"functions\":[{\"name\":\"f\"}],\"function_call\":\"required\"", "function_call", "auto"},
        {"\"functions\":[{\"name\":\"f\"}],\"function_call\":{\"name\":\"g\"}", "tool_choice", "names g"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[512];
        snprintf(body, sizeof body, "{" USER ",%s}", cases[i][0]);
        quire_request *r;
        quire_error err = {0};
        assert_int_equal(request_parse(&plain, QUIRE_CHAT, body, strlen(body), &r, &err), QUIRE_BAD_REQUEST);
        assert_string_equal(err.param, cases[i][1]);
        if (strstr(err.message, cases[i][2]) == NULL) {
            fail_msg("%s: %s", cases[i][0], err.message);
        }
    }
}

TEST(tools_are_at_most_a_thousand) {
    static const char *const fields[] = {"tools", "functions"};
    for (size_t k = 0; k < 2; k++) {
        for (int n = REQUEST_MAX_TOOLS; n <= REQUEST_MAX_TOOLS + 1; n++) {
            strbuf body = {0};
            assert_int_equal(strbuf_addf(&body, "{" USER ",\"%s\":[", fields[k]), QUIRE_OK);
            for (int i = 0; i < n; i++) {
                assert_int_equal(
                    strbuf_addf(&body, "%s%s", i > 0 ? "," : "", k == 0 ? TOOL : "{\"name\":\"f\"}"),
                    QUIRE_OK);
            }
            assert_int_equal(strbuf_addf(&body, "]}"), QUIRE_OK);
            quire_request *r = NULL;
            quire_error err = {0};
            quire_err e = request_parse(&plain, QUIRE_CHAT, body.p, body.n, &r, &err);
            assert_int_equal(e, n > REQUEST_MAX_TOOLS ? QUIRE_BAD_REQUEST : QUIRE_OK);
            quire_request_free(r);
            strbuf_deinit(&body);
        }
    }
}

/* What becomes of tools in other forms: the tools that the template sees, and the names
 * of those that may be called. */
TEST(tools_of_other_forms_become_functions) {
    static const char *const cases[][3] = {
        {"\"functions\":[{\"name\":\"f\",\"strict\":true}],\"function_call\":\"auto\"",
         "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}]", "f "},
        {"\"tools\":[" TOOL "," CUSTOM("{\"type\":\"text\"}") "],\"tool_choice\":" ALLOWED("auto", "c"),
         "[" TOOL ",{\"type\":\"function\","
         "\"function\":{\"name\":\"c\",\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{"
         "\"type\":"
         "\"string\"}},\"required\":[\"input\"],\"additionalProperties\":false}}}]",
         "c "},
        {"\"tools\":[" CUSTOM(
             "{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"regex\",\"definition\":\"a|b\"}}") "]",
         "[{\"type\":\"function\",\"function\":{\"name\":\"c\",\"parameters\":{\"type\":\"object\","
         "\"properties\":{\"input\":{\"type\":\"string\","
         "\"pattern\":\"^(?:a|b)$\"}},\"required\":[\"input\"],\"additionalProperties\":false}}}]",
         "c "},
        {"\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\","
         "\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]}",
         "[" TOOL "]", "f "},
        {"\"tools\":[" CUSTOM(
             "{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"regex\",\"definition\":\"a\\u0000|b\"}}") "]",
         "[{\"type\":\"function\",\"function\":{\"name\":\"c\",\"parameters\":{\"type\":\"object\","
         "\"properties\":{\"input\":{\"type\":\"string\","
         "\"pattern\":\"^(?:a\\u0000|b)$\"}},\"required\":[\"input\"],\"additionalProperties\":false}}}]",
         "c "},
        {"\"tools\":[" CUSTOM("{\"type\":\"grammar\",\"grammar\":{\"syntax\":\"regex\",\"definition\":\"(?i)("
                              "?s)a|(?:b)\"}}") "]",
         "[{\"type\":\"function\",\"function\":{\"name\":\"c\",\"parameters\":{\"type\":\"object\","
         "\"properties\":{\"input\":{\"type\":\"string\","
         "\"pattern\":\"(?i)(?s)^(?:a|(?:b))$\"}},\"required\":[\"input\"],\"additionalProperties\":false}}}"
         "]",
         "c "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[512];
        strbuf tools = {0}, names = {0};
        json_out o = {.to = &tools};
        quire_request *r;
        quire_error err = {0};
        snprintf(body, sizeof body, "{" USER ",%s}", cases[i][0]);
        if (request_parse(&plain, QUIRE_CHAT, body, strlen(body), &r, &err) != QUIRE_OK) {
            fail_msg("%s: %s", body, err.message);
        }
        json_add(&o, r->tools);
        for (size_t k = 0; k < r->n_offered; k++) {
            assert_int_equal(strbuf_addf(&names, "%.*s ", (int)r->offered[k].name.n, r->offered[k].name.p),
                             QUIRE_OK);
        }
        assert_string_equal(tools.p, cases[i][1]);
        assert_string_equal(names.p, cases[i][2]);
        strbuf_deinit(&tools);
        strbuf_deinit(&names);
        quire_request_free(r);
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
        assert_int_equal(request_check_grammars(r, NULL, 0, &err), QUIRE_BAD_REQUEST);
        us = clock_thread_us() - from;
        assert_non_null(strstr(err.message, ".custom.format.grammar.definition: "));
        quire_request_free(r);
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
    if (request_calls_compile(r, &c, &g, &err) != QUIRE_OK) {
        fail_msg("%s: %s", fields, err.message);
    }
    quire_request_free(r);
    return g;
}

static void the_grammar_of_calls_is_kept_for_its_tenant(void **state) {
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
    (void)state;
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
    quire_request_free(r);
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
    assert_int_equal(request_output_start(r, opened, &marks), OUTPUT_START_REASONING);
    assert_int_equal(request_output_start(r, closed, &marks), OUTPUT_START_CONTENT);
    r->rule.field = request_field("regex", FIELD_CHAT); /* which binds what stands behind the reasoning */
    assert_int_equal(request_output_start(r, opened, &marks), OUTPUT_START_REASONING);
    r->rule.field = NULL;
    assert_int_equal(request_output_start(r, str_of("user: x\n"), &marks), OUTPUT_START_MARKED);
    assert_int_equal(text_marks_add(&marks, 6, opened.n), QUIRE_OK); /* a client's marks are none */
    assert_int_equal(request_output_start(r, opened, &marks), OUTPUT_START_MARKED);
    r->context.names_reasoning = true;
    assert_int_equal(request_output_start(r, opened, &marks), OUTPUT_START_UNKNOWN);
    text_marks_deinit(&marks);
    quire_request_free(r);
}

/* Renders a chat with tools (NULL: none) by one of four templates. The first and the last
 * take contents in different forms. */
static quire_err render_with_tools(const char *body, const char *tools, strbuf *out, quire_error *err) {
    chat_form form;
    quire_error refused;
    quire_request *r;
    const chat_source more[] = {
        {str_of("tool_use"), str_of("T{% for t in tools %}{{ t.name }};{% endfor %}")},
        {str_of("rag"), str_of("R{{ tools | length if tools else 'none' }}")},
        {str_of("parts"),
         str_of("P{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}")}};
    static const char plain_text[] =
        "D{{ tools is none }}{% for m in messages %}{% if false %}{{ m.content }}{% endif %}{% endfor %}";
    assert_int_equal(chat_form_open(NULL, str_of(plain_text), &(chat_tokens){0}, &form, &refused, err),
                     QUIRE_OK);
    assert_int_equal(chat_form_add(&form, &more[0], err), QUIRE_OK);
    assert_int_equal(chat_form_add(&form, &more[1], err), QUIRE_OK);
    assert_int_equal(chat_form_add(&form, &more[2], err), QUIRE_OK);
    assert_int_not_equal(chat_template_traits(form.template)->content[CHAT_USER],
                         chat_template_traits(chat_form_find(&form, str_of("parts")))->content[CHAT_USER]);
    request_context ctx = plain;
    ctx.form = &form;
    assert_int_equal(request_parse(&ctx, QUIRE_CHAT, body, strlen(body), &r, err), QUIRE_OK);
    quire_err e = tools != NULL ? quire_request_tools(r, tools, strlen(tools), err) : QUIRE_OK;
    e = e == QUIRE_OK ? request_render(r, out, NULL, err) : e;
    quire_request_free(r);
    chat_form_close(&form);
    return e;
}

static void expect_with_tools(const char *body, const char *tools, const char *want) {
    strbuf out = {0};
    quire_error err = {0};
    if (render_with_tools(body, tools, &out, &err) != QUIRE_OK || !str_is((str){out.p, out.n}, want)) {
        fail_msg("%s gives %.*s %s, must %s", body, (int)out.n, out.n > 0 ? out.p : "", err.message, want);
    }
    strbuf_deinit(&out);
}

TEST(tools_reach_the_template_for_them_where_there_is_one) {
    const char *two = "[{\"name\":\"a\"},{\"name\":\"b\"}]";
    expect_with_tools("{" USER "}", two, "Ta;b;");
    expect_with_tools("{" USER "}", NULL, "DTrue");
    expect_with_tools("{" USER "}", "[]", "DTrue");
    expect_with_tools("{" USER ",\"chat_template\":\"rag\"}", two, "R2");
    expect_with_tools("{" USER ",\"chat_template\":\"rag\"}", NULL, "Rnone");
    expect_with_tools("{" USER ",\"chat_template\":\"default\"}", two, "DFalse");
    expect_with_tools("{" USER ",\"chat_template\":\"parts\",\"stop\":\"some other value\",\"user\":\"u\"}",
                      NULL, "Px;");
    strbuf out = {0};
    quire_error err = {0};
    assert_int_equal(render_with_tools("{" USER "}", "{}", &out, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "tools");
    assert_int_not_equal(render_with_tools("{" USER "}", "[", &out, &err), QUIRE_OK);
    assert_int_equal(out.n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tools_are_at_most_a_thousand),
        cmocka_unit_test(tools_of_other_forms_become_functions),
        cmocka_unit_test(the_input_of_a_custom_tool_is_its_string),
        cmocka_unit_test(the_grammar_of_calls_is_kept_for_its_tenant),
        cmocka_unit_test(grammars_of_custom_tools_are_compiled_apart),
        cmocka_unit_test(what_is_wrong_with_tools_is_refused_by_name),
        cmocka_unit_test(tools_reach_the_template_for_them_where_there_is_one),
        cmocka_unit_test(a_response_has_parts_where_reasoning_or_offered_tools_have_a_format),
        cmocka_unit_test(the_prompts_end_says_how_the_response_begins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
