/* Routes: the handler and the access check of each path. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "server/conn.h"

extern const conn_handler routes;

#endif
