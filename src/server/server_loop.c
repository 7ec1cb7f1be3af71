/* Runs a loop: accepts connections, dispatches the engines' events, shuts down. */
#include <assert.h>
#include <errno.h>
#include <event2/util.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/body_jobs.h"
#include "server/conn_model.h"
#include "server/loop.h"
#include "server/loop_order.h"
#include "server/response.h"
#include "server/routes.h"
#include "server/watch.h"

#define RETRY_US      100000  /* pause after accept failed for lack of descriptors */
#define LOOK_S        2       /* interval in seconds between readings of the engine's counters */
#define LAST_WORDS_US 1000000 /* time for clients to read why their response was cut */

/* ---- accepting ---- */

static void loop_on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
                           int n_from, void *arg) {
    (void)listener;
    conn_open(arg, fd, from, (socklen_t)n_from);
}

/* Handles a lack of descriptors or memory: waits before the next accept, since the socket
 * stays readable and the loop would spin. */
static void loop_on_accept_failed(struct evconnlistener *listener, void *arg) {
    loop *l = arg;
    evconnlistener_disable(listener);
    loop_set_timer(l->on_retry, RETRY_US);
}

static LOOP_CALLBACK(loop_on_retry) {
    loop *l = arg;
    if (l->listener != NULL) {
        evconnlistener_enable(l->listener);
    }
}

/* ---- the engines' events: one wake-up for all that a step produced ---- */

static LOOP_CALLBACK(loop_on_queue) {
    loop_model *p = arg;
    quire_event ev;
    while (quire_queue_next(p->queue, &ev)) {
        if (!body_job_event(&ev)) {
            response_event(&ev);
        }
    }
    response_flush_unsent(p->l);
    conn_relieve(p->l);
    loop_model_look(p);
}

/* ---- log lines about the whole server, by the first loop ---- */

static bool loop_is_first(const loop *l) {
    return l == l->server->loops;
}

/* Logs a line for each tier with new errors. */
static void loop_log_tiers(server *s) {
    static const char *const names[3] = {"host", "file", "redis"};
    quire_stats st;
    quire_engine_stats(s->engine, &st);
    for (int i = 0; i < 3; i++) {
        int64_t n = st.tiers[i].errors - s->n_tier_errors[i];
        if (n > 0) {
            log_line(LOG_WARN,
                     "KV tier %s: %lld more pages were damaged or not moved, %lld in all; their contents are "
                     "computed again",
                     names[i], (long long)n, (long long)st.tiers[i].errors);
        }
        s->n_tier_errors[i] = st.tiers[i].errors;
    }
}

static LOOP_CALLBACK(loop_on_look) {
    loop *l = arg;
    loop_log_tiers(l->server);
    if (l->stops_seen == 1) {
        log_line(LOG_INFO, "draining: requests left: %lld", (long long)loop_count_busy(l->server));
    }
}

static LOOP_CALLBACK(loop_on_ping) {
    response_ping_all(arg);
    program_api_ping_all(arg);
}

/* Starts the timer of pings. Streams are checked so often that a ping is late by at most
 * a fifth of its interval. */
static bool loop_start_pings(loop *l) {
    int64_t us = l->server->options.ping_us, every = (us + 4) / 5;
    if (us == 0) {
        return true;
    }
    struct timeval t = {.tv_sec = (time_t)(every / 1000000), .tv_usec = (suseconds_t)(every % 1000000)};
    l->on_ping = event_new(l->base, -1, EV_PERSIST, loop_on_ping, l);
    return l->on_ping != NULL && event_add(l->on_ping, &t) == 0;
}

static bool loop_start_looking(loop *l) {
    l->on_look = event_new(l->base, -1, EV_PERSIST, loop_on_look, l);
    return l->on_look != NULL && event_add(l->on_look, &(struct timeval){.tv_sec = LOOK_S}) == 0;
}

