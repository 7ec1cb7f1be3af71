#include "server/loop_order.h"

#include <assert.h>

#include "base/mem.h"
#include "server/models.h"

loop_order *order_new(conn *c, const order_kind *kind) {
    loop_order *o = mem_new(1, sizeof *o);
    if (o != NULL) {
        o->kind = kind;
        o->conn = c;
        o->from = c->loop;
        atomic_init(&o->holders, 1);
    }
    return o;
}

void order_drop(loop_order *o) {
    assert(atomic_load(&o->holders) > 0);
    if (atomic_fetch_sub(&o->holders, 1) == 1) {
        json_drop(o->body);
        mem_free(o->ids);
        strbuf_deinit(&o->fields);
        strbuf_deinit(&o->rows);
        quire_request_free(o->fork);
        if (o->fork_model != NULL) {
            models_drop(o->from->server->models, o->fork_model);
        }
        mem_free(o);
    }
}

/* Drops a closing connection's reference. */
static void order_forget(conn *c) {
    loop_order *o = c->pending_of;
    c->pending = NULL;
    o->conn = NULL;
    order_drop(o);
}

static const pending_kind order_pending = {.close = order_forget};

void order_begin(loop_order *o) {
    assert(o->to != NULL && o->kind != NULL && o->conn->pending == NULL);
    o->conn->pending = &order_pending;
    o->conn->pending_of = o;
    atomic_store(&o->holders, 2);
    order_send(o, o->to);
}

void order_send(loop_order *o, loop *to) {
    if (!to->bell.is_open) { /* the loop has closed: the server shuts down */
        order_drop(o);
        return;
    }
    loop_order *top = atomic_load(&to->orders);
    do {
        o->next = top;
    } while (!atomic_compare_exchange_weak(&to->orders, &top, o));
    wake_ring(&to->bell);
}

void order_send_back(loop_order *o) {
    o->is_back = true;
    order_send(o, o->from);
}

void order_settle(loop_order **at, const quire_event *ev) {
    loop_order *o = *at;
    *at = NULL;
    if (o == NULL) {
        return;
    }
    if (ev == NULL) {
        err_set(&o->err, QUIRE_NOT_FOUND, -1, "the stream has ended");
    } else if (ev->kind == QUIRE_EVENT_REFUSED) {
        o->err = *ev->error;
    } else {
        o->position = ev->prompt_tokens + ev->n_tokens;
    }
    order_send_back(o);
}

/* Answers the connection that sent o, if it is still open. */
static void order_reply(loop_order *o) {
    conn *c = o->conn;
    if (c == NULL) {
        return;
    }
    c->pending = NULL;
    o->conn = NULL;
    if (o->err.code != QUIRE_OK) {
        conn_reply_failure(c, error_of(&o->err));
    } else {
        o->kind->reply(c, o);
    }
    order_drop(o); /* the connection's reference */
}

void orders_take(loop *l) {
    loop_order *o = atomic_exchange(&l->orders, NULL);
    for (loop_order *next; o != NULL; o = next) {
        next = o->next;
        if (o->is_back) {
            order_reply(o);
            order_drop(o);
        } else {
            o->kind->run(l, o);
        }
    }
}

void orders_shut(loop *l) {
    loop_order *o = atomic_exchange(&l->orders, NULL);
    for (loop_order *next; o != NULL; o = next) {
        next = o->next;
        order_drop(o);
    }
}
