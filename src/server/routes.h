/* Which path does what. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "server/conn.h"

/* At the end of a request's head: sets c->tenant, or c->refusal when the request can be refused whatever its body is. */
void routes_check(conn *c);
/* The request is complete: responses it, or starts what will. */
void routes_run(conn *c);

#endif
