#include "server/conn.h"

#include <assert.h>
#include <event2/buffer.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/loop.h"

#define AHEAD_BYTES    (1u << 20)  /* most bytes that a client may send ahead of its responses */
#define PIPELINE_BYTES (64u << 10) /* unsent bytes over which the next request waits */
#define PIECES         4           /* pieces of a body received before other connections are served */
#define PROBE_US       250000      /* interval of probes whether a half-closed client is still connected */
#define LINGER_US      2000000 /* time for a client to read the last response before the connection closes */
#define PATIENT_US     1000000 /* a client that has read some output within this time is not slow */

static void conn_on(conn *c, conn_event e);

static const server_options *conn_options(const conn *c) {
    return &c->loop->server->options;
}

static size_t conn_unread_input(const conn *c) {
    return evbuffer_get_length(bufferevent_get_input(c->bev));
}

/* Whether a request is arriving. */
static bool conn_is_arriving(const conn *c) {
    return c->state == CONN_REQUEST && c->request.started;
}

/* ---- the request as the log sees it ---- */

/* Ends the request's record: the response is complete, or the connection closes first. */
static void conn_end_request(conn *c) {
    const server_options *o = conn_options(c);
    if (c->model != NULL) {
        loop_model_drop(c->model);
        c->model = NULL;
    }
    if (!c->record.is_open) {
        return;
    }
    atomic_fetch_sub(&c->loop->n_busy, 1);
    const char *tenant = c->has_tenant ? c->tenant : NULL;
    bool was_read = c->request.length <= o->max_body_bytes;
    c->record.request_bytes = was_read ? (size_t)c->request.length : 0;
    http_stats_note(c->loop->http, &c->record, tenant);
    /* surplus connections have sent no request, and may be many */
    if (!o->no_request_log && !c->is_surplus) {
        request_log(&c->record, tenant);
    }
    c->record = (request_record){0};
}

/* ---- closing ---- */

static void conn_leave_loop(conn *c) {
    loop *l = c->loop;
    if (c->previous != NULL) {
        c->previous->next = c->next;
    } else {
        l->conns = c->next;
    }
    if (c->next != NULL) {
        c->next->previous = c->previous;
    }
    l->n_unread -= (int64_t)conn_unsent(c);
    atomic_fetch_sub(&l->n_surplus, c->is_surplus);
    atomic_fetch_sub(&l->n_open, 1);
}

void conn_close(conn *c) {
    loop *l = c->loop;
    if (c->pending != NULL) {
        c->pending->close(c);
    }
    conn_end_request(c);
    body_on(&c->body, BODY_IS_DROPPED);
    conn_leave_loop(c);
    event_free(c->deadline);
    bufferevent_free(c->bev);
    http_deinit(&c->request);
    mem_free(c);
    if (l->stops_seen > 0 && l->conns == NULL && l->background == NULL) {
        event_base_loopbreak(l->base);
    }
}

/* Shuts down our side once everything is written. The client gets time to read, since
 * closing with unread input would reset the connection; a client that has finished
 * sending needs no such time. */
static void conn_shut_side(conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    assert(conn_unsent(c) == 0);
    c->is_shut = true;
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    evbuffer_drain(in, evbuffer_get_length(in));
    loop_set_timer(c->deadline, c->half_closed ? 1 : LINGER_US);
}

static void conn_start_closing(conn *c) {
    c->state = CONN_CLOSING;
    loop_set_timer(c->deadline, conn_options(c)->write_deadline_us);
    if (conn_unsent(c) == 0) {
        conn_shut_side(c);
    }
}

static void conn_send_refusal(conn *c) {
    conn_reply_error(c, c->refusal, c->refusal_param, c->refusal_text, c->refusal_headers);
}

/* Handles a complete head: decides everything that does not need the body. */
static void conn_take_head(conn *c) {
    conn_begin_request(c);
    c->look = NULL;
    c->loop->server->handler->check(c);
    c->keep_alive = c->request.keep_alive;
}

