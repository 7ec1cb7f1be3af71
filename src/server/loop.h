/* A loop: one thread, one event base, one quire_queue, and the connections that it accepted.
 *
 * The listening socket is shared by all loops; whoever is free accepts. Everything that hangs on a loop is touched by its thread alone;
 * other threads ring its wake, and read its counters. */
#ifndef SERVER_LOOP_H
#define SERVER_LOOP_H

#include <event2/event.h>
#include <event2/listener.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/str.h"
#include "base/wake.h"
#include "server/auth.h"
#include "server/body_room.h"
#include "server/page.h"
#include "server/pool_json.h"
#include "server/sandbox.h"
#include "server/server.h"

struct conn;
struct response;
struct watch;
struct stream_order;

/* The text of a token by itself, as log-probabilities show it. p NULL: not made yet. */
typedef struct token_text {
    char *p; /* quire_free */
    size_t n;
} token_text;

typedef struct loop {
    server *server;
    struct event_base *base;
    struct evconnlistener *listener;
    struct event *on_queue, *on_wake, *on_deadline, *on_retry; /* on_retry: accept again after running out of descriptors */
    quire_queue *queue;
    wake bell;
    pthread_t thread;
    struct conn *conns;      /* all open ones */
    struct watch *watch;     /* who looks at the pool (watch.h) */
    _Atomic(struct stream_order *) orders; /* to streams here, and back from others (streams.h): a stack; any thread adds */
    struct response *unsent;   /* streams that hold back a chunk until the queue is drained */
    strbuf scratch;          /* where responses are written before they go to a connection */
    token_text *token_texts; /* [n_token_texts] by id; NULL until somebody asked for log-probabilities */
    int32_t n_token_texts;
    uint64_t random;         /* of the ids of responses */
    int64_t n_unread;        /* bytes of responses that wait for their readers: of streams, and of what is complete */
    uint64_t n_body_waits;   /* connections here that found no room for their body so far: their tickets */
    int stops_seen;          /* 0: serving; 1: draining; 2: cancelling */
    quire_err failure;
    /* Counters, read by /metrics on any loop. */
    atomic_llong n_requests, n_errors, n_disconnects, n_slow_readers, n_open;
} loop;

struct server {
    quire_engine *engine;
    server_options options;
    auth *keys;
    sandboxes *sandboxes;
    body_room bodies;
    web_page *pool_page;
    uint8_t pool_key[POOL_KEY_BYTES]; /* of the hashes that /debug/pool shows */
    bool on_loopback;        /* only this machine can connect */
    const char *model_name;
    int64_t started_s;
    int listen_fd;
    int32_t port;
    char url[300];
    loop *loops;
    int32_t n_loops;         /* opened ones */
    atomic_int stops;        /* calls of server_stop so far */
};

/* Makes l a loop of s. On failure l is as good as closed. */
quire_err loop_open(loop *l, server *s);
/* Closes what is left: connections, queue, base. After loop_run. */
void loop_close(loop *l);
/* Serves until the server was stopped and the last connection is gone. */
quire_err loop_run(loop *l);

#endif
