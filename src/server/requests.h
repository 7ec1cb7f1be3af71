/* The requests in progress, for the operator: GET /debug/requests lists them, DELETE
 * /debug/requests/{id} cancels one (docs/http.md).
 *
 * The list has no text of any request. It visits the loops one after another as an order
 * (loop_order.h); a cancellation goes to the loop that the id names. */
#ifndef SERVER_REQUESTS_H
#define SERVER_REQUESTS_H

#include "server/conn.h"

/* Both answer later; 403 without the operator's key. */
void requests_list(conn *c);
void requests_cancel(conn *c);

#endif
