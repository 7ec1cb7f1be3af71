#include "server/conn_impl.h"

#include <event2/buffer.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/http_stats.h"

#define AHEAD_BYTES    (1u << 20)  /* a client may send so much ahead of the responses that it waits for */
#define PIPELINE_BYTES (64u << 10) /* with this much output waiting, the next request waits too */
#define PROBE_US       250000      /* between checks whether a client that half-closed is still connected */
#define TAKE_BYTES     (64u << 10) /* from this size on a piece's memory is moved instead of copied */
#define LINGER_US      2000000     /* a client's time to read the last response of a closing connection */

void conn_set_deadline(conn *c, int64_t us) {
    loop_set_timer(c->deadline, us);
}

static struct evbuffer *output(const conn *c) {
    return bufferevent_get_output(c->bev);
}

/* How long a connection may be idle between requests: less while the client leaves output
 * unread. */
static int64_t between_us(const conn *c) {
    const server_options *o = &c->loop->server->options;
    return conn_unsent(c) > 0 ? o->write_deadline_us : o->idle_deadline_us;
}

/* True when nothing else will be sent to a client that closed its sending side. Only what
 * is sent shows whether it closed both. */
static bool needs_probe(const conn *c) {
    return c->half_closed && c->state == CONN_RESPONSE && conn_unsent(c) == 0 && !c->streaming;
}

/* Starts the deadline of a response in progress: for reading what is unread, of earlier
 * responses too. */
static void await_reader(conn *c) {
    if (conn_unsent(c) > 0) {
        conn_set_deadline(c, c->loop->server->options.write_deadline_us);
    } else if (needs_probe(c)) {
        conn_set_deadline(c, PROBE_US);
    } else {
        event_del(c->deadline);
    }
}

/* True while a request is arriving. */
static bool is_arriving(const conn *c) {
    return c->state == CONN_BODY || (c->state == CONN_HEAD && c->request.started);
}

/* ---- the request as the log sees it ---- */

/* The head is read, or refused: the request counts as being in progress. */
static void begin_request(conn *c) {
    loop *l = c->loop;
    if (!c->record.is_open) {
        const http_request *r = &c->request;
        request_record_open(&c->record, (str){r->request_id.p, r->request_id.n}, l);
        c->record.method = r->head_done ? http_method_str(r->method) : NULL;
        c->record.client = c->client[0] != '\0' ? c->client : NULL;
        atomic_fetch_add(&l->n_busy, 1);
    }
}

/* Its response is complete, or the connection closes before. */
static void end_request(conn *c) {
    const server_options *o = &c->loop->server->options;
    if (c->record.is_open) {
        atomic_fetch_sub(&c->loop->n_busy, 1);
        const char *tenant = c->has_tenant ? c->tenant : NULL;
        /* a longer one was not read */
        c->record.request_bytes = c->request.length <= o->max_body_bytes ? (size_t)c->request.length : 0;
        http_stats_note(c->loop->http, &c->record, tenant);
        /* which sent no request: a flood of them writes nothing */
        if (!o->no_request_log && !c->is_surplus) {
            request_log(&c->record, tenant);
        }
        c->record = (request_record){0};
    }
}

/* ---- closing ---- */

void conn_close(conn *c) {
    loop *l = c->loop;
    if (c->pending != NULL) {
        c->pending->close(c);
    }
    end_request(c);
    body_turn_leave(&c->loop->turns, &c->turn);
    conn_give_body_room(c);
    if (c->previous != NULL) {
        c->previous->next = c->next;
    } else {
        l->conns = c->next;
    }
    if (c->next != NULL) {
        c->next->previous = c->previous;
    }
    l->n_unread -= (int64_t)conn_unsent(c);
    event_free(c->deadline);
    bufferevent_free(c->bev);
    http_deinit(&c->request);
    atomic_fetch_sub(&l->n_surplus, c->is_surplus);
    mem_free(c);
    atomic_fetch_sub(&l->n_open, 1);
    if (l->stops_seen > 0 && l->conns == NULL) {
        event_base_loopbreak(l->base);
    }
}

/* Everything is written: closes the sending side and gives the client time to read. After
 * that the rest of its input would reset the connection. A client that sends nothing more
 * needs no time. */
static void linger(conn *c) {
    c->state = CONN_LINGER;
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    evbuffer_drain(bufferevent_get_input(c->bev), evbuffer_get_length(bufferevent_get_input(c->bev)));
    conn_set_deadline(c, c->half_closed ? 1 : LINGER_US);
}

