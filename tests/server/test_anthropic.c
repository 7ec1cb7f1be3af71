/* Responses in the form of Anthropic's Messages API, and what else has that form for its
 * clients. */
#include "server/site.h"

#define MESSAGES "/v1/messages"
#define VERSION  "Anthropic-Version: 2023-06-01\r\n"

/* The texts, one after the other. */
static void expect_order(const char *in, const char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char *at = strstr(in, texts[i]);
        if (at == NULL) {
            fail_msg("not there, or too early: %s", texts[i]);
            return;
        }
        in = at + strlen(texts[i]);
    }
}

TEST(a_whole_message_has_blocks_and_usage) {
    site *s = start_default();
    const char *a = ask(s, post(MESSAGES, "{\"max_tokens\":2}", CLOSE));
    expect_in(a, "{\"id\":\"msg_");
    expect_in(
        a, "\"type\":\"message\",\"role\":\"assistant\",\"model\":\"fake\",\"content\":[{\"type\":\"text\","
           "\"text\":\" t0 t1\"}],\"stop_reason\":\"max_tokens\",\"stop_sequence\":null,\"usage\":"
           "{\"input_tokens\":2,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":3,"
           "\"output_tokens\":2}}");
    a = ask(s, post(MESSAGES, "{\"max_tokens\":5,\"stop_at\":2,\"stop_kind\":\"string\"}", CLOSE));
    expect_in(a, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"st\\\"op\"");
    a = ask(s, post(MESSAGES, "{\"max_tokens\":5,\"stop_at\":2,\"stop_kind\":\"token\"}", CLOSE));
    expect_in(a, "\"stop_reason\":\"end_turn\",\"stop_sequence\":null");
    stop(s);
}

TEST(a_stream_has_its_events_in_order) {
    site *s = start_default();
    const char *a = ask(s, post(MESSAGES, "{\"max_tokens\":2,\"stream\":true}", CLOSE));
    const char *const events[] = {
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_",
        "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":5,",
        "\"output_tokens\":0}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":"
        "{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":"
        "{\"type\":\"text_delta\",\"text\":\" t0\"}}\n\n",
        "\"text\":\" t1\"}}\n\n",
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\","
        "\"stop_sequence\":null},\"usage\":{\"input_tokens\":2,\"cache_creation_input_tokens\":0,"
        "\"cache_read_input_tokens\":3,\"output_tokens\":2}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n\r\n0\r\n\r\n"};
    expect_order(a, events, sizeof events / sizeof *events);
    assert_int_equal(count(a, "event: "), 7);
    assert_int_equal(count(a, "data: "), 7);
    stop(s);
}

TEST(errors_have_the_form_of_their_path_and_client) {
    site *s = start_default();
    const char *a = ask(s, post(MESSAGES, "{\"fail\":\"parse\"}", CLOSE));
    expect_in(a, "HTTP/1.1 400 ");
    expect_in(a, "\r\nRequest-Id: req-");
    expect_in(a, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"");
    expect_in(a, "\"},\"request_id\":\"req-");
    a = ask(s, post(MESSAGES, "{\"fail\":\"submit\"}", CLOSE));
    expect_in(a, "HTTP/1.1 429 ");
    expect_in(a, "\"type\":\"rate_limit_error\"");
    a = ask(s, post(MESSAGES, "{\"fail\":\"middle\",\"stream\":true}", CLOSE));
    expect_in(a, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",");
    assert_null(strstr(a, "message_stop"));
    assert_null(strstr(a, "[DONE]"));
    a = ask(s, "GET /v1/models/x HTTP/1.1\r\nHost: h\r\n" VERSION CLOSE "\r\n");
    expect_in(a, "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\"");
    a = ask(s, "GET /v1/none HTTP/1.1\r\nHost: h\r\n" VERSION CLOSE "\r\n");
    expect_in(a, "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\"");
    a = ask(s, "GET /v1/models/x HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(a, "\"param\":\"model\",\"code\":404}}");
    assert_null(strstr(a, "\r\nRequest-Id: "));
    stop(s);
}

TEST(models_have_the_form_of_their_client) {
    site *s = start_default();
    const char *a = ask(s, "GET /v1/models HTTP/1.1\r\nHost: h\r\n" VERSION CLOSE "\r\n");
    expect_in(a,
              "{\"data\":[{\"type\":\"model\",\"id\":\"fake\",\"display_name\":\"fake\",\"created_at\":\"20");
    expect_in(a, "],\"has_more\":false,\"first_id\":\"fake\",\"last_id\":\"fake\"}");
    a = ask(s, "GET /v1/models/fake HTTP/1.1\r\nHost: h\r\n" VERSION CLOSE "\r\n");
    expect_in(a, "{\"type\":\"model\",\"id\":\"fake\"");
    a = ask(s, "GET /v1/models HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(a, "{\"object\":\"list\",\"data\":[{\"id\":\"fake\"");
    stop(s);
}

/* Clients of this form know pings as events, but none before the first. */
TEST(a_silent_stream_sends_pings_of_its_form) {
    server_options o;
    server_options_init(&o);
    o.ping_us = 5000;
    site *s = start(&o, TICK_US);
    int fd = dial(s);
    fake_hold(s->engine, true);
    say(fd, post(MESSAGES, "{\"max_tokens\":2,\"stream\":true}", CLOSE));
    const char *a = hear(fd, ": ping\n\n");
    assert_null(strstr(a, "event: "));
    fake_hold(s->engine, false);
    const char *const events[] = {"event: message_start\n", "event: message_stop\n"};
    expect_order(hear(fd, NULL), events, 2);
    close(fd);
    stop(s);
}

TEST(a_stream_of_this_form_is_not_rolled_back) {
    server_options o;
    server_options_init(&o);
    site *s = start(&o, 100);
    int fd = dial(s);
    char id[64], path[160];
    say(fd, post(MESSAGES, "{\"max_tokens\":1000000,\"stream\":true}", ""));
    const char *at = strstr(hear(fd, "text_delta"), "\"id\":\"msg_");
    assert_non_null(at);
    snprintf(id, sizeof id, "%.*s", (int)strcspn(at + 6, "\""), at + 6);
    snprintf(path, sizeof path, "/v1/streams/%s/rollback", id);
    const char *a = ask(s, post(path, "{\"position\":5}", CLOSE));
    expect_in(a, "HTTP/1.1 400 ");
    expect_in(a, "no event for a dropped tail");
    close(fd);
    stop(s);
}

TEST_MAIN(NULL, NULL)
