/* Conversations: read into the form that a template takes, and rendered. */
#include "chat/messages.h"

#include <stdio.h>

#include "chat/chat_form.h"
#include "test.h"

#define PATH "body.messages"

/* Traits of templates that take contents of one form from all roles. */
#define ALL(form)                                                                                            \
    { form, form, form, form }
static const chat_traits takes_text = {.content = ALL(CHAT_CONTENT_TEXT)},
                         takes_parts = {.content = ALL(CHAT_CONTENT_PARTS)},
                         takes_both = {.content = ALL(CHAT_CONTENT_BOTH)};

static quire_err read_messages(const char *array, const chat_traits *traits, chat_messages *out,
                               quire_error *err) {
    json_value *v = json_document(str_of(array));
    assert_non_null(v);
    quire_err e = chat_messages_read(v, traits, PATH, out, err);
    json_drop(v);
    return e;
}

static void expect_messages(const char *array, const chat_traits *traits, const char *want) {
    chat_messages m;
    assert_int_equal(read_messages(array, traits, &m, NULL), QUIRE_OK);
    assert_string_equal(m.json.p, want);
    assert_int_equal(m.json.n, strlen(want));
    chat_messages_deinit(&m);
}

TEST(content_parts_become_one_text) {
    expect_messages(
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hello "
        "\"},{\"type\":\"input_text\",\"text\":\"you\"},"
        "\"there\"]},{\"role\":\"assistant\",\"name\":\"n\"},{\"content\":null,\"role\":\"king\"}]",
        &takes_text,
        "[{\"role\":\"user\",\"content\":\"Hello "
        "\\nyou\\nthere\"},{\"role\":\"assistant\",\"name\":\"n\",\"content\":\"\"},"
        "{\"content\":\"\",\"role\":\"king\"}]");
}

#define PART(text) "{\"type\":\"text\",\"text\":\"" text "\"}"

TEST(content_takes_the_form_that_the_template_takes) {
    const char *array = "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[\"b\",\"c\"]}"
                        ",{\"role\":\"user\"}]";
    expect_messages(array, &takes_text,
                    "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\\nc\"},"
                    "{\"role\":\"user\",\"content\":\"\"}]");
    expect_messages(array, &takes_both,
                    "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[" PART(
                        "b") "," PART("c") "]},"
                                           "{\"role\":\"user\",\"content\":\"\"}]");
    expect_messages(array, &takes_parts,
                    "[{\"role\":\"user\",\"content\":[" PART("a") "]},{\"role\":\"user\",\"content\":[" PART(
                        "b") "," PART("c") "]},"
                                           "{\"role\":\"user\",\"content\":[]}]");
}

TEST(a_list_of_no_parts_is_no_content) {
    const char *array = "[{\"role\":\"user\",\"content\":[]}]";
    expect_messages(array, &takes_text, "[{\"role\":\"user\",\"content\":\"\"}]");
    expect_messages(array, &takes_both, "[{\"role\":\"user\",\"content\":\"\"}]");
    expect_messages(array, &takes_parts, array);
}

TEST(the_end_of_the_last_text_is_noted) {
    chat_messages m;
    assert_int_equal(
        read_messages("[{\"role\":\"king\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\\\"\"}]",
                      &takes_text, &m, NULL),
        QUIRE_OK);
    assert_string_equal(m.json.p + m.last_end, "\"}]");
    chat_messages_deinit(&m);
    assert_int_equal(
        read_messages("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[]}]",
                      &takes_parts, &m, NULL),
        QUIRE_OK);
    assert_int_equal(m.last_end, 0);
    chat_messages_deinit(&m);
}

