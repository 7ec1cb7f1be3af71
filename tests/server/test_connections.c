/* Connections: framing, deadlines and limits, clients that leave. */
#include "server/site.h"

#include <dirent.h>

/* ---- framing ---- */

TEST(malformed_requests_get_a_status_and_the_connection_closes) {
    server_options o;
    server_options_init(&o);
    o.max_header_bytes = 1024;
    o.max_body_bytes = 1000;
    site *s = start(&o, TICK_US);
    expect_in(ask(s, "HELLO\r\n\r\n"), "HTTP/1.1 400 Bad Request\r\n");
    expect_in(ask(s, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: "
                     "chunked\r\n\r\n0\r\n\r\n"),
              "HTTP/1.1 400 ");
    char text[9000], filler[8000];
    memset(filler, 'a', sizeof(filler));
    snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: h\r\nX: %.*s\r\n\r\n", 6000, filler);
    expect_in(ask(s, text), "HTTP/1.1 431 ");
    snprintf(text, sizeof(text),
             "POST " COMPLETIONS " HTTP/1.1\r\nHost: h\r\nContent-Length: 6000\r\n\r\n%.*s", 6000, filler);
    const char *large = ask(s, text);
    expect_in(large, "HTTP/1.1 413 ");
    expect_in(large, "Connection: close\r\n");
    expect_in(large, "\"type\":\"invalid_request_error\"");
    assert_int_equal(count(large, "HTTP/1.1"), 1);
    stop(s);
}

