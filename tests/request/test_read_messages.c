/* Anthropic's Messages API: which request its fields become. */
#include "request/request_world.h"

#define TURNS "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
#define BODY  "{\"max_tokens\":50," TURNS

static void refuse_with(const char *fields, const char *param, const char *words) {
    char body[1024];
    snprintf(body, sizeof body, BODY ",%s}", fields);
    refuse(QUIRE_MESSAGES, body, param, words);
}

static quire_request *parse_with(const char *fields) {
    char body[1024];
    snprintf(body, sizeof body, BODY ",%s}", fields);
    return parse(QUIRE_MESSAGES, body);
}

TEST(messages_and_max_tokens_are_required) {
    refuse(QUIRE_MESSAGES, "{}", "messages", "is missing");
    refuse(QUIRE_MESSAGES, "{\"max_tokens\":1}", "messages", "is missing");
    refuse(QUIRE_MESSAGES, "{\"max_tokens\":1,\"system\":\"s\"}", "messages", "is missing");
    refuse(QUIRE_MESSAGES, "{\"max_tokens\":1,\"messages\":[]}", "messages", "is empty");
    refuse(QUIRE_MESSAGES, "{\"max_tokens\":1,\"messages\":{}}", "body.messages", "an array");
    refuse(QUIRE_MESSAGES, "{" TURNS "}", "max_tokens", "is missing");
    refuse(QUIRE_MESSAGES, "{\"max_tokens\":0," TURNS "}", "max_tokens", "is 0");
}

TEST(numbers_have_the_ranges_of_this_form) {
    refuse_with("\"temperature\":1.1", "temperature", "from 0 to 1");
    refuse_with("\"top_k\":-1", "top_k", "at least 0");
    refuse_with("\"top_p\":0", "top_p", "over 0");
    refuse_with("\"stop_sequences\":[\"\"]", "stop_sequences", "stop_sequences has an empty string");
    quire_request *r =
        parse_with("\"temperature\":0.5,\"top_k\":4,\"stop_sequences\":[\"x\",\"y\"],"
                   "\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\",\"min_p\":0.25");
    assert_float_equal(r->g.sampling.temperature, 0.5, 0);
    assert_float_equal(r->g.sampling.min_p, 0.25, 0);
    assert_float_equal(r->g.sampling.repetition_penalty, 1, 0);
    assert_int_equal(r->g.sampling.top_k, 4);
    assert_int_equal(r->g.sampling.max_tokens, 50);
    assert_int_equal(r->g.n_stops, 2);
    assert_true(r->g.skip_special);
    assert_null(r->g.info.ignored);
    quire_request_free(r);
}

TEST(fields_of_others_are_refused_or_named) {
    refuse_with("\"n\":2", "n", "not supported");
    refuse_with("\"response_format\":{}", "response_format", "use output_config");
    refuse_with("\"stop\":[\"x\"]", "stop", "use stop_sequences");
    refuse_with("\"max_completion_tokens\":3", "max_completion_tokens", "use max_tokens");
    refuse_with("\"mcp_servers\":[{}]", "mcp_servers", "not supported");
    refuse_with("\"container\":\"c\"", "container", "not supported");
    quire_request *r = parse_with("\"zebra\":1,\"context_management\":{\"edits\":[]},\"output_config\":"
                                  "{\"task_budget\":{}}");
    assert_string_equal(r->g.info.ignored, "zebra, output_config.task_budget, context_management");
    quire_request_free(r);
}

#define TOOL "{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}"

TEST(tools_become_functions) {
    strbuf text = {0};
    json_out o = {.to = &text};
    quire_request *r = parse_with("\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"any\","
                                  "\"disable_parallel_tool_use\":true}");
    json_add(&o, r->tools);
    assert_string_equal(text.p, "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
                                "\"parameters\":{\"type\":\"object\"}}}]");
    strbuf_deinit(&text);
    assert_int_equal(r->tool_choice, OUTPUT_CHOICE_REQUIRED);
    assert_false(r->g.parallel_calls);
    quire_request_free(r);
    r = parse_with("\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}");
    assert_int_equal(r->tool_choice, OUTPUT_CHOICE_NAMED);
    assert_true(r->g.parallel_calls);
    quire_request_free(r);
    refuse_with("\"tools\":[1]", "tools[0]", "must be an object");
    refuse_with("\"tools\":[{\"name\":\"f\"}]", "tools[0]", "tools[0].input_schema");
    refuse_with("\"tools\":[{\"name\":\"a b\",\"input_schema\":{}}]", "tools", "tools[0].name");
    refuse_with("\"tools\":[" TOOL ",{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]", "tools[1]",
                "\"web_search_20250305\", a tool that this server does not run");
    refuse_with("\"tool_choice\":{\"type\":\"required\"}", "tool_choice.type", "\"any\"");
    refuse_with("\"tool_choice\":{\"type\":\"tool\"}", "tool_choice.name", "name of a tool");
    refuse_with("\"tool_choice\":{\"type\":\"any\"}", "tool_choice", "no tools");
    refuse_with("\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"}", "tool_choice",
                "names g");
}