TEST(a_refused_message_is_named_below_its_path) {
    chat_messages m;
    quire_error err;
    assert_int_equal(read_messages("[{\"role\":\"user\"},5]", &takes_text, &m, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, PATH ".1");
    assert_string_equal(err.message, "messages[1] is 5; it must be an object");
    assert_int_equal(m.json.n + m.last_end, 0);
    assert_null(m.json.p);
    assert_int_equal(
        read_messages("[{\"role\":\"user\",\"content\":[\"a\",{\"type\":\"text\",\"text\":[]}]}]",
                      &takes_both, &m, &err),
        QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, PATH ".0.content.1.text");
    assert_null(m.json.p);
}

/* ---- calls ---- */

/* A conversation of a question, a call with these arguments (JSON, or nothing) and its
 * result; what the call's arguments become. */
static void expect_arguments(const chat_traits *traits, const char *member, const char *want) {
    char array[600], wanted[600];
    snprintf(array, sizeof array,
             "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i\",\"type\":\"function\",\"function\":{"
             "\"name\":\"f\"%s}}],"
             "\"content\":\"\"}]",
             member);
    snprintf(wanted, sizeof wanted,
             "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i\",\"type\":\"function\",\"function\":{"
             "\"name\":\"f\",\"arguments\":%s}}],"
             "\"content\":\"\"}]",
             want);
    expect_messages(array, traits, wanted);
}

#define GIVEN(json) ",\"arguments\":" json

static const chat_traits takes_objects = {0}, takes_loose = {.loose_arguments = true},
                         takes_argument_text = {.text_arguments = true, .loose_arguments = true};

TEST(arguments_are_an_object_or_text_as_the_template_takes_them) {
    expect_arguments(&takes_objects, GIVEN("\"{\\\"b\\\": 1, \\\"a\\\": [null]}\""),
                     "{\"b\": 1, \"a\": [null]}");
    expect_arguments(&takes_objects, GIVEN("{\"b\":1}"), "{\"b\":1}");
    expect_arguments(&takes_loose, GIVEN("\" {\\\"b\\\": 1}\\n\""), " {\"b\": 1}\n");
    expect_arguments(&takes_argument_text, GIVEN("\"{\\\"b\\\":  1}\""), "\"{\\\"b\\\":  1}\"");
    expect_arguments(&takes_argument_text, GIVEN("{\"b\":1,\"c\":[2,\"x\"]}"),
                     "\"{\\\"b\\\": 1, \\\"c\\\": [2, \\\"x\\\"]}\"");
}

TEST(numbers_of_arguments_keep_their_digits) {
    expect_arguments(&takes_objects, GIVEN("\"{\\\"n\\\":18446744073709551616123,\\\"x\\\":1.50}\""),
                     "{\"n\":18446744073709551616123,\"x\":1.50}");
}

TEST(arguments_that_are_no_object_become_empty_or_stay_text) {
    static const char *const nothing[] = {"", GIVEN("null"), GIVEN("\"\""), GIVEN("\" \\n\""),
                                          GIVEN("\"null\"")};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        expect_arguments(&takes_objects, nothing[i], "{}");
        expect_arguments(&takes_loose, nothing[i], "{}");
        expect_arguments(&takes_argument_text, nothing[i], "\"{}\"");
    }
    static const char *const broken[] = {
        "\"{\\\"cmd\\\": \\\"ls\"", "\"[1, 2]\"", "\"5\"", "\"ls -l\"", "\"{} {}\"", "\"{\\\"x\\\": NaN}\""};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char member[100];
        snprintf(member, sizeof member, GIVEN("%s"), broken[i]);
        expect_arguments(&takes_objects, member, "{}");
        expect_arguments(&takes_loose, member, broken[i]);
        expect_arguments(&takes_argument_text, member, broken[i]);
    }
    expect_arguments(&takes_objects, GIVEN("[1]"), "{}");
    expect_arguments(&takes_loose, GIVEN("[1,2]"), "\"[1, 2]\"");
    expect_arguments(&takes_argument_text, GIVEN("true"), "\"true\"");
}

/* Text of n brackets, which no parser may go down. */
TEST(arguments_that_are_nested_too_deep_stay_text) {
    enum { DEEP = 100000 };
    strbuf array = {0};
    chat_messages m;
    assert_int_equal(
        strbuf_add_str(&array, "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\""),
        QUIRE_OK);
    for (size_t i = 0; i < DEEP; i++) {
        assert_int_equal(strbuf_add_str(&array, "{\\\"a\\\":"), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&array, "\"}}]}]"), QUIRE_OK);
    assert_int_equal(read_messages(array.p, &takes_objects, &m, NULL), QUIRE_OK);
    assert_non_null(strstr(m.json.p, "\"arguments\":{}"));
    chat_messages_deinit(&m);
    strbuf_deinit(&array);
}

