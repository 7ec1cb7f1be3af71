/* The inside of a connection: what its requests (conn.c) and their bodies (conn_body.c)
 * have of each other. */
#ifndef SERVER_CONN_IMPL_H
#define SERVER_CONN_IMPL_H

#include "server/conn.h"

/* ---- conn.c ---- */
void conn_set_deadline(conn *c, int64_t us);
/* Takes requests from the input until it is empty, or a request waits for its response,
 * its reader, or room for its body. */
void conn_process(conn *c);
/* Gives the request more bytes, which are drained from `in` where that has them. */
void conn_feed(conn *c, const char *p, size_t n, struct evbuffer *in);
/* Goes on as the request stands after more bytes. */
void conn_go_on(conn *c, http_event e);

/* ---- conn_body.c ---- */
/* The body of the request may come from here on: starts its deadlines. */
void conn_begin_body(conn *c);
/* How many bytes of its body may be read now; 0: none, until there is room or what it
 * waits for is over. */
size_t conn_body_takes(conn *c);
/* The connection has something to read. */
void conn_reads_body(conn *c);
/* Receives more of a body whose length is known, where the input is empty: in large
 * pieces, as a body of megabytes would otherwise take thousands of rounds of the loop. */
void conn_receive_body(conn *c);
/* Has what is there of a long body looked over, where at least as much may still come:
 * nothing is read meanwhile. */
void conn_look_if_due(conn *c);
/* The deadline of a body that is being read is over: the reason why it is too late, or
 * NULL where it has time yet. */
const char *conn_body_late(conn *c);
/* No more of the body is wanted: it stands in no line any more. */
void conn_stop_body(conn *c);

#endif
