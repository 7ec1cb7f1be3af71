/* Ollama's API: which chat or completion request its fields become. */
#include <stdio.h>
#include <string.h>

#include "request/request.h"
#include "test.h"

static const request_context context = {.n_vocab = 2048, .max_model_len = 1024, .has_vocabulary = true};

static quire_err parse(quire_endpoint endpoint, const char *body, quire_request **r, quire_error *err) {
    *err = (quire_error){0};
    quire_err e = request_parse(&context, endpoint, body, strlen(body), r, err);
    return e == QUIRE_OK ? request_check(*r, err) : e; /* once more, as quire_submit does */
}

static void expect_messages(quire_endpoint endpoint, const char *body, const char *messages) {
    quire_request *r;
    quire_error err;
    assert_int_equal(parse(endpoint, body, &r, &err), QUIRE_OK);
    assert_string_equal(r->g.messages.json.p, messages);
    for (size_t i = 0; i < r->n_values; i++) {
        assert_false(r->values[i].field->flags & FIELD_PART);
    }
    quire_request_free(r);
}

TEST(calls_and_their_answers_get_ids) {
    expect_messages(
        QUIRE_OLLAMA_CHAT,
        "{\"messages\":[{\"role\":\"assistant\",\"thinking\":\"t\",\"tool_calls\":[{\"function\":{\"name\":"
        "\"a\"}},"
        "{\"function\":{\"name\":\"b\",\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\",\"content\":\"2\","
        "\"tool_name\":\"b\"},{\"role\":\"tool\",\"content\":\"?\"}]}",
        "[{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"t\",\"tool_calls\":[{\"id\":"
        "\"00000000\","
        "\"type\":\"function\",\"function\":{\"name\":\"a\",\"arguments\":{}}},{\"id\":\"00000001\","
        "\"type\":"
        "\"function\",\"function\":{\"name\":\"b\",\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\","
        "\"content\":\"2\","
        "\"name\":\"b\",\"tool_call_id\":\"00000001\"},{\"role\":\"tool\",\"content\":\"?\",\"tool_call_"
        "id\":"
        "\"00000001\"}]");
}

TEST(calls_of_one_tool_are_answered_one_after_the_other) {
    expect_messages(
        QUIRE_OLLAMA_CHAT,
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"a\"}},"
        "{\"function\":{\"name\":\"a\"}}]},{\"role\":\"tool\",\"content\":\"1\",\"tool_name\":\"a\"},"
        "{\"role\":\"tool\",\"content\":\"2\",\"tool_name\":\"a\"}]}",
        "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"00000000\",\"type\":"
        "\"function\",\"function\":{\"name\":\"a\",\"arguments\":{}}},{\"id\":\"00000001\",\"type\":"
        "\"function\",\"function\":{\"name\":\"a\",\"arguments\":{}}}]},{\"role\":\"tool\","
        "\"content\":\"1\",\"name\":\"a\",\"tool_call_id\":\"00000000\"},{\"role\":\"tool\","
        "\"content\":\"2\",\"name\":\"a\",\"tool_call_id\":\"00000001\"}]");
}

TEST(a_result_with_the_id_of_a_call_answers_that_one) {
    expect_messages(
        QUIRE_OLLAMA_CHAT,
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":"
        "\"a\"}},{\"id\":\"y\",\"function\":{\"name\":\"a\"}}]},{\"role\":\"tool\",\"content\":\"2\","
        "\"tool_name\":\"a\",\"tool_call_id\":\"y\"},{\"role\":\"tool\",\"content\":\"1\","
        "\"tool_name\":\"a\",\"tool_call_id\":\"z\"}]}",
        "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"00000000\",\"type\":"
        "\"function\",\"function\":{\"name\":\"a\",\"arguments\":{}}},{\"id\":\"00000001\",\"type\":"
        "\"function\",\"function\":{\"name\":\"a\",\"arguments\":{}}}]},{\"role\":\"tool\","
        "\"content\":\"2\",\"name\":\"a\",\"tool_call_id\":\"00000001\"},{\"role\":\"tool\","
        "\"content\":\"1\",\"name\":\"a\",\"tool_call_id\":\"00000000\"}]");
}

TEST(an_answer_without_a_name_takes_the_next_call) {
    expect_messages(
        QUIRE_OLLAMA_CHAT,
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"a\"}},"
        "{\"function\":{\"name\":\"a\"}}]},{\"role\":\"tool\",\"content\":\"1\"},"
        "{\"role\":\"tool\",\"content\":\"2\",\"tool_name\":\"a\"}]}",
        "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"00000000\",\"type\":"
        "\"function\",\"function\":{\"name\":\"a\",\"arguments\":{}}},{\"id\":\"00000001\",\"type\":"
        "\"function\",\"function\":{\"name\":\"a\",\"arguments\":{}}}]},{\"role\":\"tool\","
        "\"content\":\"1\",\"tool_call_id\":\"00000000\"},{\"role\":\"tool\","
        "\"content\":\"2\",\"name\":\"a\",\"tool_call_id\":\"00000001\"}]");
}

