/* Large bodies: read on a text thread, and bounded in memory by all connections
 * together. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "server/bodies.h"
#include "server/fake_quire.h"
#include "server/server.h"
#include "test.h"

#define LARGE   ((size_t)200 << 10)
#define METRICS "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

static quire_engine *engine;
static server *srv;
static pthread_t thread;

static void *serve(void *arg) {
    server_serve(arg, NULL);
    return NULL;
}

static void start_with(server_options o) {
    quire_error err = {0};
    o.port = 0;
    o.body_least_rate = 0; /* these clients take their time, however loaded the machine is */
    engine = fake_open(2000);
    assert_int_equal(server_open(engine, &o, &srv, &err), QUIRE_OK);
    pthread_create(&thread, NULL, serve, srv);
}

static void start(size_t max_bodies) {
    server_options o;
    server_options_init(&o);
    o.max_bodies_bytes = max_bodies;
    start_with(o);
}

static void stop(void) {
    server_stop(srv);
    server_stop(srv);
    pthread_join(thread, NULL);
    server_close(srv);
    fake_close(engine);
}

static int dial(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server_port(srv)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

static void say(int fd, const char *p, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, p + at, n - at, MSG_NOSIGNAL);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
}

/* The head of a request with a body of n bytes, and that body in *body: a JSON object
 * whose field "pad" fills it. */
static void say_head(int fd, const char *fields, size_t n, strbuf *body) {
    char head[256];
    int length = snprintf(
        head, sizeof(head),
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: "
        "close\r\nContent-Length: %zu\r\n\r\n",
        n);
    say(fd, head, (size_t)length);
    strbuf_clear(body);
    int room = (int)(n - strlen(fields) - strlen("{,\"pad\":\"\"}"));
    assert_int_equal(strbuf_addf(body, "{%s,\"pad\":\"%*s\"}", fields, room, ""), QUIRE_OK);
    assert_int_equal(body->n, n);
}

/* All that comes until the connection closes. */
static const char *hear(int fd) {
    static char text[1 << 16];
    size_t n = 0;
    ssize_t got;
    while ((got = recv(fd, text + n, sizeof(text) - 1 - n, 0)) > 0) {
        n += (size_t)got;
    }
    text[n] = '\0';
    close(fd);
    return text;
}

TEST(a_large_body_is_read_on_a_text_thread_and_a_small_one_is_not) {
    strbuf body = {0};
    start((size_t)64 << 20);
    int fd = dial();
    say_head(fd, "\"prompt\":\"x\"", 1000, &body);
    say(fd, body.p, body.n);
    assert_non_null(strstr(hear(fd), "HTTP/1.1 200"));
    assert_int_equal(fake_parses(engine), 0);
    fd = dial();
    say_head(fd, "\"prompt\":\"x\"", LARGE, &body);
    say(fd, body.p, body.n);
    assert_non_null(strstr(hear(fd), "HTTP/1.1 200"));
    assert_int_equal(fake_parses(engine), 1);
    fd = dial();
    say_head(fd, "\"prompt\":\"x\",\"fail\":\"parse\"", LARGE, &body);
    say(fd, body.p, body.n);
    const char *response = hear(fd);
    assert_non_null(strstr(response, "HTTP/1.1 400"));
    assert_non_null(strstr(response, "\"param\":\"top_p\""));
    strbuf_deinit(&body);
    stop();
}

/* Adds a request whose body has n bytes of white space, and fields after them. */
static void add_request(strbuf *b, size_t n, const char *fields, const char *header) {
    assert_int_equal(
        strbuf_addf(b,
                    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s"
                    "Content-Length: %zu\r\n\r\n%*s%s",
                    header, n + strlen(fields), (int)n, "", fields),
        QUIRE_OK);
}

TEST(requests_after_a_large_body_begin_where_it_ends) {
    strbuf all = {0};
    start((size_t)64 << 20);
    add_request(&all, 3 * LARGE + 1, "{\"prompt\":\"x\"}", "");
    add_request(&all, LARGE, "{\"prompt\":\"x\",\"fail\":\"parse\"}", "");
    add_request(&all, 10, "{\"prompt\":\"x\"}", "");
    add_request(&all, 2 * LARGE, "{\"prompt\":\"x\"}", "Connection: close\r\n");
    static const size_t pieces[] = {SIZE_MAX, 100000, 65537, 1000}; /* of what is sent at once */
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        int fd = dial();
        for (size_t at = 0; at < all.n;) {
            size_t n = all.n - at < pieces[i] ? all.n - at : pieces[i];
            say(fd, all.p + at, n);
            at += n;
        }
        static const char *const lines[] = {"HTTP/1.1 200", "HTTP/1.1 400", "HTTP/1.1 200", "HTTP/1.1 200"};
        const char *response = hear(fd);
        for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
            response = strstr(response, "HTTP/1.1 ");
            assert_non_null(response);
            assert_memory_equal(response, lines[k], strlen(lines[k]));
            response++;
        }
        assert_null(strstr(response, "HTTP/1.1 "));
    }
    strbuf_deinit(&all);
    stop();
}

