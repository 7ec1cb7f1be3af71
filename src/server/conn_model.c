#include "server/conn_model.h"

#include <assert.h>

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

/* What c's body names as its model. scratch: for a name with escapes. */
static served_model *conn_named_model(const conn *c, strbuf *scratch) {
    models *all = c->loop->server->models;
    const strbuf *body = &c->request.body;
    str span, name;
    served_model *m = NULL;
    if (models_count(all) > 1 && body->n > 0 &&
        json_scan_member((str){body->p, body->n}, "model", &span) == QUIRE_OK) {
        json_scan s = {.text = span};
        m = json_scan_string(&s, scratch, &name) == QUIRE_OK ? models_find(all, name) : NULL;
    }
    return m != NULL ? m : models_at(all, 0);
}

/* A connection that waits for a model. */
typedef struct model_wait {
    served_model *m;
    uint32_t n_failures;
    void (*go_on)(conn *c);
} model_wait;

static void conn_stop_waiting(conn *c) {
    mem_free(c->pending_of);
    c->pending = NULL;
    c->pending_of = NULL;
}

static const pending_kind model_pending = {
    .close = conn_stop_waiting, .counts_disconnects = true, .ends_at_drain = true};

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

bool conn_take_model(conn *c, void (*go_on)(conn *c)) {
    models *all = c->loop->server->models;
    strbuf scratch = {0};
    uint32_t n_failures = 0;
    if (c->model != NULL) {
        return true;
    }
    served_model *m = conn_named_model(c, &scratch);
    strbuf_deinit(&scratch);
    if (models_take(all, m, &n_failures)) {
        return conn_give_model(c, m);
    }
    model_wait *w = mem_new(1, sizeof *w);
    if (w == NULL) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return false;
    }
    *w = (model_wait){m, n_failures, go_on};
    assert(c->pending == NULL);
    c->pending = &model_pending;
    c->pending_of = w;
    return false;
}

/* ---- after a wake ---- */

/* Goes on with c if its model is there, or cannot be loaded. */
static void conn_look_for_model(conn *c) {
    models *all = c->loop->server->models;
    const model_wait w = *(const model_wait *)c->pending_of;
    quire_error err;
    uint32_t n_failures;
    if (models_failed(all, w.m, w.n_failures, &err)) {
        conn_stop_waiting(c);
        conn_reply_failure(c, error_of(&err));
    } else if (models_take(all, w.m, &n_failures)) {
        conn_stop_waiting(c);
        if (conn_give_model(c, w.m)) {
            w.go_on(c);
        }
    }
}

void conns_look_for_models(loop *l) {
    if (l->models == NULL || models_count(l->server->models) == 1) {
        return;
    }
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        if (c->pending == &model_pending) {
            conn_look_for_model(c);
        }
    }
    loop_models_close_leaving(l);
}
