/* Routes: the handler and the access check of each path. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "server/conn.h"

/* Checks the head of a request: sets c->tenant, or c->refusal when the request is refused whatever its body is. */
void routes_check(conn *c);
/* Runs a complete request: answers it, or starts its response. */
void routes_run(conn *c);

#endif
