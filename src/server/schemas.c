#include "server/schemas.h"

static void cancel_check(conn *c) {
    quire_parse_cancel(c->pending_of);
    c->pending = NULL;
}

static const pending_kind checking = {.close = cancel_check, .counts_disconnects = true};

void schemas_check(conn *c) {
    strbuf body = c->request.body;
    quire_parse *check;
    c->request.body = (strbuf){.max = body.max};
    if (quire_check_start(c->loop->queue, body.p, body.n, c->has_tenant ? c->tenant : "", c, &check) !=
        QUIRE_OK) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    c->pending = &checking;
    c->pending_of = check;
}

void schemas_checked(const quire_event *ev) {
    conn *c = ev->user;
    c->pending = NULL;
    conn_give_body_room(c);
    if (ev->error != NULL) {
        quire_error err = *ev->error;
        conn_reply_failure(c, error_of(&err));
        return;
    }
    conn_reply(c,
               &(reply){.status = 200, .content_type = "application/json", .body = {ev->text, ev->n_text}});
}
