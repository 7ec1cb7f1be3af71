/* The limits that all request bodies share: memory, which the server's connections share,
 * and turns at receiving, which those of one loop share.
 *
 * Memory. All connections together hold a bounded number of bytes of large bodies. A body
 * counts from its first bytes over BODY_SMALL_BYTES to the first token of its response;
 * it takes room piece by piece as its bytes arrive, not when it is announced. Smaller
 * bodies are not counted. A connection whose next piece finds no room stops reading and
 * waits in line.
 *
 * - Shares. A tenant may take room only while at least as much stays free as it then
 *   holds: half of it if alone, a quarter for a second one. As bodies end, n tenants that
 *   want all they can get converge to equal shares of 1/(n + 1) (dynamic thresholds:
 *   Choudhury and Hahne 1998), so some room stays free for a tenant that holds none.
 * - The line. A body gets its place, a number, with its first piece: bytes taken by all
 *   bodies so far, plus its own length. So smaller bodies overtake larger ones, but
 *   nothing overtakes a body once as many bytes as it is long were taken after its start.
 *   Within a tenant nobody overtakes the first in line; other tenants, which have their
 *   own shares, may.
 * - The lane. If all of a tenant's bodies that hold room wait in line, none of them would
 *   ever end. The first in line whose tenant is stuck in this way continues beyond its
 *   share, one body of the server at a time. So a body larger than any share is received
 *   too.
 *
 * Invariant: bodies hold at most max_bytes, plus the length of the one in the lane.
 * Threads: any; a lock is held for a few instructions for each body in line.
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
/* most tenants with a share of their own; all further ones share the last */
#define BODY_SHARES 256

/* A tenant's share: bytes that its bodies hold outside the lane, how many claims hold or
 * want room, and how many of these wait in line. */
typedef struct body_share {
    uint64_t tenant; /* hash of the tenant's name */
    size_t held;
    int32_t n_claims, n_waiting; /* n_claims 0: a free share */
    bool is_passed;              /* while body_walk_line runs: a claim of this tenant stays in line */
} body_share;

/* A body's claim to room. Zeroed: it holds none and wants none. */
typedef struct body_claim {
    size_t held;       /* bytes that the body may have; its owner reads it only while it is not in line */
    atomic_bool waits; /* the claim is in line; another thread may end this, and then calls ring */
    body_share *share; /* NULL: no claim */
    size_t in_lane;    /* bytes of `held` in the lane, beyond the share */
    size_t wanted;     /* bytes that the claim waits for */
    uint64_t turn;     /* place in line, lowest first */
    struct body_claim *next;
} body_claim;

typedef struct body_room {
    pthread_mutex_t lock;
    size_t max_bytes, n_bytes; /* n_bytes: held outside the lane */
    uint64_t n_taken;          /* bytes taken since the room was opened */
    body_claim *first;         /* list of the claims in line */
    body_claim *lane;          /* the claim in the lane, or NULL */
    /* wakes the threads of other claims that have got room */
    void (*ring)(void *arg);
    void *ring_arg;
    body_share shares[BODY_SHARES];
} body_room;

/* Opens a room. ring is called without the lock, on the thread whose call freed room. */
void body_room_open(body_room *r, size_t max_bytes, void (*ring)(void *arg), void *ring_arg);
/* Closes a room, to which all claims must have been returned. */
void body_room_close(body_room *r);

/* Takes n > 0 more bytes for a tenant's body of about `whole` bytes. True: it has them.
 * False: the claim waits in line until it has them (`waits` becomes false) or gives up;
 * it must take nothing else meanwhile. */
bool body_room_take(body_room *r, body_claim *c, str tenant, uint64_t whole, size_t n);
/* Returns all room that c holds and its place in line, and zeroes c. */
void body_room_give(body_room *r, body_claim *c);

/* Bytes that all bodies hold, and how many bodies wait in line. */
typedef struct body_room_counts {
    size_t n_bytes;
    int64_t n_waiting;
} body_room_counts;
body_room_counts body_room_count(body_room *r);

/* ---- turns ---- */

#define TURN_BYTES ((size_t)512 << 10)
#define TURN_US    1000

/* A connection's turn at receiving. */
typedef struct body_turn {
    size_t n_bytes; /* received since its last turn; the connection counts them */
    bool waits;
    struct bufferevent *bev; /* while it waits: the bufferevent whose reading is off */
    struct body_turn *next;  /* next turn in the queue */
} body_turn;

/* A loop's queue of connections that wait for their turn. */
typedef struct body_turns {
    body_turn *first;
    struct event *timer;
    atomic_llong n_waits; /* number of waits so far; any thread may read it */
} body_turns;

/* Opens a queue with its timer on base; false: out of memory. */
bool body_turns_open(body_turns *t, struct event_base *base);
/* Frees the queue, in which no connection may be waiting. */
void body_turns_close(body_turns *t);
/* Ends a connection's turn after TURN_BYTES: bev stops reading until its next turn. */
void body_turn_end_if_due(body_turns *t, body_turn *turn, struct bufferevent *bev);
/* Removes the connection from the queue and starts a new count of bytes. The caller
 * decides whether reading continues. */
void body_turn_leave(body_turns *t, body_turn *turn);

#endif
