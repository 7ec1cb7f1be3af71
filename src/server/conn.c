#include "server/conn.h"

#include <event2/buffer.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/answer.h"
#include "server/error_body.h"
#include "server/routes.h"
#include "server/streams.h"
#include "server/watch.h"

#define AHEAD_BYTES (1u << 20)     /* what a client may send ahead of the answers that it waits for */
#define PIPELINE_BYTES (64u << 10) /* with this much output waiting, the next request waits too */
#define LINGER_US 2000000          /* a client's time to read the last answer of a closing connection */

static void process(conn *c);

static void set_deadline(conn *c, int64_t us) {
    struct timeval t = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    event_add(c->deadline, &t);
}

static struct evbuffer *output(const conn *c) {
    return bufferevent_get_output(c->bev);
}

/* ---- closing ---- */

void conn_close(conn *c) {
    loop *l = c->loop;
    if (c->answer != NULL) {
        answer_close(c->answer);
    }
    if (c->watcher != NULL) {
        watch_close(c->watcher);
    }
    streams_forget(c);
    if (c->previous != NULL) {
        c->previous->next = c->next;
    } else {
        l->conns = c->next;
    }
    if (c->next != NULL) {
        c->next->previous = c->previous;
    }
    event_free(c->deadline);
    bufferevent_free(c->bev);
    http_deinit(&c->request);
    mem_free(c);
    atomic_fetch_sub(&l->n_open, 1);
    if (l->stops_seen > 0 && l->conns == NULL) {
        event_base_loopbreak(l->base);
    }
}

/* Everything is written: closes our side and gives the client time to read before the rest of what it sends would reset the connection. */
static void linger(conn *c) {
    c->state = CONN_LINGER;
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    evbuffer_drain(bufferevent_get_input(c->bev), evbuffer_get_length(bufferevent_get_input(c->bev)));
    set_deadline(c, LINGER_US);
}

static void flush_and_close(conn *c) {
    c->state = CONN_FLUSH;
    set_deadline(c, c->loop->server->options.write_deadline_us);
    if (evbuffer_get_length(output(c)) == 0) {
        linger(c);
    }
}

