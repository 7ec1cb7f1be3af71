/* An event loop: one thread, one event base, a quire_queue for each model that it uses,
 * and the connections that it accepted. Also the server, which holds what all loops
 * share.
 *
 * All loops share the listening socket; an idle loop accepts (server_loop.c). Only its
 * own thread touches a loop's objects. Other threads may ring its bell and read its
 * counters. */
#ifndef SERVER_LOOP_H
#define SERVER_LOOP_H

#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/ring.h"
#include "base/str.h"
#include "quire.h"
#include "server/auth.h"
#include "server/bodies.h"
#include "server/models.h"
#include "server/pool_json.h"
#include "server/server_options.h"

struct conn;
struct conn_handler;
struct response;
struct watch;
struct loop_order;
struct http_stats;
struct sandboxes;
struct response_store;
struct models;
struct loop_model;

#define LOOP_BITS 12 /* bits of a loop's index in an id; they limit the number of loops */

/* Cached text of one token, for log-probabilities. p NULL: not computed yet. */
typedef struct token_text {
    char *p; /* quire_free */
    size_t n;
} token_text;

typedef struct server server;

typedef struct loop {
    server *server;
    struct event_base *base;
    struct evconnlistener *listener;
    /* on_retry: accepts again after a lack of descriptors */
    struct event *on_wake, *on_deadline, *on_retry;
    struct event *on_ping; /* pings streams that have sent nothing for server_options.ping_us; NULL if off */
    struct event *on_look; /* logs tier errors and the progress of a drain; first loop only */
    /* handles the events of an engine's queue; arg: the loop_model */
    event_callback_fn on_queue;
    event_callback_fn on_programs; /* handles the events of an engine's programs; arg: the loop_model */
    struct loop_model *models;     /* [models_count]; NULL: no engine yet */
    wake bell;
    pthread_t thread;
    struct conn *conns;  /* all open connections */
    body_turns turns;    /* queue of connections that wait for their turn at receiving */
    struct watch *watch; /* the watchers of the pool (watch.h) */
    /* stack of orders that arrive at this loop, including its own that come back
     * (loop_order.h); any thread pushes */
    _Atomic(struct loop_order *) orders;
    struct response *background; /* list of responses that are generated without a connection */
    struct response *unsent;     /* list of streams that withhold a chunk until the queue is drained */
    strbuf scratch;              /* buffer for writing responses before they go to a connection */
    uint64_t random;             /* state of the random generator for ids */
    /* bytes of streams and whole responses that clients have not read */
    atomic_llong n_unread;
    int stops_seen;        /* 0: serving; 1: draining; 2: cancelling */
    int32_t n_model_waits; /* connections that wait for a model, or until all models sleep */
    int aborts_seen;       /* value of server.n_aborts when the loop last handled it */
    quire_err failure;
    /* Counters, which /metrics reads from any loop. */
    struct http_stats *http;
    atomic_llong n_busy; /* requests in progress: head read, response not complete */
    atomic_llong n_disconnects, n_slow_readers, n_slow_bodies, n_open, n_surplus;
} loop;

struct server {
    quire_engine *engine;  /* engine of the main model */
    struct models *models; /* all models (models.h) */
    server_options options;
    const struct conn_handler *handler; /* handles requests (conn.h) */
    auth *keys;
    struct sandboxes *sandboxes;
    struct response_store *responses;
    atomic_llong n_background; /* responses that are generated without a connection */
    body_room bodies;
    strbuf home_headers, pool_headers; /* headers of the pages at / and /pool (web_pages.h) */
    uint8_t pool_key[POOL_KEY_BYTES];  /* key of the hashes in /debug/pool */
    bool on_loopback;                  /* only this machine can connect */
    const char *model_name;            /* the first served name of the main model */
    int64_t started_s;
    int listen_fd;
    int32_t port; /* 0 with a socket file */
    char url[300];
    bool is_waiting;           /* loops[0] runs on a thread of its own, without an engine (server_open) */
    atomic_bool stops_waiting; /* tells that thread to end */
    atomic_bool is_leaving;    /* a drain will begin soon: /ready answers 503 */
    struct event *on_leave;    /* timer that begins the drain */
    const char *socket_file;   /* socket file to remove at the end (server_loop.c); NULL: none */
    dev_t socket_device;       /* device and inode of that file */
    ino_t socket_inode;
    loop *loops;
    int32_t n_loops;          /* number of open loops */
    atomic_int stops;         /* calls of server_stop so far */
    atomic_int n_aborts;      /* how often a sleep has ended all requests that hold a model */
    int64_t n_tier_errors[3]; /* errors of each tier that were logged; first loop only */
};

