/* Routes: the handler and the access check of each path. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "server/conn.h"

extern const conn_handler routes;
/* Without an engine: every request is answered 503. */
extern const conn_handler routes_while_loading;

/* The paths of all routes (unknown_path.h). */
const char *routes_path(size_t i);

#endif
