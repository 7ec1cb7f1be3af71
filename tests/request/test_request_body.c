/* Prompts and messages; bodies that are refused for their JSON or size; fields that are
 * set by name. */
#include "request/request_world.h"

#include "base/fault.h"
#include "base/rng.h"

TEST(prompts_come_as_text_or_ids_one_or_many) {
    quire_request *r = parse(QUIRE_COMPLETIONS, "{\"prompt\":[\"Once\",\"There was\"]}");
    assert_int_equal(r->g.info.n_choices, 2);
    assert_true(str_is(r->g.prompts[1].text, "There was"));
    quire_request_free(r);
    r = parse(QUIRE_COMPLETIONS, "{\"prompt\":[5,6.0,2047]}");
    assert_int_equal(r->g.n_prompts, 1);
    assert_int_equal(r->g.prompts[0].n_ids, 3);
    assert_int_equal(r->g.prompts[0].ids[2], 2047);
    quire_request_free(r);
    r = parse(QUIRE_COMPLETIONS, "{\"prompt\":[[5,6],[7,8,9]]}");
    assert_int_equal(r->g.n_prompts, 2);
    assert_int_equal(r->g.prompts[0].n_ids, 2);
    assert_int_equal(r->g.prompts[1].ids[2], 9);
    quire_request_free(r);
}

TEST(malformed_prompts_are_refused) {
    refuse(QUIRE_COMPLETIONS, "{}", "prompt", "prompt is missing");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":null}", "prompt", "prompt is missing");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"\"}", "prompt", "prompt is empty");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[]}", "prompt", "empty array");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[[]]}", "prompt", "empty array");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[\"a\",\"\"]}", "prompt", "prompt is empty");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":5}", "body.prompt",
           "prompt is 5; it must be a string or an array of token ids");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[-1]}", "body.prompt.0", "prompt[0] is -1; it must be a token id");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[1,1.5]}", "body.prompt.1", "prompt[1] is 1.5");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[1,\"a\"]}", "body.prompt.1", "prompt[1] is \"a\"");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[\"a\",1]}", "body.prompt.1", "of the same type as the first");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[[1],\"a\"]}", "body.prompt.1", "of the same type as the first");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[[1],[2,null]]}", "body.prompt.1", "prompt[1] is null");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[999999]}", "",
           "token id 999999 is out of the vocabulary, which has 2048 ids");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":[2048]}", "", "out of the vocabulary");
}

TEST(a_model_without_a_vocabulary_takes_ids_only) {
    const request_context ids_only = {.n_vocab = 100, .max_model_len = 64};
    refuse_by(&ids_only, QUIRE_COMPLETIONS, "{\"prompt\":\"x\"}", "prompt", "no vocabulary");
    refuse_by(&ids_only, QUIRE_CHAT, "{" USER "}", "", "no vocabulary");
    quire_request *r;
    assert_int_equal(request_parse(&ids_only, QUIRE_COMPLETIONS, "{\"prompt\":[99]}", 15, &r, NULL),
                     QUIRE_OK);
    quire_request_free(r);
}

TEST(malformed_messages_are_refused) {
    refuse(QUIRE_CHAT, "{}", "body.messages", "messages is missing");
    refuse(QUIRE_CHAT, "{\"messages\":null}", "", "messages is null");
    refuse(QUIRE_CHAT, "{\"messages\":[]}", "", "messages is empty");
    refuse(QUIRE_CHAT, "{\"messages\":\"Hi\"}", "body.messages", "messages is \"Hi\"");
    refuse(QUIRE_CHAT, "{\"messages\":[5]}", "body.messages.0", "messages[0] is 5; it must be an object");
    refuse(QUIRE_CHAT, "{\"messages\":[{\"content\":\"x\"}]}", "body.messages.0.role",
           "messages[0].role is null");
    refuse(QUIRE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "body.messages.0.content",
           "messages[0].content is 5");
    refuse(QUIRE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "",
           "messages[0].content[0] is of type \"image_url\"; this server takes only text");
    refuse(QUIRE_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}",
           "body.messages.0.content.0.text", "it must be a string");
    refuse(QUIRE_CHAT, "{" USER ",\"chat_template_kwargs\":{\"messages\":[]}}", "chat_template_kwargs",
           "may not hold messages");
}

