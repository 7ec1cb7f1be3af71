#include "server/conn_model.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "json/json_scan.h"

loop_model *conn_hand_model(conn *c) {
    loop_model *p = c->model;
    c->model = NULL;
    return p;
}

quire_engine *conn_engine(const conn *c) {
    return c->model != NULL ? c->model->m->engine : c->loop->server->engine;
}

quire_queue *conn_queue(const conn *c) {
    return c->model != NULL ? c->model->queue : c->loop->models[0].queue;
}

served_model *conn_named_model(const conn *c) {
    models *all = c->loop->server->models;
    const strbuf *body = &c->request.body;
    strbuf scratch = {0}; /* holds a name that had escapes */
    str span, name;
    served_model *m = NULL;
    if (models_count(all) > 1 && body->n > 0 &&
        json_scan_member((str){body->p, body->n}, "model", &span) == QUIRE_OK) {
        json_scan s = {.text = span};
        m = json_scan_string(&s, &scratch, &name) == QUIRE_OK ? models_find(all, name) : NULL;
    }
    strbuf_deinit(&scratch);
    return m != NULL ? m : models_at(all, 0);
}

/* A connection that waits for a model, or for facts from its file. */
typedef struct model_wait {
    served_model *m;
    model_ticket ticket;
    int64_t since_us;
    bool is_for_facts;
    void (*go_on)(conn *c);
} model_wait;

static void conn_stop_waiting(conn *c) {
    c->loop->n_model_waits--;
    mem_free(c->pending_of);
    c->pending = NULL;
    c->pending_of = NULL;
}

static const pending_kind model_pending = {.close = conn_stop_waiting,
                                           .counts_disconnects = true,
                                           .ends_at_drain = true},
                          sleep_pending = {.close = conn_stop_waiting, .ends_at_drain = true};

bool conn_waits_for_model(const conn *c) {
    return c->pending == &model_pending;
}

static void conn_wait_for_model(conn *c, const pending_kind *kind, model_wait w) {
    model_wait *own = mem_new(1, sizeof *own);
    if (own == NULL) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    *own = w;
    assert(c->pending == NULL);
    c->pending = kind;
    c->pending_of = own;
    c->loop->n_model_waits++;
}

bool conn_give_model(conn *c, served_model *m) {
    loop_model *p = &c->loop->models[m->number];
    p->n_holds++;
    c->model = p;
    if (loop_model_open(p) == QUIRE_OK) {
        return true;
    }
    conn_reply_error(c, 500, NULL, "out of memory", NULL);
    return false;
}

void conn_keep_model(const conn *c, const quire_request_more *more) {
    const server *s = c->loop->server;
    const bool may = c->is_operator || (!auth_required(s->keys) && !auth_has_operator(s->keys));
    if (c->model != NULL && more->has_keep_alive && may) {
        models_keep(s->models, c->model->m, more->keep_alive_us >= 0 ? more->keep_alive_us : MODEL_STAYS);
    }
}

void conn_refuse_asleep(conn *c) {
    conn_reply_error(c, 503, NULL, "the server is asleep; the operator can wake it with POST /wake_up",
                     "Retry-After: 1\r\n");
}

bool conn_take_model(conn *c, void (*go_on)(conn *c)) {
    model_wait w = {.since_us = clock_us(), .go_on = go_on};
    if (c->model != NULL) {
        return true;
    }
    w.m = conn_named_model(c);
    if (models_take(c->loop->server->models, w.m, c->has_tenant ? c->tenant : "", &w.ticket)) {
        return conn_give_model(c, w.m);
    }
    if (w.ticket.is_asleep) {
        conn_refuse_asleep(c);
    } else {
        conn_wait_for_model(c, &model_pending, w);
    }
    return false;
}

bool conn_read_facts(conn *c, served_model *m, strbuf *out, void (*go_on)(conn *c)) {
    model_wait w = {.m = m, .since_us = clock_us(), .is_for_facts = true, .go_on = go_on};
    if (models_facts(c->loop->server->models, m, &w.ticket, out)) {
        return true;
    }
    conn_wait_for_model(c, &model_pending, w);
    return false;
}

void conn_await_sleep(conn *c) {
    conn_wait_for_model(c, &sleep_pending, (model_wait){0});
}

/* ---- after a wake ---- */

/* Ends c's wait: its model is loaded. */
static void conn_end_wait(conn *c, const model_wait *w) {
    request_record *r = &c->record;
    r->has_waited = true;
    r->found = (int)w->ticket.found;
    r->model_wait_us += clock_us() - w->since_us;
    r->model_load_us = models_look(c->loop->server->models, w->m).load_us;
    if (conn_give_model(c, w->m)) {
        w->go_on(c);
    }
}

/* Ends c's wait if its model is loaded, or cannot be. */
static void conn_look_for_model(conn *c) {
    models *all = c->loop->server->models;
    const model_wait w = *(const model_wait *)c->pending_of;
    quire_error err;
    model_ticket now;
    if (models_failed(all, w.m, &w.ticket, &err)) {
        conn_stop_waiting(c);
        conn_reply_failure(c, error_of(&err));
    } else if (w.is_for_facts) {
        conn_stop_waiting(c);
        w.go_on(c);
    } else if (models_take(all, w.m, c->has_tenant ? c->tenant : "", &now)) {
        conn_stop_waiting(c);
        conn_end_wait(c, &w);
    } else if (now.is_asleep) {
        conn_stop_waiting(c);
        conn_refuse_asleep(c);
    }
}

static void conn_look_for_sleep(conn *c) {
    models *all = c->loop->server->models;
    if (models_sleeping(all) == SLEEP_NONE) {
        conn_stop_waiting(c);
        conn_reply_error(c, 409, NULL, "the server was woken up before it slept", NULL);
    } else if (models_are_at_rest(all)) {
        conn_stop_waiting(c);
        conn_reply(c, &(reply){.status = 200});
    }
}

void conns_look_for_models(loop *l) {
    if (l->models == NULL) {
        return;
    }
    for (conn *c = l->n_model_waits > 0 ? l->conns : NULL, *next; c != NULL; c = next) {
        next = c->next;
        if (c->pending == &model_pending) {
            conn_look_for_model(c);
        } else if (c->pending == &sleep_pending) {
            conn_look_for_sleep(c);
        }
    }
    loop_models_close_leaving(l);
}