/* Chooses the dialect of errors if the request's head is refused or incomplete. */
static void conn_choose_dialect(conn *c) {
    if (c->body.state == BODY_NONE && http_read_path(&c->request)) {
        conn_take_head(c);
        c->refusal = 0; /* the earlier refusal stands */
        c->headers[0] = 0;
    }
}

/* Answers a request without reading the rest; if it was refused, with the refusal. */
static void conn_give_up_request(conn *c, const api_error *why) {
    conn_choose_dialect(c);
    c->keep_alive = false;
    body_on(&c->body, BODY_IS_DROPPED);
    bufferevent_enable(c->bev, EV_READ); /* closing with unread data would reset the connection */
    if (c->refusal != 0) {
        conn_send_refusal(c);
    } else {
        conn_reply_failure(c, *why);
    }
}

void conn_end(conn *c, const api_error *why) {
    assert(why->status >= 400);
    if (c->pending != NULL && c->pending->end != NULL) {
        c->pending->end(c, why);
    } else if (c->pending != NULL) {
        c->pending->close(c);
        conn_reply_failure(c, *why);
    } else if (conn_is_arriving(c)) {
        conn_give_up_request(c, why);
    }
}

void conn_shut_down(conn *c) {
    conn_end(c, &(api_error){.status = 503, .message = CONN_SHUTTING_DOWN});
}

/* ---- deadlines ---- */

/* Sets the deadline between requests: for reading unread output, else for being idle. */
static void conn_set_idle_deadline(conn *c) {
    const server_options *o = conn_options(c);
    loop_set_timer(c->deadline, conn_unsent(c) > 0 ? o->write_deadline_us : o->idle_deadline_us);
}

/* Whether a client that closed its sending side must be probed, since nothing else will
 * be sent. Only sending shows whether it closed both sides. */
static bool conn_needs_probe(const conn *c) {
    return c->half_closed && c->state == CONN_RESPONSE && conn_unsent(c) == 0 && !c->streaming;
}

/* Sets the deadline for the client to read all unread output, also of earlier
 * responses. */
static void conn_await_reader(conn *c) {
    if (conn_unsent(c) > 0) {
        loop_set_timer(c->deadline, conn_options(c)->write_deadline_us);
    } else if (conn_needs_probe(c)) {
        loop_set_timer(c->deadline, PROBE_US);
    } else {
        event_del(c->deadline);
    }
}

/* ---- requests ---- */

static void conn_begin_body(conn *c) {
    http_request *r = &c->request;
    conn_take_head(c);
    r->drop_body = c->refusal != 0;
    if (r->expects_continue && c->refusal != 0) {
        c->keep_alive = false; /* the body may or may not follow, so later bytes are ambiguous */
        conn_send_refusal(c);
        return;
    }
    body_on(&c->body, BODY_BEGINS);
    if (r->expects_continue) {
        r->expects_continue = false;
        evbuffer_add_printf(bufferevent_get_output(c->bev), "HTTP/1.1 100 Continue\r\n\r\n");
    }
}

static void conn_run_request(conn *c) {
    if (!c->request.has_body) {
        conn_take_head(c);
    }
    body_on(&c->body, BODY_ENDS);
    c->state = CONN_RESPONSE;
    conn_await_reader(c);
    if (c->refusal != 0) {
        conn_send_refusal(c);
        return;
    }
    c->loop->server->handler->run(c);
}

static void conn_look_if_due(conn *c) {
    if (c->look != NULL && body_is_look_due(&c->body) && c->look(c)) {
        body_on(&c->body, BODY_LOOK_BEGINS);
    }
}

/* Acts on the result of http_feed. */
static void conn_go_on(conn *c, http_event e) {
    if (e == HTTP_WANTS_MORE) {
        conn_look_if_due(c);
    } else if (e == HTTP_GOT_HEAD) {
        conn_begin_body(c);
    } else if (e == HTTP_GOT_ALL) {
        conn_run_request(c);
    } else {
        conn_choose_dialect(c);
        c->keep_alive = false;
        if (c->refusal != 0) {
            conn_send_refusal(c);
        } else {
            conn_reply_error(c, c->request.status, NULL, c->request.message, NULL);
        }
    }
}

