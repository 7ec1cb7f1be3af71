/* The whole server over a stand-in for the engine, asked through real sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "server/fake_quire.h"
#include "server/server.h"

#define TICK_US 2000
#define PATIENCE_US 60000000 /* only what never comes takes so long */
#define NEVER_US    INT64_C(3600000000)

/* ---- a server in a thread ---- */

static void pause_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

typedef struct site {
    quire_engine *engine;
    server *server;
    server_options options;
    pthread_t thread;
    bool stopped;
} site;

static void *serve(void *arg) {
    server_serve(arg, NULL);
    return NULL;
}

static site *start(const server_options *o, int64_t tick_us) {
    site *s = calloc(1, sizeof(*s));
    quire_error err = {0};
    s->options = *o;
    s->options.port = 0;
    s->engine = fake_open(tick_us);
    assert_int_equal(server_open(s->engine, &s->options, &s->server, &err), QUIRE_OK);
    pthread_create(&s->thread, NULL, serve, s->server);
    return s;
}

static site *start_default(void) {
    server_options o;
    server_options_init(&o);
    return start(&o, TICK_US);
}

static void stop(site *s) {
    if (!s->stopped) {
        server_stop(s->server);
        server_stop(s->server);
        pthread_join(s->thread, NULL);
    }
    server_close(s->server);
    fake_close(s->engine);
    free(s);
}

/* ---- a client ---- */

static int dial(const site *s) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)server_port(s->server)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* A connection whose receiving side holds little. */
static int dial_narrow(const site *s) {
    int fd = dial(s), small = 4096;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    return fd;
}

