#include "server/stream_order.h"

#include "base/mem.h"

void order_drop(stream_order *o) {
    if (atomic_fetch_sub(&o->holders, 1) == 1) {
        json_drop(o->body);
        mem_free(o->ids);
        strbuf_deinit(&o->fields);
        quire_request_free(o->fork);
        mem_free(o);
    }
}

void order_send(stream_order *o, loop *to) {
    if (!to->bell.is_open) { /* closed already: the server shuts down */
        order_drop(o);
        return;
    }
    stream_order *top = atomic_load(&to->orders);
    do {
        o->next = top;
    } while (!atomic_compare_exchange_weak(&to->orders, &top, o));
    wake_ring(&to->bell);
}

void order_send_back(stream_order *o) {
    o->is_back = true;
    order_send(o, o->from);
}

void order_settle(stream_order **at, const quire_event *ev) {
    stream_order *o = *at;
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