TEST(malformed_json_is_refused_with_its_position) {
    refuse(QUIRE_COMPLETIONS, "", "body", "the body is empty");
    refuse(QUIRE_COMPLETIONS, "{", "body.1", "not valid JSON at byte 1");
    refuse(QUIRE_COMPLETIONS, "[1]", "body", "the body is an array; it must be a JSON object");
    refuse(QUIRE_COMPLETIONS, "12", "body", "the body is 12");
    refuse(QUIRE_COMPLETIONS, "null", "body", "the body is null");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\"}}", "body.14", "not valid JSON");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\"} x", "body.15", "not valid JSON");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",}", "body.14", "not valid JSON");
    refuse(QUIRE_COMPLETIONS, "{'prompt':\"x\"}", "body.1", "a name in double quotes");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"k\":NaN}", "body.18", "NaN and Infinity");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\"/**/}", "body.13", "a comma or the closing");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\ny\"}", "body.12", "control character");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\\\ny\"}", "body.12", "an invalid escape");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\xff\"}", "body.12", "not UTF-8");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\xc0\x80\"}", "body.12", "not UTF-8");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\xed\xa0\x80\"}", "body.12", "not UTF-8");
    quire_request_free(parse(QUIRE_COMPLETIONS, " \n{\"prompt\":\"x\"}\n "));
    quire_request *r;
    quire_error err;
    assert_int_equal(request_parse(&context, QUIRE_COMPLETIONS, "{\"prompt\":\"x\"}\0{}", 17, &r, &err),
                     QUIRE_BAD_REQUEST);
}

TEST(a_name_that_occurs_twice_is_refused) {
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"top_k\":1,\"prompt\":\"y\",\"top_k\":2}", "body.37",
           "the duplicate name \"top_k\"");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"pr\\u006fmpt\":\"y\"}", "body.14",
           "the duplicate name \"prompt\"");
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"other\":{\"a\":1,\"a\":2}}", "body.29", "duplicate name");
}

TEST(a_name_with_a_nul_is_refused) {
    refuse(QUIRE_COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\\u0000\":5}", "body.14",
           "a name with a NUL character");
    refuse(QUIRE_CHAT, "{" USER ",\"metadata\":{\"a\\u0000b\":\"c\"}}", "body.57",
           "a name with a NUL character");
}

TEST(too_many_values_are_refused_before_any_is_built) {
    enum { N = 1 << 18 };
    strbuf b = {0};
    assert_int_equal(strbuf_add_str(&b, "{\"prompt\":\"x\",\"other\":[{}"), QUIRE_OK);
    for (int i = 1; i < N; i++) {
        assert_int_equal(strbuf_add_str(&b, ",{}"), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&b, "]}"), QUIRE_OK);
    quire_request *r;
    quire_error err;
    assert_int_equal(request_parse(&context, QUIRE_COMPLETIONS, b.p, b.n, &r, &err), QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "too many arrays and objects"));
    strbuf_deinit(&b);
}

TEST(nesting_and_size_are_bounded) {
    enum { DEEP = 100000 };
    char *deep = malloc(DEEP + 1);
    memset(deep, '[', DEEP);
    deep[DEEP] = '\0';
    quire_request *r;
    quire_error err;
    assert_int_equal(request_parse(&context, QUIRE_COMPLETIONS, deep, DEEP, &r, &err), QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "nested too deeply"));
    free(deep);
    char *large = malloc(REQUEST_MAX_BYTES + 1);
    memset(large, ' ', REQUEST_MAX_BYTES + 1);
    assert_int_equal(request_parse(&context, QUIRE_COMPLETIONS, large, REQUEST_MAX_BYTES + 1, &r, &err),
                     QUIRE_TOO_LARGE);
    free(large);
}

