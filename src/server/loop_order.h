/* An order: a command sent from a connection to the loop that owns the command's object
 * (docs/streams.md, docs/http.md).
 *
 * The receiving loop's thread runs it and sends it back to the loop of its connection, so
 * no thread waits for another. An order has two owners, the connection and the loop or
 * choice that handles it, either of which may end first. */
#ifndef SERVER_LOOP_ORDER_H
#define SERVER_LOOP_ORDER_H

#include "server/conn.h"
#include "json/json.h"

typedef struct loop_order loop_order;

typedef struct order_kind {
    /* called on the receiving loop's thread: sends the order on or back, now or later */
    void (*run)(loop *l, loop_order *o);
    /* called on the sender's thread once the order is back: answers o->conn */
    void (*reply)(conn *c, loop_order *o);
} order_kind;

struct loop_order {
    atomic_int holders;
    struct loop_order *next; /* next order on a loop's stack */
    /* the sending connection, NULL once closed; only its loop's thread uses this */
    conn *conn;
    loop *from, *to;
    bool is_back; /* on the way back to `from` */
    const order_kind *kind;
    char id[40]; /* id of the stream or request that it is about; "": none */
    quire_error err;
    /* Commands to streams. */
    char tenant[QUIRE_TENANT_BYTES + 1];
    bool has_tenant;
    json_value *body; /* body of the request, which owns text */
    int32_t index, position;
    const char *text; /* steer: the new text, or NULL if ids replaces it */
    int32_t *ids;
    size_t n_text, n_ids;
    strbuf fields;                   /* request fields for the new tokens, as JSON; p NULL: none */
    quire_request *fork;             /* fork: the resulting request, or NULL */
    struct served_model *fork_model; /* fork: the request's model, held by the order; or NULL */
    /* Lists of requests. */
    strbuf rows;
    int64_t n_rows, n_left_out;
};

/* Makes an order from c; NULL: out of memory. Until order_begin, order_drop frees it. */
loop_order *order_new(conn *c, const order_kind *kind);
/* Sends o to its loop o->to; its connection's response waits for the reply. */
void order_begin(loop_order *o);
/* Drops one of the two references; the last one frees o. Any thread. */
void order_drop(loop_order *o);
/* Passes o, with one reference, to a loop's thread. Any thread. */
void order_send(loop_order *o, loop *to);
/* Sends o back to the loop that it came from. */
void order_send_back(loop_order *o);
/* Sends the order *at, if any, back with its result and sets *at to NULL. ev: the
 * ROLLBACK or REFUSED event that decides it; NULL: the stream has ended. */
void order_settle(loop_order **at, const quire_event *ev);

/* Handles the orders that have arrived at l. l's thread. */
void orders_take(loop *l);
/* Drops the orders that have arrived at l, whose thread has ended. */
void orders_shut(loop *l);

#endif