/* Reads arguments {"n": 7777..}, or a real, of so many digits; whether they stayed an
 * object. */
static bool stays_an_object(size_t n_digits, const char *end) {
    strbuf array = {0};
    chat_messages m;
    assert_int_equal(
        strbuf_add_str(&array,
                       "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"{\\\"n\\\":"),
        QUIRE_OK);
    for (size_t i = 0; i < n_digits; i++) {
        assert_int_equal(strbuf_add_char(&array, '7'), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&array, end), QUIRE_OK);
    assert_int_equal(strbuf_add_str(&array, "}\"}}]}]"), QUIRE_OK);
    assert_int_equal(read_messages(array.p, &takes_objects, &m, NULL), QUIRE_OK);
    bool is = strstr(m.json.p, "\"arguments\":{}") == NULL;
    chat_messages_deinit(&m);
    strbuf_deinit(&array);
    return is;
}

TEST(integers_that_no_template_can_have_do_not_end_a_conversation) {
    assert_true(stays_an_object(4300, ""));
    assert_false(stays_an_object(4301, ""));
    assert_false(stays_an_object(4301, ",\\\"x\\\":1"));
    assert_true(stays_an_object(4301, ".5"));
}

TEST(an_old_call_and_its_result_take_the_form_of_today) {
    expect_messages("[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":null,"
                    "\"function_call\":{\"name\":\"f\",\"arguments\":"
                    "\"{\\\"a\\\":1}\"}},{\"role\":\"function\",\"name\":\"f\",\"content\":\"r\"}]",
                    NULL,
                    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_"
                    "calls\":[{\"id\":\"c00010000\",\"type\":"
                    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}]},{\"role\":"
                    "\"tool\",\"name\":\"f\",\"content\":\"r\","
                    "\"tool_call_id\":\"c00010000\"}]");
}

#define CALL_OF(id)                                                                                          \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{" id                                          \
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]}"
#define RESULT_OF(id) "{\"role\":\"tool\",\"content\":\"r\"" id "}"

static void expect_short_id(const char *id, const char *want) {
    static const chat_traits shortens = {.short_ids = true};
    char array[500], wanted[500];
    const char *form = "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"%s\",\"type\":"
                       "\"function\",\"function\":{\"arguments\":{}}}]},"
                       "{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"%s\"}]";
    snprintf(array, sizeof array, form, id, id);
    snprintf(wanted, sizeof wanted, form, want, want);
    expect_messages(array, &shortens, wanted);
    expect_messages(array, NULL, array);
}

TEST(ids_of_other_servers_become_nine_letters_and_digits) {
    expect_short_id("abc123def", "abc123def");
    expect_short_id("call_0a1B2c3D4e5F6g7H8i9J0k1L", "H8i9J0k1L");
    expect_short_id("functions.get_weather:0", "tweather0");
    expect_short_id("call_1", "0000call1");
    expect_short_id("", "000000000");
}

TEST(calls_and_results_without_ids_get_them_where_the_template_needs_them) {
    static const chat_traits shortens = {.needs_ids = true, .short_ids = true}, needs = {.needs_ids = true};
    const char *bare = "[" CALL_OF("") "," RESULT_OF("") "]";
    expect_messages(bare, NULL, bare);
    expect_messages("[" CALL_OF("") "," RESULT_OF("") "]", &shortens,
                    "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\","
                    "\"function\":{\"name\":\"f\",\"arguments\":{}},"
                    "\"id\":\"c00000000\"}]}," RESULT_OF(",\"tool_call_id\":\"c00000000\"") "]");
    expect_messages("[" CALL_OF("\"id\":\"xcall-0123456789\",") "," RESULT_OF("") "]", &needs,
                    "[" CALL_OF("\"id\":\"xcall-0123456789\",") "," RESULT_OF(
                        ",\"tool_call_id\":\"xcall-0123456789\"") "]");
    expect_messages(
        "[" CALL_OF("\"id\":\"xcall-0123456789\",") "," RESULT_OF("") "]", &shortens,
        "[" CALL_OF("\"id\":\"123456789\",") "," RESULT_OF(",\"tool_call_id\":\"123456789\"") "]");
}

