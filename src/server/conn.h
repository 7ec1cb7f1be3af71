/* One client's connection: requests in, responses out, in order.
 *
 *   CONN_REQUEST -> CONN_RESPONSE -> CONN_REQUEST (kept alive) | CONN_CLOSING -> closed
 *
 * While a request is answered, the next ones wait unparsed in the input buffer, up to a
 * limit. Each state that waits for the client has an absolute deadline. A client that
 * disconnects before its response is complete cancels it. Owner: the loop's thread. */
#ifndef SERVER_CONN_H
#define SERVER_CONN_H

#include <event2/bufferevent.h>
#include <event2/util.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "server/body_reader.h"
#include "server/request_log.h"

typedef enum conn_state {
    CONN_REQUEST,  /* between requests, or one is arriving: its head, or its body (body_reader.h) */
    CONN_RESPONSE, /* the request is complete, its response is in progress */
    /* the output is sent, our side shuts down, input is dropped; the client may read */
    CONN_CLOSING,
    CONN_N_STATES
} conn_state;

typedef enum conn_event {
    CONN_READABLE, /* there is input; of a request, or of those after it */
    CONN_WRITTEN,  /* the output was sent, except for a small rest */
    CONN_TAKEN,    /* the client has read some of the output, or output was added to an empty buffer */
    CONN_EOF,      /* the client has shut down its sending side, and perhaps both */
    CONN_LOST,     /* the client is gone */
    CONN_LATE,     /* the deadline is over */
    CONN_DRAIN,    /* the server drains */
    CONN_N_EVENTS
} conn_event;

typedef struct conn conn;

/* What a response waits for if it is not complete when its handler returns: work on its
 * body, a generation, a command to a stream, or a state of the pool; or what a long body
 * waits for while it is inspected. conn.pending_of is its object. */
typedef struct pending_kind {
    void (*close)(conn *c); /* the connection closes: gives the object up */
    /* gives it up, and ends the response with an error; NULL: calls close, then sends
     * such a response */
    void (*end)(conn *c, const api_error *why);
    void (*drained)(conn *c); /* called when the client has read, to send more; NULL: nothing more to send */
    /* the client reads too slowly: gives it up, and ends the response; NULL: the
     * connection closes */
    void (*cut)(conn *c);
    bool counts_disconnects; /* a client that disconnects before its response is complete is counted */
    bool ends_at_drain;      /* it is ended as soon as the server drains */
    bool is_endless;         /* a stream that ends only when the client or the server closes */
} pending_kind;

/* How requests are handled; routes.h has the only such table. */
typedef struct conn_handler {
    /* the head is read: sets the tenant and the record's endpoint, or c->refusal if the
     * request is refused whatever its body */
    void (*check)(conn *c);
    void (*run)(conn *c); /* the request is complete: answers it, or sets c->pending */
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
    str parameter;               /* the path after the route's prefix; valid as long as the request */
    const pending_kind *pending; /* what the response, or a body being inspected, waits for; or NULL */
    void *pending_of;            /* its object */
    request_record record;       /* for the log: the request in progress */
    char headers[320];           /* for the response in progress: header lines with their ends, or "" */
    bool has_tenant;             /* the request has a key, which is that of `tenant` */
    char tenant[QUIRE_TENANT_BYTES + 1];
    bool is_api;                 /* the path is one of the APIs */
    bool is_operator;            /* the client may see the contents of the pool's pages */
    bool keep_alive;             /* the connection stays open after this response */
    bool streaming;              /* conn_stream_begin was called for this response */
    bool chunked;                /* the stream being sent is chunked */
    void (*on_replied)(conn *c); /* the response is written: goes on to the next request, or to the end */
    /* starts the inspection of a long body's beginning, until conn_resume_body; false: it
     * is already over. NULL: never inspected */
    bool (*look)(conn *c);
    size_t look_room;         /* memory of the body being checked by a text thread */
    quire_endpoint endpoint;  /* endpoint of the route, if it is a generation's */
    struct loop_model *model; /* model of the request in progress; NULL: none at present */
    error_writer error;       /* error writer of the route's dialect; NULL: error_body */
    bool half_closed;         /* the client has shut down its sending side; it may still read */
    bool is_shut;             /* our side is shut down, in CONN_CLOSING; the client may still read */
    bool is_surplus;          /* over server_options.max_connections: it is answered 503 and closed */
    bool is_slow;             /* counted among the slow readers */
    bool processing;          /* a caller further up the stack is taking requests from the input */
    int64_t taken_us;         /* time of the last CONN_TAKEN */
    /* a status chosen from the head, or from the beginning of the body, and sent after
     * the rest is skipped; or 0 */
    int refusal;
    const char *refusal_text, *refusal_headers, *refusal_param;
    quire_error refusal_error; /* holds texts that were made for it */
};

/* A whole response. headers: lines that end in CRLF, or NULL. */
typedef struct reply {
    int status;
    const char *content_type; /* NULL: no body */
    const char *headers;
    str body;
} reply;

/* Takes over the descriptor of a client at this address. On failure it is closed. */
void conn_open(loop *l, evutil_socket_t fd, const struct sockaddr *from, socklen_t n_from);
/* Closes at once. A response in progress is cancelled. */
void conn_close(conn *c);
/* The server drains: an idle connection closes, a busy one after its response. */
void conn_drain(conn *c);
#define CONN_SHUTTING_DOWN "the server is shutting down"
/* Ends the request in progress with an error, whether its response waits for something or
 * the request is still arriving. This may close the connection. */
void conn_end(conn *c, const api_error *why);
/* The same, because the server shuts down. */
void conn_shut_down(conn *c);

/* Bodies in line were granted room: resumes the loop's connections that waited for it. */
void conn_resume_bodies(loop *l);
/* Ends an inspection: reading continues, within the time that the body has left. */
void conn_resume_body(conn *c);
/* Refuses the body whatever follows: what has arrived is freed, and the rest is skipped
 * before the response. Copies err. */
void conn_drop_body(conn *c, const quire_error *err);

/* Counts one more slow reader; each counts once. */
void conn_count_slow(conn *c);
/* Closes the connections that have read nothing for longest, while more than
 * server_options.max_unread_bytes of the loop are unread. */
void conn_relieve(loop *l);

/* ---- conn_reply.c: responses ---- */

/* The head is read, or refused: the request counts as being in progress. */
void conn_begin_request(conn *c);
/* Answers the request, and continues with the next one or closes. */
void conn_reply(conn *c, const reply *r);
/* The same with an error body of the route's dialect. headers may be NULL. */
void conn_fail(conn *c, const api_error *e, const char *headers);
/* The same. param and headers may be NULL. */
void conn_reply_error(conn *c, int status, const char *param, const char *message, const char *headers);
/* The same for a failed request, with a Retry-After header if a retry helps. */
void conn_reply_failure(conn *c, api_error e);
/* Starts a JSON document in the loop's scratch buffer, whose contents are lost. */
json_out conn_begin_json(const conn *c);
/* Answers with the document that o wrote there; 500: out of memory. headers: or NULL. */
void conn_reply_json(conn *c, const json_out *o, const char *headers);

/* A response in pieces: begin, any number of pieces, end. */
void conn_stream_begin(conn *c, const char *content_type);
/* Returns how many bytes of output the client has not read yet. */
size_t conn_unsent(const conn *c);
void conn_stream_add(conn *c, str piece);
/* The same, but a large piece is not copied: its memory moves, *piece is then empty. */
void conn_stream_take(conn *c, strbuf *piece);
void conn_stream_end(conn *c);

#endif
