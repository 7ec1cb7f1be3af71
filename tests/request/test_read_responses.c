/* The Responses API: which chat its items and fields become, what its response repeats,
 * and that errors use the client's field names. */
#include "request_world.h"

#include "base/mem.h"

static quire_request *read_body(const char *body) {
    return parse(QUIRE_RESPONSES, body);
}

static void refuse_body(const char *body, const char *param, const char *words) {
    refuse(QUIRE_RESPONSES, body, param, words);
}

static void expect_messages(const char *input, const char *messages) {
    char body[4000];
    (void)snprintf(body, sizeof body, "{\"input\":%s}", input);
    quire_request *r = read_body(body);
    assert_string_equal(r->g.messages.json.p, messages);
    quire_request_free(r);
}

#define CALL_BEGIN      "{\"type\":\"function_call\",\"call_id\":\""
#define CALL(id)        CALL_BEGIN id "\",\"name\":\"f\",\"arguments\":\"{}\"}"
#define OUTPUT(id, out) "{\"type\":\"function_call_output\",\"call_id\":\"" id "\",\"output\":" out "}"

TEST(a_text_is_a_message_of_a_user) {
    expect_messages("\"Hi\"", "[{\"role\":\"user\",\"content\":\"Hi\"}]");
}

TEST(a_message_has_a_text_or_parts_and_may_leave_its_type_out) {
    expect_messages(
        "[{\"role\":\"system\",\"content\":\"S\"},{\"type\":\"message\",\"role\":\"user\",\"content\":"
        "[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_text\",\"text\":\"b\"}]}]",
        "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"a\\nb\"}]");
}

TEST(reasoning_text_and_calls_that_follow_each_other_are_one_message) {
    quire_request *r = read_body(
        "{\"input\":[{\"role\":\"user\",\"content\":\"q\"},"
        "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\","
        "\"text\":"
        "\"hm\"}]},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"a\","
        "\"annotations\":[]}]}," CALL("c1") "," CALL("c2") "," OUTPUT("c2", "\"two\"") "," OUTPUT(
            "c1", "[{\"type\":\"input_text\",\"text\":\"one\"}]") "]}");
    const char *json = r->g.messages.json.p;
    assert_non_null(strstr(json, "\"reasoning_content\":\"hm\""));
    assert_non_null(strstr(json, "\"content\":\"a\""));
    const char *two = strstr(json, "\"content\":\"two\""), *one = strstr(json, "\"content\":\"one\"");
    assert_true(two != NULL && one != NULL && two < one);
    assert_true(strstr(json, "\"tool_call_id\":\"c2\"") < strstr(json, "\"tool_call_id\":\"c1\""));
    int n_assistants = 0;
    for (const char *p = json; (p = strstr(p, "\"assistant\"")) != NULL; p++) {
        n_assistants++;
    }
    assert_int_equal(n_assistants, 1);
    quire_request_free(r);
}

TEST(two_answers_are_two_messages) {
    expect_messages(
        "[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]",
        "[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]");
}

TEST(items_that_are_refused_are_named_with_their_place) {
    refuse_body("{}", "input", "is missing");
    refuse_body("{\"input\":[]}", "input", "empty");
    refuse_body("{\"input\":7}", "body.input", "a string or an array of items");
    refuse_body("{\"input\":[7]}", "input[0]", "an object");
    refuse_body("{\"input\":[{\"role\":\"wizard\",\"content\":\"x\"}]}", "input[0].role", "\"wizard\"");
    refuse_body("{\"input\":[{\"role\":\"user\",\"content\":7}]}", "input[0].content", "array of parts");
    refuse_body("{\"input\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\",\"content\":[{\"type\":"
                "\"input_text\",\"text\":\"x\"},{\"type\":\"input_image\",\"image_url\":\"u\"}]}]}",
                "input[1].content[1]", "\"input_image\"");
    refuse_body("{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\"}]}]}",
                "input[0].content[0].text", "a string");
    refuse_body("{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", "input[0]",
                "previous_response_id");
    refuse_body("{\"input\":[{\"type\":\"computer_call\"}]}", "input[0].type", "\"computer_call\"");
    refuse_body("{\"input\":[" OUTPUT("c9", "\"x\"") "," CALL("c9") "]}", "input[0].call_id", "\"c9\"");
    refuse_body("{\"input\":[" CALL("c1") "," OUTPUT("c1", "[{\"type\":\"input_file\"}]") "]}",
                "input[1].output[0]", "\"input_file\"");
    refuse_body("{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\"}]}",
                "input[0].arguments", "a string");
    refuse_body("{\"input\":[{\"type\":\"reasoning\",\"content\":\"x\"}]}", "input[0].content",
                "array of parts");
    refuse_body("{\"input\":[{\"type\":\"reasoning\",\"summary\":[{\"text\":1}]}]}",
                "input[0].summary[0].text", "a string");
}