TEST(a_custom_tools_call_is_one_of_a_function_with_a_string) {
    const char *array = "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"i\",\"type\":"
                        "\"custom\",\"custom\":{\"name\":\"sql\","
                        "\"input\":\"a \\\"b\\\"\"}}]}]";
    expect_messages(array, &takes_objects,
                    "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"i\",\"type\":"
                    "\"function\",\"function\":{\"name\":\"sql\","
                    "\"arguments\":{\"input\": \"a \\\"b\\\"\"}}}]}]");
    expect_messages(array, &takes_argument_text,
                    "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"i\",\"type\":"
                    "\"function\",\"function\":{\"name\":\"sql\","
                    "\"arguments\":\"{\\\"input\\\": \\\"a \\\\\\\"b\\\\\\\"\\\"}\"}}]}]");
}

TEST(calls_of_another_form_are_refused_by_name) {
    static const struct {
        const char *members, *param;
    } cases[] = {{"\"tool_calls\":\"x\"", "tool_calls"},
                 {"\"tool_calls\":{\"a\":1}", "tool_calls"},
                 {"\"tool_calls\":[5]", "tool_calls.0"},
                 {"\"tool_calls\":[{},{\"function\":[]}]", "tool_calls.1.function"},
                 {"\"function_call\":\"f\"", "function_call"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char array[200], param[100];
        chat_messages m;
        quire_error err;
        snprintf(array, sizeof array, "[{\"role\":\"assistant\",%s}]", cases[i].members);
        snprintf(param, sizeof param, PATH ".0.%s", cases[i].param);
        assert_int_equal(read_messages(array, NULL, &m, &err), QUIRE_BAD_REQUEST);
        assert_string_equal(err.param, param);
        assert_null(m.json.p);
    }
}

/* ---- roles, nulls, reasoning and refusals ---- */

TEST(roles_that_the_template_lacks_become_those_it_has) {
    static const chat_traits knows = {.developer = true, .function = true};
    const char *array =
        "[{\"role\":\"developer\",\"content\":\"a\"},{\"role\":\"function\",\"content\":\"b\"}]";
    expect_messages(array, &knows, array);
    expect_messages(array, NULL,
                    "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"tool\",\"content\":\"b\"}]");
}

#define ANSWER(content) "[{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[{\"id\":\"i\"}]}]"

TEST(no_text_beside_calls_is_null_where_the_template_asks_for_it) {
    static const chat_traits given = {.no_text = CHAT_NO_TEXT_GIVEN}, null = {.no_text = CHAT_NO_TEXT_NULL};
    expect_messages(ANSWER("null"), NULL, ANSWER("\"\""));
    expect_messages(ANSWER("null"), &given, ANSWER("null"));
    expect_messages(ANSWER("\"\""), &given, ANSWER("\"\""));
    expect_messages(ANSWER("\"\""), &null, ANSWER("null"));
    expect_messages(ANSWER("[]"), &null, ANSWER("null"));
    expect_messages(ANSWER("\"x\""), &null, ANSWER("\"x\""));
    expect_messages("[{\"role\":\"assistant\",\"content\":null}]", &null,
                    "[{\"role\":\"assistant\",\"content\":\"\"}]");
}

TEST(null_members_and_empty_lists_of_calls_are_left_out) {
    expect_messages("[{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":null,\"tool_calls\":null,"
                    "\"function_call\":null,\"audio\":null},"
                    "{\"role\":\"assistant\",\"content\":\"b\",\"tool_calls\":[]},{\"role\":\"user\","
                    "\"content\":\"c\",\"name\":null}]",
                    NULL,
                    "[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{"
                    "\"role\":\"user\",\"content\":\"c\"}]");
}

#define THOUGHT(members) "[{\"role\":\"assistant\"" members ",\"content\":\"a\"}]"

TEST(reasoning_has_the_name_that_the_template_reads) {
    static const chat_traits reads = {.reasoning = "thinking"};
    const char *want = THOUGHT(",\"thinking\":\"t\"");
    expect_messages(THOUGHT(",\"reasoning\":\"t\""), &reads, want);
    expect_messages(THOUGHT(",\"reasoning_content\":\"t\",\"reasoning\":\"t\""), &reads, want);
    expect_messages(THOUGHT(",\"reasoning\":\"other\",\"thinking\":\"t\""), &reads, want);
    expect_messages(THOUGHT(",\"reasoning\":null,\"reasoning_content\":\"t\""), &reads, want);
    expect_messages(THOUGHT(",\"reasoning\":{\"effort\":1}"), &reads,
                    THOUGHT(",\"reasoning\":{\"effort\":1}"));
    expect_messages(
        "[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"t\"}]", NULL,
        "[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"t\",\"reasoning_content\":\"t\"}]");
    expect_messages("[{\"role\":\"user\",\"content\":\"a\",\"reasoning\":\"t\"}]", &reads,
                    "[{\"role\":\"user\",\"content\":\"a\",\"reasoning\":\"t\"}]");
}

#define THINKING(text) "{\"type\":\"thinking\",\"thinking\":" text "}"

TEST(parts_with_reasoning_are_the_messages_reasoning) {
    static const chat_traits reads = {.reasoning = "thinking"},
                             both = {.reasoning = "reasoning",
                                     .content = {[CHAT_ASSISTANT] = CHAT_CONTENT_BOTH}},
                             null = {.no_text = CHAT_NO_TEXT_NULL, .reasoning = "reasoning"};
    const char *parts = "[{\"role\":\"assistant\",\"content\":[" THINKING("\"t\"") "," PART("a") "]}]";
    expect_messages(parts, &reads, "[{\"role\":\"assistant\",\"content\":\"a\",\"thinking\":\"t\"}]");
    expect_messages(parts, NULL, "[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"t\"}]");
    expect_messages(parts, &both,
                    "[{\"role\":\"assistant\",\"content\":[" PART("a") "],\"reasoning\":\"t\"}]");
    expect_messages("[{\"role\":\"assistant\",\"content\":[\"a\"," THINKING(
                        "[" PART("t") ",\"u\"]") "," THINKING("\"v\"") ",\"b\"]}]",
                    &reads, "[{\"role\":\"assistant\",\"content\":\"a\\nb\",\"thinking\":\"tu\\nv\"}]");
    expect_messages("[{\"role\":\"assistant\",\"content\":[" THINKING("\"t\"") "],\"reasoning\":\"own\"}]",
                    &both, "[{\"role\":\"assistant\",\"content\":\"\",\"reasoning\":\"own\"}]");
    expect_messages(
        "[{\"role\":\"assistant\",\"content\":[" THINKING("\"t\"") "],\"tool_calls\":[{\"id\":\"i\"}]}]",
        &null,
        "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"i\"}],\"reasoning\":\"t\"}]");
    expect_messages("[{\"role\":\"assistant\",\"content\":[" THINKING(
                        "\"t\"") "]},{\"role\":\"assistant\",\"content\":\"a\"}]",
                    &reads,
                    "[{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"t\"},{\"role\":\"assistant\","
                    "\"content\":\"a\"}]");
}

TEST(reasoning_is_a_part_where_the_template_reads_it_there) {
    static const chat_traits part = {.reasoning_part = true, .no_text = CHAT_NO_TEXT_NULL};
    const char *want = "[{\"role\":\"assistant\",\"content\":[" THINKING("\"t\"") "," PART("a") "]}]";
    expect_messages("[{\"role\":\"assistant\",\"content\":[" THINKING("\"t\"") ",\"a\"]}]", &part, want);
    expect_messages("[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"t\"}]", &part, want);
    expect_messages(
        "[{\"role\":\"assistant\",\"reasoning_content\":\"t\",\"content\":null,\"tool_calls\":[{\"id\":\"i\"}"
        "]}]",
        &part,
        "[{\"role\":\"assistant\",\"content\":[" THINKING("\"t\"") "],\"tool_calls\":[{\"id\":\"i\"}]}]");
    expect_messages("[{\"role\":\"assistant\",\"content\":\"a\"}]", &part,
                    "[{\"role\":\"assistant\",\"content\":\"a\"}]");
}

TEST(parts_with_reasoning_that_are_no_text_or_no_assistants_are_refused) {
    static const struct {
        const char *role, *part, *param;
    } cases[] = {{"assistant", THINKING("5"), PATH ".0.content.0.thinking"},
                 {"assistant", THINKING("[{\"type\":\"text\"}]"), PATH ".0.content.0.thinking"},
                 {"assistant", "{\"type\":\"thinking\"}", PATH ".0.content.0.thinking"},
                 {"user", THINKING("\"t\""), ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char array[200];
        chat_messages m;
        quire_error err;
        snprintf(array, sizeof array, "[{\"role\":\"%s\",\"content\":[%s]}]", cases[i].role, cases[i].part);
        assert_int_equal(read_messages(array, NULL, &m, &err), QUIRE_BAD_REQUEST);
        assert_string_equal(err.param, cases[i].param);
        assert_null(m.json.p);
    }
}

TEST(a_refusal_is_an_answers_text) {
    expect_messages(
        "[{\"role\":\"assistant\",\"content\":[\"a\",{\"type\":\"refusal\",\"refusal\":\"no\"}]}]", NULL,
        "[{\"role\":\"assistant\",\"content\":\"a\\nno\"}]");
    expect_messages("[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}]",
                    &takes_both, "[{\"role\":\"assistant\",\"content\":[" PART("no") "]}]");
    expect_messages("[{\"role\":\"assistant\",\"content\":null,\"refusal\":\"no\"}]", NULL,
                    "[{\"role\":\"assistant\",\"content\":\"no\",\"refusal\":\"no\"}]");
    expect_messages("[{\"role\":\"assistant\",\"refusal\":\"no\"}]", NULL,
                    "[{\"role\":\"assistant\",\"refusal\":\"no\",\"content\":\"no\"}]");
    chat_messages m;
    quire_error err;
    assert_int_equal(
        read_messages("[{\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}]", NULL,
                      &m, &err),
        QUIRE_BAD_REQUEST);
}

TEST(contents_take_the_form_of_their_role) {
    static const chat_traits traits = {.content = {[CHAT_SYSTEM] = CHAT_CONTENT_TEXT,
                                                   [CHAT_USER] = CHAT_CONTENT_PARTS,
                                                   [CHAT_TOOL] = CHAT_CONTENT_BOTH}};
    expect_messages(
        "[{\"role\":\"developer\",\"content\":[\"a\"]},{\"role\":\"user\",\"content\":\"b\"},{\"role\":"
        "\"tool\",\"content\":["
        "\"c\"]},{\"role\":\"king\",\"content\":\"d\"}]",
        &traits,
        "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[" PART(
            "b") "]},{\"role\":\"tool\",\"content\":[" PART("c") "]},"
                                                                 "{\"role\":\"king\",\"content\":[" PART(
                                                                     "d") "]}]");
}

/* ---- rendering ---- */

#define BOTH "{% for m in messages %}[{{ m.content }}]{% endfor %}{{ add_generation_prompt }}{{ x }}"

static quire_err render_marked(const char *source, bool continues, const char *kwargs, strbuf *out,
                               text_marks *marks, quire_error *err) {
    chat_template *t;
    chat_messages m;
    json_value *more = json_document(str_of(kwargs));
    assert_int_equal(chat_template_open(str_of(source), &(chat_tokens){0}, &t, err), QUIRE_OK);
    assert_int_equal(
        read_messages("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b \"}]",
                      &takes_text, &m, err),
        QUIRE_OK);
    chat_prompt p = {.messages = &m, .kwargs = more, .continue_final_message = continues};
    quire_err e = chat_render(t, &p, out, marks, err);
    chat_messages_deinit(&m);
    chat_template_close(t);
    json_drop(more);
    return e;
}

static quire_err render(const char *source, bool continues, const char *kwargs, strbuf *out,
                        quire_error *err) {
    return render_marked(source, continues, kwargs, out, NULL, err);
}

static void expect_names(const char *array, const char *want) {
    chat_messages m;
    assert_int_equal(read_messages(array, &takes_text, &m, NULL), QUIRE_OK);
    assert_int_equal(m.turn_ids.n, strlen(want));
    assert_true(m.turn_ids.n == 0 || memcmp(m.turn_ids.p, want, m.turn_ids.n) == 0);
    chat_messages_deinit(&m);
}

#define CALLED(id)                                                                                           \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"

TEST(an_answer_is_named_by_its_first_call_or_by_itself) {
    expect_names(
        "[{\"role\":\"assistant\",\"id\":\"chat-123456789\",\"content\":\"a\"},"
        "{\"role\":\"assistant\",\"tool_calls\":[" CALLED("call_abcdefghi") "," CALLED(
            "call_rstuvwxyz") "],"
                              "\"id\":\"chat-987654321\"},"
                              "{\"role\":\"assistant\",\"id\":\"chat-987654321\",\"tool_calls\":[" CALLED(
                                  "short") "]}]",
        "123456789abcdefghi987654321");
    expect_names("[{\"role\":\"user\",\"id\":\"chat-123456789\",\"content\":\"a\"},"
                 "{\"role\":\"assistant\",\"id\":\"12345678\",\"content\":\"a\"},"
                 "{\"role\":\"assistant\",\"id\":123456789,\"content\":\"a\"},"
                 "{\"role\":\"assistant\",\"content\":\"a\"}]",
                 "");
    /* the template does not see it */
    expect_messages("[{\"role\":\"assistant\",\"id\":\"chat-123456789\",\"content\":\"a\"}]", &takes_text,
                    "[{\"role\":\"assistant\",\"content\":\"a\"}]");
}

TEST(a_name_twice_in_arguments_is_the_last_one) {
    chat_template *t;
    chat_messages m;
    strbuf out = {0};
    assert_int_equal(chat_template_open(str_of("{{ messages[0].tool_calls[0].function.arguments | tojson }}"),
                                        &(chat_tokens){0}, &t, NULL),
                     QUIRE_OK);
    assert_int_equal(read_messages("[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"{"
                                   "\\\"a\\\":1,\\\"b\\\":2,\\\"a\\\":3}\"}}]}]",
                                   &takes_objects, &m, NULL),
                     QUIRE_OK);
    assert_int_equal(chat_render(t, &(chat_prompt){.messages = &m}, &out, NULL, NULL), QUIRE_OK);
    assert_string_equal(out.p, "{\"a\": 3, \"b\": 2}");
    strbuf_deinit(&out);
    chat_messages_deinit(&m);
    chat_template_close(t);
}

TEST(variables_of_the_caller_go_before_the_prompts_own) {
    strbuf out = {0};
    assert_int_equal(render(BOTH, false, "null", &out, NULL), QUIRE_OK);
    assert_string_equal(out.p, "[a][b ]False");
    strbuf_clear(&out);
    assert_int_equal(render(BOTH, false, "{\"x\":3,\"add_generation_prompt\":\"go\"}", &out, NULL), QUIRE_OK);
    assert_string_equal(out.p, "[a][b ]go3");
    strbuf_deinit(&out);
}

TEST(a_continued_text_ends_where_the_last_message_does) {
    strbuf out = {0};
    quire_error err;
    assert_int_equal(render(BOTH, true, "null", &out, NULL), QUIRE_OK);
    assert_string_equal(out.p, "[a][b ");
    strbuf_clear(&out);
    assert_int_equal(render("{{ messages[0].content }}", true, "null", &out, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "continue_final_message");
    assert_string_equal(out.p, "");
    strbuf_deinit(&out);
}

TEST(marks_end_where_a_continued_text_does) {
    static const struct {
        const char *source;
        size_t n_runs, end; /* of the last run */
    } cases[] = {{BOTH, 2, 6}, {"[{{ messages[1].content }}] {{ messages[0].content }}", 1, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strbuf out = {0};
        text_marks marks = {0};
        assert_int_equal(render_marked(cases[i].source, true, "null", &out, &marks, NULL), QUIRE_OK);
        assert_int_equal(marks.n, cases[i].n_runs);
        assert_int_equal(marks.runs[marks.n - 1].end, cases[i].end);
        assert_true(out.n >= cases[i].end);
        text_marks_deinit(&marks);
        strbuf_deinit(&out);
    }
}

TEST_MAIN(NULL, NULL)