#define LONG ((size_t)6 << 20)

TEST(a_long_body_is_looked_over_while_as_much_may_still_come) {
    strbuf body = {0};
    start((size_t)64 << 20);
    static const struct {
        size_t n;
        int looks;
    } sizes[] = {{2 << 20, 0}, {3 << 20, 1}, {LONG, 2}};
    int64_t before = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int fd = dial();
        say_head(fd, "\"prompt\":\"x\"", sizes[i].n, &body);
        say(fd, body.p, body.n);
        assert_non_null(strstr(hear(fd), "HTTP/1.1 200"));
        assert_int_equal(fake_looks(engine) - before, sizes[i].looks);
        before = fake_looks(engine);
    }
    strbuf_deinit(&body);
    stop();
}

TEST(a_body_that_its_beginning_decides_is_skipped_and_the_next_request_answered) {
    strbuf all = {0};
    static const char fields[] = "{\"fail\":\"look\",\"pad\":\"";
    start((size_t)64 << 20);
    assert_int_equal(
        strbuf_addf(&all,
                    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    "Content-Length: %zu\r\n\r\n%s%*s\"}",
                    LONG + strlen(fields) + 2, fields, (int)LONG, ""),
        QUIRE_OK);
    add_request(&all, 10, "{\"prompt\":\"x\"}", "Connection: close\r\n");
    int fd = dial();
    say(fd, all.p, all.n);
    const char *response = hear(fd);
    assert_memory_equal(response, "HTTP/1.1 400", 12);
    assert_non_null(strstr(response, "\"message\":\"guided_json is too large\""));
    assert_non_null(strstr(response, "\"param\":\"guided_json\""));
    assert_non_null(strstr(response + 1, "HTTP/1.1 200"));
    assert_int_equal(fake_looks(engine), 1);
    assert_int_equal(fake_parses(engine), 0);
    strbuf_deinit(&all);
    stop();
}

TEST(only_bodies_of_routes_that_say_so_are_looked_over) {
    strbuf all = {0};
    char response[4096] = {0};
    start((size_t)64 << 20);
    int fd = dial();
    add_request(&all, 10, "{\"prompt\":\"x\"}", "");
    say(fd, all.p, all.n);
    assert_true(recv(fd, response, sizeof response - 1, 0) > 0);
    assert_memory_equal(response, "HTTP/1.1 200", 12);
    strbuf_clear(&all);
    assert_int_equal(
        strbuf_addf(&all,
                    "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                    "Content-Length: %zu\r\n\r\n%*s",
                    LONG, (int)LONG, "\"fail\":\"look\""),
        QUIRE_OK);
    say(fd, all.p, all.n);
    assert_memory_equal(hear(fd), "HTTP/1.1 204", 12);
    assert_int_equal(fake_looks(engine), 0);
    strbuf_deinit(&all);
    stop();
}

