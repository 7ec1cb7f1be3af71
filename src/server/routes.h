/* Routes: the handler and the access check of each path. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "server/conn.h"

extern const conn_handler routes;
/* Without an engine: every request is answered 503. */
extern const conn_handler routes_while_loading;

/* The paths of all routes (error_body.h). */
const char *routes_path(size_t i);

/* ---- handlers: streams.c, requests.c ---- */

/* Handles a POST to a stream; the response is sent later. */
void streams_post(conn *c);

/* Both answer later; 403 without the operator's key. */
void requests_list(conn *c);
void requests_cancel(conn *c);

#endif