static void loop_log_stop_stage(const loop *l, int stage) {
    long long n = loop_count_busy(l->server);
    if (!loop_is_first(l)) {
        return;
    }
    if (stage == 1) {
        notify_manager("STOPPING=1");
        log_line(LOG_INFO, "draining: no new connections; %lld requests left, with %g s to finish", n,
                 (double)l->server->options.shutdown_deadline_us * 1e-6);
    } else if (stage == 2) {
        log_line(n > 0 ? LOG_WARN : LOG_INFO, "draining ended; %lld requests were cancelled", n);
    }
}

/* ---- shutting down ---- */

static void loop_stop_accepting(loop *l) {
    if (l->listener != NULL) {
        evconnlistener_free(l->listener);
        l->listener = NULL;
    }
}

static void loop_drain(loop *l) {
    loop_stop_accepting(l);
    if (loop_is_first(l)) {
        /* refuses further clients at once, so they do not wait for the drain's end */
        shutdown(l->server->listen_fd, SHUT_RD);
    }
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        conn_drain(c);
    }
    loop_set_timer(l->on_deadline, l->server->options.shutdown_deadline_us);
}

/* Cancels the requests that still run and sends errors to their clients. */
static void loop_cut_short(loop *l) {
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        conn_shut_down(c);
    }
    response_fail_detached(l);
    loop_set_timer(l->on_deadline, LAST_WORDS_US);
}

/* Advances the shutdown by one stage: 1 drain, 2 cancel, 3 leave. */
static void loop_go_to_stop(loop *l, int stop) {
    while (l->stops_seen < stop && l->stops_seen < 3) {
        l->stops_seen++;
        loop_log_stop_stage(l, l->stops_seen);
        if (l->stops_seen == 1) {
            loop_drain(l);
        } else if (l->stops_seen == 2) {
            loop_cut_short(l);
        } else {
            event_base_loopbreak(l->base);
        }
    }
    if (l->conns == NULL && l->background == NULL && l->stops_seen > 0) {
        event_base_loopbreak(l->base);
    }
}

/* Ends the loop's requests that hold a model, if a sleep aborts requests. */
static void loop_abort_requests(loop *l) {
    static const api_error why = {.status = 503, .message = "the operator has put the server to sleep"};
    const int n_aborts = atomic_load(&l->server->n_aborts);
    if (l->aborts_seen == n_aborts) {
        return;
    }
    l->aborts_seen = n_aborts;
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        if (c->model != NULL || response_of(c) != NULL || program_api_runs(c)) {
            conn_end(c, &why);
        }
    }
    while (l->background != NULL) {
        response_end_detached(l->background, &why);
    }
}

static LOOP_CALLBACK(loop_on_wake) {
    loop *l = arg;
    wake_wait(&l->bell, 0);
    orders_take(l);
    responses_drop_unwanted(l);
    conn_resume_bodies(l);
    loop_abort_requests(l);
    conns_look_for_models(l);
    if (l->models == NULL && atomic_load(&l->server->stops_waiting)) {
        event_base_loopbreak(l->base);
    }
    loop_go_to_stop(l, atomic_load(&l->server->stops));
}

static LOOP_CALLBACK(loop_on_deadline) {
    loop *l = arg;
    loop_go_to_stop(l, l->stops_seen + 1);
}

/* ---- opening and closing ---- */

static struct event_base *loop_new_base(void) {
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;
    if (config != NULL) {
        /* only one thread uses it; others ring the bell */
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
        base = event_base_new_with_config(config);
        event_config_free(config);
    }
    return base;
}

