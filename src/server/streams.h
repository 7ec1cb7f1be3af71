/* Commands to running streams from other connections: POST /v1/streams/{id}/fork,
 * rollback and steer (docs/streams.md).
 *
 * An id ends with the number of the loop that owns the stream, to which the command goes
 * as an order (loop_order.h). */
#ifndef SERVER_STREAMS_H
#define SERVER_STREAMS_H

#include "server/conn.h"

/* Handles a POST to a stream; the response is sent later. */
void streams_post(conn *c);

#endif
