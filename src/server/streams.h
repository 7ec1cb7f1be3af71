/* Commands to running streams from other connections: POST /v1/streams/{id}/fork, rollback and steer (docs/streams.md).
 *
 * An id ends with the number of the loop that has the stream. A command (an order) goes to that loop as a message, is done there by the
 * thread that owns the stream, and comes back to the loop of the connection that asked; nobody waits for anybody. An order has two holders,
 * that connection and whoever it is on its way with, so either may go first. */
#ifndef SERVER_STREAMS_H
#define SERVER_STREAMS_H

#include "server/response.h"

typedef struct stream_order stream_order;

/* A new number for a response of l, which says whose it is. */
uint64_t streams_number(loop *l);
/* Responses a POST to a stream, later. */
void streams_post(conn *c);
/* Orders have come to l. */
void streams_take(loop *l);
/* What came of the order that a choice waits for: ROLLBACK or REFUSED. The choice waits no more. */
void streams_done(response *a, response_choice *c, const quire_event *ev);
/* The response goes, and orders to its choices with it. */
void streams_end(response *a);
/* The connection that asked goes. */
void streams_forget(conn *c);
/* Drops what is still under way to l, whose thread has ended. */
void streams_shut(loop *l);

#endif
