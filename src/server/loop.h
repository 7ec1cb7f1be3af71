/* An event loop: one thread, one event base, a quire_queue for each model that it uses,
 * and the connections that it accepted. Also the server: what all loops share.
 *
 * All loops share the listening socket; a loop that is free accepts (server_loop.c). Only
 * its own thread touches a loop's objects. Others ring its wake and read its counters. */
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

#define LOOP_BITS 12 /* bits of a loop's index, which limit the number of loops */

/* The text of one token, as log-probabilities show it. p NULL: not computed yet. */
typedef struct token_text {
    char *p; /* quire_free */
    size_t n;
} token_text;

typedef struct server server;

typedef struct loop {
    server *server;
    struct event_base *base;
    struct evconnlistener *listener;
    /* on_retry: accept again after running out of descriptors */
    struct event *on_wake, *on_deadline, *on_retry;
    struct event *on_ping; /* looks for streams that sent nothing for server_options.ping_us; or NULL */
    struct event *on_look; /* the first loop's: logs tier errors and the progress of a drain */
    /* handles an engine's events; arg: the loop_model whose queue has events */
    event_callback_fn on_queue;
    event_callback_fn on_programs; /* the same for its programs */
    struct loop_model *models;     /* [models_count]; NULL: there is no engine yet */
    wake bell;
    pthread_t thread;
    struct conn *conns;  /* all open connections */
    body_turns turns;    /* connections that wait for their turn at receiving */
    struct watch *watch; /* the watchers of the pool (watch.h) */
    /* orders to this loop, and its own coming back (loop_order.h): a stack; any thread
     * adds */
    _Atomic(struct loop_order *) orders;
    struct response *background; /* generated without a connection */
    struct response *unsent;     /* streams that withhold a chunk until the queue is drained */
    strbuf scratch;              /* buffer in which responses are written before they go to a connection */
    uint64_t random;             /* state of the generator for ids of responses */
    /* bytes of streams and of complete responses that clients have not read */
    atomic_llong n_unread;
    int stops_seen;        /* 0: serving; 1: draining; 2: cancelling */
    int32_t n_model_waits; /* connections that wait for a model, or until all models sleep */
    int aborts_seen;       /* value of server.n_aborts that it has handled */
    quire_err failure;
    /* Counters, read by /metrics on any loop. */
    struct http_stats *http;
    atomic_llong n_busy; /* requests whose head was read and whose response is not complete */
    atomic_llong n_disconnects, n_slow_readers, n_slow_bodies, n_open, n_surplus;
} loop;

struct server {
    quire_engine *engine;  /* the main model's */
    struct models *models; /* all of them (models.h) */
    server_options options;
    const struct conn_handler *handler; /* handles requests (conn.h) */
    auth *keys;
    struct sandboxes *sandboxes;
    struct response_store *responses;
    atomic_llong n_background; /* responses that are generated without a connection */
    body_room bodies;
    strbuf home_headers, pool_headers; /* headers of the pages at / and /pool (web_pages.h) */
    uint8_t pool_key[POOL_KEY_BYTES];  /* for the hashes in /debug/pool */
    bool on_loopback;                  /* only this machine can connect */
    const char *model_name;            /* the first of its served names */
    int64_t started_s;
    int listen_fd;
    int32_t port; /* 0 with a socket file */
    char url[300];
    bool is_waiting;           /* loops[0] runs on a thread of its own, without an engine (server_open) */
    atomic_bool stops_waiting; /* tells that thread to end */
    atomic_bool is_leaving;    /* a drain will begin: /ready says 503 */
    struct event *on_leave;    /* begins it */
    const char *socket_file;   /* socket file to remove at the end (server_loop.c); NULL: none */
    dev_t socket_device;       /* device and inode of that file */
    ino_t socket_inode;
    loop *loops;
    int32_t n_loops;          /* of open loops */
    atomic_int stops;         /* calls of server_stop so far */
    atomic_int n_aborts;      /* how often all requests with a model had to be ended */
    int64_t n_tier_errors[3]; /* logged errors of each tier; the first loop's */
};

/* The head of a function that libevent calls: `arg` is its object. */
#define LOOP_CALLBACK(name)                                                                                  \
    void name(__attribute__((unused)) evutil_socket_t fd, __attribute__((unused)) short what, void *arg)

