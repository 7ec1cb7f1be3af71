/* The whole server over a stand-in for the engine: routes, keys, responses, shutting
 * down. */
#include <signal.h>

#include "server/site.h"

/* ---- simple routes ---- */

TEST(a_rule_is_checked_on_a_text_thread) {
    site *s = start_default();
    expect_in(ask(s, post("/v1/schemas/check", "{}", CLOSE)), "{\"accepted\":true}");
    expect_in(ask(s, post("/v1/schemas/check", "{\"fail\":\"parse\"}", CLOSE)), "HTTP/1.1 400 ");
    expect_in(ask(s, "GET /v1/schemas/check HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 405 ");
    stop(s);
}

#define CHUNKED_TO(path)                                                                                     \
    "POST " path                                                                                             \
    " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

/* No byte after the size is sent: only that can have decided. */
TEST(a_routes_own_limit_holds_for_a_body_in_chunks) {
    site *s = start_default();
    int fd = dial(s);
    say(fd, CHUNKED_TO("/v1/schemas/check") "2\r\n{}\r\n0\r\n\r\n");
    expect_in(hear(fd, "{\"accepted\":true}"), "HTTP/1.1 200 ");
    /* other routes keep the server's limit, on the same connection too */
    say(fd, CHUNKED_TO(COMPLETIONS) "400001\r\n");
    shutdown(fd, SHUT_WR);
    expect_in(hear(fd, NULL), "HTTP/1.1 400 ");
    close(fd);
    fd = dial(s);
    say(fd, CHUNKED_TO("/v1/schemas/check") "2\r\n{}\r\n3FFFFF\r\n");
    const char *response = hear(fd, NULL);
    expect_in(response, "HTTP/1.1 413 ");
    expect_in(response, "Connection: close\r\n");
    expect_in(response, "the body is too large");
    close(fd);
    stop(s);
}

TEST(a_body_refused_by_its_length_is_refused_in_the_form_of_its_path) {
    site *s = start_default();
    const char *messages =
        ask(s, "POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n");
    expect_in(messages, "HTTP/1.1 413 ");
    expect_in(messages, "{\"type\":\"error\",\"error\":{\"type\":\"request_too_large\",");
    const char *ollama = ask(s, "POST /api/chat HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
                                "Expect: more\r\nContent-Length: 2\r\n\r\n");
    expect_in(ollama, "HTTP/1.1 417 ");
    expect_in(ollama, "Connection: close\r\n");
    expect_in(ollama, "{\"error\":\"the only supported expectation");
    stop(s);
}

TEST(a_refused_head_is_refused_in_the_form_of_its_path) {
    site *s = start_default();
    static const char *const heads[] = {
        "POST %s HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: -2\r\n\r\n{}",
        "POST %s HTTP/1.1\r\nHost: h\r\nX-Api-Key: a\r\nX-Api-Key: b\r\n\r\n",
        "POST %s HTTP/1.1\r\nHost: h\r\n folded: x\r\n\r\n",
        "OPTIONS %s HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char text[200];
        snprintf(text, sizeof text, heads[i], "/api/chat?x");
        expect_in(ask(s, text), "\r\n\r\n{\"error\":\"");
        snprintf(text, sizeof text, heads[i], "http://h/v1/messages");
        expect_in(ask(s, text), "\r\n\r\n{\"type\":\"error\",\"error\":");
        snprintf(text, sizeof text, heads[i], CHAT);
        expect_in(ask(s, text), "\r\n\r\n{\"error\":{\"message\":");
    }
    int fd = dial(s);
    say(fd, "POST /v1/messages HTTP/1.1\r\nHost: h\r\nX: ");
    shutdown(fd, SHUT_WR);
    expect_in(hear(fd, NULL), "{\"type\":\"error\",\"error\":");
    close(fd);
    stop(s);
}

/* Sends a request without a body and expects these methods to be named. */
static void expect_allowed(const site *s, const char *line, const char *methods) {
    char text[200], header[100];
    snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", line);
    snprintf(header, sizeof header, "\r\nAllow: %s\r\n", methods);
    const char *response = ask(s, text);
    expect_in(response, "HTTP/1.1 405 ");
    expect_in(response, header);
    snprintf(header, sizeof header, "\"%s: this path takes %s\"", line, methods);
    expect_in(response, header);
}

TEST(a_refused_method_hears_all_that_the_path_takes) {
    site *s = start_default();
    expect_allowed(s, "DELETE /ping", "GET, HEAD, POST");
    expect_allowed(s, "POST /health", "GET, HEAD");
    expect_allowed(s, "GET " CHAT, "POST");
    expect_allowed(s, "POST /v1/responses/resp_1", "GET, HEAD, DELETE");
    expect_allowed(s, "GET /v1/responses/resp_1/cancel", "POST");
    expect_allowed(s, "DELETE /v1/responses/resp_1/input_items", "GET, HEAD");
    stop(s);
}

TEST(simple_routes_response) {
    site *s = start_default();
    expect_in(ask(s, "GET /health HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 200 OK\r\n");
    expect_in(ask(s, "GET /ping?x HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 200 OK\r\n");
    expect_in(ask(s, "GET /version HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"),
              "{\"version\":\"" QUIRE_VERSION "\"}");
    expect_in(ask(s, "GET /v1/models HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"),
              "{\"object\":\"list\",\"data\":[{\"id\":\"fake\",\"object\":\"model\",");
    expect_in(ask(s, "GET /v1/models/fak%65 HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"),
              "\"max_model_len\":128,\"context_length\":128,\"input_modalities\":[\"text\"],");
    expect_in(ask(s, "GET /v1/models/nope HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"),
              "HTTP/1.1 404 Not Found\r\n");
    const char *metrics = ask(s, "GET /metrics HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(metrics, "vllm:num_requests_running{engine=\"0\",model_name=\"fake\"} 0\n");
    expect_in(metrics, "\nquire_pages_held 0\n");
    const char *none = ask(s, "GET /nope HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(none, "HTTP/1.1 404 Not Found\r\n");
    expect_in(none, "\"type\":\"not_found_error\",\"param\":null,\"code\":404}}");
    const char *method = ask(s, "GET /v1/completions HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(method, "HTTP/1.1 405 Method Not Allowed\r\n");
    expect_in(method, "Allow: POST\r\n");
    expect_in(ask(s, "DELETE /health HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 405 ");
    const char *head = ask(s, "HEAD /version HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(head, "Content-Length: 19\r\n\r\n");
    assert_null(strstr(head, "{"));
    const char *options =
        ask(s, "OPTIONS /v1/completions HTTP/1.1\r\nHost: h\r\nOrigin: http://x\r\n" CLOSE "\r\n");
    expect_in(options, "HTTP/1.1 204 No Content\r\n");
    expect_in(options, "Allow: POST, OPTIONS\r\n");
    assert_null(strstr(options, "Access-Control"));
    fake_set_healthy(s->engine, false);
    expect_in(ask(s, "GET /health HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 503 ");
    stop(s);
}

TEST(web_pages_elsewhere_may_ask_only_where_that_was_allowed) {
    static const char get_models[] =
        "GET /v1/models HTTP/1.1\r\nHost: h\r\nOrigin: http://x\r\n" CLOSE "\r\n";
    site *s = start_default();
    assert_null(strstr(ask(s, get_models), "Access-Control"));
    stop(s);
    server_options o;
    server_options_init(&o);
    o.allow_origin = "http://x";
    s = start(&o, TICK_US);
    expect_in(ask(s, get_models), "Access-Control-Allow-Origin: http://x\r\nVary: Origin\r\n");
    expect_in(ask(s, "OPTIONS /v1/completions HTTP/1.1\r\nHost: h\r\nOrigin: http://x\r\n" CLOSE "\r\n"),
              "Access-Control-Allow-Headers: *, Authorization\r\n"); /* clients send headers of their own */
    const char *stored =
        ask(s, "OPTIONS /v1/responses/resp_1 HTTP/1.1\r\nHost: h\r\nOrigin: http://x\r\n" CLOSE "\r\n");
    expect_in(stored, "Access-Control-Allow-Methods: GET, HEAD, DELETE, OPTIONS\r\n");
    expect_in(stored, "Access-Control-Max-Age: 600\r\n");
    expect_in(ask(s, "OPTIONS /v1/responses/resp_1/cancel HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"),
              "Allow: POST, OPTIONS\r\n");
    stop(s);
}

/* The status of a request whose target and Host are these. */
static int status_of(const site *s, const char *target, const char *host) {
    char text[400];
    int status = 0;
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\n" CLOSE "\r\n", target, host);
    assert_int_equal(sscanf(ask(s, text), "HTTP/1.1 %d", &status), 1);
    return status;
}

TEST(without_keys_a_name_of_somebody_else_is_refused) {
    static const char *const paths[] = {"/v1/models", "/debug/pool/state", "/pool"};
    static const char *const ours[] = {"127.0.0.1",  "localhost:8000", "[::1]",          "192.168.0.7:8000",
                                       "quire:8000", "api.example",    "API.example:80", "b.example"};
    static const char *const others[] = {
        "127.evil.com", "localhost.evil.com",   "evil.com:8000", "127.0.0.1.evil.com",
        "[::1",         "api.example.evil.com", "example.org"};
    server_options o;
    server_options_init(&o);
    o.allowed_hosts = "api.example,b.example";
    site *s = start(&o, TICK_US);
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
            assert_int_equal(status_of(s, paths[p], ours[i]), 200);
        }
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            assert_int_equal(status_of(s, paths[p], others[i]), 403);
        }
    }
    /* the target's authority counts */
    assert_int_equal(status_of(s, "http://evil.com/v1/models", "127.0.0.1"), 403);
    assert_int_equal(status_of(s, "http://[::1]:80/v1/models", "evil.com"), 200);
    assert_int_equal(status_of(s, "/health", "evil.com"), 200);
    assert_int_equal(status_of(s, "/metrics", "evil.com"), 200);
    expect_in(ask(s, "GET /v1/models HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 ");
    stop(s);
    const char *keys[] = {"k"};
    o.api_keys = keys;
    o.n_api_keys = 1;
    s = start(&o, TICK_US);
    expect_in(
        ask(s, "GET /v1/models HTTP/1.1\r\nHost: any.example\r\nAuthorization: Bearer k\r\n" CLOSE "\r\n"),
        "HTTP/1.1 200 ");
    stop(s);
}

TEST(only_the_operator_drops_the_prefix_cache) {
    server_options o;
    server_options_init(&o);
    site *s = start(&o, TICK_US);
    expect_in(ask(s, "GET /reset_prefix_cache HTTP/1.1\r\nHost: 127.0.0.1\r\n" CLOSE "\r\n"),
              "HTTP/1.1 405 ");
    expect_in(ask(s,
                  "POST /reset_prefix_cache HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.com\r\n" CLOSE
                  "Content-Length: 0\r\n\r\n"),
              "HTTP/1.1 403 ");
    expect_in(
        ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: evil.com\r\n" CLOSE "Content-Length: 0\r\n\r\n"),
        "HTTP/1.1 403 ");
    assert_int_equal(fake_drops(s->engine), 0);
    expect_in(
        ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: 127.0.0.1\r\n" CLOSE "Content-Length: 0\r\n\r\n"),
        "HTTP/1.1 200 ");
    assert_int_equal(fake_drops(s->engine), 1);
    stop(s);
    const char *keys[] = {"k"};
    o.api_keys = keys;
    o.n_api_keys = 1;
    o.operator_key = "root";
    s = start(&o, TICK_US);
    expect_in(ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: h\r\n" CLOSE "Content-Length: 0\r\n\r\n"),
              "HTTP/1.1 403 ");
    expect_in(ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\n" CLOSE
                     "Content-Length: 0\r\n\r\n"),
              "HTTP/1.1 403 ");
    assert_int_equal(fake_drops(s->engine), 0);
    expect_in(ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer root\r\n" CLOSE
                     "Content-Length: 0\r\n\r\n"),
              "HTTP/1.1 200 ");
    assert_int_equal(fake_drops(s->engine), 1);
    stop(s);
}

/* ---- keys ---- */

TEST(keys_guard_v1_alone) {
    server_options o;
    server_options_init(&o);
    const char *keys[] = {"k-test"};
    o.api_keys = keys;
    o.n_api_keys = 1;
    site *s = start(&o, TICK_US);
    const char *refused = ask(s, post(COMPLETIONS, "{}", CLOSE));
    expect_in(refused, "HTTP/1.1 401 Unauthorized\r\n");
    expect_in(refused, "WWW-Authenticate: Bearer\r\n");
    expect_in(refused, "\"type\":\"authentication_error\",\"param\":null,\"code\":401}}");
    expect_in(ask(s, post(COMPLETIONS, "{}", CLOSE "Authorization: Bearer k-tesT\r\n")), "HTTP/1.1 401 ");
    expect_in(ask(s, post(COMPLETIONS, "{}", CLOSE "Authorization: Bearer k-test\r\n")), "HTTP/1.1 200 ");
    expect_in(ask(s, post(COMPLETIONS, "{}", CLOSE "X-Api-Key: k-test\r\n")), "HTTP/1.1 200 ");
    expect_in(ask(s, post(COMPLETIONS, "{}", CLOSE "X-Api-Key: k-tesT\r\n")), "HTTP/1.1 401 ");
    expect_in(ask(s, post(COMPLETIONS, "{}", CLOSE "X-Api-Key: k-test\r\nAuthorization: Bearer k\r\n")),
              "HTTP/1.1 401 ");
    expect_in(ask(s, "GET /v1/models HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 401 ");
    expect_in(ask(s, "GET /v1/nope HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 401 ");
    static const char *const open[] = {"/health", "/ping", "/version", "/metrics"};
    for (size_t i = 0; i < 4; i++) {
        char text[200];
        snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n", open[i]);
        expect_in(ask(s, text), "HTTP/1.1 200 ");
    }
    /* A key is asked for again with every request of a connection. */
    int fd = dial(s);
    say(fd, post(COMPLETIONS, "{}", "Authorization: Bearer k-test\r\n"));
    expect_in(hear(fd, "usage"), "HTTP/1.1 200 ");
    say(fd, post(COMPLETIONS, "{}", CLOSE));
    expect_in(hear(fd, NULL), "HTTP/1.1 401 ");
    close(fd);
    stop(s);
}

/* ---- responses ---- */

TEST(whole_answers_have_the_shape) {
    site *s = start_default();
    const char *a = ask(s, post(COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":2}", CLOSE));
    expect_in(a, "Content-Type: application/json\r\n");
    expect_in(a, "{\"id\":\"cmpl-");
    expect_in(a, "\"object\":\"text_completion\",\"created\":");
    expect_in(a, "\"model\":\"fake\",\"choices\":[{\"index\":0,\"text\":\" t0 "
                 "t1\",\"logprobs\":null,\"finish_reason\":\"length\","
                 "\"stop_reason\":null,\"token_ids\":null,\"prompt_logprobs\":null,\"prompt_token_ids\":null}"
                 "],\"service_tier\":null,"
                 "\"system_fingerprint\":\"quire-");
    expect_in(a, "\"usage\":{\"prompt_tokens\":5,\"total_tokens\":7,\"completion_tokens\":2,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":3},");
    a = ask(s, post(CHAT, "{\"max_tokens\":5,\"stop_at\":2,\"stop_kind\":\"string\"}", CLOSE));
    expect_in(a, "{\"id\":\"chatcmpl-");
    expect_in(a, "\"object\":\"chat.completion\",");
    expect_in(a, "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" t0 "
                 "t1\",\"refusal\":null,");
    expect_in(a, "\"finish_reason\":\"stop\",\"stop_reason\":\"st\\\"op\"");
    a = ask(s, post(COMPLETIONS,
                    "{\"prompt\":[\"a\",\"b\"],\"stop_at\":1,\"stop_kind\":\"token\",\"return_token_ids\":"
                    "true,\"echo\":true}",
                    CLOSE));
    expect_in(a, "{\"index\":1,\"text\":\"ECHO "
                 "t0\",\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":42,\"token_ids\":[0],"
                 "\"prompt_logprobs\":null,\"prompt_token_ids\":[7,8]}]");
    expect_in(a, "\"usage\":{\"prompt_tokens\":10,\"total_tokens\":12,\"completion_tokens\":2,");
    stop(s);
}

TEST(streams_have_the_order) {
    site *s = start_default();
    const char *a = ask(s, post(COMPLETIONS, "{\"max_tokens\":3,\"stream\":true}", CLOSE));
    expect_in(a, "Content-Type: text/event-stream; charset=utf-8\r\n");
    expect_in(a, "Transfer-Encoding: chunked\r\n");
    assert_int_equal(count(a, "data: "), 4);
    expect_in(a, "\"text\":\" t0\",\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null,");
    expect_in(a, "\"text\":\" t2\",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,");
    expect_in(a, "data: [DONE]\n\n\r\n0\r\n\r\n");
    assert_int_equal(count(a, "system_fingerprint"), 1);
    assert_int_equal(count(a, "usage"), 0);

    a = ask(s, post(CHAT, "{\"max_tokens\":2,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
                    CLOSE));
    const char *role = strstr(
        a, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}");
    const char *first = strstr(
        a, "\"delta\":{\"content\":\" t0\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}");
    const char *last =
        strstr(a, "\"delta\":{\"content\":\" "
                  "t1\"},\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,");
    const char *usage =
        strstr(a, "\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":7,\"completion_tokens\":2,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":3}},\"system_fingerprint\"");
    const char *done = strstr(a, "data: [DONE]");
    assert_true(role != NULL && first > role && last > first && usage > last && done > usage);
    assert_int_equal(count(a, "data: "), 5);
    assert_int_equal(count(a, "chat.completion.chunk"), 4);

    a = ask(s, post(COMPLETIONS,
                    "{\"max_tokens\":2,\"stream\":true,"
                    "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}",
                    CLOSE));
    expect_in(a, "\"usage\":{\"prompt_tokens\":5,\"total_tokens\":6,\"completion_tokens\":1}}");
    assert_int_equal(count(a, "\"usage\""), 3);

    a = ask(s, post(COMPLETIONS,
                    "{\"prompt\":[\"a\",\"b\"],\"max_tokens\":1,\"stream\":true,\"return_token_ids\":true}",
                    CLOSE));
    expect_in(
        a,
        "{\"index\":1,\"text\":\" t0\",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,"
        "\"prompt_token_ids\":[7,8],\"token_ids\":[0]}]");
    assert_int_equal(count(a, "data: "), 3);
    stop(s);
}

TEST(tokens_are_sent_when_they_come) {
    site *s = start_default();
    int fd = dial(s);
    say(fd, post(COMPLETIONS, "{\"max_tokens\":3,\"pause_at\":1,\"stream\":true}", ""));
    expect_in(hear(fd, " t0"), " t0"); /* the next one never comes */
    assert_int_equal(fake_produced(s->engine), 1);
    close(fd);
    stop(s);
}

TEST(each_token_of_a_burst_has_its_chunk) {
    site *s = start_default();
    const char *a = ask(s, post(COMPLETIONS, "{\"max_tokens\":6,\"burst\":3,\"stream\":true}", CLOSE));
    assert_int_equal(count(a, "data: "), 7);
    expect_in(a, "\"text\":\" t4\"");
    stop(s);
}

TEST(a_stream_that_has_nothing_to_say_sends_pings) {
    server_options o;
    server_options_init(&o);
    o.ping_us = 5000;
    site *s = start(&o, TICK_US);
    int fd = dial(s), whole = dial(s);
    fake_hold(s->engine, true);
    say(whole, post(COMPLETIONS, "{\"max_tokens\":2}", CLOSE));
    say(fd, post(COMPLETIONS, "{\"max_tokens\":2,\"stream\":true}", CLOSE));
    const char *a = hear(fd, "ping\n\n\r\n8\r\n: ping\n\n\r\n");
    expect_in(a, "HTTP/1.1 200 OK\r\n");
    expect_in(a, "Content-Type: text/event-stream; charset=utf-8\r\n");
    assert_null(strstr(a, "data: "));
    fake_hold(s->engine, false);
    a = hear(fd, NULL); /* the rest comes as if there had been no ping */
    expect_in(a, "data: {");
    expect_in(a, "data: [DONE]\n\n\r\n0\r\n\r\n");
    a = hear(whole, NULL);
    expect_in(a, "HTTP/1.1 200 OK\r\n");
    assert_null(strstr(a, "ping"));
    close(fd), close(whole);
    fake_hold(s->engine, true);
    fd = dial(s); /* it fails after its head: an event says so */
    say(fd, post(COMPLETIONS, "{\"fail\":\"start\",\"stream\":true}", CLOSE));
    hear(fd, ": ping\n\n");
    fake_hold(s->engine, false);
    a = hear(fd, NULL);
    expect_in(a, "data: {\"error\":");
    expect_in(a, "data: [DONE]\n\n\r\n0\r\n\r\n");
    close(fd);
    stop(s);
}

TEST(errors_before_the_stream_have_a_status_and_later_ones_an_event) {
    site *s = start_default();
    const char *a = ask(s, post(COMPLETIONS, "{\"fail\":\"parse\",\"stream\":true}", CLOSE));
    expect_in(a, "HTTP/1.1 400 ");
    expect_in(a, "\"type\":\"invalid_request_error\",\"param\":\"top_p\",\"code\":400}}");
    expect_in(ask(s, post(COMPLETIONS, "[1]", CLOSE)), "\"param\":\"body\"");
    a = ask(s, post(COMPLETIONS, "{\"fail\":\"submit\"}", CLOSE));
    expect_in(a, "HTTP/1.1 429 Too Many Requests\r\n");
    expect_in(a, "Retry-After: 1\r\n");
    expect_in(a, "rate_limit_error");
    a = ask(s, post(COMPLETIONS, "{\"fail\":\"start\",\"stream\":true}", CLOSE));
    expect_in(a, "HTTP/1.1 400 ");
    expect_in(a, "\"param\":\"input_tokens\"");
    expect_in(ask(s, post(COMPLETIONS, "{\"fail\":\"middle\"}", CLOSE)), "HTTP/1.1 400 ");
    a = ask(s, post(COMPLETIONS, "{\"fail\":\"middle\",\"stream\":true}", CLOSE));
    expect_in(a, "HTTP/1.1 200 ");
    expect_in(a, "data: {\"error\":{\"message\":\"the prompt is too long\"");
    expect_in(a, "}}\n\ndata: [DONE]\n\n");
    a = ask(s, post(CHAT, "{\"model\":\"nope\"}", CLOSE));
    expect_in(a, "HTTP/1.1 404 ");
    expect_in(a, "\"type\":\"not_found_error\",\"param\":\"model\",\"code\":404}}");
    expect_in(ask(s, post(CHAT, "{\"model\":\"fake\"}", CLOSE)), "HTTP/1.1 200 ");
    await(fake_running, s->engine, 0);
    stop(s);
}

/* ---- many at once ---- */

typedef struct client {
    const site *site;
    char *response;
} client;

static void *run_client(void *arg) {
    client *c = arg;
    int fd = dial(c->site);
    say(fd, "POST " COMPLETIONS
            " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 32\r\n" CLOSE
            "\r\n{\"max_tokens\":50,\"stream\":true }");
    size_t n = 0, cap = 1 << 16;
    c->response = calloc(1, cap);
    for (ssize_t got; n + 1 < cap && (got = recv(fd, c->response + n, cap - 1 - n, 0)) > 0;
         n += (size_t)got) {
    }
    close(fd);
    return NULL;
}

TEST(many_clients_on_several_loops_all_get_everything) {
    enum { N = 64 };
    server_options o;
    server_options_init(&o);
    o.n_loops = 3;
    site *s = start(&o, TICK_US);
    pthread_t threads[N];
    client clients[N];
    for (int i = 0; i < N; i++) {
        clients[i] = (client){.site = s};
        pthread_create(&threads[i], NULL, run_client, &clients[i]);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(count(clients[i].response, "data: "), 51);
        expect_in(clients[i].response, "\" t49\"");
        free(clients[i].response);
    }
    stop(s);
}

/* ---- shutting down ---- */

TEST(what_runs_may_finish_after_a_stop) {
    server_options o;
    server_options_init(&o);
    o.shutdown_deadline_us = NEVER_US;
    site *s = start(&o, TICK_US);
    fake_hold(s->engine, true);
    int idle = dial(s), busy = dial(s), late = dial(s);
    say(late, "GET /version HTTP/1.1\r\nHo");
    say(idle, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    hear(idle, "}");
    say(busy, post(COMPLETIONS, "{\"max_tokens\":50}", ""));
    await(fake_running, s->engine, 1);
    server_stop(s->server);
    assert_true(closed(idle));
    say(late, "st: h\r\n\r\n");
    expect_in(hear(late, NULL), "Connection: close\r\n");
    fake_hold(s->engine, false);
    const char *response = hear(busy, NULL);
    expect_in(response, "HTTP/1.1 200 ");
    expect_in(response, "Connection: close\r\n");
    expect_in(response, " t49\"");
    pthread_join(s->thread, NULL);
    s->stopped = true;
    close(idle), close(busy), close(late);
    stop(s);
}

TEST(a_deadline_ends_what_runs_too_long) {
    server_options o;
    server_options_init(&o);
    o.shutdown_deadline_us = 50000;
    site *s = start(&o, TICK_US);
    int whole = dial(s);
    say(whole, post(COMPLETIONS, "{\"max_tokens\":1000000}", ""));
    int streamed = dial(s);
    say(streamed, post(COMPLETIONS, "{\"max_tokens\":1000000,\"stream\":true}", ""));
    await(fake_running, s->engine, 2);
    hear(streamed, "data: ");
    server_stop(s->server);
    const char *response = hear(whole, NULL);
    expect_in(response, "HTTP/1.1 503 ");
    expect_in(response, "shutting down");
    response = hear(streamed, NULL);
    expect_in(response, "data: {\"error\":{\"message\":\"the server is shutting down\"");
    close(whole), close(streamed);
    pthread_join(s->thread, NULL);
    s->stopped = true;
    assert_int_equal(fake_running(s->engine), 0);
    stop(s);
}

/* Two requests, each answered when it comes: what was there before the first is read by
 * then. */
static void let_the_server_read(const site *s) {
    int fd = dial(s);
    for (int i = 0; i < 2; i++) {
        say(fd, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
        hear(fd, "}");
    }
    close(fd);
}

TEST(a_request_that_is_still_arriving_is_answered_when_a_drain_ends) {
    enum { LARGE = 200000 };
    server_options o;
    server_options_init(&o);
    o.shutdown_deadline_us = 50000;
    o.max_bodies_bytes = LARGE + 1000; /* the second waits for room */
    site *s = start(&o, TICK_US);
    int fds[4];
    for (int i = 0; i < 4; i++) {
        char head[200];
        snprintf(
            head, sizeof head,
            "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{",
            i == 2 ? "/nope" : COMPLETIONS, i < 2 ? LARGE : 100);
        fds[i] = dial(s);
        say(fds[i], i == 3 ? "GET /version HTTP/1.1\r\nHo" : head);
    }
    let_the_server_read(s);
    server_stop(s->server);
    for (int i = 0; i < 4; i++) {
        const char *response = hear(fds[i], NULL);
        /* refused by its head, it hears that */
        expect_in(response, i == 2 ? "HTTP/1.1 404 " : "HTTP/1.1 503 ");
        assert_int_equal(strstr(response, "Retry-After: 1\r\n") != NULL, i != 2);
        expect_in(response, i == 2 ? "POST /nope: there is no such path" : "the server is shutting down");
        expect_in(response, "Connection: close\r\n");
        close(fds[i]);
    }
    pthread_join(s->thread, NULL);
    s->stopped = true;
    stop(s);
}

TEST(a_server_without_its_engine_says_so_and_keeps_its_connections) {
    site *s = calloc(1, sizeof *s);
    quire_error err = {0};
    server_options_init(&s->options);
    s->options.port = 0;
    s->options.n_loops = 2;
    assert_int_equal(server_open(NULL, &s->options, &s->server, &err), QUIRE_OK);
    int kept = dial(s), begun = dial(s), refused = dial(s);
    const char *const paths[] = {"/ready", "/health", "/v1/models", "/metrics", "/nope"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char request[100];
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", paths[i]);
        say(kept, request);
        const char *response = hear(kept, "}}");
        expect_in(response, "HTTP/1.1 503 ");
        expect_in(response, "\r\nRetry-After: 1\r\n");
        expect_in(response, "the model is being loaded; GET /ready returns 200 when it is ready");
    }
    const char *overloaded = ask(s, "POST /v1/messages HTTP/1.1\r\nHost: h\r\n" CLOSE
                                    "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
    expect_in(overloaded, "HTTP/1.1 529 ");
    expect_in(overloaded, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"the "
                          "model is being loaded");
    say(refused, "POST " COMPLETIONS
                 " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{");
    say(begun, "GET /ready HTTP/1.1\r\nHo");
    let_the_server_read(s);
    s->engine = fake_open(TICK_US);
    assert_int_equal(server_attach(s->server, s->engine, &err), QUIRE_OK);
    pthread_create(&s->thread, NULL, serve, s->server);
    say(kept, "GET /ready HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_in(hear(kept, "\r\n\r\n"), "HTTP/1.1 200 ");
    say(begun, "st: h\r\n\r\n");
    expect_in(hear(begun, "\r\n\r\n"), "HTTP/1.1 200 ");
    say(refused, "       }");
    expect_in(hear(refused, "}}"), "HTTP/1.1 503 ");
    say(refused, post(COMPLETIONS, "{\"max_tokens\":2}", ""));
    expect_in(hear(refused, "\"usage\""), "HTTP/1.1 200 ");
    close(kept);
    close(begun);
    close(refused);
    stop(s);
    server *closed_early;
    server_options o;
    server_options_init(&o);
    o.port = 0;
    assert_int_equal(server_open(NULL, &o, &closed_early, &err), QUIRE_OK);
    server_close(closed_early);
}

static void *run_server(void *arg) {
    site *s = arg;
    quire_error err = {0};
    assert_int_equal(server_run(s->server, s->engine, &err), QUIRE_OK);
    return NULL;
}

TEST(a_server_that_has_run_leaves_its_engine_to_be_closed_first) {
    site *s = calloc(1, sizeof *s);
    quire_error err = {0};
    server_options_init(&s->options);
    s->options.port = 0;
    assert_int_equal(server_open(NULL, &s->options, &s->server, &err), QUIRE_OK);
    s->engine = fake_open(TICK_US);
    pthread_create(&s->thread, NULL, run_server, s);
    while (strstr(ask(s, "GET /ready HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 200 ") == NULL) {
        pause_us(1000);
    }
    assert_true(fake_has_history(s->engine));
    assert_int_equal(kill(getpid(), SIGTERM), 0); /* it closes its own loops: server_stop may be late */
    pthread_join(s->thread, NULL);
    assert_false(fake_has_history(s->engine));
    fake_close(s->engine);
    server_close(s->server);
    free(s);
}

/* True when the server accepts no connections any more. */
static bool is_refused(const site *s) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server_port(s->server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool is_accepted = connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && !closed(fd);
    close(fd);
    return !is_accepted;
}

TEST(a_server_that_has_failed_or_drains_is_not_ready) {
    site *s = start_default();
    expect_in(ask(s, "GET /ready HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 200 ");
    fake_set_healthy(s->engine, false);
    expect_in(ask(s, "GET /ready HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 503 ");
    fake_set_healthy(s->engine, true);
    int fd = dial(s);
    say(fd, "GET /ready HTTP/1.1\r\nHo");
    let_the_server_read(s);
    server_stop(s->server);
    while (!is_refused(s)) {
        pause_us(1000);
    }
    say(fd, "st: h\r\n\r\n");
    const char *response = hear(fd, NULL);
    expect_in(response, "HTTP/1.1 503 ");
    expect_in(response, "the server is shutting down");
    close(fd);
    stop(s);
}

TEST(options_are_checked) {
    quire_engine *e = fake_open(TICK_US);
    server_options o;
    server *s;
    quire_error err = {0};
    server_options_init(&o);
    o.port = 70000;
    assert_int_equal(server_open(e, &o, &s, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "--port 70000"));
    server_options_init(&o);
    o.host = "no.such.host.invalid";
    assert_int_equal(server_open(e, &o, &s, &err), QUIRE_IO);
    assert_null(s);
    server_options_init(&o);
    o.port = 0;
    server *first;
    assert_int_equal(server_open(e, &o, &first, &err), QUIRE_OK);
    o.port = server_port(first);
    assert_int_equal(server_open(e, &o, &s, &err), QUIRE_IO);
    server_close(first);
    fake_close(e);
}

TEST_MAIN(NULL, NULL)