/* A whole request whose body, of some 100 KB a chunk, comes in chunks. */
static void chunked_request(bool fails, int n_chunks, strbuf *all) {
    const char *fields = fails ? "{\"fail\":\"look\"," : "{\"prompt\":\"x\",";
    strbuf_clear(all);
    assert_int_equal(
        strbuf_add_str(
            all, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"),
        QUIRE_OK);
    assert_int_equal(strbuf_addf(all, "%zx\r\n%s\r\n", strlen(fields), fields), QUIRE_OK);
    for (int i = 0; i < n_chunks; i++) {
        assert_int_equal(strbuf_addf(all, "%x\r\n%*s\r\n", 100000, 100000, ""), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(all, "8\r\n\"pad\":1}\r\n0\r\n\r\n"), QUIRE_OK);
}

/* A body in chunks has no length: it is looked over wherever it is long enough. */
TEST(a_body_in_chunks_is_looked_over_too) {
    strbuf all = {0};
    start((size_t)64 << 20);
    for (int fails = 0; fails < 2; fails++) {
        chunked_request(fails, 20, &all);
        int fd = dial();
        say(fd, all.p, all.n);
        assert_non_null(strstr(hear(fd), fails ? "HTTP/1.1 400" : "HTTP/1.1 200"));
        assert_int_equal(fake_looks(engine), fails + 1);
    }
    strbuf_deinit(&all);
    stop();
}

TEST(a_body_in_chunks_that_grows_too_large_is_refused_as_its_beginning_was) {
    strbuf all = {0};
    server_options o;
    server_options_init(&o);
    o.max_body_bytes = (size_t)4 << 20;
    start_with(o);
    for (int fails = 0; fails < 2; fails++) {
        chunked_request(fails, 60, &all);
        int fd = dial();
        say(fd, all.p, all.n);
        const char *response = hear(fd);
        assert_memory_equal(response, fails ? "HTTP/1.1 400" : "HTTP/1.1 413", 12);
        assert_int_equal(strstr(response, "guided_json is too large") != NULL, fails);
    }
    strbuf_deinit(&all);
    stop();
}

TEST(a_client_that_stops_sending_a_long_body_hears_why_it_was_refused_or_that_it_was_late) {
    strbuf body = {0};
    server_options o;
    server_options_init(&o);
    o.body_deadline_us = 2000000;
    start_with(o);
    for (int fails = 0; fails < 2; fails++) {
        int fd = dial();
        say_head(fd, fails ? "\"fail\":\"look\"" : "\"prompt\":\"x\"", LONG, &body);
        say(fd, body.p, (size_t)1300 << 10);
        const char *response = hear(fd);
        assert_memory_equal(response, fails ? "HTTP/1.1 400" : "HTTP/1.1 408", 12);
        assert_int_equal(strstr(response, "guided_json is too large") != NULL, fails);
        assert_int_equal(fake_looks(engine), fails + 1);
    }
    strbuf_deinit(&body);
    stop();
}

TEST(a_server_may_stop_and_clients_leave_while_bodies_are_looked_over) {
    strbuf body = {0};
    for (int i = 0; i < 12; i++) {
        bool stays = i >= 10; /* the server gives it two seconds to read its response */
        start((size_t)64 << 20);
        int fd = dial();
        say_head(fd, i % 2 == 0 ? "\"prompt\":\"x\"" : "\"fail\":\"look\"", LONG, &body);
        say(fd, body.p, (size_t)1300 << 10);
        if (!stays) {
            close(fd);
        }
        stop();
        if (stays) {
            close(fd);
        }
    }
    strbuf_deinit(&body);
}

/* How often connections have waited for their turn so far. */
static int turns(void) {
    static const char name[] = "\nquire_http_receive_turns_total ";
    int fd = dial();
    say(fd, METRICS, strlen(METRICS));
    const char *at = strstr(hear(fd), name);
    assert_non_null(at);
    return atoi(at + strlen(name));
}

/* Whatever of it is kept: a turn ends within twice its share. */
TEST(a_large_body_is_received_in_turns_and_a_small_one_is_not) {
    strbuf body = {0};
    start((size_t)64 << 20);
    for (int i = 0; i < 10; i++) {
        int fd = dial();
        say_head(fd, "\"prompt\":\"x\"", TURN_BYTES - 1000, &body);
        say(fd, body.p, body.n);
        assert_non_null(strstr(hear(fd), "HTTP/1.1 200"));
    }
    assert_int_equal(turns(), 0);
    static const char *const fields[] = {"\"prompt\":\"x\"", "\"fail\":\"look\""};
    for (int i = 0, before = 0, now; i < 4; i++, before = now) {
        int fd = dial();
        if (i < 2) {
            say_head(fd, fields[i], LONG, &body);
        } else {
            chunked_request(i == 3, 60, &body);
        }
        say(fd, body.p, body.n);
        assert_non_null(strstr(hear(fd), i % 2 == 1 ? "HTTP/1.1 400" : "HTTP/1.1 200"));
        now = turns();
        assert_in_range(now - before, (int)(body.n / TURN_BYTES / 2 - 1), (int)(body.n / TURN_BYTES));
    }
    strbuf_deinit(&body);
    stop();
}

/* Bodies count together: those of one connection that are each below a share, whether
 * they are kept or refused. */
TEST(bodies_of_one_connection_count_together) {
    enum { N = 12 };
    strbuf all = {0};
    char response[4096];
    start((size_t)64 << 20);
    int fd = dial();
    for (int i = 0; i < N; i++) {
        strbuf_clear(&all);
        add_request(&all, TURN_BYTES / 2,
                    i % 2 == 0 ? "{\"prompt\":\"x\"}" : "{\"prompt\":\"x\",\"fail\":\"parse\"}", "");
        say(fd, all.p, all.n);
        assert_true(recv(fd, response, sizeof response, 0) > 0);
    }
    close(fd);
    assert_in_range(turns(), N / 4 - 1, N / 2);
    strbuf_deinit(&all);
    stop();
}

TEST(connections_may_leave_the_queue_for_turns) {
    enum { N = 24, BEGIN = 1 << 20 };
    strbuf body = {0};
    int fds[N];
    for (int stops = 0; stops < 2; stops++) {
        start((size_t)256 << 20);
        for (int i = 0; i < N; i++) {
            fds[i] = dial();
            say_head(fds[i], i % 3 == 0 ? "\"fail\":\"look\"" : "\"prompt\":\"x\"", LONG, &body);
            say(fds[i], body.p, BEGIN);
        }
        for (int i = 0; i < N; i += 2) {
            close(fds[i]);
        }
        for (int i = 1; i < N && !stops; i += 2) {
            say(fds[i], body.p + BEGIN, LONG - BEGIN); /* all bodies end alike */
            assert_non_null(strstr(hear(fds[i]), i % 3 == 0 ? "HTTP/1.1 400" : "HTTP/1.1 200"));
        }
        stop();
        for (int i = 1; i < N && stops; i += 2) {
            close(fds[i]);
        }
    }
    strbuf_deinit(&body);
}

TEST(a_client_that_leaves_while_its_body_is_read_is_forgotten) {
    strbuf body = {0};
    start((size_t)64 << 20);
    for (int i = 0; i < 20; i++) {
        int fd = dial();
        say_head(fd, "\"prompt\":\"x\"", LARGE, &body);
        say(fd, body.p, body.n);
        close(fd);
    }
    int fd = dial();
    say_head(fd, "\"prompt\":\"x\"", LARGE, &body);
    say(fd, body.p, body.n);
    assert_non_null(strstr(hear(fd), "HTTP/1.1 200"));
    strbuf_deinit(&body);
    stop();
}

TEST(bodies_wait_for_room_in_turn_and_small_ones_do_not) {
    enum { N = 6 };
    strbuf body = {0};
    int fds[N], small;
    start(LARGE + 1000);          /* one at a time */
    for (int i = 0; i < N; i++) { /* each has said its head and the beginning of its body */
        fds[i] = dial();
        say_head(fds[i], "\"prompt\":\"x\"", LARGE, &body);
        say(fds[i], body.p, 1000);
    }
    small = dial();
    say_head(small, "\"prompt\":\"x\"", 1000, &body);
    say(small, body.p, body.n);
    assert_non_null(strstr(hear(small), "HTTP/1.1 200"));
    strbuf_clear(&body);
    assert_int_equal(strbuf_addf(&body, "{\"prompt\":\"x\",\"pad\":\""), QUIRE_OK);
    while (body.n < LARGE - 2) {
        assert_int_equal(strbuf_add_char(&body, 'x'), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&body, "\"}"), QUIRE_OK);
    for (int i = 0; i < N; i++) {
        say(fds[i], body.p + 1000, body.n - 1000);
    }
    for (int i = 0; i < N; i++) {
        assert_non_null(strstr(hear(fds[i]), "HTTP/1.1 200"));
    }
    strbuf_deinit(&body);
    stop();
}

TEST(a_connection_that_stays_open_holds_no_room_of_bodies_that_were_answered) {
    strbuf all = {0};
    char response[4096];
    server_options o;
    server_options_init(&o);
    o.max_bodies_bytes = LARGE + 1000; /* one at a time */
    o.body_deadline_us = 10000000;
    start_with(o);
    static const char *const fields[] = {"{\"prompt\":\"x\"}", "{\"prompt\":\"x\",\"fail\":\"parse\"}"};
    int stays[2];
    for (int i = 0; i < 2; i++) {
        stays[i] = dial();
        strbuf_clear(&all);
        add_request(&all, LARGE, fields[i], "");
        say(stays[i], all.p, all.n);
        assert_true(recv(stays[i], response, sizeof response, 0) > 0);
        int fd = dial();
        strbuf_clear(&all);
        add_request(&all, LARGE, fields[0], "Connection: close\r\n");
        say(fd, all.p, all.n);
        assert_memory_equal(hear(fd), "HTTP/1.1 200", 12);
    }
    close(stays[0]);
    close(stays[1]);
    strbuf_deinit(&all);
    stop();
}

TEST_MAIN(NULL, NULL)
