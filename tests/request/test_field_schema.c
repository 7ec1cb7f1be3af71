/* The JSON Schema of an endpoint's request bodies, as made from the table of fields. */
#include "request/request_world.h"

#include "json/json_out.h"

/* The schema of a field of an endpoint; *root, which owns it, is the caller's. */
static const json_value *field_of(quire_endpoint endpoint, const char *name, json_value **root) {
    strbuf text = {0};
    json_out o = {.to = &text};
    request_schema(&context, endpoint, &o);
    assert_int_equal(o.err, QUIRE_OK);
    *root = json_document((str){text.p, text.n});
    assert_non_null(*root);
    strbuf_deinit(&text);
    return json_get(json_get(*root, "properties"), name);
}

static void check_field(quire_endpoint endpoint, const char *name, const char *wanted) {
    json_value *root, *expected = json_document(str_of(wanted));
    const json_value *found = field_of(endpoint, name, &root);
    for (json_member m = {0}; json_next(expected, &m);) {
        if (!json_same(json_get(found, m.name), m.value)) {
            fail_msg("%s.%s is not that of %s", name, m.name, wanted);
        }
    }
    json_drop(expected);
    json_drop(root);
}

TEST(a_field_has_its_type_range_and_default) {
    check_field(QUIRE_CHAT, "top_p",
                "{\"type\":[\"number\",\"null\"],\"exclusiveMinimum\":0,\"maximum\":1,\"default\":1}");
    check_field(QUIRE_CHAT, "n", "{\"type\":[\"integer\",\"null\"],\"minimum\":1}");
    check_field(QUIRE_COMPLETIONS, "echo", "{\"type\":[\"boolean\",\"null\"],\"default\":false}");
    check_field(QUIRE_COMPLETIONS, "max_tokens", "{\"minimum\":0,\"maximum\":null,\"default\":16}");
    check_field(QUIRE_CHAT, "stop_token_ids",
                "{\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":2147483647}}");
}

TEST(a_field_with_choices_or_without_an_implementation_has_an_enum) {
    check_field(QUIRE_CHAT, "json_numbers", "{\"enum\":[\"short\",\"any\",null]}");
    check_field(QUIRE_CHAT, "early_stopping", "{\"enum\":[true,false,\"never\",null]}");
    check_field(QUIRE_CHAT, "modalities", "{\"enum\":[[\"text\"],null],\"default\":[\"text\"]}");
    check_field(QUIRE_CHAT, "audio", "{\"enum\":[null]}");
}

TEST(members_with_rows_are_properties_of_their_object) {
    json_value *root;
    const json_value *f = field_of(QUIRE_CHAT, "stream_options", &root);
    const json_value *usage = json_get(json_get(f, "properties"), "include_usage");
    assert_true(str_is(json_str(json_at(json_get(usage, "type"), 0)), "boolean"));
    assert_false(json_has(json_get(root, "properties"), "stream_options.include_usage"));
    json_drop(root);
}

TEST(a_schema_has_the_fields_of_its_endpoint_and_those_that_it_requires) {
    json_value *root;
    assert_null(field_of(QUIRE_COMPLETIONS, "messages", &root));
    assert_true(str_is(json_str(json_at(json_get(root, "required"), 0)), "prompt"));
    json_drop(root);
    check_field(QUIRE_OLLAMA_CHAT, "stream", "{\"default\":true}");
    check_field(QUIRE_CHAT, "stream", "{\"default\":false}");
}

TEST(what_must_be_given_is_required_and_may_not_be_null) {
    static const struct {
        quire_endpoint endpoint;
        const char *required;
    } cases[] = {{QUIRE_MESSAGES, "[\"max_tokens\",\"messages\"]"},
                 {QUIRE_RESPONSES, "[\"input\"]"},
                 {QUIRE_TOKENIZE, "[\"prompt\"]"},
                 {QUIRE_TOKENIZE_CHAT, "[\"messages\"]"},
                 {QUIRE_TOKENIZE_CONTENT, "[\"content\"]"},
                 {QUIRE_EMBEDDINGS, "[\"input\"]"},
                 {QUIRE_EMBEDDING, "[]"}}; /* input or content */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_value *root, *expected = json_document(str_of(cases[i].required));
        (void)field_of(cases[i].endpoint, "model", &root);
        if (!json_same(json_get(root, "required"), expected)) {
            fail_msg("endpoint %d must require %s", (int)cases[i].endpoint, cases[i].required);
        }
        json_drop(expected);
        json_drop(root);
    }
    check_field(QUIRE_MESSAGES, "max_tokens", "{\"type\":[\"integer\"]}");
    check_field(QUIRE_CHAT, "max_tokens", "{\"type\":[\"integer\",\"null\"]}");
}

TEST(a_prompt_has_the_forms_that_its_reader_takes) {
    check_field(QUIRE_TOKENIZE, "prompt", "{\"type\":\"string\",\"minLength\":null}");
    check_field(QUIRE_DETOKENIZE, "tokens", "{\"type\":\"array\",\"minItems\":0}");
    check_field(
        QUIRE_CHAT_BATCH, "messages",
        "{\"items\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\",\"properties\":{"
        "\"role\":{\"type\":\"string\"},\"content\":{\"type\":[\"string\",\"array\",\"null\"]}},"
        "\"required\":[\"role\"]}}}");
}

/* The number of forms that a prompt has. */
static size_t count_forms(quire_endpoint endpoint) {
    json_value *root;
    size_t n = json_length(json_get(field_of(endpoint, "prompt", &root), "anyOf"));
    json_drop(root);
    return n;
}

TEST(a_prompt_of_llama_cpp_may_mix_texts_and_ids) {
    assert_int_equal(count_forms(QUIRE_COMPLETIONS), 4);
    assert_int_equal(count_forms(QUIRE_LLAMA_COMPLETION), 5);
    check_field(QUIRE_OLLAMA_EMBEDDINGS, "prompt",
                "{\"anyOf\":[{\"type\":\"string\"},{\"enum\":[null,[]]}]}");
}

TEST(an_integer_without_bounds_has_64_bits) {
    check_field(QUIRE_CHAT, "seed", "{\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}");
    check_field(QUIRE_CHAT, "top_n_sigma", "{\"minimum\":null,\"maximum\":null}");
}

TEST(a_value_outside_a_fields_choices_is_refused) {
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"json_numbers\":\"long\"}", "json_numbers",
           "json_numbers is \"long\"; it must be one of [\"short\",\"any\"]");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":2147483648.5}", "body.max_tokens",
           "it must be an integer");
}

TEST_MAIN(NULL, NULL)