/* Feeds the first bytes of the input to the request, at most n. */
static void conn_feed(conn *c, const char *p, size_t n) {
    bool was_started = c->request.started;
    size_t used;
    http_event e = http_feed(&c->request, p, n, &used);
    c->body.turn.n_bytes += used;
    evbuffer_drain(bufferevent_get_input(c->bev), used);
    if (!was_started && c->request.started && e != HTTP_GOT_ALL) {
        loop_set_timer(c->deadline, conn_options(c)->header_deadline_us);
    }
    conn_go_on(c, e);
}

/* How many bytes of the input may be parsed now. */
static size_t conn_takes(conn *c) {
    str tenant = {c->tenant, c->has_tenant ? strlen(c->tenant) : 0};
    if (c->state != CONN_REQUEST || conn_unsent(c) > PIPELINE_BYTES) {
        return 0;
    }
    return c->body.state == BODY_NONE ? SIZE_MAX : body_take_room(&c->body, tenant);
}

/* Handles the end of the client's input, all of which was parsed. */
static void conn_end_input(conn *c) {
    if (conn_is_arriving(c)) {
        conn_give_up_request(
            c, &(api_error){.status = 400, .message = "the request ended before it was complete"});
    } else {
        c->keep_alive = false;
        conn_start_closing(c);
    }
}

/* Whether the client has ended its input, between requests or inside one. */
static bool conn_is_at_end(const conn *c) {
    return c->half_closed && c->pending == NULL && c->state == CONN_REQUEST && conn_unread_input(c) == 0;
}

/* Parses requests until the input is empty, or a request waits for its response, its
 * reader or room for its body. */
static void conn_process(conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    struct evbuffer_iovec v;
    c->processing = true;
    for (size_t most;
         (most = conn_takes(c)) > 0 && evbuffer_peek(in, -1, NULL, &v, 1) > 0 && v.iov_len > 0;) {
        conn_feed(c, v.iov_base, v.iov_len < most ? v.iov_len : most);
    }
    c->processing = false;
    if (conn_is_at_end(c)) {
        conn_end_input(c);
    }
}

/* Receives more of a body of known length while the input buffer is empty. */
static void conn_receive_body(conn *c) {
    http_event e;
    c->processing = true;
    for (int i = 0; i < PIECES && c->body.state == BODY_READING && conn_unread_input(c) == 0; i++) {
        size_t n = c->request.n_encodings == 0 ? conn_takes(c) : 0;
        if (n == 0 || !body_receive(&c->body, n, &e)) {
            break;
        }
        conn_go_on(c, e);
    }
    c->processing = false;
}

/* Continues after a response was written: with the next request, or closes. */
static void conn_finish(conn *c) {
    assert(c->state != CONN_CLOSING && c->pending == NULL);
    body_give_room(&c->body);
    body_on(&c->body, BODY_ENDS);
    conn_end_request(c);
    if (!c->keep_alive) {
        /* frees the body, or the part that was read, and returns its room */
        strbuf_deinit(&c->request.body);
        conn_start_closing(c);
        return;
    }
    http_next(&c->request);
    c->state = CONN_REQUEST;
    c->streaming = false;
    c->refusal = 0;
    c->error = NULL;
    c->refusal_headers = c->refusal_param = NULL;
    c->has_tenant = false;
    c->is_operator = false;
    conn_set_idle_deadline(c);
    if (!c->processing) {
        conn_process(c);
    }
}

void conn_resume_body(conn *c) {
    assert(c->body.state == BODY_LOOKED_OVER && c->pending == NULL);
    body_on(&c->body, BODY_LOOK_ENDS);
    conn_process(c);
}

void conn_resume_bodies(loop *l) {
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        if (c->body.state == BODY_IN_LINE && !atomic_load(&c->body.room.waits)) {
            body_on(&c->body, BODY_GETS_ROOM);
            conn_process(c);
        }
    }
}

