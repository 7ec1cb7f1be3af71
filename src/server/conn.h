/* One client's connection: requests in, responses out, in order.
 *
 *   CONN_HEAD -> CONN_BODY -> CONN_RESPONSE -> CONN_HEAD (kept alive) | CONN_FLUSH -> CONN_LINGER -> closed
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

#include "server/error_body.h"
#include "server/http.h"
#include "server/loop.h"
#include "server/request_log.h"

typedef enum conn_state {
    CONN_HEAD, /* between requests or inside a header */
    CONN_BODY,
    CONN_RESPONSE, /* the request is complete, its response is in progress */
    CONN_FLUSH,    /* the output is sent, then the connection closes */
    CONN_LINGER    /* our side is closed; the client may still read, and its input is dropped */
} conn_state;

typedef struct conn conn;

/* What a response waits for when it is not complete as its handler returns: a body that
 * is being parsed, a generation, a command to a stream, or a state of the pool; or what a
 * long body waits for whose beginning is looked over. Each has one of these;
 * conn.pending_of is its object. */
typedef struct pending_kind {
    void (*close)(conn *c); /* the connection closes: gives the object up */
    /* gives it up, and ends the response with an error; NULL: close and an error
     * response */
    void (*end)(conn *c, const api_error *why);
    void (*drained)(conn *c); /* the client has read: sends more; NULL: there is no more */
    /* the client reads too slowly: gives it up, and ends the response; NULL: the
     * connection closes */
    void (*cut)(conn *c);
    bool counts_disconnects; /* a client that disconnects before its response is complete is counted */
    bool ends_at_drain;      /* it is ended as soon as the server drains */
    bool is_endless;         /* a stream that ends only when the client or the server closes */
} pending_kind;

/* What is done with requests; routes.h has the one table of them. */
typedef struct conn_handler {
    /* the head is read: sets the tenant, the record's endpoint, or c->refusal when the
     * request is refused whatever its body is */
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
    char client[64]; /* its address and port, "" for a socket file */
    str parameter;   /* what its path has behind the route's prefix; valid as long as the request */
    /* what the response waits for, in CONN_RESPONSE, or the body, in CONN_BODY; or
     * NULL */
    const pending_kind *pending;
    void *pending_of;      /* its object */
    request_record record; /* what the log says about the request in progress */
    char headers[320];     /* for the response in progress: header lines with their ends, or "" */
    bool has_tenant;       /* the request has a key, which belongs to `tenant` */
    char tenant[QUIRE_TENANT_BYTES + 1];
    bool is_operator;    /* it may see the contents of the pool's pages */
    bool keep_alive;     /* after this response */
    bool streaming;      /* conn_stream_begin was called for this response */
    bool chunked;        /* the stream being sent */
    body_claim room;     /* what its body holds (body_room.h) */
    bool waits_for_room; /* it reads nothing, until the room that it stands in line for is there */
    /* has the beginning of a long body looked over, until conn_resume_body; false: it is
     * over already */
    bool (*look)(conn *c);
    size_t look_bytes; /* of the body, after which it is looked over the next time */
    size_t look_room;  /* the memory that a text thread has of it */
    /* it may take so long yet, from then on; the times aside in which nothing is read */
    int64_t body_us, body_from_us;
    int64_t pace_from_us; /* since then its bytes are counted, which have to come fast enough */
    uint64_t pace_from_bytes;
    body_turn turn;            /* at receiving, in loop.turns */
    bool had_turn_to_wait_for; /* since pace_from_us it did not read for a time: its bytes are counted anew */
    bool half_closed;          /* the client has shut down its sending side; it may still read */
    bool is_surplus;           /* over server_options.max_connections: it is answered 503 and closed */
    bool is_slow;              /* counted among the slow readers */
    /* when the client last read some of the output, or new output was added to an empty
     * buffer */
    int64_t taken_us;
    bool processing; /* a caller further up the stack is taking requests from the input */
    /* a status chosen at the head, or by what the body begins with, and sent after the
     * rest is skipped; or 0 */
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
/* Shuts down: an idle connection closes, a busy one after its response. */
void conn_drain(conn *c);
#define CONN_SHUTTING_DOWN "the server is shutting down"
/* Ends the request in progress with an error: a response that waits for something, or a
 * request that is still arriving. The connection may be closed by that. */
void conn_end(conn *c, const api_error *why);
/* The same because the server shuts down. */
void conn_shut_down(conn *c);

/* There is room for some bodies that stood in line: connections of the loop that have got
 * it read on. */
void conn_resume_bodies(loop *l);
/* Frees the room of the request's body: the body is gone, or its first token has come.
 * Nothing where it has none. */
void conn_give_body_room(conn *c);

/* Ends a look: reading goes on, in the time that the body has left. */
void conn_resume_body(conn *c);
/* The body is refused whatever follows: what is there is freed, and the rest is skipped
 * before the response. Copies err. */
void conn_drop_body(conn *c, const quire_error *err);

/* Answers the request and goes on to the next one, or closes. */
void conn_reply(conn *c, const reply *r);
/* The same with OpenAI's error body. param and headers may be NULL. */
void conn_reply_error(conn *c, int status, const char *param, const char *message, const char *headers);
/* The same for a failed request, with a Retry-After header where that helps. */
void conn_reply_failure(conn *c, api_error e);
/* Starts a JSON document in the loop's scratch buffer, whose contents are lost. */
json_out conn_begin_json(const conn *c);
/* Answers with the document that o has written there; 500 when memory was short. headers
 * may be NULL. */
void conn_reply_json(conn *c, const json_out *o, const char *headers);

/* Counts one more slow reader; each counts once. */
void conn_count_slow(conn *c);
/* While more than server_options.max_unread_bytes of the loop are unread: closes the
 * connections that have read nothing for longest. */
void conn_relieve(loop *l);

/* A response in pieces: begin, any number of pieces, end. */
void conn_stream_begin(conn *c, const char *content_type);
/* Bytes of output that the client has not read yet. */
size_t conn_unsent(const conn *c);
void conn_stream_add(conn *c, str piece);
/* The same without a copy where the piece is large: its memory is moved, and *piece is
 * then empty. */
void conn_stream_take(conn *c, strbuf *piece);
void conn_stream_end(conn *c);

#endif