static void flush_and_close(conn *c) {
    c->state = CONN_FLUSH;
    conn_set_deadline(c, c->loop->server->options.write_deadline_us);
    if (evbuffer_get_length(output(c)) == 0) {
        linger(c);
    }
}

static void reply_api_error(conn *c, const api_error *e, const char *headers);

static void send_refusal(conn *c) {
    conn_reply_error(c, c->refusal, c->refusal_param, c->refusal_text, c->refusal_headers);
}

/* Answers a request of which no more is read: with its refusal, where it was refused
 * before. */
static void give_up_request(conn *c, const api_error *why, const char *headers) {
    c->keep_alive = false;
    conn_stop_body(c);
    bufferevent_enable(c->bev, EV_READ); /* what it still sends would reset it */
    if (c->refusal != 0) {
        send_refusal(c);
    } else {
        reply_api_error(c, why, headers);
    }
}

void conn_end(conn *c, const api_error *why) {
    if (c->pending != NULL && c->pending->end != NULL) {
        c->pending->end(c, why);
    } else if (c->pending != NULL) {
        c->pending->close(c);
        reply_api_error(c, why, NULL);
    } else if (is_arriving(c)) {
        give_up_request(c, why, NULL);
    }
}

void conn_shut_down(conn *c) {
    conn_end(c, &(api_error){.status = 503, .message = CONN_SHUTTING_DOWN});
}

void conn_drain(conn *c) {
    c->keep_alive = false;
    if (c->pending != NULL && c->pending->ends_at_drain) {
        conn_shut_down(c);
        return;
    }
    if (c->state == CONN_HEAD && !c->request.started) {
        if (evbuffer_get_length(output(c)) > 0) {
            flush_and_close(c);
        } else {
            conn_close(c);
        }
    }
}

/* ---- responses ---- */

/* The response is written: goes on to the next request, or to the end. */
static void finish(conn *c) {
    conn_give_body_room(c);
    end_request(c);
    if (!c->keep_alive) {
        /* what is there of it, where no more was read: it has no room any more */
        strbuf_deinit(&c->request.body);
        flush_and_close(c);
        return;
    }
    http_next(&c->request);
    c->state = CONN_HEAD;
    c->streaming = false;
    c->refusal = 0;
    c->refusal_headers = c->refusal_param = NULL;
    c->has_tenant = false;
    c->is_operator = false;
    conn_set_deadline(c, between_us(c));
    if (!c->processing) {
        conn_process(c);
    }
}

/* Writes the status line and the headers that every response has. */
static void write_head(conn *c, int status, const char *content_type, const char *headers) {
    char date[64];
    struct tm tm;
    time_t now = (time_t)clock_unix_s();
    const char *origin = c->loop->server->options.allow_origin;
    struct evbuffer *out = output(c);
    begin_request(c); /* one whose head was refused */
    c->record.status = status;
    c->keep_alive = c->keep_alive && c->loop->stops_seen == 0 &&
                    !(c->half_closed && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0);
    gmtime_r(&now, &tm);
    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: %s\r\nX-Request-Id: %s\r\n", status,
                        http_status_str((enum http_status)status), date,
                        c->keep_alive ? "keep-alive" : "close", c->record.id);
    if (content_type != NULL) {
        evbuffer_add_printf(out, "Content-Type: %s\r\n", content_type);
    }
    if (origin != NULL && c->request.origin.n > 0) {
        evbuffer_add_printf(out, "Access-Control-Allow-Origin: %s\r\n%s", origin,
                            strcmp(origin, "*") == 0 ? "" : "Vary: Origin\r\n");
    }
    if (headers != NULL) {
        evbuffer_add(out, headers, strlen(headers));
    }
    evbuffer_add(out, c->headers, strlen(c->headers));
    c->headers[0] = '\0';
}

void conn_reply(conn *c, const reply *r) {
    write_head(c, r->status, r->content_type, r->headers);
    if (r->status == 204) {
        evbuffer_add(output(c), "\r\n", 2);
    } else {
        evbuffer_add_printf(output(c), "Content-Length: %zu\r\n\r\n", r->body.n);
        if (!(c->request.head_done && c->request.method == HTTP_HEAD)) {
            evbuffer_add(output(c), r->body.p, r->body.n);
            c->record.response_bytes = r->body.n;
        }
    }
    finish(c);
}

json_out conn_begin_json(const conn *c) {
    strbuf_clear(&c->loop->scratch);
    return (json_out){.to = &c->loop->scratch};
}