void conn_drop_body(conn *c, const quire_error *err) {
    assert(err->code != QUIRE_OK && c->refusal == 0);
    api_error e = error_of(err);
    c->refusal_error = *err;
    c->refusal = e.status;
    c->refusal_text = c->refusal_error.message;
    c->refusal_param = c->refusal_error.param;
    c->request.drop_body = true;
    strbuf_deinit(&c->request.body);
    body_give_room(&c->body);
}

/* ---- clients that do not read ---- */

void conn_count_slow(conn *c) {
    if (!c->is_slow) {
        c->is_slow = true;
        atomic_fetch_add(&c->loop->n_slow_readers, 1);
    }
}

/* Ends a response of which the client has read nothing for too long. */
static void conn_cut_reader(conn *c) {
    if (c->pending != NULL && c->pending->cut != NULL) {
        c->pending->cut(c);
        return;
    }
    conn_count_slow(c);
    conn_close(c);
}

/* The connection that has read nothing for the longest time, at least PATIENT_US;
 * NULL: none. */
static conn *conn_slowest(const loop *l) {
    conn *found = NULL;
    int64_t latest_us = clock_us() - PATIENT_US;
    for (conn *c = l->conns; c != NULL; c = c->next) {
        if (conn_unsent(c) > 0 && c->taken_us < latest_us) {
            latest_us = c->taken_us;
            found = c;
        }
    }
    return found;
}

void conn_relieve(loop *l) {
    while (l->n_unread > (int64_t)l->server->options.max_unread_bytes) {
        conn *c = conn_slowest(l);
        if (c == NULL) {
            return;
        }
        conn_count_slow(c);
        conn_close(c);
    }
}

/* ---- what each event does in each state; it may close and free the connection ---- */

/* Reads ahead during a response, without pause, so that a disconnect is noticed. A client
 * that sends too much ahead is cut off. */
static void conn_read_ahead(conn *c) {
    body_end_turn_if_due(&c->body);
    if (conn_unread_input(c) > AHEAD_BYTES) {
        conn_close(c);
    }
}

static void conn_read_request(conn *c) {
    body_note_input(&c->body);
    conn_process(c);
    conn_receive_body(c);
    conn_read_ahead(c);
}

static void conn_drop_input(conn *c) {
    size_t n = conn_unread_input(c);
    c->body.turn.n_bytes += n;
    evbuffer_drain(bufferevent_get_input(c->bev), n);
    body_end_turn_if_due(&c->body);
}

static void conn_send_more(conn *c) {
    if (c->pending != NULL && c->pending->drained != NULL) {
        c->pending->drained(c);
    }
}

static void conn_shut_if_sent(conn *c) {
    if (!c->is_shut && conn_unsent(c) == 0) {
        conn_shut_side(c);
    }
}

static void conn_idle_again(conn *c) {
    if (!c->request.started) {
        conn_set_idle_deadline(c);
    }
}

static void conn_await_last_read(conn *c) {
    if (!c->is_shut) {
        loop_set_timer(c->deadline, conn_options(c)->write_deadline_us);
    }
}

/* Handles a half-close between requests: earlier ones are still answered. */
static void conn_half_close_request(conn *c) {
    c->half_closed = true;
    if (conn_is_at_end(c)) {
        conn_end_input(c);
    }
}

static void conn_half_close_response(conn *c) {
    if (c->pending != NULL && c->pending->is_endless) {
        conn_on(c, CONN_LOST);
        return;
    }
    c->half_closed = true;
    if (conn_needs_probe(c)) {
        loop_set_timer(c->deadline, PROBE_US);
    }
}

static void conn_half_close_last(conn *c) {
    c->half_closed = true;
    if (c->is_shut) {
        conn_close(c);
    }
}

static void conn_lose_response(conn *c) {
    if (c->pending != NULL && c->pending->counts_disconnects) {
        atomic_fetch_add(&c->loop->n_disconnects, 1);
    }
    conn_close(c);
}

