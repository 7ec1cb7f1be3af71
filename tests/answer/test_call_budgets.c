/* Grammars of calls of very many tools: compiling them stays within the budgets of time and
 * memory, and ordinary ones fit. */
#include <stdio.h>

#include "answer/answer_format.h"
#include "answer/call_grammar.h"
#include "answer/call_vocab.h"
#include "base/clock.h"
#include "test.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* several to many times as slow */
#define TIMES_SLOWER 20
#else
#define TIMES_SLOWER 1
#endif

/* As many tools as a request may have, each with a schema that takes long. */
TEST(a_thousand_tools_are_compiled_within_the_budgets) {
    static const char *const formats[] = {"hermes", "gigachat3", "qwen3_coder", "pythonic", "llama3_json"};
    enum { N = 1024, PROPERTIES = 40 };
    static output_tool tools[N];
    static char names[N][16];
    strbuf text = {0};
    assert_int_equal(strbuf_add_str(&text, "{\"type\":\"object\",\"properties\":{"), QUIRE_OK);
    for (int i = 0; i < PROPERTIES; i++) {
        assert_int_equal(
            strbuf_addf(
                &text,
                "%s\"p%d\":{\"type\":\"string\",\"pattern\":\"^(a|b){1,%d}.*(cd|ef)$\",\"maxLength\":%d}",
                i > 0 ? "," : "", i, i + 9, 50 + i),
            QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, "}}"), QUIRE_OK);
    json_value *schema = json_document((str){text.p, text.n});
    for (int i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof names[i], "f%d", i);
        tools[i] = (output_tool){.name = str_of(names[i]), .parameters = schema};
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const call_grammar c = {.format = call_format_named(formats[i]), .tools = tools, .n_tools = N};
        int64_t us = INT64_MAX;
        /* others disturb a measurement now and then */
        for (int try = 0; try < 8 && us >= TIMES_SLOWER * 6 * GRAMMAR_MAX_US; try++) {
            grammar *g = NULL;
            quire_error err = {0};
            int64_t from = clock_thread_us();
            quire_err e = call_grammar_compile(&c, NULL, &(grammar_marks){0}, NULL, &g, &err);
            us = clock_thread_us() - from;
            printf("%s: %s, %lld ms\n", formats[i], quire_err_name(e), (long long)us / 1000);
            assert_true(e == QUIRE_OK || e == QUIRE_TOO_LARGE);
            grammar_drop(g);
        }
        assert_true(us < TIMES_SLOWER * 6 * GRAMMAR_MAX_US);
    }
    json_drop(schema);
    strbuf_deinit(&text);
}

/* A tool as services have them, whose values and bounds are those of no other. */
static json_value *ordinary_schema(int tool, int n_properties) {
    static const char *const values[] = {
        "\"type\":\"string\",\"description\":\"A text that says something\"",
        "\"type\":\"integer\",\"minimum\":0,\"maximum\":%d",
        "\"type\":\"boolean\"",
        "\"enum\":[\"red\",\"green\",\"blue\",\"f%d\"]",
        "\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":10",
        "\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\"},\"b\":{\"type\":\"string\","
        "\"maxLength\":64}},\"required\":[\"a\"]",
        "\"type\":[\"string\",\"null\"],\"format\":\"date-time\"",
        "\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]"};
    strbuf text = {0};
    assert_int_equal(strbuf_add_str(&text, "{\"type\":\"object\",\"properties\":{"), QUIRE_OK);
    for (int i = 0; i < n_properties; i++) {
        char value[256];
        const char *number = strstr(values[i % 8], "%d");
        size_t before = number != NULL ? (size_t)(number - values[i % 8]) : strlen(values[i % 8]);
        (void)snprintf(value, sizeof value, number != NULL ? "%.*s%d%s" : "%.*s", (int)before, values[i % 8],
                       100 + tool, number != NULL ? number + 2 : "");
        assert_int_equal(strbuf_addf(&text, "%s\"property_%d\":{%s}", i > 0 ? "," : "", i, value), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, "},\"required\":[\"property_0\",\"property_3\"]}"), QUIRE_OK);
    json_value *schema = json_document((str){text.p, text.n});
    assert_non_null(schema);
    strbuf_deinit(&text);
    return schema;
}

/* Each compiles whole, with none of its schemas loosened, also where a call is
 * required. */
TEST(many_tools_of_many_ordinary_properties_fit) {
    enum { N = 300, PROPERTIES = 40 };
    static output_tool tools[N];
    static char names[N][16];
    static json_value *schemas[N];
    call_writing l;
    bool is_new;
    for (int i = 0; i < N; i++) {
        schemas[i] = ordinary_schema(i, PROPERTIES);
        (void)snprintf(names[i], sizeof names[i], "f%d", i);
        tools[i] = (output_tool){.name = str_of(names[i]), .parameters = schemas[i], .is_strict = true};
    }
    for (size_t i = 0; call_vocab_written(i, &l, &is_new); i++) {
        const call_grammar c = {.format = l.format, .tools = tools, .n_tools = N, .is_required = true};
        /* a build without optimisation */
        const grammar_options slow = {.max_us = TIMES_SLOWER * 5 * GRAMMAR_MAX_US};
        grammar *g = NULL;
        quire_error err = {0};
        int64_t from = clock_thread_us();
        if (!is_new) {
            continue;
        }
        if (call_grammar_compile(&c, NULL, &(grammar_marks){0}, &slow, &g, &err) != QUIRE_OK) {
            fail_msg("%s: %s", l.format->names[0], err.message);
        }
        printf("%s: %lld ms, %zu KiB\n", l.format->names[0], (long long)(clock_thread_us() - from) / 1000,
               grammar_bytes(g) >> 10);
        grammar_drop(g);
    }
    for (int i = 0; i < N; i++) {
        json_drop(schemas[i]);
    }
}

TEST_MAIN(NULL, NULL)
