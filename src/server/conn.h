/* One client's connection: reads requests and writes their responses, in order.
 *
 *   CONN_REQUEST -> CONN_RESPONSE -> CONN_REQUEST (kept alive) | CONN_CLOSING -> closed
 *
 * While a request is answered, the next ones wait unparsed in the input buffer, up to a
 * limit. Each state that waits for the client has an absolute deadline. If a client
 * disconnects before its response is complete, the request is cancelled. Owner: the
 * loop's thread. */
#ifndef SERVER_CONN_H
#define SERVER_CONN_H

#include <event2/bufferevent.h>
#include <event2/util.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "server/body_reader.h"
#include "server/request_log.h"

typedef enum conn_state {
    CONN_REQUEST,  /* between requests, or a request is arriving: its head, or its body (body_reader.h) */
    CONN_RESPONSE, /* the request is complete, its response is in progress */
    /* the output is sent, our side shut down; input is dropped, the client may read */
    CONN_CLOSING,
    CONN_N_STATES
} conn_state;

typedef enum conn_event {
    CONN_READABLE, /* there is input: of this request, or of later ones */
    CONN_WRITTEN,  /* all output but a small rest was sent */
    CONN_TAKEN,    /* the client has read some output, or output was added to an empty buffer */
    CONN_EOF,      /* the client has shut down its sending side, perhaps also its receiving side */
    CONN_LOST,     /* the connection is broken */
    CONN_LATE,     /* the deadline has passed */
    CONN_DRAIN,    /* the server begins to drain */
    CONN_N_EVENTS
} conn_event;

typedef struct conn conn;

/* A kind of object that a response waits for if it is not complete when its handler
 * returns (a job on the body, a generation, an order to a stream, a state of the pool),
 * or that a long body waits for while it is inspected. conn.pending_of is the object. */
typedef struct pending_kind {
    void (*close)(conn *c); /* releases the object, because the connection closes */
    /* releases the object and ends the response with an error; NULL: `close` is called
     * and an error response sent */
    void (*end)(conn *c, const api_error *why);
    void (*drained)(conn *c); /* sends more once the client has read; NULL: there is never more */
    /* releases the object and ends the response, because the client reads too slowly;
     * NULL: the connection closes */
    void (*cut)(conn *c);
    bool counts_disconnects; /* counts clients that disconnect before the response is complete */
    bool ends_at_drain;      /* the response is ended as soon as the server drains */
    /* the response is a stream that ends only when the client or the server closes */
    bool is_endless;
} pending_kind;

/* How requests are handled. The only implementation is in routes.h. */
typedef struct conn_handler {
    /* called once the head is read: sets the tenant and the record's endpoint, or
     * c->refusal if the request is refused whatever its body is */
    void (*check)(conn *c);
    void (*run)(conn *c); /* called once the request is complete: answers it, or sets c->pending */
} conn_handler;

struct conn {
    loop *loop;
    conn *previous, *next;
    struct bufferevent *bev;
    struct event *deadline;
    conn_state state;
    http_request request;
    body_reader body;
    char client[64];             /* the peer's address and port, "" for a socket file */
    str parameter;               /* the path after the route's prefix; valid until the request ends */
    const pending_kind *pending; /* kind of the object that the response, or a look, waits for; NULL: none */
    void *pending_of;            /* the object of that kind */
    request_record record;       /* log record of the request in progress */
    char headers[320];           /* header lines of the response in progress, each with CRLF; "": none */
    bool has_tenant;             /* the request has a key; `tenant` owns it */
    char tenant[QUIRE_TENANT_BYTES + 1];
    bool is_api;      /* the path belongs to an API */
    bool is_operator; /* the client may see the contents of the pool's pages */
    bool keep_alive;  /* the connection stays open after this response */
    bool streaming;   /* conn_stream_begin was called for this response */
    bool chunked;     /* the stream being sent is chunked */
    /* called once the response is written: continues with the next request, or closes */
    void (*on_replied)(conn *c);
    /* starts a look at the beginning of a long body, until conn_resume_body; false: it is
     * already over. NULL: the route has none */
    bool (*look)(conn *c);
    size_t look_room;         /* capacity of the body's memory while a text thread owns it */
    quire_endpoint endpoint;  /* endpoint of the route, if it generates */
    struct loop_model *model; /* model of the request in progress, held; NULL: none now */
    error_writer error;       /* error writer of the route's dialect; NULL: error_body */
    bool half_closed;         /* the client has shut down its sending side; it may still read */
    bool is_shut;             /* our sending side is shut down, in CONN_CLOSING */
    bool is_surplus;          /* the connection is over max_connections: answered 503 and closed */
    bool is_slow;             /* was counted as a slow reader */
    bool processing;          /* conn_process is on the stack and takes requests from the input */
    int64_t taken_us;         /* time of the last CONN_TAKEN */
    /* status of a refusal, decided by the head or the beginning of the body; sent after
     * the rest of the request is skipped. 0: none */
    int refusal;
    const char *refusal_text, *refusal_headers, *refusal_param;
    quire_error refusal_error; /* holds the refusal's texts that are not constant */
};