static void reply_api_error(conn *c, const api_error *e, const char *headers) {
    begin_request(c); /* one whose head was refused */
    request_record_fail(&c->record, e);
    if (e->status == 404) {
        path_show((str){c->request.path.p, c->request.path.n}, c->record.path);
    }
    json_out o = conn_begin_json(c);
    error_body(&o, e);
    conn_reply(c, &(reply){.status = e->status,
                           .content_type = "application/json",
                           .headers = headers,
                           .body = {o.to->p, o.to->n}});
}

void conn_reply_error(conn *c, int status, const char *param, const char *message, const char *headers) {
    reply_api_error(c, &(api_error){.status = status, .param = param, .message = message}, headers);
}

void conn_reply_failure(conn *c, api_error e) {
    char retry[40];
    snprintf(retry, sizeof retry, "Retry-After: %d\r\n", (int)(e.retry_after_s > 0 ? e.retry_after_s : 1));
    reply_api_error(c, &e, e.status == 429 || e.status == 503 ? retry : NULL);
}

void conn_reply_json(conn *c, const json_out *o, const char *headers) {
    if (o->err != QUIRE_OK) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    conn_reply(c, &(reply){.status = 200,
                           .content_type = "application/json",
                           .headers = headers,
                           .body = {o->to->p, o->to->n}});
}

void conn_stream_begin(conn *c, const char *content_type) {
    c->streaming = true;
    c->chunked = c->request.chunks_allowed;
    c->keep_alive = c->keep_alive && c->chunked;
    write_head(c, 200, content_type,
               c->chunked ? "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n"
                          : "Cache-Control: no-cache\r\n");
    evbuffer_add(output(c), "\r\n", 2);
}

size_t conn_unsent(const conn *c) {
    return evbuffer_get_length(output(c));
}

static void begin_piece(conn *c, size_t n) {
    c->record.response_bytes += n;
    if (c->chunked) {
        evbuffer_add_printf(output(c), "%zx\r\n", n);
    }
}

static void end_piece(const conn *c) {
    if (c->chunked) {
        evbuffer_add(output(c), "\r\n", 2);
    }
}

void conn_stream_add(conn *c, str piece) {
    begin_piece(c, piece.n);
    evbuffer_add(output(c), piece.p, piece.n);
    end_piece(c);
}

static void free_piece(const void *data, size_t n, void *arg) {
    (void)data;
    (void)n;
    mem_free(arg);
}

void conn_stream_take(conn *c, strbuf *piece) {
    if (piece->n < TAKE_BYTES) {
        conn_stream_add(c, (str){piece->p, piece->n});
        return;
    }
    begin_piece(c, piece->n);
    if (evbuffer_add_reference(output(c), piece->p, piece->n, free_piece, piece->p) == 0) {
        *piece = (strbuf){.max = piece->max};
    } else {
        evbuffer_add(output(c), piece->p, piece->n);
    }
    end_piece(c);
}

void conn_stream_end(conn *c) {
    if (c->chunked) {
        evbuffer_add(output(c), "0\r\n\r\n", 5);
    }
    finish(c);
}

/* ---- requests ---- */

/* The head is read: decides what needs no body; the rest waits for the body. */
static void on_head(conn *c) {
    begin_request(c);
    c->look = NULL;
    c->loop->server->handler->check(c);
    c->keep_alive = c->request.keep_alive;
}

static void on_body_begin(conn *c) {
    http_request *r = &c->request;
    on_head(c);
    c->state = CONN_BODY;
    r->drop_body = c->refusal != 0;
    if (r->expects_continue && c->refusal != 0) {
        c->keep_alive = false; /* the client may send the body or not: what follows is ambiguous */
        send_refusal(c);
        return;
    }
    conn_begin_body(c);
    if (r->expects_continue) {
        r->expects_continue = false;
        evbuffer_add_printf(output(c), "HTTP/1.1 100 Continue\r\n\r\n");
    }
}

static void on_request(conn *c) {
    if (!c->request.has_body) {
        on_head(c);
    }
    c->state = CONN_RESPONSE;
    await_reader(c);
    if (c->refusal != 0) {
        send_refusal(c);
        return;
    }
    c->loop->server->handler->run(c);
}

void conn_go_on(conn *c, http_event e) {
    if (e == HTTP_WANTS_MORE && c->state == CONN_BODY) {
        conn_look_if_due(c);
    } else if (e == HTTP_GOT_HEAD) {
        on_body_begin(c);
    } else if (e == HTTP_GOT_ALL) {
        on_request(c);
    } else if (e == HTTP_REFUSED) {
        c->keep_alive = false;
        if (c->refusal != 0) {
            send_refusal(c);
        } else {
            conn_reply_error(c, c->request.status, NULL, c->request.message, NULL);
        }
    }
}

