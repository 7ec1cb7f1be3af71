/* An order is a command on its way from a connection to the loop that owns its object
 * (docs/streams.md, docs/http.md).
 *
 * It goes to that loop as a message. The loop's thread runs it, and the order comes back
 * to the loop of the connection that sent it. No thread waits for another. An order has
 * two owners, that connection and the loop or choice that handles it, so either may end
 * first. */
#ifndef SERVER_LOOP_ORDER_H
#define SERVER_LOOP_ORDER_H

#include "server/conn.h"
#include "json/json.h"

typedef struct loop_order loop_order;

typedef struct order_kind {
    /* runs on the thread of the receiving loop; sends it on or back, now or later */
    void (*run)(loop *l, loop_order *o);
    /* runs on the sender's thread when the order is back: answers o->conn, whose response
     * was waiting */
    void (*reply)(conn *c, loop_order *o);
} order_kind;

struct loop_order {
    atomic_int holders;
    struct loop_order *next; /* in a loop's mailbox */
    /* the connection that sent it, or NULL once that is closed; used by its loop's thread
     * only */
    conn *conn;
    loop *from, *to;
    bool is_back; /* on the way to `from` */
    const order_kind *kind;
    char id[40]; /* id of a stream or request; "": about none */
    quire_error err;
    /* Commands to streams. */
    char tenant[QUIRE_TENANT_BYTES + 1];
    bool has_tenant;
    json_value *body; /* owns the texts below */
    int32_t index, position;
    const char *text; /* for a steer: one of these */
    int32_t *ids;
    size_t n_text, n_ids;
    strbuf fields;                   /* the other members, as JSON; p NULL: none */
    quire_request *fork;             /* for a fork: the result, */
    struct served_model *fork_model; /* and its model, on which the order has a hold; or NULL */
    /* Lists of requests. */
    strbuf rows;
    int64_t n_rows, n_left_out;
};

/* Makes an order of this kind from c; NULL: out of memory. */
loop_order *order_new(conn *c, const order_kind *kind);
/* Sends o to its loop `to`; its connection waits for the reply. */
void order_begin(loop_order *o);
/* Gives up one of the two references; the last one frees o. Any thread. */
void order_drop(loop_order *o);
/* Sends o, with one reference, to a loop's thread. Any thread. */
void order_send(loop_order *o, loop *to);
/* Sends o back to the loop that it came from. */
void order_send_back(loop_order *o);
/* Sends *at back with the result, and sets *at to NULL: its event, ROLLBACK or REFUSED,
 * has come or, with NULL, the stream has ended. Does nothing if *at is NULL. */
void order_settle(loop_order **at, const quire_event *ev);

/* Handles the orders that have arrived at l. */
void orders_take(loop *l);
/* Drops the orders on their way to l, whose thread has ended. */
void orders_shut(loop *l);

#endif