TEST(items_are_kept_as_lines_that_begin_with_an_id) {
    quire_request *r =
        read_body("{\"input\":[{\"role\":\"user\",\"content\":\"a\\nb\",\"id\":\"msg_own\"}," CALL(
            "c1") "," OUTPUT("c1", "\"x\"") "]}");
    const quire_responses_info *info = quire_request_responses(r);
    const char *second = strchr(info->input, '\n');
    static const char first[] =
        "{\"id\":\"msg_own\",\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":"
        "\"input_text\",\"text\":\"a\\nb\"}],\"status\":\"completed\"}";
    assert_int_equal(second - info->input, (ptrdiff_t)strlen(first));
    assert_memory_equal(info->input, first, strlen(first));
    assert_int_equal(strncmp(second + 1, "{\"id\":\"fc_", 10), 0);
    const char *third = strchr(second + 1, '\n');
    assert_int_equal(strncmp(third + 1, "{\"id\":\"fco_", 11), 0);
    assert_null(strchr(third + 1, '\n'));
    assert_int_equal(info->n_input, strlen(info->input));
    quire_request_free(r);
}

TEST(tools_are_those_of_a_chat_in_a_flat_form) {
    quire_request *r = read_body("{\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\","
                                 "\"description\":null,\"parameters\":"
                                 "{\"type\":\"object\"},\"strict\":true},{\"type\":\"custom\",\"name\":\"g\","
                                 "\"format\":{\"type\":\"grammar\","
                                 "\"syntax\":\"lark\",\"definition\":\"start: "
                                 "\\\"a\\\"\"}}],\"tool_choice\":{\"type\":\"function\",\"name\":"
                                 "\"f\"}}");
    assert_int_equal(r->n_offered, 2);
    assert_true(r->offered[0].is_strict);
    assert_true(str_is(r->offered[1].lark, "start: \"a\""));
    assert_true(r->g.info.names_call);
    assert_non_null(strstr(quire_request_responses(r)->members, "\"tool_choice\":{\"type\":\"function\""));
    quire_request_free(r);
    r = read_body(
        "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"namespace\":\"agents\",\"name\":"
        "\"open\",\"arguments\":\"{}\"}],\"tools\":[{\"type\":\"namespace\",\"name\":\"agents\",\"tools\":[{"
        "\"type\":\"function\",\"name\":\"open\"},{\"type\":\"custom\",\"name\":\"say\"}]},{\"type\":"
        "\"function\",\"name\":\"open\"}]}");
    assert_int_equal(r->n_offered, 3);
    assert_true(str_is(r->offered[0].name, "agents.open"));
    assert_true(str_is(r->offered[1].name, "agents.say"));
    assert_true(str_is(r->offered[2].name, "open"));
    const tool_spaces *spaces = &r->tool_spaces;
    assert_int_equal(tool_spaces_find(spaces, str_of("agents.say")), 6);
    assert_int_equal(tool_spaces_find(spaces, str_of("agents.other")), 6); /* no tool of it */
    assert_int_equal(tool_spaces_find(spaces, str_of("agents.")), 0);
    assert_int_equal(tool_spaces_find(spaces, str_of("open")), 0);
    assert_int_equal(tool_spaces_find(spaces, str_of("agent.say")), 0);
    quire_request_free(r);
    r = read_body("{\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"a.b\"},{\"type\":"
                  "\"namespace\",\"name\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"c\"}]}]}");
    assert_int_equal(tool_spaces_find(&r->tool_spaces, str_of("a.b")), 0); /* a tool without one */
    assert_int_equal(tool_spaces_find(&r->tool_spaces, str_of("a.c")), 1);
    quire_request_free(r);
    refuse_body("{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[]}]}", "tools",
                "tools[0].tools must be");
    refuse_body("{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":"
                "\"namespace\",\"name\":\"m\",\"tools\":[]}]}]}",
                "tools", "tools[0].tools[0].type is \"namespace\"");
    char wide[129], body[400];
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    snprintf(body, sizeof body,
             "{\"input\":\"x\",\"tools\":[{\"type\":\"namespace\",\"name\":\"%s\",\"tools\":[{\"type\":"
             "\"function\",\"name\":\"%s\"}]}]}",
             wide, wide);
    refuse_body(body, "tools", "tools[0].tools[0].name has 257 bytes with its namespace");
    refuse_body("{\"input\":\"x\",\"tools\":[{\"type\":\"web_search\"}]}", "tools",
                "tools[0].type is \"web_search\"");
    refuse_body("{\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"\"}]}", "tools",
                "tools[0].name");
    refuse_body("{\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":7}]}",
                "tools", "tools[0].parameters");
    refuse_body("{\"input\":\"x\",\"tool_choice\":{\"type\":\"web_search\"}}", "tool_choice",
                "tool_choice must be");
}