void conn_feed(conn *c, const char *p, size_t n, struct evbuffer *in) {
    bool was_started = c->request.started;
    size_t used;
    http_event e = http_feed(&c->request, p, n, &used);
    c->turn.n_bytes += used;
    if (in != NULL) {
        evbuffer_drain(in, used);
    }
    if (!was_started && c->request.started && e != HTTP_GOT_ALL) {
        conn_set_deadline(c, c->loop->server->options.header_deadline_us);
    }
    conn_go_on(c, e);
}

/* The client sends nothing more, and all that it sent is used. */
static void end_input(conn *c) {
    if (is_arriving(c)) {
        give_up_request(c, &(api_error){.status = 400, .message = "the request ended before it was complete"},
                        NULL);
    } else {
        c->keep_alive = false;
        flush_and_close(c);
    }
}

/* True when nothing more comes, though the connection is between requests or inside
 * one. */
static bool is_at_end(const conn *c) {
    bool waits = c->pending == NULL && (c->state == CONN_HEAD || c->state == CONN_BODY);
    return c->half_closed && waits && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0;
}

void conn_process(conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    struct evbuffer_iovec v;
    c->processing = true;
    for (size_t most; (most = c->state == CONN_HEAD ? SIZE_MAX : conn_body_takes(c)) > 0 &&
                      evbuffer_get_length(output(c)) <= PIPELINE_BYTES &&
                      evbuffer_peek(in, -1, NULL, &v, 1) > 0 && v.iov_len > 0;) {
        conn_feed(c, v.iov_base, v.iov_len < most ? v.iov_len : most, in);
    }
    c->processing = false;
    if (is_at_end(c)) {
        end_input(c);
    }
}

/* ---- libevent's callbacks ---- */

static void on_read(struct bufferevent *bev, void *arg) {
    conn *c = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    if (c->state == CONN_FLUSH || c->state == CONN_LINGER) {
        c->turn.n_bytes += evbuffer_get_length(in);
        evbuffer_drain(in, evbuffer_get_length(in));
        body_turn_end_if_due(&c->loop->turns, &c->turn, c->bev);
        return;
    }
    conn_reads_body(c);
    conn_process(c);
    conn_receive_body(c);
    /* those read nothing as it is */
    if (!c->waits_for_room && (c->state != CONN_BODY || c->pending == NULL)) {
        body_turn_end_if_due(&c->loop->turns, &c->turn, c->bev);
        c->had_turn_to_wait_for = c->turn.waits;
    }
    if (evbuffer_get_length(in) > AHEAD_BYTES) { /* reading never pauses, so that a disconnect is noticed */
        conn_close(c);
    }
}

static void on_written(struct bufferevent *bev, void *arg) {
    (void)bev;
    conn *c = arg;
    if (c->state == CONN_FLUSH) {
        if (conn_unsent(c) == 0) {
            linger(c);
        }
    } else if (c->pending != NULL && c->pending->drained != NULL) {
        c->pending->drained(c);
    } else {
        conn_process(c);
    }
}

/* ---- a client that closed its sending side, and perhaps both ---- */

/* What it sent before is still answered. */
static void half_close(conn *c) {
    c->half_closed = true;
    if (needs_probe(c)) {
        conn_set_deadline(c, PROBE_US);
    } else if (is_at_end(c)) {
        end_input(c);
    }
}

/* Sends an interim response, which every client of HTTP/1.1 skips. A client that is gone
 * replies with a reset. */
static void probe(conn *c) {
    if (c->request.chunks_allowed) {
        evbuffer_add_printf(output(c), "HTTP/1.1 100 Continue\r\n\r\n");
    }
}

static void on_event(struct bufferevent *bev, short what, void *arg) {
    (void)bev;
    conn *c = arg;
    bool is_endless = c->pending != NULL && c->pending->is_endless;
    if ((what & BEV_EVENT_EOF) != 0 && c->state != CONN_LINGER && !is_endless) {
        half_close(c);
        return;
    }
    if (c->pending != NULL && c->pending->counts_disconnects) {
        atomic_fetch_add(&c->loop->n_disconnects, 1);
    }
    conn_close(c);
}

/* The client read some of the output, or new output was added to an empty buffer:
 * restarts the deadline. A bufferevent's own timeout does not work here: output that is
 * added at the moment of its expiry cancels it. */
static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *arg) {
    (void)out;
    conn *c = arg;
    c->loop->n_unread += (int64_t)info->n_added - (int64_t)info->n_deleted;
    if (info->n_deleted == 0 && info->orig_size > 0) {
        return;
    }
    c->taken_us = clock_us();
    if (c->state == CONN_RESPONSE) {
        await_reader(c);
    } else if (c->state == CONN_FLUSH) {
        conn_set_deadline(c, c->loop->server->options.write_deadline_us);
    } else if (c->state == CONN_HEAD && !c->request.started) {
        conn_set_deadline(c, between_us(c));
    }
}