/* Whether name is one of the model's served names. */
bool server_answers_to(const server *s, str name);
/* Starts a timer, or starts it again: it fires once, after us. */
void loop_set_timer(struct event *timer, int64_t us);
/* Frees an event, which may be NULL. */
void loop_free_event(struct event *event);
/* Wakes all loops that are open. Any thread. */
void loop_wake_all(const server *s);
/* Requests in progress on all loops. Any thread. */
int64_t loop_count_busy(const server *s);
/* A new number for a request of l; its lowest LOOP_BITS bits are the loop's index. */
uint64_t loop_new_id(loop *l);
/* The number that ends the id of a request or response, 16 hex digits; false: none. */
bool loop_read_id(const char *id, uint64_t *number);
/* The loop of s that made the number of an id, or NULL. */
loop *loop_of_id(server *s, const char *id);

/* Tells a service manager such as systemd the server's state, by sd_notify's protocol:
 * sends "READY=1" or "STOPPING=1" to the socket that NOTIFY_SOCKET names, if it is
 * set. Failures are ignored. Any thread; does not block. */
void notify_manager(const char *state);

/* ---- server_loop.c: runs a loop ---- */

/* Opens l as a loop of s, which needs no engine yet. A failure leaves nothing open. */
quire_err loop_open(loop *l, server *s);
/* Connects l, which does not run, to the engine. On failure l can only be closed. */
quire_err loop_attach(loop *l);
/* Closes what remains: connections, queue, base. Called after loop_run. */
void loop_close(loop *l);
/* Serves until the server is stopped and the last connection is closed, or until it stops
 * waiting for its engine. */
quire_err loop_run(loop *l);

/* ---- server_loop.c ---- */

#define LISTEN_UNIX "unix:" /* before the path of a socket file, in server_options.host */

/* Binds and listens; sets the server's descriptor, URL, port and on_loopback. A socket
 * file has mode 0660; one left by a server that is gone is replaced. On failure (IO,
 * INVALID) err says what to do, and nothing is left. */
quire_err listen_open(server *s, quire_error *err);
/* Closes the descriptor, and removes the socket file unless another has taken its place.
 * A second call does nothing. */
void listen_close(server *s);
/* Raises the limit of open files to what max_connections needs; warns if it can't. */
void listen_raise_files(const server_options *o);

/* ---- a loop's models ---- */

/* A loop's part of a server's models: for each one that the loop's requests use, a queue
 * of its engine (models.h).
 *
 * A connection holds its request's model from the end of the body on (conn_model.h); the
 * response takes it over. Owner: the loop's thread. */

typedef struct loop_model {
    loop *l;
    served_model *m;
    quire_queue *queue; /* NULL: not open */
    struct event *on_queue;
    struct quire_programs *programs; /* NULL before the first program */
    struct event *on_programs;
    int32_t n_holds;         /* connections and responses that use it */
    bool is_draining;        /* none is left; the model's hold is kept until the queue is idle */
    token_text *token_texts; /* [n_token_texts] by id; NULL before a request needs log-probabilities */
    int32_t n_token_texts;
} loop_model;

/* Opens a loop's part of the models, and the queue of the main one, which is loaded. */
quire_err loop_models_open(loop *l);
/* Closes all queues. No response may be left. */
void loop_models_close(loop *l);
/* Closes the queues of leaving models that none of the loop's requests uses. */
void loop_models_close_leaving(loop *l);

/* Opens the queue of a model that the caller holds, unless it is open.
 * QUIRE_NO_MEMORY. */
quire_err loop_model_open(loop_model *p);
/* Opens the runner of programs of a model that the caller holds, unless it is open.
 * QUIRE_NO_MEMORY. */
quire_err loop_model_open_programs(loop_model *p);
/* Call when programs have used up their turn: those with more to do continue after the
 * loop's other events. */
void loop_model_await_programs(loop_model *p);
/* Drops a request's hold of a model. The last one is kept until released streams are
 * over, so that closing the queue does not wait. */
void loop_model_drop(loop_model *p);
/* Call after events of the queue or of programs were read: drops the hold that
 * loop_model_drop kept, if no more events are to come. */
void loop_model_look(loop_model *p);

#endif