TEST(the_form_of_the_text_is_a_response_format) {
    quire_request *r =
        read_body("{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\","
                  "\"schema\":{\"type\":\"object\"},\"strict\":true},\"verbosity\":\"low\"}}");
    assert_non_null(r->rule.field);
    assert_int_equal(r->rule.kind, GRAMMAR_SCHEMA);
    assert_true(str_is(r->g.verbosity, "low"));
    quire_request_free(r);
    refuse_body("{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"xml\"}}}", "text.format.type",
                "json_schema");
    refuse_body("{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\"}}}",
                "text.format.schema", "JSON Schema");
    refuse_body("{\"input\":\"x\",\"text\":{\"format\":7}}", "text.format", "an object");
}

TEST(what_the_response_repeats_is_as_it_was_given_or_the_default) {
    quire_request *r =
        read_body("{\"input\":\"x\",\"instructions\":\"I\",\"metadata\":{\"a\":\"b\"},\"temperature\":0.5,"
                  "\"store\":false,\"max_output_tokens\":7,\"reasoning\":{\"effort\":\"low\"}}");
    const quire_responses_info *info = quire_request_responses(r);
    static const char *const parts[] = {
        "\"instructions\":\"I\"",       "\"metadata\":{\"a\":\"b\"}",
        "\"temperature\":0.5",          "\"top_p\":1",
        "\"max_output_tokens\":7",      "\"reasoning\":{\"effort\":\"low\",\"summary\":null}",
        "\"tool_choice\":\"auto\"",     "\"tools\":[]",
        "\"parallel_tool_calls\":true", "\"store\":false",
        "\"background\":false",         "\"text\":{\"format\":{\"type\":\"text\"}}"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(info->members, parts[i]) == NULL) {
            fail_msg("%s lacks %s", info->members, parts[i]);
        }
    }
    assert_false(info->is_stored || info->is_background);
    assert_int_equal(r->g.sampling.max_tokens, 7);
    assert_non_null(strstr(r->g.messages.json.p, "[{\"role\":\"system\",\"content\":\"I\"}"));
    quire_request_free(r);
}

