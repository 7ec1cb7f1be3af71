/* Turns at receiving: a connection that sends much does so a share at a time, so that no
 * client keeps the loop's thread, and the processor under it, to itself.
 *
 * A connection that has received TURN_BYTES, of bodies or of what is thrown away, reads
 * nothing until its next turn. A loop has one turn every TURN_US, or at the next tick of
 * the kernel's clock where that is later (4 ms at 250 Hz: 128 MB/s), in the order in
 * which they
 * came to wait; where nobody waits, none pass. What a client sends meanwhile stays in the
 * kernel, whose buffers fill, so the client waits too.
 *
 * Without turns a body of megabytes on a machine with few processors takes that of a
 * compute thread for a tick of the kernel's clock and more, and every stream waits.
 * Owner: the loop's thread. */
#ifndef SERVER_BODY_TURN_H
#define SERVER_BODY_TURN_H

#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define TURN_BYTES ((size_t)512 << 10)
#define TURN_US    1000

/* A connection's. */
typedef struct body_turn {
    size_t n_bytes; /* received since its last turn; the connection counts them */
    bool waits;
    struct bufferevent *bev; /* while it waits: what does not read */
    struct body_turn *next;  /* the one behind it */
} body_turn;

/* A loop's: those that wait, the first one first. */
typedef struct body_turns {
    body_turn *first;
    struct event *timer;
    atomic_llong n_waits; /* how often one has come to wait; any thread reads it */
} body_turns;

/* Makes the timer; false: no memory. */
bool body_turns_open(body_turns *t, struct event_base *base);
/* Frees it. Nobody waits any more. */
void body_turns_close(body_turns *t);
/* Ends a connection's turn if it has received its share: bev reads on when its next one
 * comes. */
void body_turn_end_if_due(body_turns *t, body_turn *turn, struct bufferevent *bev);
/* It waits for no turn any more: what it sends next is its first share. Whether it reads
 * is the caller's concern. */
void body_turn_leave(body_turns *t, body_turn *turn);

#endif
