#include "server/body_look.h"

static void cancel_look(conn *c) {
    quire_parse_cancel(c->pending_of);
    c->pending = NULL;
}

static void end_look(conn *c, const api_error *why) {
    cancel_look(c);
    conn_end(c, why);
}

static const pending_kind looking = {.close = cancel_look, .end = end_look};

bool body_look(conn *c, quire_endpoint endpoint) {
    strbuf *body = &c->request.body;
    quire_parse *look;
    c->look_room = body->cap;
    if (quire_look_start(c->loop->queue, endpoint, body->p, body->n, c->has_tenant ? c->tenant : "", c,
                         &look) != QUIRE_OK) {
        quire_error err;
        err_set(&err, QUIRE_NO_MEMORY, -1, "out of memory");
        *body = (strbuf){.max = body->max};
        conn_drop_body(c, &err);
        return false;
    }
    *body = (strbuf){.max = body->max};
    c->pending = &looking;
    c->pending_of = look;
    return true;
}

void body_looked(const quire_event *ev) {
    conn *c = ev->user;
    strbuf *body = &c->request.body;
    *body = (strbuf){.p = (char *)ev->text, .n = ev->n_text, .cap = c->look_room, .max = body->max};
    c->pending = NULL;
    if (ev->error != NULL) {
        conn_drop_body(c, ev->error);
    }
    conn_resume_body(c);
}