TEST(fields_that_cannot_be_are_refused_by_name) {
    static const struct {
        const char *fields, *param, *words;
    } cases[] = {
        {"\"background\":true,\"store\":false", "background", "needs store"},
        {"\"background\":true,\"stream\":true", "background", "stream"},
        {"\"include\":[\"file_search_call.results\"]", "include[0]", "does not support"},
        {"\"metadata\":{\"a\":1}", "metadata.a", "a string"},
        {"\"truncation\":\"auto\"", "truncation", "not supported"},
        {"\"conversation\":\"c\"", "conversation", "not supported"},
        {"\"prompt\":{\"id\":\"p\"}", "prompt", "not supported"},
        {"\"max_tokens\":3", "max_tokens", "use max_output_tokens"},
        {"\"response_format\":{}", "response_format", "use text"},
        {"\"top_logprobs\":21", "top_logprobs", "from 0 to 20"},
        {"\"max_output_tokens\":0", "max_output_tokens", "at least 1"},
        {"\"reasoning\":{\"effort\":1}", "reasoning.effort", "a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[300];
        (void)snprintf(body, sizeof body, "{\"input\":\"x\",%s}", cases[i].fields);
        refuse_body(body, cases[i].param, cases[i].words);
    }
    quire_request *r = read_body("{\"input\":\"x\",\"truncation\":\"disabled\",\"client_metadata\":{}}");
    assert_string_equal(quire_request_describe(r)->ignored, "client_metadata");
    quire_request_free(r);
}

TEST(log_probabilities_come_where_they_are_included) {
    quire_request *r =
        read_body("{\"input\":\"x\",\"top_logprobs\":3,\"include\":[\"message.output_text.logprobs\","
                  "\"reasoning.encrypted_content\"]}");
    assert_int_equal(r->g.info.logprobs, 3);
    quire_request_free(r);
    r = read_body("{\"input\":\"x\",\"top_logprobs\":3}");
    assert_int_equal(r->g.info.logprobs, -1);
    quire_request_free(r);
}

/* ---- conversations that are continued ---- */

static quire_err find_history(void *user, const char *tenant, const char *id, char **lines, size_t *n) {
    static const char items[] =
        "{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"user\",\"content\":\"q\"}\n" CALL("c1");
    if (strcmp(tenant, "ann") != 0 || strcmp(id, "resp_1") != 0) {
        return QUIRE_NOT_FOUND;
    }
    *lines = mem_dup(items, sizeof items - 1);
    *n = sizeof items - 1;
    *(int *)user += 1;
    return *lines != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

TEST(a_request_continues_a_response_of_its_tenant) {
    static const char body[] = "{\"previous_response_id\":\"resp_1\",\"input\":[" OUTPUT("c1", "\"x\"") "]}";
    int n_found = 0;
    request_context with = context;
    with.history = find_history;
    with.history_of = &n_found;
    quire_request *r;
    quire_error err = {0};
    assert_int_equal(request_parse_for(&with, "ann", QUIRE_RESPONSES, body, strlen(body), &r, &err),
                     QUIRE_OK);
    assert_int_equal(n_found, 1);
    assert_non_null(
        strstr(r->g.messages.json.p, "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\""));
    const quire_responses_info *info = quire_request_responses(r);
    assert_string_equal(info->previous, "resp_1");
    assert_null(strstr(info->input, "msg_1")); /* what is kept is what is new */
    quire_request_free(r);
    assert_int_equal(request_parse_for(&with, "bob", QUIRE_RESPONSES, body, strlen(body), &r, &err),
                     QUIRE_NOT_FOUND);
    assert_string_equal(err.param, "previous_response_id");
    assert_int_equal(request_parse(&context, QUIRE_RESPONSES, body, strlen(body), &r, &err), QUIRE_NOT_FOUND);
    static const char alone[] = "{\"previous_response_id\":\"resp_1\"}";
    assert_int_equal(request_parse_for(&with, "ann", QUIRE_RESPONSES, alone, strlen(alone), &r, &err),
                     QUIRE_OK);
    quire_request_free(r);
}

TEST_MAIN(NULL, NULL)