static void conn_late_request(conn *c) {
    quire_error err;
    api_error why = {.status = 408, .message = "the header did not arrive in time"};
    if (c->body.state != BODY_NONE) {
        if (body_is_late(&c->body, &err, &why)) {
            conn_give_up_request(c, &why);
        }
    } else if (c->request.started) {
        conn_give_up_request(c, &why);
    } else if (conn_unsent(c) > 0) {
        conn_cut_reader(c);
    } else {
        conn_close(c);
    }
}

/* Sends a probe: an interim response, which every HTTP/1.1 client skips. A client that is
 * gone replies with a reset. */
static void conn_late_response(conn *c) {
    if (!conn_needs_probe(c)) {
        conn_cut_reader(c);
    } else if (c->request.chunks_allowed) {
        evbuffer_add_printf(bufferevent_get_output(c->bev), "HTTP/1.1 100 Continue\r\n\r\n");
    }
}

static void conn_late_last(conn *c) {
    if (c->is_shut) {
        conn_close(c);
    } else {
        conn_cut_reader(c);
    }
}

static void conn_drain_request(conn *c) {
    c->keep_alive = false;
    if (!c->request.started && conn_unsent(c) > 0) {
        conn_start_closing(c);
    } else if (!c->request.started) {
        conn_close(c);
    }
}

static void conn_drain_response(conn *c) {
    c->keep_alive = false;
    if (c->pending != NULL && c->pending->ends_at_drain) {
        conn_shut_down(c);
    }
}

static void conn_do_nothing(conn *c) {
    (void)c;
}

static void (*const conn_actions[CONN_N_EVENTS][CONN_N_STATES])(conn *c) = {
    /* columns: CONN_REQUEST, CONN_RESPONSE, CONN_CLOSING */
    [CONN_READABLE] = {conn_read_request, conn_read_ahead, conn_drop_input},
    [CONN_WRITTEN] = {conn_process, conn_send_more, conn_shut_if_sent},
    [CONN_TAKEN] = {conn_idle_again, conn_await_reader, conn_await_last_read},
    [CONN_EOF] = {conn_half_close_request, conn_half_close_response, conn_half_close_last},
    [CONN_LOST] = {conn_close, conn_lose_response, conn_close},
    [CONN_LATE] = {conn_late_request, conn_late_response, conn_late_last},
    [CONN_DRAIN] = {conn_drain_request, conn_drain_response, conn_do_nothing},
};

static void conn_on(conn *c, conn_event e) {
    assert(c->state < CONN_N_STATES && e < CONN_N_EVENTS);
    conn_actions[e][c->state](c);
}

void conn_drain(conn *c) {
    conn_on(c, CONN_DRAIN);
}

/* ---- libevent's callbacks ---- */

static void conn_on_read(struct bufferevent *bev, void *arg) {
    (void)bev;
    conn_on(arg, CONN_READABLE);
}

static void conn_on_write(struct bufferevent *bev, void *arg) {
    (void)bev;
    conn_on(arg, CONN_WRITTEN);
}

static void conn_on_end(struct bufferevent *bev, short what, void *arg) {
    (void)bev;
    conn_on(arg, (what & BEV_EVENT_EOF) != 0 ? CONN_EOF : CONN_LOST);
}

/* Tracks whether the client reads. A bufferevent's own write timeout cannot: output that
 * is added as it expires cancels it. */
static void conn_on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *arg) {
    (void)out;
    conn *c = arg;
    c->loop->n_unread += (int64_t)info->n_added - (int64_t)info->n_deleted;
    if (info->n_deleted > 0 || info->orig_size == 0) {
        c->taken_us = clock_us();
        conn_on(c, CONN_TAKEN);
    }
}

static LOOP_CALLBACK(conn_on_deadline) {
    conn_on(arg, CONN_LATE);
}

/* ---- opening ---- */

