/* A server in a thread, over fake_quire, and clients that use real sockets. */
#ifndef TESTS_SERVER_SITE_H
#define TESTS_SERVER_SITE_H

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
#include "test.h"

#define TICK_US     2000
#define PATIENCE_US 60000000 /* time limit; only an event that never happens takes as long */
#define NEVER_US    INT64_C(3600000000)

/* ---- a server in a thread ---- */

static inline void pause_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

typedef struct site {
    quire_engine *engine;
    server *server;
    server_options options;
    pthread_t thread;
    bool stopped;
} site;

static inline void *serve(void *arg) {
    server_serve(arg, NULL);
    return NULL;
}

static inline site *start(const server_options *o, int64_t tick_us) {
    site *s = calloc(1, sizeof(*s));
    quire_error err = {0};
    s->options = *o;
    s->options.port = 0;
    s->engine = fake_open(tick_us);
    assert_int_equal(server_open(s->engine, &s->options, &s->server, &err), QUIRE_OK);
    pthread_create(&s->thread, NULL, serve, s->server);
    return s;
}

static inline site *start_default(void) {
    server_options o;
    server_options_init(&o);
    return start(&o, TICK_US);
}

static inline void stop(site *s) {
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

static inline int dial(const site *s) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server_port(s->server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* Opens a connection with a small receive buffer. */
static inline int dial_narrow(const site *s) {
    int fd = dial(s), small = 4096;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    return fd;
}

static inline void say(int fd, const char *text) {
    size_t n = strlen(text);
    assert_int_equal(send(fd, text, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* Reads until the connection closes or `until` (may be NULL) appears; the result is
 * static. */
static inline const char *hear(int fd, const char *until) {
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

static inline bool closed(int fd) {
    const char *rest = hear(fd, NULL);
    return rest[0] == '\0';
}

/* Sends text on a new connection; returns what arrives until it closes. */
static inline const char *ask(const site *s, const char *text) {
    int fd = dial(s);
    say(fd, text);
    const char *response = hear(fd, NULL);
    close(fd);
    return response;
}

static inline const char *post(const char *path, const char *body, const char *headers) {
    static char text[8192];
    snprintf(
        text, sizeof(text),
        "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
        path, strlen(body), headers, body);
    return text;
}

#define CLOSE       "Connection: close\r\n"
#define COMPLETIONS "/v1/completions"
#define CHAT        "/v1/chat/completions"

static inline void expect_in(const char *response, const char *part) {
    if (strstr(response, part) == NULL) {
        print_error("wanted: %s\nin: %s\n", part, response);
        fail();
    }
}

static inline int count(const char *text, const char *part) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p += strlen(part)) {
        n++;
    }
    return n;
}

/* Waits until f(e) == n. */
static inline void await(int64_t (*f)(const quire_engine *), const quire_engine *e, int64_t n) {
    int64_t end = clock_us() + PATIENCE_US;
    while (f(e) != n) {
        assert_true(clock_us() < end);
        pause_us(1000);
    }
}

#endif
