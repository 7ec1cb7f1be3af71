/* A chat's tools: invalid ones are refused, valid ones reach the template. */
#include <stdio.h>
#include <string.h>

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
        {"\"functions\":[{\"name\":\"f\"}],\"tools\":[" TOOL "]", "functions", "give only tools"},
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
    e = e == QUIRE_OK ? request_render(r, 0, out, NULL, err) : e;
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

TEST_MAIN(NULL, NULL)