/* The number of connections within the limit; *n_surplus: those over it. */
static int64_t conn_count_open(const server *s, int64_t *n_surplus) {
    int64_t n = 0;
    *n_surplus = 0;
    for (int32_t i = 0; i < s->n_loops; i++) {
        n += atomic_load(&s->loops[i].n_open);
        *n_surplus += atomic_load(&s->loops[i].n_surplus);
    }
    return n - *n_surplus;
}

/* Closes a connection over both limits, after a 503 that most clients can still read. */
static void conn_close_surplus(evutil_socket_t fd) {
    static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: "
                               "close\r\nContent-Length: 0\r\n\r\n";
    ssize_t n = send(fd, full, sizeof(full) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n;
    evutil_closesocket(fd);
}

/* Answers a connection over the limit before a request is read. Its input is dropped
 * while the client may read: closing with unread input would reset the connection. */
static void conn_turn_away(conn *c) {
    conn_reply_error(c, 503, NULL,
                     "the server has reached its limit of connections (--max-connections); try again",
                     "Retry-After: 1\r\n");
}

/* Writes a client's address, "192.0.2.1:5000" or "[2001:db8::1]:5000"; "": a socket
 * file. */
static void conn_write_client(const struct sockaddr *from, socklen_t n_from, char *out, size_t size) {
    char host[INET6_ADDRSTRLEN + 1], port[8];
    bool is_ip = n_from > 0 && (from->sa_family == AF_INET || from->sa_family == AF_INET6);
    int flags = NI_NUMERICHOST | NI_NUMERICSERV;
    if (is_ip && getnameinfo(from, n_from, host, sizeof host, port, sizeof port, flags) == 0) {
        snprintf(out, size, from->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    }
}

/* Makes a connection and adds it to its loop. NULL: out of memory; fd is closed. */
static conn *conn_new(loop *l, evutil_socket_t fd) {
    conn *c = mem_new(1, sizeof(*c));
    struct bufferevent *bev = c == NULL ? NULL : bufferevent_socket_new(l->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (bev == NULL) {
        mem_free(c);
        evutil_closesocket(fd);
        return NULL;
    }
    *c = (conn){.loop = l, .bev = bev, .next = l->conns, .on_replied = conn_finish};
    c->deadline = evtimer_new(l->base, conn_on_deadline, c);
    if (c->deadline == NULL || evbuffer_add_cb(bufferevent_get_output(bev), conn_on_output, c) == NULL) {
        loop_free_event(c->deadline);
        bufferevent_free(bev);
        mem_free(c);
        return NULL;
    }
    http_init(&c->request, l->server->options.max_header_bytes, l->server->options.max_body_bytes);
    body_open(&c->body, l, &c->request, bev, c->deadline);
    if (l->conns != NULL) {
        l->conns->previous = c;
    }
    l->conns = c;
    atomic_fetch_add(&l->n_open, 1);
    return c;
}

void conn_open(loop *l, evutil_socket_t fd, const struct sockaddr *from, socklen_t n_from) {
    assert(fd >= 0 && l->server->handler != NULL);
    const server_options *o = &l->server->options;
    int64_t n_surplus;
    int on = 1;
    bool is_surplus = conn_count_open(l->server, &n_surplus) >= o->max_connections;
    if (is_surplus && n_surplus >= SERVER_MAX_SURPLUS) {
        conn_close_surplus(fd);
        return;
    }
    conn *c = conn_new(l, fd);
    if (c == NULL) {
        return;
    }
    c->is_surplus = is_surplus;
    atomic_fetch_add(&l->n_surplus, is_surplus);
    conn_write_client(from, n_from, c->client, sizeof c->client);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* on failure the connection is only slower */
    bufferevent_setcb(c->bev, conn_on_read, conn_on_write, conn_on_end, c);
    bufferevent_setwatermark(c->bev, EV_WRITE, o->max_output_bytes / 2, 0);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    loop_set_timer(c->deadline, o->header_deadline_us);
    if (is_surplus) {
        conn_turn_away(c);
    }
}
