/* GET and DELETE /debug/requests: the requests in progress, over a stand-in for the
 * engine. */
#include "server/site.h"

static const char *keys[] = {"anna-key"};

/* Two loops, a tenant's key and the operator's. */
static site *start_keyed(void) {
    server_options o;
    server_options_init(&o);
    o.api_keys = keys;
    o.n_api_keys = 1;
    o.operator_key = "root";
    o.n_loops = 2;
    return start(&o, TICK_US);
}

#define OF_TENANT   "Authorization: Bearer anna-key\r\n"
#define OF_OPERATOR "Authorization: Bearer root\r\n"

static const char *list(const site *s) {
    return ask(s, "GET /debug/requests HTTP/1.1\r\nHost: h\r\n" OF_OPERATOR CLOSE "\r\n");
}

static const char *cancel(const site *s, const char *id, const char *key) {
    char text[400];
    snprintf(text, sizeof text, "DELETE /debug/requests/%s HTTP/1.1\r\nHost: h\r\n%s" CLOSE "\r\n", id, key);
    return ask(s, text);
}

/* Copies the id of the row with this request_id; the list has it sooner or later, in this
 * state. */
static void find_id(const site *s, const char *request_id, const char *state, char id[64]) {
    char id_part[100], state_part[60];
    int64_t end = clock_us() + PATIENCE_US;
    snprintf(id_part, sizeof id_part, "\"request_id\":\"%s\"", request_id);
    snprintf(state_part, sizeof state_part, "\"state\":\"%s\"", state);
    for (;;) {
        const char *text = list(s), *at = strstr(text, id_part), *row = at,
                   *close = at != NULL ? strchr(at, '}') : NULL;
        while (row != NULL && *row != '{') {
            row--;
        }
        const char *found = row != NULL ? strstr(row, state_part) : NULL;
        if (found != NULL && found < close) {
            assert_int_equal(sscanf(row, "{\"id\":\"%63[^\"]\"", id), 1);
            return;
        }
        if (clock_us() > end) {
            print_error("%s\n", text);
        }
        assert_true(clock_us() < end);
    }
}

static void say_post(int fd, const char *body, const char *request_id) {
    char headers[200];
    snprintf(headers, sizeof headers, OF_TENANT "X-Request-Id: %s\r\n", request_id);
    say(fd, post(COMPLETIONS, body, headers));
}

TEST(the_list_has_every_request_without_its_text) {
    char id[64];
    site *s = start_keyed();
    expect_in(list(s), "{\"object\":\"list\",\"data\":[],\"left_out\":0}");
    int first = dial(s), second = dial(s), third = dial(s);
    say_post(first, "{\"prompt\":\"SECRET\",\"stream\":true,\"max_tokens\":100000}", "one");
    say_post(second, "{\"prompt\":\"SECRET\",\"n\":2,\"max_tokens\":100000}", "two");
    say(third, "POST " COMPLETIONS " HTTP/1.1\r\nHost: h\r\n" OF_TENANT
               "X-Request-Id: three\r\nContent-Type: application/json\r\nContent-Length: "
               "99\r\n\r\n{\"prompt\":\"SECRET");
    find_id(s, "one", "running", id);
    assert_int_equal(strncmp(id, "cmpl-", 5), 0);
    expect_in(hear(first, id), id); /* the id that the client sees */
    find_id(s, "two", "running", id);
    find_id(s, "three", "receiving", id);
    assert_int_equal(strncmp(id, "req-", 4), 0);
    const char *text = list(s);
    expect_in(text, "\"tenant\":\"key-");
    expect_in(text, "\"client\":\"127.0.0.1:");
    expect_in(text, "\"endpoint\":\"/v1/completions\"");
    expect_in(text,
              "\"stream\":true,\"choices\":1,\"prompt_tokens\":5,\"cached_tokens\":3,\"completion_tokens\":");
    expect_in(text, "\"stream\":false,\"choices\":1,");
    assert_int_equal(count(text, "\"request_id\""), 3);
    assert_null(strstr(text, "SECRET"));
    close(first);
    close(second);
    close(third);
    stop(s);
}

