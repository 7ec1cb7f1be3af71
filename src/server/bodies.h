/* What the bodies of all requests share: memory, which is the server's, and turns at
 * receiving, which belong to a loop.
 *
 * Memory. All connections together hold a bounded number of bytes of large bodies, each
 * from its first bytes over BODY_SMALL_BYTES to the first token of its response. A body
 * takes room as its bytes arrive, a piece at a time: one that is only announced holds
 * nothing. Smaller bodies are not counted. A connection whose next piece finds no room
 * stops reading and waits in line.
 *
 * - Shares. A tenant takes room only while as much stays free as it then holds: half of
 *   it if alone, and a quarter for a second one. As bodies end, n tenants that want all
 *   they can get converge to equal shares of 1/(n + 1) (dynamic thresholds: Choudhury and
 *   Hahne 1998), so some room stays free for a tenant that holds none.
 * - The line. A body's place is a number that it gets with its first piece: bytes taken
 *   by all bodies so far, plus its own length. So smaller bodies overtake larger ones,
 *   but a body is no longer overtaken once as many bytes as it is long were taken after
 *   its start. Within a tenant nobody overtakes the first in line; other tenants may,
 *   since they have their own shares.
 * - The lane. If all bodies of a tenant that hold room wait in line, none of them would
 *   ever end. The first in line whose tenant is stuck like that continues beyond its
 *   share, one body of the server at a time. So a body larger than any share is received
 *   too.
 *
 * Invariant: bodies hold at most max_bytes, plus the length of the one in the lane. Any
 * thread; a lock is held for a few instructions for each body in line.
 *
 * Turns. A connection that has received TURN_BYTES, of bodies or of input that is
 * dropped, reads nothing until its next turn. A loop gives one turn every TURN_US, or at
 * the next tick of the kernel's clock if that is later (4 ms at 250 Hz: 128 MB/s), first
 * come, first served. Meanwhile a client's data stays in the kernel, whose buffers fill,
 * so the client waits too. Without turns, a body of megabytes would take the processor
 * from a compute thread for a tick or more, and every stream would wait. Owner: the
 * loop's thread. */
#ifndef SERVER_BODIES_H
#define SERVER_BODIES_H

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* ---- memory ---- */

#define BODY_SMALL_BYTES ((size_t)64 << 10)
/* tenants with a share of their own; more tenants at the same time share the last one */
#define BODY_SHARES 256

/* A tenant's share: what its bodies hold outside the lane, how many of them hold or want
 * room, and how many wait in line. */
typedef struct body_share {
    uint64_t tenant; /* a hash of its name */
    size_t held;
    int32_t n_claims, n_waiting; /* n_claims 0: a free share */
    bool is_passed;              /* during a walk along the line: a claim of this tenant remains in it */
} body_share;

/* A body's claim. Zeroed: it holds no room and wants none. */
typedef struct body_claim {
    size_t held;       /* bytes that the body may have; the owner reads it while it does not wait */
    atomic_bool waits; /* in line; another thread may end the wait, and then rings */
    body_share *share; /* NULL: no claim */
    size_t in_lane;    /* part of `held` beyond the share */
    size_t wanted;     /* while it waits: how many more bytes it wants */
    uint64_t turn;     /* its place in line: the lowest first */
    struct body_claim *next;
} body_claim;

typedef struct body_room {
    pthread_mutex_t lock;
    size_t max_bytes, n_bytes; /* n_bytes: held, without the lane */
    uint64_t n_taken;          /* bytes taken since the opening */
    body_claim *first;         /* in line */
    body_claim *lane;          /* the one in the lane, or NULL */
    /* other claims have got room: wakes their threads */
    void (*ring)(void *arg);
    void *ring_arg;
    body_share shares[BODY_SHARES];
} body_room;

/* ring is called without the lock, on the thread whose call made room. */
void body_room_open(body_room *r, size_t max_bytes, void (*ring)(void *arg), void *ring_arg);
void body_room_close(body_room *r);

/* Takes n > 0 more bytes for a body of a tenant, whose final size is about `whole`
 * bytes: true. False: the claim queues until it has them (`waits` is then false) or gives
 * up; it takes nothing else while it waits. */
bool body_room_take(body_room *r, body_claim *c, str tenant, uint64_t whole, size_t n);
/* Gives back all that c holds, and its place in line. c is zeroed. */
void body_room_give(body_room *r, body_claim *c);

/* Bytes that all bodies hold, and bodies that stand in line. */
typedef struct body_room_counts {
    size_t n_bytes;
    int64_t n_waiting;
} body_room_counts;
body_room_counts body_room_count(body_room *r);

/* ---- turns ---- */

#define TURN_BYTES ((size_t)512 << 10)
#define TURN_US    1000

/* A connection's turn. */
typedef struct body_turn {
    size_t n_bytes; /* received since its last turn; the connection counts them */
    bool waits;
    struct bufferevent *bev; /* while it waits: what does not read */
    struct body_turn *next;  /* in line */
} body_turn;

/* A loop's queue of connections that wait for their turn. */
typedef struct body_turns {
    body_turn *first;
    struct event *timer;
    atomic_llong n_waits; /* waits so far; any thread reads it */
} body_turns;

/* Makes the timer; false if out of memory. */
bool body_turns_open(body_turns *t, struct event_base *base);
/* Frees the queue, in which no connection may be waiting. */
void body_turns_close(body_turns *t);
/* Ends a connection's turn if it has received its share; bev continues to read in its
 * next turn. */
void body_turn_end_if_due(body_turns *t, body_turn *turn, struct bufferevent *bev);
/* Takes the connection out of the queue: its next bytes begin a new share. The caller
 * decides whether reading continues. */
void body_turn_leave(body_turns *t, body_turn *turn);

#endif