/* The head of a libevent callback; arg: the object it was registered with. */
#define LOOP_CALLBACK(name)                                                                                  \
    void name(__attribute__((unused)) evutil_socket_t fd, __attribute__((unused)) short what, void *arg)

/* Whether name is one of the model's served names. */
bool server_answers_to(const server *s, str name);
/* Starts or restarts a timer, which fires once, after us microseconds. */
void loop_set_timer(struct event *timer, int64_t us);
/* Frees an event, which may be NULL. */
void loop_free_event(struct event *event);
/* Rings all open loops. Any thread. */
void loop_wake_all(const server *s);
/* Number of requests in progress on all loops. Any thread. */
int64_t loop_count_busy(const server *s);
/* A random number for a request of l; its lowest LOOP_BITS bits are the loop's index. */
uint64_t loop_new_id(loop *l);
/* Reads the number that ends a request's or response's id, 16 hex digits; false: none. */
bool loop_read_id(const char *id, uint64_t *number);
/* The loop of s that made an id, by the id's number; NULL: none. */
loop *loop_of_id(server *s, const char *id);

/* Tells a service manager such as systemd the server's state, by sd_notify's protocol:
 * sends "READY=1" or "STOPPING=1" to the socket that NOTIFY_SOCKET names, if it is set.
 * Ignores failures. Any thread; does not block. */
void notify_manager(const char *state);

/* ---- server_loop.c: runs a loop ---- */

/* Opens l as a loop of s, which may have no engine yet. On failure nothing stays open. */
quire_err loop_open(loop *l, server *s);
/* Connects l, which must not run, to the engine. On failure l can only be closed. */
quire_err loop_attach(loop *l);
/* Closes the loop's connections, queues and event base, after loop_run has returned. */
void loop_close(loop *l);
/* Runs the loop until the server is stopped and its last connection closed, or until the
 * server stops waiting for its engine. */
quire_err loop_run(loop *l);

/* ---- server_loop.c ---- */

#define LISTEN_UNIX "unix:" /* in server_options.host, before the path of a socket file */

/* Binds and listens; sets the server's descriptor, URL, port and on_loopback. A socket
 * file gets mode 0660 and replaces one of a server that no longer runs. QUIRE_IO,
 * QUIRE_INVALID: err says what to do, and nothing stays open. */
quire_err listen_open(server *s, quire_error *err);
/* Closes the descriptor, and removes the socket file unless another server has replaced
 * it. A second call does nothing. */
void listen_close(server *s);
/* Raises the limit of open files to what max_connections needs; warns if it cannot. */
void listen_raise_files(const server_options *o);

/* ---- a loop's models ---- */

/* A loop's part of the server's models: a queue of the engine of each model that the
 * loop's requests use (models.h).
 *
 * A connection holds its request's model once the body is complete (conn_model.h); its
 * response takes over the hold. Owner: the loop's thread. */

typedef struct loop_model {
    loop *l;
    served_model *m;
    quire_queue *queue; /* NULL: closed */
    struct event *on_queue;
    struct quire_programs *programs; /* NULL before the first program */
    struct event *on_programs;
    int32_t n_holds;  /* the loop's connections and responses that use the model */
    bool is_draining; /* no holds are left; the model is still held until the queue is idle */
    /* [n_token_texts] cache by id; NULL before the first request for log-probabilities */
    token_text *token_texts;
    int32_t n_token_texts;
} loop_model;

/* Opens a loop's part of all models, and the queue of the main one, which must be loaded.
 * On failure nothing stays open. */
quire_err loop_models_open(loop *l);
/* Closes all of the loop's queues. It must have no response left. */
void loop_models_close(loop *l);
/* Closes the queues of leaving models that none of the loop's requests uses. */
void loop_models_close_leaving(loop *l);

/* Opens the queue of a model that the caller holds, unless it is open.
 * QUIRE_NO_MEMORY. */
quire_err loop_model_open(loop_model *p);
/* Opens the runner of programs of a model that the caller holds, unless it is open.
 * QUIRE_NO_MEMORY. */
quire_err loop_model_open_programs(loop_model *p);
/* Call when programs' turn is over: they continue after the loop's other events. */
void loop_model_await_programs(loop_model *p);
/* Drops a request's hold of a model. After the last one, the model stays held until its
 * released streams are over, so that closing the queue does not wait. */
void loop_model_drop(loop_model *p);
/* Call after events of the queue or of programs were read: drops the hold that
 * loop_model_drop kept, if no more events will come. */
void loop_model_look(loop_model *p);

#endif