TEST(a_cancelled_request_ends_with_an_error_and_its_connection_goes_on) {
    char id[64];
    site *s = start_keyed();
    int whole = dial(s), stream = dial(s), arriving = dial(s);
    say_post(whole, "{\"max_tokens\":100000}", "whole");
    say_post(stream, "{\"stream\":true,\"max_tokens\":100000}", "stream");
    say(arriving, "POST " COMPLETIONS " HTTP/1.1\r\nHost: h\r\n" OF_TENANT
                  "X-Request-Id: late\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{");
    find_id(s, "whole", "running", id);
    expect_in(cancel(s, id, OF_OPERATOR), "\",\"object\":\"request.cancelled\"}");
    const char *response = hear(whole, "request_cancelled");
    expect_in(response, "HTTP/1.1 410 ");
    expect_in(response, "{\"error\":{\"message\":\"the operator cancelled this request\",");
    say(whole, "GET /version HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(hear(whole, NULL), "{\"version\":");
    find_id(s, "stream", "running", id);
    expect_in(cancel(s, id, OF_OPERATOR), "HTTP/1.1 200 ");
    response = hear(stream, "[DONE]");
    expect_in(response, "HTTP/1.1 200 ");
    expect_in(response, "\"code\":\"request_cancelled\"}}\n\ndata: [DONE]");
    find_id(s, "late", "receiving", id);
    expect_in(cancel(s, id, OF_OPERATOR), "HTTP/1.1 200 ");
    expect_in(hear(arriving, NULL), "HTTP/1.1 410 ");
    await(fake_running, s->engine, 0);
    assert_int_equal(fake_cancelled(s->engine), 2);
    expect_in(cancel(s, id, OF_OPERATOR), "HTTP/1.1 404 "); /* it is over */
    expect_in(list(s), "\"data\":[]");
    close(whole);
    close(stream);
    close(arriving);
    stop(s);
}

TEST(requests_in_progress_are_the_operators) {
    char id[64];
    site *s = start_keyed();
    int fd = dial(s);
    say_post(fd, "{\"stream\":true,\"max_tokens\":100000}", "x");
    find_id(s, "x", "running", id);
    expect_in(cancel(s, id, OF_TENANT), "HTTP/1.1 403 ");
    expect_in(cancel(s, id, ""), "HTTP/1.1 401 ");
    expect_in(ask(s, "GET /debug/requests HTTP/1.1\r\nHost: h\r\n" OF_TENANT CLOSE "\r\n"), "HTTP/1.1 403 ");
    expect_in(ask(s, "GET /debug/requests HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 401 ");
    expect_in(
        ask(s, "GET /debug/requests HTTP/1.1\r\nHost: h\r\nSec-Fetch-Site: cross-site\r\n" OF_OPERATOR CLOSE
               "\r\n"),
        "HTTP/1.1 403 ");
    assert_int_equal(fake_running(s->engine), 1);
    close(fd);
    stop(s);
}

TEST(an_id_of_no_request_is_not_found) {
    static const char *const ids[] = {
        "x",
        "cmpl-0000000000000000",
        "cmpl-ffffffffffffffff",
        "cmpl-000000000000000g",
        "a/b",
        "..%2f%ff",
        "0000000000000000000000000000000000000000000000000000000000000000000000000001",
        "+000000000000001"};
    site *s = start_keyed();
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const char *response = cancel(s, ids[i], OF_OPERATOR);
        expect_in(response, "HTTP/1.1 404 ");
        expect_in(response,
                  "no request with this id is in progress; GET /debug/requests lists those that are");
    }
    expect_in(cancel(s, "", OF_OPERATOR), "HTTP/1.1 404 ");
    stop(s);
}

TEST_MAIN(NULL, NULL)
