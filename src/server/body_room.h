/* The room of large bodies: how many of their bytes all connections hold at once, from a
 * body's first bytes over BODY_SMALL_BYTES to the first token of its answer.
 *
 * Room is taken as bytes come, a piece at a time: who only announces a body holds
 * nothing. Smaller bodies are not counted. A connection whose next piece finds no room
 * stops reading, and stands in line.
 *
 * - Shares. A tenant takes room only as long as as much stays free as it then holds:
 *   alone half of all, one that comes then a quarter. As bodies end, n tenants that want
 *   all they can get come to equal shares of 1/(n + 1) (dynamic thresholds: Choudhury and
 *   Hahne 1998). So some stays free for a tenant that holds none.
 * - The line. Its order is a number that a body gets with its first piece: bytes taken by
 *   all bodies so far, plus its own length. So smaller bodies pass larger ones, but none
 *   passes one that began before it by as many bytes taken as that one's length. Within a
 *   tenant nobody overtakes the first in line; another tenant's line is another matter,
 *   since it has a share of its own.
 * - The lane. Where all bodies of a tenant that hold room stand in line, none of them
 *   would ever end. The first in line whose tenant is stuck so goes on beyond its share,
 *   one body of the server at a time. So a body that is larger than any share is received
 *   too.
 *
 * Invariant: bodies hold at most max_bytes, and the one in the lane at most its length
 * besides. Any thread; a lock is held for a few instructions for each body in line. */
#ifndef SERVER_BODY_ROOM_H
#define SERVER_BODY_ROOM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

#define BODY_SMALL_BYTES ((size_t)64 << 10)
/* tenants with a share of their own; further ones at the same time share the last one */
#define BODY_SHARES 256

/* A tenant's: what its bodies hold, the lane aside, and how many of them hold room or
 * want some, and stand in line. */
typedef struct body_share {
    uint64_t tenant; /* a hash of its name */
    size_t held;
    int32_t n_claims, n_waiting; /* n_claims 0: the share is nobody's */
    bool is_passed;              /* within a walk along the line: one of the tenant stays in it */
} body_share;

/* A body's. Zeroed memory: it has no room and wants none. */
typedef struct body_claim {
    size_t held;       /* bytes that the body may have; the owner reads it while it does not wait */
    atomic_bool waits; /* it stands in line; another thread may end that, and rings */
    body_share *share; /* NULL: no claim */
    size_t in_lane;    /* of held: beyond the share */
    size_t wanted;     /* while it waits: bytes more */
    uint64_t turn;     /* its place in line: the lowest first */
    struct body_claim *next;
} body_claim;

typedef struct body_room {
    pthread_mutex_t lock;
    size_t max_bytes, n_bytes; /* n_bytes: held, the lane aside */
    uint64_t n_taken;          /* bytes taken since the opening */
    body_claim *first;         /* in line */
    body_claim *lane;          /* the one in the lane, or NULL */
    /* claims of other connections have got room: their threads are to look at them */
    void (*ring)(void *arg);
    void *ring_arg;
    body_share shares[BODY_SHARES];
} body_room;

/* ring is called without the lock, on the thread whose call made room. NO_MEMORY. */
quire_err body_room_open(body_room *r, size_t max_bytes, void (*ring)(void *arg), void *ring_arg);
void body_room_close(body_room *r);

/* Takes n > 0 bytes more for a body of that tenant, which has `whole` bytes, about, when
 * all of it is there: true. False: the claim stands in line until it has got them (waits
 * is false then) or gives up. It takes nothing more while it waits. */
bool body_room_take(body_room *r, body_claim *c, str tenant, uint64_t whole, size_t n);
/* Gives back all that c holds, and its place in line. c is zeroed. */
void body_room_give(body_room *r, body_claim *c);

/* Bytes that all bodies hold, and bodies that stand in line. */
typedef struct body_room_counts {
    size_t n_bytes;
    int64_t n_waiting;
} body_room_counts;
body_room_counts body_room_count(body_room *r);

#endif