TEST(a_request_of_ids_is_set_by_name) {
    const int32_t ids[] = {5, 6, 7};
    quire_request *r;
    quire_error err;
    assert_int_equal(request_ids(&context, ids, 3, &r, &err), QUIRE_OK);
    assert_int_equal(r->g.prompts[0].ids[2], 7);
    assert_int_equal(quire_request_set(r, "temperature", "0", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "stop", "[\"a\"]", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "stop", "[\"b\",\"\"]", &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_request_set(r, "max_tokens", "x", &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_request_set(r, "min_tokens", "99999", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "nonsense", "1", &err), QUIRE_NOT_FOUND);
    assert_true(r->g.sampling.temperature == 0.0f);
    assert_true(str_is(r->g.stops[0], "a"));
    assert_int_equal(request_check(r, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_request_set(r, "min_tokens", "null", &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "max_tokens", "null", &err), QUIRE_OK);
    assert_int_equal(r->g.sampling.max_tokens, 16);
    assert_int_equal(request_check(r, &err), QUIRE_OK);
    assert_int_equal(quire_request_set(r, "stream_options.include_usage", "true", &err), QUIRE_OK);
    assert_true(quire_request_describe(r)->include_usage);
    quire_request_free(r);
    assert_int_equal(request_ids(&context, ids, 0, &r, &err), QUIRE_INVALID);
    assert_int_equal(request_ids(&context, (const int32_t[]){2048}, 1, &r, &err), QUIRE_BAD_REQUEST);
}

TEST(a_failed_set_leaves_the_request_as_it_was) {
    quire_request *r =
        parse(QUIRE_COMPLETIONS,
              "{\"prompt\":\"keep\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    assert_int_equal(quire_request_set(r, "prompt", "[\"a\",5]", NULL), QUIRE_BAD_REQUEST);
    assert_int_equal(quire_request_set(r, "stream_options",
                                       "{\"include_usage\":false,\"continuous_usage_stats\":7}", NULL),
                     QUIRE_BAD_REQUEST);
    assert_true(str_is(r->g.prompts[0].text, "keep"));
    assert_true(r->g.info.include_usage);
    assert_true(r->has_stream_options);
    assert_int_equal(quire_request_set(r, "stream_options", "{\"x\":1,\"continuous_usage_stats\":7}", NULL),
                     QUIRE_BAD_REQUEST);
    assert_null(r->g.info.ignored);
    quire_request_free(r);
}

TEST(truncated_and_mutated_bodies_never_crash) {
    const char body[] =
        "{\"model\":\"t\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"caf\xc3\xa9 \\u00e9\"}]}],"
        "\"stop\":[\"a\",\"b\"],\"stop_token_ids\":[1,2],\"temperature\":0.5e0,\"seed\":12,\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true},\"chat_template_kwargs\":{\"a\":{\"b\":[1,2,3]}},"
        "\"prompt\":[[1,2],[3]]}";
    quire_request *r;
    size_t n = sizeof body - 1;
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(request_parse(&context, QUIRE_CHAT, body, i, &r, NULL), QUIRE_OK);
    }
    uint64_t seed = rng_os_seed(), rng = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    char copy[sizeof body];
    for (int round = 0; round < 10000; round++) {
        memcpy(copy, body, sizeof body);
        for (uint64_t k = rng_next(&rng) % 3 + 1; k > 0; k--) {
            copy[rng_next(&rng) % n] = (char)("\"{}[],:0-e.\\u\xff\0 tn"[rng_next(&rng) % 18]);
        }
        quire_error err = {0};
        quire_endpoint endpoint = round & 1 ? QUIRE_CHAT : QUIRE_COMPLETIONS;
        quire_err e = request_parse(&context, endpoint, copy, n, &r, &err);
        assert_true(e == QUIRE_OK || (e == QUIRE_BAD_REQUEST && err.message[0] != '\0' && r == NULL));
        quire_request_free(r);
    }
}

#ifdef QUIRE_DEBUG
/* Reads the body, with each allocation failing in turn. */
static void read_without_memory(quire_endpoint endpoint, const char *body) {
    for (int64_t point = 1;; point++) {
        quire_request *r;
        quire_error err = {0};
        fault_at(point);
        quire_err e = request_parse(&context, endpoint, body, strlen(body), &r, &err);
        bool happened = fault_happened();
        fault_at(0);
        assert_true(e == QUIRE_OK || happened);
        if (e != QUIRE_OK && (err.code != e || err.message[0] == '\0')) {
            fail_msg("%s\nallocation %d: error %d has code %d, message \"%s\"", body, (int)point, (int)e,
                     (int)err.code, err.message);
        }
        quire_request_free(r);
        if (!happened) {
            return;
        }
    }
}
#endif

TEST(an_error_has_its_words_whatever_allocation_fails) {
#ifdef QUIRE_DEBUG
    read_without_memory(QUIRE_COMPLETIONS,
                        "{\"prompt\":[\"Once\",\"There\"],\"stop\":[\"a\",\"b\"],\"logit_bias\":{\"3\":1},"
                        "\"allowed_token_ids\":[1,2],\"stop_token_ids\":[4],\"dry_multiplier\":1,"
                        "\"response_format\":{\"type\":\"json_object\"},\"nonsense\":{\"a\":[1]}}");
    read_without_memory(
        QUIRE_CHAT, "{" USER ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                    "\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"string\"}}}}}],"
                    "\"chat_template_kwargs\":{\"a\":1},\"documents\":[{\"text\":\"t\"}]}");
    read_without_memory(
        QUIRE_RESPONSES,
        "{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"type\":\"function_call\","
        "\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":"
        "\"function_call_output\",\"call_id\":\"c\",\"output\":\"1\"}],\"instructions\":\"Be\"}");
    read_without_memory(QUIRE_OLLAMA_CHAT,
                        "{\"model\":\"m\"," USER ",\"options\":{\"top_k\":3,\"stop\":[\"a\"]}}");
    read_without_memory(QUIRE_OLLAMA_GENERATE,
                        "{\"model\":\"m\",\"prompt\":\"Hi\",\"suffix\":\"x\",\"system\":\"Be\"}");
    read_without_memory(QUIRE_MESSAGES, "{\"model\":\"m\",\"max_tokens\":3,\"system\":\"Be\"," USER "}");
#endif
}

TEST_MAIN(NULL, NULL)