void conn_drain(conn *c) {
    c->keep_alive = false;
    if (c->watcher != NULL) {
        watch_end(c->watcher);
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

/* A client that left while its answer was being made. */
static void disconnected(conn *c) {
    atomic_fetch_add(&c->loop->n_disconnects, 1);
    conn_close(c);
}

/* ---- answers ---- */

/* The answer is written: on to the next request, or to the end. */
static void finish(conn *c) {
    if (!c->keep_alive) {
        flush_and_close(c);
        return;
    }
    http_next(&c->request);
    c->state = CONN_HEAD;
    c->refusal = 0;
    c->refusal_headers = NULL;
    c->tenant = NULL;
    c->is_operator = false;
    set_deadline(c, c->loop->server->options.idle_deadline_us);
    if (!c->processing) {
        process(c);
    }
}

/* Status line and the headers that every answer has. */
static void write_head(conn *c, int status, const char *content_type, const char *headers) {
    char date[64];
    struct tm tm;
    time_t now = (time_t)clock_unix_s();
    const char *origin = c->loop->server->options.allow_origin;
    struct evbuffer *out = output(c);
    c->keep_alive = c->keep_alive && c->loop->stops_seen == 0;
    gmtime_r(&now, &tm);
    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: %s\r\n", status, http_reason(status), date,
                        c->keep_alive ? "keep-alive" : "close");
    if (content_type != NULL) {
        evbuffer_add_printf(out, "Content-Type: %s\r\n", content_type);
    }
    if (origin != NULL && c->request.origin.n > 0) {
        evbuffer_add_printf(out, "Access-Control-Allow-Origin: %s\r\n%s", origin, strcmp(origin, "*") == 0 ? "" : "Vary: Origin\r\n");
    }
    if (headers != NULL) {
        evbuffer_add(out, headers, strlen(headers));
    }
    atomic_fetch_add(&c->loop->n_requests, 1);
    if (status >= 400) {
        atomic_fetch_add(&c->loop->n_errors, 1);
    }
}

void conn_reply(conn *c, const reply *r) {
    write_head(c, r->status, r->content_type, r->headers);
    if (r->status == 204) {
        evbuffer_add(output(c), "\r\n", 2);
    } else {
        evbuffer_add_printf(output(c), "Content-Length: %zu\r\n\r\n", r->body.n);
        if (!(c->request.head_done && c->request.method == HTTP_HEAD)) {
            evbuffer_add(output(c), r->body.p, r->body.n);
        }
    }
    finish(c);
}

void conn_reply_error(conn *c, int status, const char *param, const char *message, const char *headers) {
    strbuf *body = &c->loop->scratch;
    strbuf_clear(body);
    json_out o = {.to = body};
    error_body(&o, status, param, message);
    conn_reply(c, &(reply){.status = status, .content_type = "application/json", .headers = headers, .body = {body->p, body->n}});
}

void conn_stream_begin(conn *c, const char *content_type) {
    c->chunked = c->request.chunks_allowed;
    c->keep_alive = c->keep_alive && c->chunked;
    write_head(c, 200, content_type, c->chunked ? "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n" : "Cache-Control: no-cache\r\n");
    evbuffer_add(output(c), "\r\n", 2);
}

size_t conn_unsent(const conn *c) {
    return evbuffer_get_length(output(c));
}

bool conn_stream_add(conn *c, str piece) {
    struct evbuffer *out = output(c);
    if (c->chunked) {
        evbuffer_add_printf(out, "%zx\r\n", piece.n);
    }
    evbuffer_add(out, piece.p, piece.n);
    if (c->chunked) {
        evbuffer_add(out, "\r\n", 2);
    }
    if (evbuffer_get_length(out) > c->loop->server->options.max_output_bytes) {
        atomic_fetch_add(&c->loop->n_slow_readers, 1);
        conn_close(c);
        return false;
    }
    return true;
}

void conn_stream_end(conn *c) {
    if (c->chunked) {
        evbuffer_add(output(c), "0\r\n\r\n", 5);
    }
    finish(c);
}

/* ---- requests ---- */

static void send_refusal(conn *c) {
    conn_reply_error(c, c->refusal, NULL, c->refusal_text, c->refusal_headers);
}

/* The head is read: what can be said at once is decided, the rest waits for the body. */
static void on_head(conn *c) {
    routes_check(c);
    c->keep_alive = c->request.keep_alive;
}

static void on_body_begin(conn *c) {
    http_request *r = &c->request;
    on_head(c);
    c->state = CONN_BODY;
    r->drop_body = c->refusal != 0;
    set_deadline(c, c->loop->server->options.body_deadline_us);
    if (r->expects_continue && c->refusal != 0) {
        c->keep_alive = false; /* the client may send the body or not: what follows can't be told apart */
        send_refusal(c);
    } else if (r->expects_continue) {
        evbuffer_add_printf(output(c), "HTTP/1.1 100 Continue\r\n\r\n");
    }
}

static void on_request(conn *c) {
    if (!c->request.has_body) {
        on_head(c);
    }
    c->state = CONN_ANSWER;
    event_del(c->deadline);
    if (c->refusal != 0) {
        send_refusal(c);
        return;
    }
    routes_run(c);
}

/* Takes requests from the input, until it is used up or one has to wait for its answer. */
static void process(conn *c) {
    struct evbuffer *in = bufferevent_get_input(c->bev);
    struct evbuffer_iovec v;
    c->processing = true;
    while ((c->state == CONN_HEAD || c->state == CONN_BODY) && evbuffer_get_length(output(c)) <= PIPELINE_BYTES &&
           evbuffer_peek(in, -1, NULL, &v, 1) > 0 && v.iov_len > 0) {
        bool was_started = c->request.started;
        size_t used;
        http_event e = http_feed(&c->request, v.iov_base, v.iov_len, &used);
        evbuffer_drain(in, used);
        if (!was_started && c->request.started && e != HTTP_GOT_ALL) {
            set_deadline(c, c->loop->server->options.header_deadline_us);
        }
        if (e == HTTP_GOT_HEAD) {
            on_body_begin(c);
        } else if (e == HTTP_GOT_ALL) {
            on_request(c);
        } else if (e == HTTP_REFUSED) {
            c->keep_alive = false;
            conn_reply_error(c, c->request.status, NULL, c->request.message, NULL);
        }
    }
    c->processing = false;
}

/* ---- libevent's calls ---- */

static void on_read(struct bufferevent *bev, void *arg) {
    conn *c = arg;
    if (c->state == CONN_FLUSH || c->state == CONN_LINGER) {
        evbuffer_drain(bufferevent_get_input(bev), evbuffer_get_length(bufferevent_get_input(bev)));
        return;
    }
    process(c);
    if (evbuffer_get_length(bufferevent_get_input(bev)) > AHEAD_BYTES) { /* reading never pauses, so that a client that leaves is noticed */
        conn_close(c);
    }
}

static void on_written(struct bufferevent *bev, void *arg) {
    (void)bev;
    conn *c = arg;
    if (c->state == CONN_FLUSH) {
        linger(c);
    } else {
        process(c);
    }
}

static void on_event(struct bufferevent *bev, short what, void *arg) {
    (void)bev;
    conn *c = arg;
    if (c->answer != NULL) {
        disconnected(c);
    } else if (c->watcher != NULL) { /* who looks goes like that */
        conn_close(c);
    } else if ((what & BEV_EVENT_EOF) != 0 && c->state != CONN_LINGER && evbuffer_get_length(output(c)) > 0) {
        c->keep_alive = false;
        flush_and_close(c);
    } else {
        conn_close(c);
    }
}

/* The client took some of the output, or there is some again: it has until the deadline to take more. A bufferevent's own timeout would not do:
 * output that is added in the moment when it expires cancels it. */
static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *arg) {
    conn *c = arg;
    const server_options *o = &c->loop->server->options;
    if (info->n_deleted == 0 && info->orig_size > 0) {
        return;
    }
    if (c->state == CONN_ANSWER && evbuffer_get_length(out) == 0) {
        event_del(c->deadline);
    } else if (c->state == CONN_ANSWER || c->state == CONN_FLUSH) {
        set_deadline(c, o->write_deadline_us);
    } else if (c->state == CONN_HEAD && !c->request.started) {
        set_deadline(c, o->idle_deadline_us);
    }
}