quire_err loop_open(loop *l, server *s) {
    *l = (loop){.server = s,
                .random = rng_os_seed(),
                .on_queue = loop_on_queue,
                .on_programs = program_api_on_events};
    TRY(wake_init(&l->bell));
    quire_err e = http_stats_open(&l->http);
    l->base = e == QUIRE_OK ? loop_new_base() : NULL;
    if (l->base == NULL) {
        loop_close(l);
        return e == QUIRE_OK ? QUIRE_NO_MEMORY : e;
    }
    e = watch_open(l);
    l->listener = evconnlistener_new(l->base, loop_on_accept, l, LEV_OPT_CLOSE_ON_EXEC, 0, s->listen_fd);
    l->on_wake = event_new(l->base, l->bell.fd, EV_READ | EV_PERSIST, loop_on_wake, l);
    l->on_deadline = evtimer_new(l->base, loop_on_deadline, l);
    l->on_retry = evtimer_new(l->base, loop_on_retry, l);
    if (e != QUIRE_OK || l->listener == NULL || l->on_wake == NULL || l->on_deadline == NULL ||
        l->on_retry == NULL || !body_turns_open(&l->turns, l->base) || event_add(l->on_wake, NULL) != 0) {
        loop_close(l);
        return QUIRE_NO_MEMORY;
    }
    evconnlistener_set_error_cb(l->listener, loop_on_accept_failed);
    return QUIRE_OK;
}

quire_err loop_attach(loop *l) {
    assert(l->server->engine != NULL && l->models == NULL);
    TRY(loop_models_open(l));
    return loop_start_pings(l) && (!loop_is_first(l) || loop_start_looking(l)) ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void loop_close(loop *l) {
    while (l->conns != NULL) {
        conn_close(l->conns);
    }
    response_fail_detached(l);
    orders_shut(l);
    loop_stop_accepting(l);
    watch_shut(l);
    struct event *events[] = {l->on_wake, l->on_deadline, l->on_retry, l->on_ping, l->on_look};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        loop_free_event(events[i]);
    }
    body_turns_close(&l->turns);
    loop_models_close(l);
    if (l->base != NULL) {
        event_base_free(l->base);
    }
    wake_deinit(&l->bell);
    strbuf_deinit(&l->scratch);
    http_stats_close(l->http);
    *l = (loop){0};
}

quire_err loop_run(loop *l) {
    assert(l->base != NULL);
    int r = event_base_dispatch(l->base);
    return r >= 0 ? QUIRE_OK : QUIRE_IO;
}

/* Listening: on a port of an address, or a socket file; and the limit of open files. */

#define BACKLOG   1024
#define OWN_FILES 128 /* descriptors for all but connections: the model, tiers, loops */
#define UNIX_MODE 0660

static bool listen_starts(int fd) {
    return listen(fd, BACKLOG) == 0 && evutil_make_socket_nonblocking(fd) == 0 &&
           evutil_make_socket_closeonexec(fd) == 0;
}

/* Closes fd, if it is open, without changing errno. Returns -1. */
static int listen_close_failed(int fd) {
    int saved = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = saved;
    return -1;
}

static int listen_at(const struct addrinfo *at) {
    int fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
    int on = 1;
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    }
    return fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen_starts(fd)
               ? fd
               : listen_close_failed(fd);
}

static bool listen_is_loopback(const struct sockaddr_storage *at) {
    if (at->ss_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr) >> 24 == 127;
    }
    return at->ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr);
}

static quire_err listen_note_address(server *s, quire_error *err) {
    struct sockaddr_storage at;
    socklen_t n = sizeof(at);
    char host[200], port[16];
    if (getsockname(s->listen_fd, (struct sockaddr *)&at, &n) != 0 ||
        getnameinfo((struct sockaddr *)&at, n, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return err_set(err, QUIRE_IO, -1, "the listening address can't be read: %s", strerror(errno));
    }
    s->port = atoi(port);
    s->on_loopback = listen_is_loopback(&at);
    snprintf(s->url, sizeof(s->url), at.ss_family == AF_INET6 ? "http://[%s]:%d" : "http://%s:%d", host,
             (int)s->port);
    return QUIRE_OK;
}

/* ---- a port ---- */

static quire_err listen_on_port(server *s, quire_error *err) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    const char *host = s->options.host;
    char port[16];
    snprintf(port, sizeof(port), "%d", (int)s->options.port);
    int r = getaddrinfo(host, port, &hints, &found);
    if (r != 0) {
        return err_set(err, QUIRE_IO, -1, "--host %s: %s", host, gai_strerror(r));
    }
    for (const struct addrinfo *at = found; at != NULL && s->listen_fd < 0; at = at->ai_next) {
        s->listen_fd = listen_at(at);
    }
    int reason = errno;
    freeaddrinfo(found);
    if (s->listen_fd < 0) {
        return err_set(err, QUIRE_IO, -1,
                       "can't listen on %s port %s: %s; choose another with --host or --port", host, port,
                       strerror(reason));
    }
    return listen_note_address(s, err);
}

