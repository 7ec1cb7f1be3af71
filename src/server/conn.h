/* One client's connection: requests in, responses out, in order.
 *
 *   CONN_HEAD -> CONN_BODY -> CONN_RESPONSE -> CONN_HEAD (kept alive) | CONN_FLUSH -> CONN_LINGER -> closed
 *
 * While a request is answered the next ones wait unparsed in the input buffer, up to a limit. Each state that waits for the client has an
 * absolute deadline. A client that goes away while its response is made cancels it. Owner: the loop's thread. */
#ifndef SERVER_CONN_H
#define SERVER_CONN_H

#include <event2/bufferevent.h>
#include <event2/util.h>
#include <stdbool.h>

#include "server/error_body.h"
#include "server/http.h"
#include "server/loop.h"

typedef enum conn_state {
    CONN_HEAD,   /* between requests or inside a header */
    CONN_BODY,
    CONN_RESPONSE, /* the request is complete, its response is being made */
    CONN_FLUSH,  /* what is written goes out, then the connection closes */
    CONN_LINGER  /* our side is closed; the client may still read, and what it sends is dropped */
} conn_state;

typedef struct conn {
    loop *loop;
    struct conn *previous, *next;
    struct bufferevent *bev;
    struct event *deadline;
    conn_state state;
    http_request request;
    struct response *response;    /* a generation in progress, or NULL */
    struct watcher *watcher;  /* it waits for looks at the pool, or NULL */
    quire_parse *parse;         /* its body is being read on a text thread, or NULL */
    struct stream_order *order; /* it waits for what becomes of a command to a stream, or NULL */
    char warning[256];        /* of the response being made: a header line with its end, or "" */
    bool has_tenant;          /* the request carries a key: of `tenant` */
    char tenant[QUIRE_TENANT_BYTES + 1];
    bool is_operator;         /* it may see what the pool's pages hold */
    bool keep_alive;          /* after this response */
    bool chunked;             /* the stream being sent */
    size_t body_room;         /* bytes that its body holds (body_room.h) */
    uint64_t body_ticket;     /* it waits for room, since then; 0: it does not */
    bool half_closed;         /* the client sends no more, and still reads, as far as is known */
    bool is_slow;             /* counted among the slow readers */
    int64_t taken_us;         /* when the client last took some of the output, or there was some again */
    bool processing;          /* requests are being taken from the input further up the stack */
    int refusal;              /* decided at the head and sent once the body is read over: status, or 0 */
    const char *refusal_text, *refusal_headers;
} conn;

/* A whole response. headers: lines that end in CRLF, or NULL. */
typedef struct reply {
    int status;
    const char *content_type; /* NULL: no body */
    const char *headers;
    str body;
} reply;

/* Takes the descriptor (also on failure, when it is closed). */
void conn_open(loop *l, evutil_socket_t fd);
/* Closes at once; a response in progress is cancelled. */
void conn_close(conn *c);
/* The loop is shutting down: an idle connection closes, a busy one after its response. */
void conn_drain(conn *c);

/* What a text thread makes of its body is not wanted any more. */
void conn_forget_parse(conn *c);
/* Some room for bodies was given back: connections of the loop that wait for it try again, the first to come first. */
void conn_resume_bodies(loop *l);
/* The request's body is gone, or its first token has come: its room is free. */
void conn_give_body_room(conn *c);

/* Responses the request and goes on to the next one, or closes. */
void conn_reply(conn *c, const reply *r);
/* The same with OpenAI's error body. param and headers may be NULL. */
void conn_reply_error(conn *c, int status, const char *param, const char *message, const char *headers);
/* The same of a failed request, with when to try again where that helps. */
void conn_reply_failure(conn *c, const api_error *e);

/* One more reader that took too little for too long; each counts once. */
void conn_count_slow(conn *c);
/* While more than server_options.max_unread_bytes wait for readers of the loop: cuts those who have taken nothing for longest. */
void conn_relieve(loop *l);

/* A response in pieces: begin, any number of pieces, end. */
void conn_stream_begin(conn *c, const char *content_type);
/* Bytes that the client has not taken yet. */
size_t conn_unsent(const conn *c);
void conn_stream_add(conn *c, str piece);
/* The same; where the piece is large its memory goes along, and *piece is empty then. */
void conn_stream_take(conn *c, strbuf *piece);
void conn_stream_end(conn *c);

#endif