TEST(a_prompt_is_a_chat_unless_it_is_raw) {
    quire_request *r;
    quire_error err;
    expect_messages(QUIRE_OLLAMA_GENERATE, "{\"system\":\"s\",\"prompt\":\"p\",\"raw\":false}",
                    "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"p\"}]");
    assert_int_equal(parse(QUIRE_OLLAMA_GENERATE, "{\"prompt\":\"p\",\"raw\":true}", &r, &err), QUIRE_OK);
    assert_int_equal(r->g.info.endpoint, QUIRE_OLLAMA_RAW);
    assert_true(str_is(r->g.prompts[0].text, "p") && r->g.add_special && !r->g.add_bos && r->g.info.stream);
    /* a new prompt is as raw as the one before, unless raw is given too */
    assert_int_equal(quire_request_set(r, "prompt", "\"q\"", &err), QUIRE_OK);
    assert_int_equal(request_check(r, &err), QUIRE_OK);
    assert_true(r->g.info.endpoint == QUIRE_OLLAMA_RAW && str_is(r->g.prompts[0].text, "q"));
    assert_int_equal(quire_request_set_all(r, "{\"prompt\":\"t\",\"raw\":false}", 26, &err), QUIRE_OK);
    assert_int_equal(request_check(r, &err), QUIRE_OK);
    assert_int_equal(r->g.info.endpoint, QUIRE_OLLAMA_GENERATE);
    assert_string_equal(r->g.messages.json.p, "[{\"role\":\"user\",\"content\":\"t\"}]");
    assert_true(r->g.add_bos && !r->g.add_special);
    quire_request_free(r);
}

TEST(a_missing_prompt_is_named) {
    quire_request *r = NULL;
    quire_error err;
    assert_int_equal(parse(QUIRE_OLLAMA_GENERATE, "{}", &r, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.message, "prompt is missing; give a text");
    assert_int_equal(parse(QUIRE_OLLAMA_CHAT, "{}", &r, &err), QUIRE_BAD_REQUEST);
    assert_non_null(strstr(err.message, "messages is missing"));
}

TEST(options_are_fields_of_a_chat_and_defaults_are_a_chats) {
    quire_request *r;
    quire_error err;
    assert_int_equal(
        parse(QUIRE_OLLAMA_CHAT,
              "{\"model\":\"m:latest\",\"stream\":false,\"messages\":[{\"role\":\"user\",\"content\":"
              "\"x\"}],\"options\":{\"num_predict\":-1,\"top_k\":5,\"repeat_penalty\":1.5,\"stop\":\"s\","
              "\"num_ctx\":4096,\"wings\":2}}",
              &r, &err),
        QUIRE_OK);
    assert_int_equal(r->g.sampling.top_k, 5);
    assert_float_equal(r->g.sampling.repetition_penalty, 1.5, 0);
    assert_float_equal(r->g.sampling.temperature, 1, 0);
    assert_true(r->g.skip_special && r->g.add_generation_prompt && r->g.parallel_calls && !r->g.info.stream);
    assert_string_equal(r->g.info.model, "m");
    assert_string_equal(r->g.info.ignored, "options.wings");
    assert_true(str_is(r->g.stops[0], "s"));
    quire_request_free(r);
    assert_int_equal(parse(QUIRE_OLLAMA_CHAT, "{\"messages\":[],\"options\":{\"top_p\":7}}", &r, &err),
                     QUIRE_BAD_REQUEST);
}

TEST(keep_alive_is_a_duration_as_go_writes_it_or_seconds) {
    static const struct {
        const char *value;
        int64_t us; /* -2: it is none */
    } cases[] = {{"0", 0},
                 {"300", 300000000},
                 {"0.5", 500000},
                 {"-1", -1},
                 {"-0.1", -1},
                 {"1e300", -1},
                 {"9007199254740993000", -1},
                 {"\"5m\"", 300000000},
                 {"\"1h30m\"", 5400000000},
                 {"\"1.5s\"", 1500000},
                 {"\"+2ms\"", 2000},
                 {"\"3us\"", 3},
                 {"\"4\u00b5s\"", 4},
                 {"\"5000ns\"", 5},
                 {"\"-3m\"", -1},
                 {"\"-1\"", -1},
                 {"\"10\"", 10000000},
                 {"\"99999999999h\"", -1},
                 {"\"\"", -2},
                 {"\"-\"", -2},
                 {"\"m\"", -2},
                 {"\"5 m\"", -2},
                 {"\"5x\"", -2},
                 {"\"1h-2m\"", -2},
                 {"\"1.2.3s\"", -2},
                 {"\"0x5m\"", -2},
                 {"\"inf\"", -2},
                 {"\"5m\\u0000\"", -2},
                 {"true", -2},
                 {"[5]", -2}};
    quire_request *r;
    quire_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[100];
        snprintf(body, sizeof body, "{\"prompt\":\"p\",\"keep_alive\":%s}", cases[i].value);
        const quire_err e = parse(QUIRE_OLLAMA_GENERATE, body, &r, &err);
        if (cases[i].us == -2) {
            assert_int_equal(e, QUIRE_BAD_REQUEST);
            assert_string_equal(err.param, "keep_alive");
            continue;
        }
        assert_int_equal(e, QUIRE_OK);
        assert_true(r->g.more.has_keep_alive);
        if (r->g.more.keep_alive_us != cases[i].us) {
            fail_msg("%s: %lld", body, (long long)r->g.more.keep_alive_us);
        }
        quire_request_free(r);
    }
    assert_int_equal(parse(QUIRE_OLLAMA_GENERATE, "{\"prompt\":\"p\",\"keep_alive\":null}", &r, &err),
                     QUIRE_OK);
    assert_false(r->g.more.has_keep_alive);
    quire_request_free(r);
}

TEST_MAIN(NULL, NULL)
