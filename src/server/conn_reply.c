/* Sends a connection's responses, whole or in pieces, with the headers common to all. */
#include <assert.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/conn.h"
#include "server/routes.h"

#define TAKE_BYTES (64u << 10) /* from this size on, a piece is moved instead of copied */

static struct evbuffer *conn_output(const conn *c) {
    return bufferevent_get_output(c->bev);
}

void conn_begin_request(conn *c) {
    loop *l = c->loop;
    if (!c->record.is_open) {
        const http_request *r = &c->request;
        request_record_open(&c->record, (str){r->request_id.p, r->request_id.n}, l);
        c->record.method = r->head_done ? http_method_str(r->method) : NULL;
        c->record.client = c->client[0] != '\0' ? c->client : NULL;
        atomic_fetch_add(&l->n_busy, 1);
    }
}

/* Whether the connection will stay open after this response. */
static bool conn_keeps_alive(const conn *c) {
    bool is_last = c->half_closed && evbuffer_get_length(bufferevent_get_input(c->bev)) == 0;
    return c->keep_alive && c->loop->stops_seen == 0 && !is_last;
}

/* Writes the status line and the headers that every response has. */
static void conn_write_head(conn *c, int status, const char *content_type, const char *headers) {
    char date[64];
    struct tm tm;
    time_t now = (time_t)clock_unix_s();
    const char *origin = c->loop->server->options.allow_origin;
    struct evbuffer *out = conn_output(c);
    conn_begin_request(c); /* a request whose head was refused has not begun yet */
    c->record.status = status;
    c->keep_alive = conn_keeps_alive(c);
    gmtime_r(&now, &tm);
    strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: %s\r\nX-Request-Id: %s\r\n", status,
                        status == 529 ? "Overloaded" : http_status_str((enum http_status)status), date,
                        c->keep_alive ? "keep-alive" : "close", c->record.id);
    if (c->request.is_anthropic || c->error == messages_error_body) {
        evbuffer_add_printf(out, "Request-Id: %s\r\n", c->record.id);
    }
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
    assert(c->state != CONN_CLOSING && !c->streaming);
    conn_write_head(c, r->status, r->content_type, r->headers);
    if (r->status == 204) {
        evbuffer_add(conn_output(c), "\r\n", 2);
    } else {
        evbuffer_add_printf(conn_output(c), "Content-Length: %zu\r\n\r\n", r->body.n);
        if (!(c->request.head_done && c->request.method == HTTP_HEAD)) {
            evbuffer_add(conn_output(c), r->body.p, r->body.n);
            c->record.response_bytes = r->body.n;
        }
    }
    c->on_replied(c);
}

json_out conn_begin_json(const conn *c) {
    strbuf_clear(&c->loop->scratch);
    return (json_out){.to = &c->loop->scratch};
}

void conn_fail(conn *c, const api_error *e, const char *headers) {
    assert(e->status >= 400 && e->message != NULL);
    conn_begin_request(c); /* a request whose head was refused has not begun yet */
    request_record_fail(&c->record, e);
    if (e->status == 404) {
        path_show((str){c->request.path.p, c->request.path.n}, c->record.path);
    }
    json_out o = conn_begin_json(c);
    api_error shown = *e;
    shown.request_id = c->record.id;
    shown.status = c->error == messages_error_body ? messages_error_status(e->status) : e->status;
    (c->error != NULL ? c->error : error_body)(&o, &shown);
    conn_reply(c, &(reply){.status = shown.status,
                           .content_type = "application/json",
                           .headers = headers,
                           .body = {o.to->p, o.to->n}});
}

void conn_reply_error(conn *c, int status, const char *param, const char *message, const char *headers) {
    conn_fail(c, &(api_error){.status = status, .param = param, .message = message}, headers);
}

void conn_reply_failure(conn *c, api_error e) {
    char retry[40];
    snprintf(retry, sizeof retry, "Retry-After: %d\r\n", (int)(e.retry_after_s > 0 ? e.retry_after_s : 1));
    conn_fail(c, &e, e.status == 429 || e.status == 503 ? retry : NULL);
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
    assert(c->state == CONN_RESPONSE && !c->streaming);
    c->streaming = true;
    c->chunked = c->request.chunks_allowed;
    c->keep_alive = c->keep_alive && c->chunked;
    conn_write_head(c, 200, content_type,
                    c->chunked ? "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n"
                               : "Cache-Control: no-cache\r\n");
    evbuffer_add(conn_output(c), "\r\n", 2);
}

size_t conn_unsent(const conn *c) {
    return evbuffer_get_length(conn_output(c));
}

static void conn_begin_piece(conn *c, size_t n) {
    assert(c->streaming && n > 0); /* an empty chunk would end the stream */
    c->record.response_bytes += n;
    if (c->chunked) {
        evbuffer_add_printf(conn_output(c), "%zx\r\n", n);
    }
}

static void conn_end_piece(const conn *c) {
    if (c->chunked) {
        evbuffer_add(conn_output(c), "\r\n", 2);
    }
}

void conn_stream_add(conn *c, str piece) {
    conn_begin_piece(c, piece.n);
    evbuffer_add(conn_output(c), piece.p, piece.n);
    conn_end_piece(c);
}

static void conn_free_piece(const void *data, size_t n, void *arg) {
    (void)data;
    (void)n;
    mem_free(arg);
}

void conn_stream_take(conn *c, strbuf *piece) {
    if (piece->n < TAKE_BYTES) {
        conn_stream_add(c, (str){piece->p, piece->n});
        return;
    }
    conn_begin_piece(c, piece->n);
    if (evbuffer_add_reference(conn_output(c), piece->p, piece->n, conn_free_piece, piece->p) == 0) {
        *piece = (strbuf){.max = piece->max};
    } else {
        evbuffer_add(conn_output(c), piece->p, piece->n);
    }
    conn_end_piece(c);
}

void conn_stream_end(conn *c) {
    assert(c->streaming);
    if (c->chunked) {
        evbuffer_add(conn_output(c), "0\r\n\r\n", 5);
    }
    c->on_replied(c);
}