/* The variables that a template gets. */
static void expect_kwargs(const char *fields, const char *kwargs, bool shows) {
    strbuf text = {0};
    json_out o = {.to = &text};
    quire_request *r = parse_with(fields);
    json_add(&o, r->template_kwargs);
    assert_string_equal(text.p, kwargs);
    assert_int_equal(r->g.include_reasoning, shows);
    strbuf_deinit(&text);
    quire_request_free(r);
}

TEST(thinking_is_a_switch_of_the_template) {
    expect_kwargs("\"top_k\":1", "{\"enable_thinking\":false,\"thinking\":false}", false);
    expect_kwargs("\"thinking\":{\"type\":\"disabled\"}", "{\"enable_thinking\":false,\"thinking\":false}",
                  false);
    expect_kwargs("\"thinking\":{\"type\":\"adaptive\"},\"chat_template_kwargs\":{\"thinking\":3}",
                  "{\"enable_thinking\":true,\"thinking\":3}", true);
    expect_kwargs("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":20,\"display\":\"omitted\"}",
                  "{\"enable_thinking\":true,\"thinking\":true}", false);
    expect_kwargs("\"thinking\":{\"type\":\"adaptive\",\"display\":\"updates\"}",
                  "{\"enable_thinking\":true,\"thinking\":true}", true);
    refuse_with("\"thinking\":{}", "thinking.type", "\"adaptive\"");
    refuse_with("\"thinking\":{\"type\":\"enabled\"}", "thinking.budget_tokens", "is missing");
    refuse_with("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":0}", "thinking.budget_tokens", "is 0");
    refuse_with("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":50}", "thinking.budget_tokens",
                "less than max_tokens");
    refuse_with("\"thinking\":{\"type\":\"adaptive\",\"display\":1}", "thinking.display", "\"omitted\"");
}

TEST(a_budget_counts_where_the_model_reasons) {
    static const char body[] = BODY ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":20}}";
    request_context reasons = context;
    quire_request *r;
    quire_error err;
    reasons.formats.reasoning = "qwen3";
    assert_int_equal(request_parse(&reasons, QUIRE_MESSAGES, body, strlen(body), &r, &err), QUIRE_OK);
    assert_int_equal(r->g.thinking_budget, 20);
    quire_request_free(r);
    r = parse(QUIRE_MESSAGES, body);
    assert_int_equal(r->g.thinking_budget, -1);
    quire_request_free(r);
}

TEST(output_config_has_the_answers_form_and_effort) {
    quire_request *r =
        parse_with("\"output_config\":{\"effort\":\"max\",\"format\":{\"type\":\"json_schema\","
                   "\"schema\":{\"type\":\"object\"}}}");
    assert_true(str_is(r->g.reasoning_effort, "high"));
    assert_string_equal(r->rule.field->name, "output_config.format");
    quire_request_free(r);
    r = parse_with("\"output_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}");
    assert_non_null(r->rule.field);
    quire_request_free(r);
    refuse_with("\"output_config\":{\"effort\":\"huge\"}", "output_config.effort", "\"xhigh\"");
    refuse_with("\"output_config\":{\"format\":{\"type\":\"text\"}}", "output_config.format.type",
                "json_schema");
    refuse_with("\"output_config\":{\"format\":{\"type\":\"json_schema\"}}", "output_config.format.schema",
                "an object");
}

/* A copy has the parent's fields and no conversation. */
TEST(a_copy_has_the_fields_of_its_parent) {
    quire_error err;
    quire_request *copy, *r = parse_with("\"tools\":[" TOOL "],\"temperature\":0.5");
    assert_int_equal(request_copy(r, &copy, &err), QUIRE_OK);
    assert_int_equal(copy->g.messages.json.n, 0);
    assert_float_equal(copy->g.sampling.temperature, 0.5, 0);
    assert_int_equal(json_length(copy->tools), 1);
    quire_request_free(copy);
    quire_request_free(r);
}

TEST_MAIN(NULL, NULL)
