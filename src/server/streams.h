/* Commands to running streams from other connections: POST /v1/streams/{id}/fork, rollback and steer (docs/streams.md).
 *
 * An id ends with the number of the loop that owns the stream. A command (an order) goes to that loop as a message. The thread that owns
 * the stream runs it, and the order comes back to the loop of the connection that sent it. No thread waits for another. An order has two
 * owners, that connection and the loop or queue that it is on its way with, so either may end first. */
#ifndef SERVER_STREAMS_H
#define SERVER_STREAMS_H

#include "server/response.h"

typedef struct stream_order stream_order;

/* A new number for a response of l; it contains the loop's number. */
uint64_t streams_number(loop *l);
/* Handles a POST to a stream; the response is sent later. */
void streams_post(conn *c);
/* Handles the orders that have come to l. */
void streams_take(loop *l);
/* Ends the order that a choice waits for, with its event: ROLLBACK or REFUSED. */
void streams_done(response *a, response_choice *c, const quire_event *ev);
/* The response is closed: ends the orders to its choices. */
void streams_end(response *a);
/* The connection that sent an order is closed. */
void streams_forget(conn *c);
/* Drops the orders on their way to l, whose thread has ended. */
void streams_shut(loop *l);

#endif