/* ---- a socket file ---- */

/* Removes the socket file of a server that no longer runs. QUIRE_INVALID: another kind of
 * file is there, or a server that answers. */
static quire_err listen_remove_stale(const struct sockaddr_un *at, quire_error *err) {
    struct stat file;
    if (lstat(at->sun_path, &file) != 0) {
        return QUIRE_OK;
    }
    if (!S_ISSOCK(file.st_mode)) {
        return err_set(err, QUIRE_INVALID, -1, "--host unix:%s: the path exists and is not a socket",
                       at->sun_path);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool is_stale =
        fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof *at) != 0 && errno == ECONNREFUSED;
    (void)listen_close_failed(fd);
    if (!is_stale) {
        return err_set(err, QUIRE_INVALID, -1, "--host unix:%s: another server is listening there",
                       at->sun_path);
    }
    unlink(at->sun_path);
    return QUIRE_OK;
}

static quire_err listen_on_file(server *s, const char *path, quire_error *err) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof at.sun_path) {
        return err_set(err, QUIRE_INVALID, -1, "--host unix:%s: a path must have from 1 to %zu bytes", path,
                       sizeof at.sun_path - 1);
    }
    memcpy(at.sun_path, path, n);
    TRY(listen_remove_stale(&at, err));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool is_bound = fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    /* sets the mode before clients can connect */
    bool is_open = is_bound && chmod(path, UNIX_MODE) == 0 && listen_starts(fd);
    struct stat file;
    if (!is_open || stat(path, &file) != 0) {
        s->listen_fd = listen_close_failed(fd);
        err_set(err, QUIRE_IO, -1, "can't listen on unix:%s: %s", path, strerror(errno));
        if (is_bound) {
            unlink(path);
        }
        return QUIRE_IO;
    }
    s->listen_fd = fd;
    s->socket_file = path;
    s->socket_device = file.st_dev;
    s->socket_inode = file.st_ino;
    s->on_loopback = true;
    snprintf(s->url, sizeof s->url, "unix:%s", path);
    return QUIRE_OK;
}

/* ---- ports and socket files ---- */

quire_err listen_open(server *s, quire_error *err) {
    assert(s != NULL);
    return str_begins(str_of(s->options.host), LISTEN_UNIX)
               ? listen_on_file(s, s->options.host + sizeof LISTEN_UNIX - 1, err)
               : listen_on_port(s, err);
}

void listen_close(server *s) {
    assert(s != NULL);
    struct stat file;
    if (s->listen_fd >= 0) {
        close(s->listen_fd);
        s->listen_fd = -1;
    }
    if (s->socket_file != NULL && lstat(s->socket_file, &file) == 0 && file.st_dev == s->socket_device &&
        file.st_ino == s->socket_inode) {
        unlink(s->socket_file);
    }
    s->socket_file = NULL;
}

void listen_raise_files(const server_options *o) {
    assert(o != NULL);
    struct rlimit limit;
    rlim_t wanted = (rlim_t)o->max_connections + SERVER_MAX_SURPLUS + OWN_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= wanted) {
        return;
    }
    bool is_capped = limit.rlim_max != RLIM_INFINITY && limit.rlim_max < wanted;
    limit.rlim_cur = is_capped ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || is_capped) {
        log_line(LOG_WARN,
                 "--max-connections %d: the system allows %llu open files, but about %llu are needed; raise "
                 "the limit (ulimit -Hn)",
                 (int)o->max_connections, (unsigned long long)limit.rlim_cur, (unsigned long long)wanted);
    }
}