/* The client read none of the output for too long. */
static void read_too_slowly(conn *c) {
    if (c->pending != NULL && c->pending->cut != NULL) {
        c->pending->cut(c);
        return;
    }
    conn_count_slow(c);
    conn_close(c);
}

static LOOP_CALLBACK(on_deadline) {
    conn *c = arg;
    const char *late = "the header did not arrive in time";
    if (needs_probe(c)) {
        probe(c);
    } else if (c->waits_for_room) {
        give_up_request(
            c, &(api_error){.status = 503, .message = "too many large bodies are being read; try again"},
            "Retry-After: 1\r\n");
    } else if (is_arriving(c)) {
        if (c->state != CONN_BODY || (late = conn_body_late(c)) != NULL) {
            give_up_request(c, &(api_error){.status = 408, .message = late}, NULL);
        }
    } else if (c->state != CONN_LINGER && conn_unsent(c) > 0) {
        read_too_slowly(c);
    } else {
        conn_close(c);
    }
}

/* ---- opening ---- */

/* How many connections there are, without those over the limit; *n_surplus: those. */
static int64_t open_connections(const server *s, int64_t *n_surplus) {
    int64_t n = 0;
    *n_surplus = 0;
    for (int32_t i = 0; i < s->n_loops; i++) {
        n += atomic_load(&s->loops[i].n_open);
        *n_surplus += atomic_load(&s->loops[i].n_surplus);
    }
    return n - *n_surplus;
}

/* Closes one connection more than may be answered; most clients can still read why. */
static void close_surplus(evutil_socket_t fd) {
    static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: "
                               "close\r\nContent-Length: 0\r\n\r\n";
    ssize_t n = send(fd, full, sizeof(full) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n;
    evutil_closesocket(fd);
}

/* Answers a connection over the limit before a request is read. What it sends is dropped
 * while it may read the response: closed at once, its unread bytes would reset it. */
static void turn_away(conn *c) {
    conn_reply_error(c, 503, NULL, "the server has as many connections as it may have; try again",
                     "Retry-After: 1\r\n");
}

/* Writes "192.0.2.1:5000" or "[2001:db8::1]:5000"; nothing for a socket file. */
static void write_client(const struct sockaddr *from, socklen_t n_from, char *out, size_t size) {
    char host[INET6_ADDRSTRLEN + 1], port[8];
    bool is_ip = n_from > 0 && (from->sa_family == AF_INET || from->sa_family == AF_INET6);
    if (is_ip && getnameinfo(from, n_from, host, sizeof host, port, sizeof port,
                             NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        snprintf(out, size, from->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    }
}

void conn_open(loop *l, evutil_socket_t fd, const struct sockaddr *from, socklen_t n_from) {
    const server_options *o = &l->server->options;
    int64_t n_surplus;
    bool is_surplus = open_connections(l->server, &n_surplus) >= o->max_connections;
    if (is_surplus && n_surplus >= SERVER_MAX_SURPLUS) {
        close_surplus(fd);
        return;
    }
    conn *c = mem_new(1, sizeof(*c));
    struct bufferevent *bev = c == NULL ? NULL : bufferevent_socket_new(l->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (bev == NULL) {
        mem_free(c);
        evutil_closesocket(fd);
        return;
    }
    *c = (conn){.loop = l, .bev = bev, .next = l->conns, .is_surplus = is_surplus};
    c->deadline = evtimer_new(l->base, on_deadline, c);
    if (c->deadline == NULL || evbuffer_add_cb(bufferevent_get_output(bev), on_output, c) == NULL) {
        loop_free_event(c->deadline);
        bufferevent_free(bev);
        mem_free(c);
        return;
    }
    write_client(from, n_from, c->client, sizeof c->client);
    http_init(&c->request, o->max_header_bytes, o->max_body_bytes);
    if (l->conns != NULL) {
        l->conns->previous = c;
    }
    l->conns = c;
    atomic_fetch_add(&l->n_surplus, is_surplus);
    atomic_fetch_add(&l->n_open, 1);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* only slower without it */
    bufferevent_setcb(bev, on_read, on_written, on_event, c);
    bufferevent_setwatermark(bev, EV_WRITE, o->max_output_bytes / 2, 0);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    conn_set_deadline(c, o->header_deadline_us);
    if (is_surplus) {
        turn_away(c);
    }
}
