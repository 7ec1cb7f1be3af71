/* Clients that read late, little or nothing, and clients that close their side: over a
 * stand-in for the engine, through real sockets. */
#include "site.h"

#define BODY_BYTES (32u << 20) /* room for what a client reads */

static server_options defaults(void) {
    server_options o;
    server_options_init(&o);
    o.port = 0;
    return o;
}

/* A client whose side takes in little before it reads. */
static int dial_late(const site *s) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server_port(s->server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* The server's side of fd's connection, made to take in little too. */
static void narrow_server_side(int fd) {
    struct sockaddr_in own, peer;
    socklen_t n = sizeof own;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &n), 0);
    for (int64_t end = clock_us() + PATIENCE_US;; pause_us(2000)) {
        for (int other = 3; other < 1024; other++) {
            int small = 4096;
            n = sizeof peer;
            if (getpeername(other, (struct sockaddr *)&peer, &n) == 0 && peer.sin_family == AF_INET &&
                peer.sin_port == own.sin_port) {
                assert_int_equal(setsockopt(other, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
                return;
            }
        }
        assert_true(clock_us() < end); /* it has not accepted yet */
    }
}

static void post_body(int fd, const char *body) {
    char text[2000];
    snprintf(text, sizeof text,
             "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nConnection: "
             "close\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    say(fd, text);
}

/* Reads until the connection closes; the text is the caller's to free. */
static char *read_all(int fd) {
    char *text = malloc(BODY_BYTES);
    size_t n = 0;
    for (ssize_t got; n + 1 < BODY_BYTES && (got = recv(fd, text + n, BODY_BYTES - 1 - n, 0)) > 0;
         n += (size_t)got) {
    }
    text[n] = '\0';
    return text;
}

/* Until n tokens were made and nothing runs any more. */
static void await_all(const quire_engine *e, int64_t n) {
    await(fake_produced, e, n);
    await(fake_running, e, 0);
}

/* What /metrics says. */
static int metric(const site *s, const char *metric_name) {
    char name[80];
    snprintf(name, sizeof name, "\n%s ", metric_name);
    int fd = dial_late(s);
    say(fd, "GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    char *text = read_all(fd);
    close(fd);
    const char *at = strstr(text, name);
    assert_non_null(at);
    int n = atoi(at + strlen(name));
    free(text);
    return n;
}

static void await_slow(const site *s, int n) {
    for (int64_t end = clock_us() + PATIENCE_US; metric(s, "quire_http_slow_readers_total") < n;
         pause_us(2000)) {
        assert_true(clock_us() < end);
    }
}

/* ---- readers that are late ---- */

TEST(a_late_reader_gets_the_whole_stream) {
    server_options o = defaults();
    o.max_output_bytes = 64 << 10;
    site *s = start(&o, 1000);
    int fd = dial_late(s);
    /* 10 MB, of which the buffers take a part */
    post_body(fd, "{\"max_tokens\":100,\"stream\":true,\"text_bytes\":100000}");
    /* all of it is made before a byte is read */
    await_all(s->engine, 100);
    char *text = read_all(fd);
    assert_int_equal(strlen(text) > 10000000, 1);
    assert_int_equal(count(text, "\"error\""), 0);
    assert_true(count(text, "data: ") < 100); /* chunks grew while the buffers were full */
    assert_int_equal(count(text, "data: [DONE]"), 1);
    assert_int_equal(count(text, "\"finish_reason\":\"length\""), 1);
    free(text);
    close(fd);
    assert_int_equal(metric(s, "quire_http_slow_readers_total"), 0);
    stop(s);
}

/* As chunks grow while the buffers are full, one is withheld when the event comes. */
TEST(a_rollback_comes_after_what_it_drops_for_a_late_reader_too) {
    server_options o = defaults();
    o.max_output_bytes = 64 << 10;
    site *s = start(&o, 1000);
    int fd = dial_late(s);
    post_body(fd, "{\"max_tokens\":110,\"stream\":true,\"text_bytes\":100000,\"rollback_at\":100}");
    await_all(s->engine, 110);
    char *text = read_all(fd);
    assert_true(count(text, "data: ") < 100);
    char *event = strstr(text, "\"quire\":{\"rollback\":5,");
    assert_non_null(event);
    assert_null(strstr(event, "xxxx"));
    assert_non_null(strstr(event, "yyyy"));
    *event = '\0';
    assert_non_null(strstr(text, "xxxx"));
    assert_null(strstr(text, "yyyy"));
    free(text);
    close(fd);
    stop(s);
}

TEST(who_reads_nothing_of_a_stream_is_cut_with_an_error_event) {
    server_options o = defaults();
    o.max_output_bytes = 64 << 10;
    o.write_deadline_us = 1500000;
    site *s = start(&o, 1000);
    int fd = dial_late(s);
    post_body(fd, "{\"max_tokens\":1000000,\"stream\":true,\"text_bytes\":1000}");
    await(fake_cancelled, s->engine, 1);
    char *text = read_all(fd);
    assert_int_equal(count(text, "data: {\"error\":{\"message\":\"the client read nothing"), 1);
    assert_int_equal(count(text, "data: [DONE]"), 1);
    free(text);
    close(fd);
    assert_int_equal(metric(s, "quire_http_slow_readers_total"), 1);
    stop(s);
}

TEST(a_long_whole_answer_is_written_as_it_is_read) {
    server_options o = defaults();
    o.max_output_bytes = 64 << 10;
    site *s = start(&o, 1000);
    int fd = dial_late(s);
    post_body(fd, "{\"max_tokens\":20,\"prompt\":[1,2,3,4],\"text_bytes\":100000}");
    await_all(s->engine, 80);
    char *text = read_all(fd);
    assert_int_equal(count(text, "HTTP/1.1 200 OK\r\n"), 1);
    assert_int_equal(count(text, "Transfer-Encoding: chunked\r\n"), 1);
    assert_int_equal(count(text, "\"finish_reason\":\"length\""), 4);
    assert_int_equal(count(text, "\"usage\":{"), 1);
    assert_true(strlen(text) > 8000000);
    assert_string_equal(text + strlen(text) - 5, "0\r\n\r\n");
    free(text);
    close(fd);
    assert_int_equal(metric(s, "quire_http_slow_readers_total"), 0);
    stop(s);
}

TEST(an_answer_that_nobody_reads_is_cut_and_counted) {
    server_options o = defaults();
    o.write_deadline_us = 300000;
    o.max_output_bytes = 64 << 10;
    site *s = start(&o, 1000);
    int fd = dial_late(s);
    post_body(fd, "{\"max_tokens\":90,\"text_bytes\":100000}");
    await_slow(s, 1);
    char *text = read_all(fd); /* what the system had taken; the end is missing */
    assert_int_equal(count(text, "\"usage\":{"), 0);
    free(text);
    close(fd);
    assert_int_equal(metric(s, "quire_http_slow_readers_total"), 1);
    stop(s);
}

/* Short responses on a connection that is kept alive, of which the client reads none. */
TEST(requests_ahead_of_a_client_that_reads_nothing_are_cut_and_counted) {
    server_options o = defaults();
    o.write_deadline_us = 300000;
    site *s = start(&o, 1000);
    int fd = dial_late(s);
    for (int i = 0; i < 2000; i++) {
        static const char ahead[] = "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";
        (void)send(fd, ahead, sizeof ahead - 1, MSG_NOSIGNAL); /* it may be cut already */
    }
    await_slow(s, 1);
    close(fd);
    stop(s);
}

#define POST_COMPLETIONS "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"

/* Of the first response a part stays unread, so little that further requests are taken.
 * The second lasts until nothing more is written, the third for ever. */
TEST(a_response_after_an_unread_one_is_cut_too) {
    static const char requests[] =
        POST_COMPLETIONS "Content-Length: 35\r\n\r\n{\"max_tokens\":1,\"text_bytes\":60000}" POST_COMPLETIONS
                         "Content-Length: 17\r\n\r\n{\"max_tokens\":50}" POST_COMPLETIONS
                         "Content-Length: 22\r\n\r\n{\"max_tokens\":1000000}";
    server_options o = defaults();
    o.write_deadline_us = 500000;
    site *s = start(&o, 1000);
    int fd = dial_late(s);
    narrow_server_side(fd);
    say(fd, requests);
    await(fake_cancelled, s->engine, 1);
    await_slow(s, 1);
    close(fd);
    stop(s);
}

TEST(a_closing_connection_whose_output_is_not_read_is_cut_and_counted) {
    server_options o = defaults();
    o.write_deadline_us = 300000;
    site *s = start(&o, 1000);
    int fd = dial_late(s);
    narrow_server_side(fd);
    say(fd, POST_COMPLETIONS
        "Connection: close\r\nContent-Length: 36\r\n\r\n{\"max_tokens\":1,\"text_bytes\":900000}");
    await_slow(s, 1);
    assert_int_equal(fake_cancelled(s->engine), 0); /* the response was complete */
    close(fd);
    stop(s);
}

TEST(answers_that_nobody_reads_have_a_bound_in_bytes) {
    enum { N = 8 };
    server_options o = defaults();
    o.max_unread_bytes = 8 << 20;
    o.write_deadline_us = 3600000000;
    site *s = start(&o, 1000);
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = dial_late(s);
        post_body(fds[i], i % 2 == 0 ? "{\"max_tokens\":60,\"text_bytes\":100000}"
                                     : "{\"max_tokens\":60,\"text_bytes\":100000,\"stream\":true}");
    }
    await_slow(s, N / 2); /* 48 MB do not wait: the longest unread go, and no deadline ends them */
    for (int i = 0; i < N; i++) {
        close(fds[i]);
    }
    await(fake_running, s->engine, 0);
    stop(s);
}

TEST(what_a_client_left_unread_counts_no_more_when_it_is_gone) {
    server_options o = defaults();
    site *s = start(&o, 1000);
    static const char *const bodies[] = {"{\"max_tokens\":60,\"text_bytes\":100000}",
                                         "{\"max_tokens\":60,\"text_bytes\":100000,\"stream\":true}"};
    for (int i = 0; i < 2; i++) {
        int fd = dial_late(s);
        post_body(fd, bodies[i]);
        for (int64_t end = clock_us() + PATIENCE_US; metric(s, "quire_http_unread_bytes") < 500000;
             pause_us(2000)) {
            assert_true(clock_us() < end);
        }
        close(fd);
        for (int64_t end = clock_us() + PATIENCE_US; metric(s, "quire_http_unread_bytes") != 0;
             pause_us(2000)) {
            assert_true(clock_us() < end);
        }
    }
    stop(s);
}

/* ---- clients that close their side ---- */

TEST(a_client_that_half_closes_gets_its_answer) {
    /* 600 ticks: over several probes */
    static const char *const bodies[] = {"{\"max_tokens\":3}", "{\"max_tokens\":600}",
                                         "{\"max_tokens\":600,\"stream\":true}"};
    server_options o = defaults();
    site *s = start(&o, 1000);
    for (int i = 0; i < 3; i++) {
        int fd = dial_late(s);
        post_body(fd, bodies[i]);
        shutdown(fd, SHUT_WR);
        char *text = read_all(fd);
        assert_int_equal(count(text, "HTTP/1.1 200 OK\r\n"), 1);
        assert_non_null(strstr(text, i == 0 ? " t2" : " t599"));
        assert_int_equal(count(text, "\"finish_reason\":\"length\""), 1);
        free(text);
        close(fd);
    }
    assert_int_equal(fake_cancelled(s->engine), 0);
    stop(s);
}

TEST(pipelined_requests_are_answered_after_a_half_close) {
    static const char request[] = "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: "
                                  "application/json\r\nContent-Length: 16\r\n\r\n{\"max_tokens\":2}";
    server_options o = defaults();
    site *s = start(&o, 1000);
    int fd = dial_late(s);
    say(fd, request);
    say(fd, request);
    say(fd, "GET /debug/pool/state HTTP/1.1\r\nHost: h\r\n\r\n");
    shutdown(fd, SHUT_WR);
    char *text = read_all(fd);
    assert_int_equal(count(text, "HTTP/1.1 200 OK\r\n"), 3);
    assert_int_equal(count(text, "\"finish_reason\":\"length\""), 2);
    assert_int_equal(count(text, "\"counts\":{"), 1);
    free(text);
    close(fd);
    stop(s);
}

/* More than may wait for its reader: the rest of the requests is taken as the client
 * reads. */
TEST(requests_that_wait_for_their_reader_are_answered_after_a_half_close) {
    enum { N = 60 };
    char requests[N * 40] = "";
    for (int i = 0; i < N; i++) {
        strcat(requests, "GET /pool HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    server_options o = defaults();
    site *s = start(&o, 1000);
    int fd = dial_late(s);
    narrow_server_side(fd);
    say(fd, requests);
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 20; i++) { /* for the server to see the end */
        pause_us(2000);
    }
    char *text = read_all(fd);
    assert_true(strlen(text) > 200000);
    assert_int_equal(count(text, "HTTP/1.1 200 OK\r\n"), N);
    free(text);
    close(fd);
    stop(s);
}

TEST(a_request_that_ends_too_early_is_told_so) {
    static const char *const parts[] = {"GET /health HTTP/1.1\r\nHo",
                                        "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: "
                                        "application/json\r\nContent-Length: 50\r\n\r\n{"};
    server_options o = defaults();
    site *s = start(&o, 1000);
    for (int i = 0; i < 2; i++) {
        int fd = dial_late(s);
        say(fd, parts[i]);
        shutdown(fd, SHUT_WR);
        char *text = read_all(fd);
        assert_int_equal(count(text, "HTTP/1.1 400 "), 1);
        free(text);
        close(fd);
    }
    stop(s);
}

TEST_MAIN(NULL, NULL)
