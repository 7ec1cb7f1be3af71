/* Turns at receiving: a connection that sends much does so a share at a time, so that no client keeps the loop's thread, and the processor
 * under it, to itself.
 *
 * A connection that has received TURN_BYTES of a body, or of what is thrown away, reads nothing until its next turn. A loop has one turn
 * every TURN_US, in the order in which connections came to wait; where nobody waits, none pass. Small bodies never wait. What a client
 * sends meanwhile stays in the kernel, whose buffers fill, so the client waits too.
 *
 * Without turns a body of megabytes on a machine with few processors takes that of a compute thread for a tick of the kernel's clock and
 * more, and every stream waits. Calls: the loop's thread. */
#ifndef SERVER_BODY_TURN_H
#define SERVER_BODY_TURN_H

#include "server/conn.h"

#define TURN_BYTES ((size_t)512 << 10)
#define TURN_US    1000

/* Makes l's timer; false: no memory. */
bool body_turn_open(loop *l);
/* Ends c's turn if it has received its share, by c->turn_bytes: it reads on when its next one comes. */
void body_turn_end_if_due(conn *c);
/* c waits for no turn any more: what it sends next is its first share. Whether it reads is the caller's concern. */
void body_turn_leave(conn *c);

#endif