static void on_deadline(evutil_socket_t fd, short what, void *arg) {
    (void)fd;
    (void)what;
    conn *c = arg;
    bool late = (c->state == CONN_HEAD && c->request.started) || c->state == CONN_BODY;
    if (c->state == CONN_ANSWER || c->state == CONN_FLUSH) {
        atomic_fetch_add(&c->loop->n_slow_readers, 1);
    }
    if (!late) {
        conn_close(c);
        return;
    }
    c->keep_alive = false;
    conn_reply_error(c, 408, NULL, c->state == CONN_BODY ? "the body did not arrive in time" : "the header did not arrive in time", NULL);
}

/* ---- opening ---- */

static int64_t open_connections(const server *s) {
    int64_t n = 0;
    for (int32_t i = 0; i < s->n_loops; i++) {
        n += atomic_load(&s->loops[i].n_open);
    }
    return n;
}

static void turn_away(evutil_socket_t fd) {
    static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    ssize_t n = send(fd, full, sizeof(full) - 1, MSG_NOSIGNAL);
    (void)n; /* a client that can't even be told is turned away all the same */
    evutil_closesocket(fd);
}

void conn_open(loop *l, evutil_socket_t fd) {
    const server_options *o = &l->server->options;
    if (open_connections(l->server) >= o->max_connections) {
        turn_away(fd);
        return;
    }
    conn *c = mem_new(1, sizeof(*c));
    struct bufferevent *bev = c == NULL ? NULL : bufferevent_socket_new(l->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (bev == NULL) {
        mem_free(c);
        evutil_closesocket(fd);
        return;
    }
    *c = (conn){.loop = l, .bev = bev, .next = l->conns};
    c->deadline = evtimer_new(l->base, on_deadline, c);
    if (c->deadline == NULL || evbuffer_add_cb(bufferevent_get_output(bev), on_output, c) == NULL) {
        if (c->deadline != NULL) {
            event_free(c->deadline);
        }
        bufferevent_free(bev);
        mem_free(c);
        return;
    }
    http_init(&c->request, o->max_header_bytes, o->max_body_bytes);
    if (l->conns != NULL) {
        l->conns->previous = c;
    }
    l->conns = c;
    atomic_fetch_add(&l->n_open, 1);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* only slower without it */
    bufferevent_setcb(bev, on_read, on_written, on_event, c);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    set_deadline(c, o->header_deadline_us);
}