TEST(pipelined_requests_are_answered_in_order) {
    site *s = start_default();
    strbuf all = {0};
    strbuf_add_str(&all, post(COMPLETIONS, "{\"max_tokens\":4}", ""));
    strbuf_add_str(&all, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    strbuf_add_str(&all, post(COMPLETIONS, "{\"max_tokens\":2,\"stream\":true}", ""));
    strbuf_add_str(&all, "\r\nGET /nope HTTP/1.1\r\nHost: h\r\n" CLOSE
                         "\r\nGET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    const char *response = ask(s, all.p);
    const char *first = strstr(response, "\"text\":\" t0 t1 t2 t3\""),
               *second = strstr(response, "{\"version\"");
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

TEST(many_pipelined_requests_are_all_answered) {
    site *s = start_default();
    int fd = dial(s);
    send_ahead(fd, 300);
    pause_us(50000);
    strbuf all = {0};
    char block[4096];
    for (ssize_t got; (got = recv(fd, block, sizeof block, 0)) > 0;) {
        strbuf_add(&all, block, (size_t)got);
    }
    assert_true(all.n > 300 * 4000);
    assert_int_equal(count(all.p, "{\"version\""), 1);
    strbuf_deinit(&all);
    close(fd);
    stop(s);
}

/* Of requests that a client sends ahead without reading, only so many are answered as fit
 * the buffers. */
TEST(pipelined_requests_wait_for_their_reader) {
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

TEST(a_chunked_body_and_expect_continue_work) {
    site *s = start_default();
    static const char chunked[] =
        "POST " COMPLETIONS " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json; charset=utf-8\r\n"
        "Transfer-Encoding: chunked\r\n" CLOSE "\r\n5\r\n{\"max\r\nD\r\n_tokens\": 1 }\r\n0\r\n\r\n";
    expect_in(ask(s, chunked), "\"text\":\" t0\"");
    int fd = dial(s);
    say(fd, "POST " COMPLETIONS " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: "
            "2\r\nExpect: 100-continue\r\n" CLOSE "\r\n");
    expect_in(hear(fd, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    say(fd, "{}");
    expect_in(hear(fd, NULL), "HTTP/1.1 200 OK\r\n");
    close(fd);
    /* What can be refused at once is, without asking for the body. */
    const char *refused =
        ask(s, "POST /nope HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_int_equal(strncmp(refused, "HTTP/1.1 404 ", 13), 0);
    stop(s);
}

TEST(a_refused_body_is_read_over_and_the_connection_stays) {
    site *s = start_default();
    strbuf all = {0};
    strbuf_add_str(&all,
                   "POST " COMPLETIONS
                   " HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nGET /");
    strbuf_add_str(&all, "GET /version HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    const char *response = ask(s, all.p);
    expect_in(response, "HTTP/1.1 400 ");
    expect_in(response, "\"param\":null");
    expect_in(response, "{\"version\"");
    strbuf_deinit(&all);
    stop(s);
}

TEST(http_1_0_is_spoken) {
    site *s = start_default();
    const char *response =
        ask(s, "POST " COMPLETIONS
               " HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"stream\":true}");
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

TEST(slow_headers_are_cut_off) {
    enum { DEADLINE_US = 100000 };
    server_options o = only_deadline(offsetof(server_options, header_deadline_us), DEADLINE_US);
    site *s = start(&o, TICK_US);
    int silent = dial(s), slow = -1;
    for (int64_t dialled_us = 0; clock_us() >= dialled_us + DEADLINE_US;) { /* else it is a silent one */
        close(slow);
        dialled_us = clock_us();
        slow = dial(s);
        say(slow, "GET /");
    }
    trickle(slow); /* does not help */
    expect_in(hear(slow, NULL), "HTTP/1.1 408 ");
    assert_true(closed(silent));
    close(silent), close(slow);
    stop(s);
}

TEST(slow_bodies_are_cut_off) {
    server_options o = only_deadline(offsetof(server_options, body_deadline_us), 100000);
    site *s = start(&o, TICK_US);
    int slow = dial(s);
    say(slow, "POST " COMPLETIONS
              " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n");
    trickle(slow);
    expect_in(hear(slow, NULL), "HTTP/1.1 408 ");
    close(slow);
    stop(s);
}

/* The body is skipped, and what is said about it would say nothing about the request. */
TEST(a_refused_body_that_comes_too_slowly_gets_its_refusal) {
    server_options o = only_deadline(offsetof(server_options, body_pace_us), 100000);
    site *s = start(&o, TICK_US);
    int slow = dial(s);
    say(slow, "POST /v1/nothing HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    const char *response = hear(slow, NULL);
    expect_in(response, "HTTP/1.1 404 ");
    expect_in(response, "there is no such path");
    assert_null(strstr(response, "too slowly"));
    close(slow);
    stop(s);
}

TEST(idle_connections_are_closed) {
    server_options o = only_deadline(offsetof(server_options, idle_deadline_us), 100000);
    site *s = start(&o, TICK_US);
    int idle = dial(s);
    say(idle, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_in(hear(idle, NULL), "HTTP/1.1 200 OK\r\n");
    close(idle);
    stop(s);
}

/* Deadlines never come: only the half-close can have ended it. */
TEST(what_is_left_over_after_a_half_close_is_no_reason_to_wait) {
    server_options o = only_deadline(offsetof(server_options, idle_deadline_us), NEVER_US);
    site *s = start(&o, TICK_US);
    static const char half_body[] =
        "POST " COMPLETIONS
        " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    static const char *const rests[] = {"\r\n", "GET /version HTTP/1.1\r\nHo", half_body};
    for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        int fd = dial(s);
        say(fd, post(COMPLETIONS, "{\"max_tokens\":50}", ""));
        say(fd, rests[i]);
        shutdown(fd, SHUT_WR);
        const char *response = hear(fd, NULL);
        expect_in(response, "HTTP/1.1 200 ");
        assert_int_equal(count(response, "HTTP/1.1 400 "), i > 0);
        assert_int_equal(count(response, "the request ended before it was complete"), i > 0);
        close(fd);
    }
    int fd = dial(s); /* nothing at all was sent, or all of it was answered */
    shutdown(fd, SHUT_WR);
    assert_true(closed(fd));
    close(fd);
    fd = dial(s);
    say(fd, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    hear(fd, "}");
    shutdown(fd, SHUT_WR);
    assert_true(closed(fd));
    close(fd);
    stop(s);
}

/* Asks until there is a place: the server sees later that a client has left. */
static void await_place(const site *s) {
    int64_t end = clock_us() + PATIENCE_US;
    while (strstr(ask(s, "GET /version HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), "HTTP/1.1 200 ") == NULL) {
        assert_true(clock_us() < end);
        pause_us(1000);
    }
}

TEST(too_many_connections_are_turned_away) {
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
    c = dial(s); /* it reads only once it has sent all of its request */
    say(c, "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: "
           "2000000\r\n\r\n");
    for (int i = 0; i < 200; i++) {
        char spaces[10001];
        snprintf(spaces, sizeof spaces, "%10000s", "");
        say(c, spaces);
    }
    const char *response = hear(c, NULL);
    expect_in(response, "HTTP/1.1 503 ");
    expect_in(response, "Retry-After: 1\r\n");
    expect_in(response, "\"message\":\"the server has reached its limit of connections");
    close(c);
    close(a);
    await_place(s);
    close(b);
    stop(s);
}

/* Descriptors of this process, which has both sides of each connection. */
static int n_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n;
}

TEST(a_flood_of_connections_over_the_limit_holds_few_of_them) {
    enum { N = 200, ANSWERED = 64 };
    server_options o;
    server_options_init(&o);
    o.max_connections = 1;
    site *s = start(&o, TICK_US);
    int fds[N], a = dial(s), n_answered = 0;
    say(a, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    hear(a, "}");
    int before = n_files();
    for (int i = 0; i < N; i++) {
        fds[i] = dial(s);
    }
    for (int i = 0; i < N; i++) {
        n_answered += strstr(hear(fds[i], NULL), "HTTP/1.1 503 ") != NULL;
    }
    assert_true(n_files() <= before + N + ANSWERED);
    assert_true(n_answered >= ANSWERED);
    say(a, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_in(hear(a, "}"), "HTTP/1.1 200 ");
    for (int i = 0; i < N; i++) {
        close(fds[i]);
    }
    close(a);
    await_place(s);
    stop(s);
}

/* ---- clients that leave, and clients that don't read ---- */

TEST(a_client_that_leaves_cancels_its_stream) {
    site *s = start_default();
    static const char *const bodies[] = {"{\"max_tokens\":1000000,\"stream\":true}",
                                         "{\"max_tokens\":1000000}"};
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

TEST(a_client_that_floods_while_it_waits_is_cut) {
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

/* ---- a connection that closes: its last output is sent, then the client has time to
 * read ---- */

/* Whether the server has n connections, of which the one that asks is the last. */
static bool has_connections(const site *s, int n) {
    char line[64];
    snprintf(line, sizeof line, "quire_http_connections %d\n", n);
    return strstr(ask(s, "GET /metrics HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n"), line) != NULL;
}

static void await_connections(const site *s, int n) {
    int64_t end = clock_us() + PATIENCE_US;
    while (!has_connections(s, n)) {
        assert_true(clock_us() < end);
        pause_us(10000);
    }
}

/* A client whose connection the server has shut down on its side. */
static int dial_and_end(const site *s) {
    int fd = dial(s);
    say(fd, "GET /version HTTP/1.1\r\nHost: h\r\n" CLOSE "\r\n");
    expect_in(hear(fd, NULL), "{\"version\"");
    return fd;
}

TEST(closing_drops_input_and_ends_when_the_client_has_had_time) {
    site *s = start_default();
    int fd = dial_and_end(s);
    say(fd, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    await_connections(s, 1); /* though this client stays */
    assert_true(closed(fd));
    close(fd);
    stop(s);
}

TEST(closing_ends_with_the_client) {
    site *s = start_default();
    int fds[] = {dial_and_end(s), dial_and_end(s)};
    shutdown(fds[0], SHUT_WR);
    struct linger reset = {.l_onoff = 1};
    setsockopt(fds[1], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fds[1]);
    await_connections(s, 1);
    close(fds[0]);
    stop(s);
}

TEST(a_drain_waits_for_what_is_closing) {
    site *s = start_default();
    int idle = dial(s), fd = dial_and_end(s);
    int64_t end = clock_us() + PATIENCE_US;
    while (!has_connections(s, 3)) { /* its time is over on a busy machine, or another one's is not yet */
        assert_true(clock_us() < end);
        close(fd);
        fd = dial_and_end(s);
    }
    server_stop(s->server);
    assert_true(closed(idle));
    pthread_join(s->thread, NULL);
    s->stopped = true;
    close(fd), close(idle);
    stop(s);
}

TEST_MAIN(NULL, NULL)