/* A whole response. headers: lines that each end in CRLF, or NULL. */
typedef struct reply {
    int status;
    const char *content_type; /* NULL: no body */
    const char *headers;
    str body;
} reply;

/* Opens a connection on a client's descriptor, which it takes over; on failure it is
 * closed. from: the client's address. */
void conn_open(loop *l, evutil_socket_t fd, const struct sockaddr *from, socklen_t n_from);
/* Closes and frees the connection at once. A response in progress is cancelled. */
void conn_close(conn *c);
/* Handles the start of a drain: closes c if idle, otherwise after its response. */
void conn_drain(conn *c);
#define CONN_SHUTTING_DOWN "the server is shutting down"
/* Ends the request in progress with an error, whether it is still arriving or its
 * response waits for something. This may close and free the connection. */
void conn_end(conn *c, const api_error *why);
/* Ends the request in progress because the server shuts down. As conn_end. */
void conn_shut_down(conn *c);

/* Resumes the loop's connections whose bodies waited for room and have got it. */
void conn_resume_bodies(loop *l);
/* Ends a look: reading continues, within the time that the body has left. */
void conn_resume_body(conn *c);
/* Refuses the request because of its body: frees what has arrived, and sends the error,
 * which is copied, after the rest is skipped. */
void conn_drop_body(conn *c, const quire_error *err);

/* Counts c as a slow reader, unless it was counted already. */
void conn_count_slow(conn *c);
/* While the loop has more than server_options.max_unread_bytes unread, closes the
 * connection that has read nothing for the longest time. */
void conn_relieve(loop *l);

/* ---- conn_reply.c: responses ---- */

/* Counts the request as in progress, once its head was read or refused. */
void conn_begin_request(conn *c);
/* Sends a whole response, then continues with the next request or closes. */
void conn_reply(conn *c, const reply *r);
/* Responds with an error in the route's dialect. headers may be NULL. */
void conn_fail(conn *c, const api_error *e, const char *headers);
/* As conn_fail, with the parts of an error. param and headers may be NULL. */
void conn_reply_error(conn *c, int status, const char *param, const char *message, const char *headers);
/* As conn_fail, with a Retry-After header if a retry may help. */
void conn_reply_failure(conn *c, api_error e);
/* Starts a JSON document in the loop's scratch buffer, which is cleared first. */
json_out conn_begin_json(const conn *c);
/* Responds with the document in o, from conn_begin_json; if o ran out of memory, with
 * 500. headers may be NULL. */
void conn_reply_json(conn *c, const json_out *o, const char *headers);

/* Starts a response in pieces, which conn_stream_end ends. */
void conn_stream_begin(conn *c, const char *content_type);
/* Returns how many bytes of output the client has not read yet. */
size_t conn_unsent(const conn *c);
/* Sends a copy of a piece of the response, which must not be empty. */
void conn_stream_add(conn *c, str piece);
/* As conn_stream_add, but moves a large piece's memory; *piece is empty afterwards. */
void conn_stream_take(conn *c, strbuf *piece);
/* Ends the response in pieces; continues with the next request, or closes. */
void conn_stream_end(conn *c);

#endif