static void say(int fd, const char *text) {
    size_t n = strlen(text);
    assert_int_equal(send(fd, text, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* Reads until the connection closes or `until` (may be NULL) appears; the text is static. */
static const char *hear(int fd, const char *until) {
    static char text[1 << 20];
    size_t n = 0;
    int64_t end = clock_us() + PATIENCE_US;
    text[0] = '\0';
    while (n + 1 < sizeof(text) && (until == NULL || strstr(text, until) == NULL)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_true(clock_us() < end);
        if (poll(&p, 1, 100) == 1) {
            ssize_t got = recv(fd, text + n, sizeof(text) - 1 - n, 0);
            if (got <= 0) {
                break;
            }
            n += (size_t)got;
            text[n] = '\0';
        }
    }
    return text;
}

static bool closed(int fd) {
    const char *rest = hear(fd, NULL);
    return rest[0] == '\0';
}

/* Sends text on a connection of its own and reads all that comes until it closes. */
static const char *ask(const site *s, const char *text) {
    int fd = dial(s);
    say(fd, text);
    const char *response = hear(fd, NULL);
    close(fd);
    return response;
}

static const char *post(const char *path, const char *body, const char *headers) {
    static char text[8192];
    snprintf(text, sizeof(text), "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s", path,
             strlen(body), headers, body);
    return text;
}

#define CLOSE "Connection: close\r\n"
#define COMPLETIONS "/v1/completions"
#define CHAT "/v1/chat/completions"

static void expect_in(const char *response, const char *part) {
    if (strstr(response, part) == NULL) {
        print_error("wanted: %s\nin: %s\n", part, response);
        fail();
    }
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p += strlen(part)) {
        n++;
    }
    return n;
}

/* Waits until f(e) is n. */
static void await(int64_t (*f)(const quire_engine *), const quire_engine *e, int64_t n) {
    int64_t end = clock_us() + PATIENCE_US;
    while (f(e) != n) {
        assert_true(clock_us() < end);
        pause_us(1000);
    }
}

/* ---- simple routes ---- */

static void a_rule_is_checked_on_a_text_thread(void **state) {
    (void)state;
    site *s = start_default();
    expect_in(ask(s, post("/v1/schemas/check", "{}", CLOSE)), "{\"accepted\":true}");
    expect_in(ask(s, post("/v1/schemas/check", "{\"fail\":\"parse\"}", CLOSE)), "HTTP/1.1 400 ");
    expect_in(ask(s, "GET /v1/schemas/check HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 405 ");
    stop(s);
}

static void simple_routes_response(void **state) {
    (void)state;
    site *s = start_default();
    expect_in(ask(s, "GET /health HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 200 OK\r\n");
    expect_in(ask(s, "GET /ping?x HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 200 OK\r\n");
    expect_in(ask(s, "GET /version HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "{\"version\":\"" QUIRE_VERSION "\"}");
    expect_in(ask(s, "GET /v1/models HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"),
              "{\"object\":\"list\",\"data\":[{\"id\":\"fake\",\"object\":\"model\",");
    expect_in(ask(s, "GET /v1/models/fak%65 HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "\"max_model_len\":128}");
    expect_in(ask(s, "GET /v1/models/nope HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 404 Not Found\r\n");
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
    const char *options = ask(s, "OPTIONS /v1/completions HTTP/1.1\r\nHost: h\r\nOrigin: http://x\r\n" CLOSE "\r\n");
    expect_in(options, "HTTP/1.1 204 No Content\r\n");
    assert_null(strstr(options, "Access-Control"));
    fake_set_healthy(s->engine, false);
    expect_in(ask(s, "GET /health HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 503 ");
    stop(s);
}

static void web_pages_elsewhere_may_ask_only_where_that_was_allowed(void **state) {
    (void)state;
    static const char get_models[] = "GET /v1/models HTTP/1.1\r\nHost: h\r\nOrigin: http://x\r\n" CLOSE "\r\n";
    site *s = start_default();
    assert_null(strstr(ask(s, get_models), "Access-Control"));
    stop(s);
    server_options o;
    server_options_init(&o);
    o.allow_origin = "http://x";
    s = start(&o, TICK_US);
    expect_in(ask(s, get_models), "Access-Control-Allow-Origin: http://x\r\nVary: Origin\r\n");
    expect_in(ask(s, "OPTIONS /v1/completions HTTP/1.1\r\nHost: h\r\nOrigin: http://x\r\n" CLOSE "\r\n"), "Access-Control-Allow-Headers: ");
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

static void without_keys_a_name_of_somebody_else_is_refused(void **state) {
    (void)state;
    static const char *const paths[] = {"/v1/models", "/debug/pool/state", "/pool"};
    static const char *const ours[] = {"127.0.0.1",  "localhost:8000", "[::1]",          "192.168.0.7:8000",
                                       "quire:8000", "api.example",    "API.example:80", "b.example"};
    static const char *const others[] = {"127.evil.com", "localhost.evil.com",   "evil.com:8000", "127.0.0.1.evil.com",
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
    assert_int_equal(status_of(s, "http://evil.com/v1/models", "127.0.0.1"), 403); /* the target's authority counts */
    assert_int_equal(status_of(s, "http://[::1]:80/v1/models", "evil.com"), 200);
    assert_int_equal(status_of(s, "/health", "evil.com"), 200);
    assert_int_equal(status_of(s, "/metrics", "evil.com"), 200);
    expect_in(ask(s, "GET /v1/models HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 ");
    stop(s);
    const char *keys[] = {"k"};
    o.api_keys = keys;
    o.n_api_keys = 1;
    s = start(&o, TICK_US);
    expect_in(ask(s, "GET /v1/models HTTP/1.1\r\nHost: any.example\r\nAuthorization: Bearer k\r\n" CLOSE "\r\n"), "HTTP/1.1 200 ");
    stop(s);
}

static void only_the_operator_drops_the_prefix_cache(void **state) {
    (void)state;
    server_options o;
    server_options_init(&o);
    site *s = start(&o, TICK_US);
    expect_in(ask(s, "GET /reset_prefix_cache HTTP/1.1\r\nHost: 127.0.0.1\r\n" CLOSE "\r\n"), "HTTP/1.1 405 ");
    expect_in(
        ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.com\r\n" CLOSE "Content-Length: 0\r\n\r\n"),
        "HTTP/1.1 403 ");
    expect_in(ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: evil.com\r\n" CLOSE "Content-Length: 0\r\n\r\n"), "HTTP/1.1 403 ");
    assert_int_equal(fake_drops(s->engine), 0);
    expect_in(ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: 127.0.0.1\r\n" CLOSE "Content-Length: 0\r\n\r\n"), "HTTP/1.1 200 ");
    assert_int_equal(fake_drops(s->engine), 1);
    stop(s);
    const char *keys[] = {"k"};
    o.api_keys = keys;
    o.n_api_keys = 1;
    o.operator_key = "root";
    s = start(&o, TICK_US);
    expect_in(ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: h\r\n" CLOSE "Content-Length: 0\r\n\r\n"), "HTTP/1.1 403 ");
    expect_in(ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\n" CLOSE "Content-Length: 0\r\n\r\n"),
              "HTTP/1.1 403 ");
    assert_int_equal(fake_drops(s->engine), 0);
    expect_in(ask(s, "POST /reset_prefix_cache HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer root\r\n" CLOSE "Content-Length: 0\r\n\r\n"),
              "HTTP/1.1 200 ");
    assert_int_equal(fake_drops(s->engine), 1);
    stop(s);
}

/* ---- framing ---- */

static void malformed_requests_get_a_status_and_the_connection_closes(void **state) {
    (void)state;
    server_options o;
    server_options_init(&o);
    o.max_header_bytes = 1024;
    o.max_body_bytes = 1000;
    site *s = start(&o, TICK_US);
    expect_in(ask(s, "HELLO\r\n\r\n"), "HTTP/1.1 400 Bad Request\r\n");
    expect_in(ask(s, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "HTTP/1.1 400 ");
    char text[9000], filler[8000];
    memset(filler, 'a', sizeof(filler));
    snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: h\r\nX: %.*s\r\n\r\n", 6000, filler);
    expect_in(ask(s, text), "HTTP/1.1 431 ");
    snprintf(text, sizeof(text), "POST " COMPLETIONS " HTTP/1.1\r\nHost: h\r\nContent-Length: 6000\r\n\r\n%.*s", 6000, filler);
    const char *large = ask(s, text);
    expect_in(large, "HTTP/1.1 413 ");
    expect_in(large, "Connection: close\r\n");
    expect_in(large, "\"type\":\"invalid_request_error\"");
    assert_int_equal(count(large, "HTTP/1.1"), 1);
    stop(s);
}

static void pipelined_requests_are_answered_in_order(void **state) {
    (void)state;
    site *s = start_default();
    strbuf all = {0};
    strbuf_add_str(&all, post(COMPLETIONS, "{\"max_tokens\":4}", ""));
    strbuf_add_str(&all, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    strbuf_add_str(&all, post(COMPLETIONS, "{\"max_tokens\":2,\"stream\":true}", ""));
    strbuf_add_str(&all, "\r\nGET /nope HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\nGET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    const char *response = ask(s, all.p);
    const char *first = strstr(response, "\"text\":\" t0 t1 t2 t3\""), *second = strstr(response, "{\"version\"");
    const char *third = strstr(response, "data: [DONE]"), *fourth = strstr(response, "HTTP/1.1 404");
    assert_true(first != NULL && second > first && third > second && fourth > third);
    assert_int_equal(count(response, "HTTP/1.1 "), 4); /* nothing after "close" is answered */
    strbuf_deinit(&all);
    stop(s);
}

/* Sends n requests for /metrics and a last one for /version ahead. */
static void send_ahead(int fd, int n) {
    strbuf all = {0};
    for (int i = 0; i < n; i++) {
        strbuf_add_str(&all, "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    strbuf_add_str(&all, "GET /version HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    say(fd, all.p);
    strbuf_deinit(&all);
}

static void many_pipelined_requests_are_all_answered(void **state) {
    (void)state;
    site *s = start_default();
    int fd = dial(s);
    send_ahead(fd, 300);
    pause_us(50000);
    size_t n = 0, versions = 0;
    char block[4096];
    for (ssize_t got; (got = recv(fd, block, sizeof(block) - 1, 0)) > 0; n += (size_t)got) {
        block[got] = '\0';
        versions += strstr(block, "{\"version\"") != NULL;
    }
    assert_true(n > 300 * 4000);
    assert_int_equal(versions, 1);
    close(fd);
    stop(s);
}

/* Of requests that a client sends ahead without reading, only so many are answered as fit the buffers. */
static void pipelined_requests_wait_for_their_reader(void **state) {
    (void)state;
    enum { N = 5000 };
    site *s = start_default();
    int fd = dial_narrow(s);
    send_ahead(fd, N);
    pause_us(900000);
    const char *metrics = ask(s, "GET /metrics HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    const char *answered = strstr(metrics, "\nquire_http_requests_total{status=\"200\"} ");
    assert_non_null(answered);
    assert_true(atoi(answered + strlen("\nquire_http_requests_total{status=\"200\"} ")) < N);
    close(fd);
    stop(s);
}

static void a_chunked_body_and_expect_continue_work(void **state) {
    (void)state;
    site *s = start_default();
    static const char chunked[] = "POST " COMPLETIONS " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json; charset=utf-8\r\n"
                                  "Transfer-Encoding: chunked\r\n" CLOSE "\r\n5\r\n{\"max\r\nD\r\n_tokens\": 1 }\r\n0\r\n\r\n";
    expect_in(ask(s, chunked), "\"text\":\" t0\"");
    int fd = dial(s);
    say(fd, "POST " COMPLETIONS
            " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n" CLOSE "\r\n");
    expect_in(hear(fd, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    say(fd, "{}");
    expect_in(hear(fd, NULL), "HTTP/1.1 200 OK\r\n");
    close(fd);
    /* What can be refused at once is, without asking for the body. */
    const char *refused = ask(s, "POST /nope HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_int_equal(strncmp(refused, "HTTP/1.1 404 ", 13), 0);
    stop(s);
}

static void a_refused_body_is_read_over_and_the_connection_stays(void **state) {
    (void)state;
    site *s = start_default();
    strbuf all = {0};
    strbuf_add_str(&all, "POST " COMPLETIONS " HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nGET /");
    strbuf_add_str(&all, "GET /version HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    const char *response = ask(s, all.p);
    expect_in(response, "HTTP/1.1 400 ");
    expect_in(response, "\"param\":null");
    expect_in(response, "{\"version\"");
    strbuf_deinit(&all);
    stop(s);
}

static void http_1_0_is_spoken(void **state) {
    (void)state;
    site *s = start_default();
    const char *response =
        ask(s, "POST " COMPLETIONS " HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"stream\":true}");
    expect_in(response, "Connection: close\r\n");
    assert_null(strstr(response, "chunked"));
    expect_in(response, "\r\n\r\ndata: {");
    expect_in(response, "}\n\ndata: [DONE]\n\n");
    stop(s);
}

/* ---- deadlines and limits ---- */

/* A byte now and then, until there is a response. */
static void trickle(int fd) {
    int64_t end = clock_us() + PATIENCE_US;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, 10) == 0) {
        assert_true(clock_us() < end);
        (void)send(fd, "x", 1, MSG_NOSIGNAL); /* the other side may just have closed */
    }
}

/* The other deadlines never come: each is told from them by that it comes at all. */
static server_options only_deadline(size_t offset, int64_t us) {
    server_options o;
    server_options_init(&o);
    o.header_deadline_us = o.body_deadline_us = o.idle_deadline_us = NEVER_US;
    memcpy((char *)&o + offset, &us, sizeof us);
    return o;
}

static void slow_headers_are_cut_off(void **state) {
    (void)state;
    server_options o = only_deadline(offsetof(server_options, header_deadline_us), 100000);
    site *s = start(&o, TICK_US);
    int silent = dial(s), slow = dial(s);
    say(slow, "GET /");
    trickle(slow); /* does not help */
    expect_in(hear(slow, NULL), "HTTP/1.1 408 ");
    assert_true(closed(silent));
    close(silent), close(slow);
    stop(s);
}

static void slow_bodies_are_cut_off(void **state) {
    (void)state;
    server_options o = only_deadline(offsetof(server_options, body_deadline_us), 100000);
    site *s = start(&o, TICK_US);
    int slow = dial(s);
    say(slow, "POST " COMPLETIONS " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n");
    trickle(slow);
    expect_in(hear(slow, NULL), "HTTP/1.1 408 ");
    close(slow);
    stop(s);
}

static void idle_connections_are_closed(void **state) {
    (void)state;
    server_options o = only_deadline(offsetof(server_options, idle_deadline_us), 100000);
    site *s = start(&o, TICK_US);
    int idle = dial(s);
    say(idle, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_in(hear(idle, NULL), "HTTP/1.1 200 OK\r\n");
    close(idle);
    stop(s);
}

static void too_many_connections_are_turned_away(void **state) {
    (void)state;
    server_options o;
    server_options_init(&o);
    o.max_connections = 2;
    site *s = start(&o, TICK_US);
    int a = dial(s), b = dial(s);
    say(a, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    say(b, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    hear(a, "}");
    hear(b, "}");
    int c = dial(s);
    expect_in(hear(c, NULL), "HTTP/1.1 503 ");
    close(c);
    close(a);
    pause_us(50000);
    expect_in(ask(s, "GET /version HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 200 ");
    close(b);
    stop(s);
}

/* ---- keys ---- */

static void keys_guard_v1_alone(void **state) {
    (void)state;
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

static void whole_answers_have_the_shape(void **state) {
    (void)state;
    site *s = start_default();
    const char *a = ask(s, post(COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":2}", CLOSE));
    expect_in(a, "Content-Type: application/json\r\n");
    expect_in(a, "{\"id\":\"cmpl-");
    expect_in(a, "\"object\":\"text_completion\",\"created\":");
    expect_in(a, "\"model\":\"fake\",\"choices\":[{\"index\":0,\"text\":\" t0 t1\",\"logprobs\":null,\"finish_reason\":\"length\","
                 "\"stop_reason\":null,\"token_ids\":null,\"prompt_logprobs\":null,\"prompt_token_ids\":null}],\"service_tier\":null,"
                 "\"system_fingerprint\":\"quire-");
    expect_in(a, "\"usage\":{\"prompt_tokens\":5,\"total_tokens\":7,\"completion_tokens\":2,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":3},");
    a = ask(s, post(CHAT, "{\"max_tokens\":5,\"stop_at\":2,\"stop_kind\":\"string\"}", CLOSE));
    expect_in(a, "{\"id\":\"chatcmpl-");
    expect_in(a, "\"object\":\"chat.completion\",");
    expect_in(a, "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" t0 t1\",\"refusal\":null,");
    expect_in(a, "\"finish_reason\":\"stop\",\"stop_reason\":\"st\\\"op\"");
    a = ask(s, post(COMPLETIONS, "{\"prompt\":[\"a\",\"b\"],\"stop_at\":1,\"stop_kind\":\"token\",\"return_token_ids\":true,\"echo\":true}",
                    CLOSE));
    expect_in(a, "{\"index\":1,\"text\":\"ECHO t0\",\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":42,\"token_ids\":[0],"
                 "\"prompt_logprobs\":null,\"prompt_token_ids\":[7,8]}]");
    expect_in(a, "\"usage\":{\"prompt_tokens\":10,\"total_tokens\":12,\"completion_tokens\":2,");
    stop(s);
}

static void streams_have_the_order(void **state) {
    (void)state;
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

    a = ask(s, post(CHAT, "{\"max_tokens\":2,\"stream\":true,\"stream_options\":{\"include_usage\":true}}", CLOSE));
    const char *role = strstr(a, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}");
    const char *first = strstr(a, "\"delta\":{\"content\":\" t0\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}");
    const char *last = strstr(a, "\"delta\":{\"content\":\" t1\"},\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,");
    const char *usage = strstr(a, "\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":7,\"completion_tokens\":2,"
                                  "\"prompt_tokens_details\":{\"cached_tokens\":3}},\"system_fingerprint\"");
    const char *done = strstr(a, "data: [DONE]");
    assert_true(role != NULL && first > role && last > first && usage > last && done > usage);
    assert_int_equal(count(a, "data: "), 5);
    assert_int_equal(count(a, "chat.completion.chunk"), 4);

    a = ask(s, post(COMPLETIONS, "{\"max_tokens\":2,\"stream\":true,"
                                 "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}", CLOSE));
    expect_in(a, "\"usage\":{\"prompt_tokens\":5,\"total_tokens\":6,\"completion_tokens\":1}}");
    assert_int_equal(count(a, "\"usage\""), 3);

    a = ask(s, post(COMPLETIONS, "{\"prompt\":[\"a\",\"b\"],\"max_tokens\":1,\"stream\":true,\"return_token_ids\":true}", CLOSE));
    expect_in(a, "{\"index\":1,\"text\":\" t0\",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,"
                 "\"prompt_token_ids\":[7,8],\"token_ids\":[0]}]");
    assert_int_equal(count(a, "data: "), 3);
    stop(s);
}

static void tokens_are_sent_when_they_come(void **state) {
    (void)state;
    server_options o;
    server_options_init(&o);
    site *s = start(&o, 200000);
    int fd = dial(s);
    say(fd, post(COMPLETIONS, "{\"max_tokens\":3,\"stream\":true}", ""));
    hear(fd, " t0");
    assert_int_equal(fake_produced(s->engine), 1);
    close(fd);
    stop(s);
}

static void each_token_of_a_burst_has_its_chunk(void **state) {
    (void)state;
    site *s = start_default();
    const char *a = ask(s, post(COMPLETIONS, "{\"max_tokens\":6,\"burst\":3,\"stream\":true}", CLOSE));
    assert_int_equal(count(a, "data: "), 7);
    expect_in(a, "\"text\":\" t4\"");
    stop(s);
}

static void errors_before_the_stream_have_a_status_and_later_ones_an_event(void **state) {
    (void)state;
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

/* ---- clients that leave, and clients that don't read ---- */

static void a_client_that_leaves_cancels_its_stream(void **state) {
    (void)state;
    site *s = start_default();
    static const char *const bodies[] = {"{\"max_tokens\":1000000,\"stream\":true}", "{\"max_tokens\":1000000}"};
    for (int64_t i = 0; i < 4; i++) {
        int fd = dial(s);
        say(fd, post(COMPLETIONS, bodies[i % 2], ""));
        await(fake_running, s->engine, 1);
        if (i >= 2) { /* also when it has sent other requests ahead */
            static char ahead[500000];
            memset(ahead, '\n', sizeof(ahead));
            assert_int_equal(send(fd, ahead, sizeof(ahead), MSG_NOSIGNAL), sizeof(ahead));
            pause_us(20000);
        }
        close(fd);
        await(fake_running, s->engine, 0); /* long before its million tokens */
        assert_int_equal(fake_cancelled(s->engine), i + 1);
    }
    stop(s);
}

static void a_client_that_floods_while_it_waits_is_cut(void **state) {
    (void)state;
    site *s = start_default();
    int fd = dial(s);
    say(fd, post(COMPLETIONS, "{\"max_tokens\":1000000}", ""));
    static char ahead[100000];
    memset(ahead, '\n', sizeof(ahead));
    while (send(fd, ahead, sizeof(ahead), MSG_NOSIGNAL) > 0) {
    }
    await(fake_cancelled, s->engine, 1);
    close(fd);
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
    say(fd, "POST " COMPLETIONS " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 32\r\n" CLOSE
            "\r\n{\"max_tokens\":50,\"stream\":true }");
    size_t n = 0, cap = 1 << 16;
    c->response = calloc(1, cap);
    for (ssize_t got; n + 1 < cap && (got = recv(fd, c->response + n, cap - 1 - n, 0)) > 0; n += (size_t)got) {
    }
    close(fd);
    return NULL;
}

static void many_clients_on_several_loops_all_get_everything(void **state) {
    (void)state;
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

static void what_runs_may_finish_after_a_stop(void **state) {
    (void)state;
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

static void a_deadline_ends_what_runs_too_long(void **state) {
    (void)state;
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

static void options_are_checked(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simple_routes_response),
        cmocka_unit_test(a_rule_is_checked_on_a_text_thread),
        cmocka_unit_test(web_pages_elsewhere_may_ask_only_where_that_was_allowed),
        cmocka_unit_test(only_the_operator_drops_the_prefix_cache),
        cmocka_unit_test(without_keys_a_name_of_somebody_else_is_refused),
        cmocka_unit_test(malformed_requests_get_a_status_and_the_connection_closes),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(many_pipelined_requests_are_all_answered),
        cmocka_unit_test(pipelined_requests_wait_for_their_reader),
        cmocka_unit_test(a_chunked_body_and_expect_continue_work),
        cmocka_unit_test(a_refused_body_is_read_over_and_the_connection_stays),
        cmocka_unit_test(http_1_0_is_spoken),
        cmocka_unit_test(slow_headers_are_cut_off),
        cmocka_unit_test(slow_bodies_are_cut_off),
        cmocka_unit_test(idle_connections_are_closed),
        cmocka_unit_test(too_many_connections_are_turned_away),
        cmocka_unit_test(keys_guard_v1_alone),
        cmocka_unit_test(whole_answers_have_the_shape),
        cmocka_unit_test(streams_have_the_order),
        cmocka_unit_test(tokens_are_sent_when_they_come),
        cmocka_unit_test(each_token_of_a_burst_has_its_chunk),
        cmocka_unit_test(errors_before_the_stream_have_a_status_and_later_ones_an_event),
        cmocka_unit_test(a_client_that_leaves_cancels_its_stream),
        cmocka_unit_test(a_client_that_floods_while_it_waits_is_cut),
        cmocka_unit_test(many_clients_on_several_loops_all_get_everything),
        cmocka_unit_test(what_runs_may_finish_after_a_stop),
        cmocka_unit_test(a_deadline_ends_what_runs_too_long),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
