/* A command to a running stream on its way between two loops: an order (docs/streams.md).
 *
 * It goes to the loop that owns the stream as a message. The thread that owns the stream runs it, and the order comes back to the loop of
 * the connection that sent it. No thread waits for another. An order has two owners, that connection and the loop or choice that it is on
 * its way with, so either may end first. */
#ifndef SERVER_STREAM_ORDER_H
#define SERVER_STREAM_ORDER_H

#include "json/json.h"
#include "server/conn.h"

typedef enum order_kind { ORDER_FORK, ORDER_ROLLBACK, ORDER_STEER } order_kind;

typedef struct stream_order {
    atomic_int holders;
    struct stream_order *next; /* in a loop's mailbox */
    conn *conn;           /* the connection that sent it, or NULL when it is closed: its loop's thread only */
    loop *from, *to;
    bool is_back;         /* on the way to `from` */
    order_kind kind;
    char id[40], tenant[QUIRE_TENANT_BYTES + 1];
    bool has_tenant;
    json_value *body;     /* owns the texts below */
    int32_t index, position;
    const char *text;     /* STEER: either */
    int32_t *ids;
    size_t n_text, n_ids;
    strbuf fields;        /* the other members, as JSON; p NULL: none */
    quire_request *fork;  /* FORK: the result */
    quire_error err;
} stream_order;

/* Gives up one of the two references; the last one frees o. Any thread. */
void order_drop(stream_order *o);
/* Moves o, with the reference of its way, to a loop's thread. Any thread. */
void order_send(stream_order *o, loop *to);
/* Sends o back to the loop that it came from. */
void order_send_back(stream_order *o);
/* Sends *at back with the result, and sets *at to NULL: its event has come, ROLLBACK or REFUSED, or, with NULL, the stream has ended. Does
 * nothing where *at is NULL. */
void order_settle(stream_order **at, const quire_event *ev);

#endif
