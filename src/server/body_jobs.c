#include "server/body_jobs.h"

#include <assert.h>

#include "server/conn_model.h"
#include "server/response.h"

static void body_cancel_job(conn *c) {
    quire_parse_cancel(c->pending_of);
    c->pending = NULL;
}

static void body_end_look(conn *c, const api_error *why) {
    body_cancel_job(c);
    conn_end(c, why);
}

static const pending_kind body_job = {.close = body_cancel_job, .counts_disconnects = true};
static const pending_kind body_looking = {.close = body_cancel_job, .end = body_end_look};

/* The name of c's tenant; "": it has none. */
static const char *body_tenant(const conn *c) {
    return c->has_tenant ? c->tenant : "";
}

/* Moves the memory of c's body out of c, for a text thread. */
static strbuf body_hand_over(conn *c) {
    strbuf body = c->request.body;
    c->request.body = (strbuf){.max = body.max};
    return body;
}

/* Makes c wait for a job; e: the error if it could not be started. */
static void body_await_job(conn *c, quire_err e, quire_parse *job) {
    assert(c->pending == NULL);
    if (e != QUIRE_OK) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    c->pending = &body_job;
    c->pending_of = job;
}

/* ---- parsing ---- */

static void body_parse_later(conn *c) {
    strbuf body = body_hand_over(c);
    quire_parse *job = NULL;
    quire_err e = quire_parse_start(conn_queue(c), c->endpoint, body.p, body.n, body_tenant(c), c, &job);
    body_await_job(c, e, job);
}

void body_parse(conn *c) {
    if (!conn_take_model(c, body_parse)) {
        return;
    }
    const strbuf *body = &c->request.body;
    quire_request *r = NULL;
    quire_error err = {0};
    if (body->n > BODY_SMALL_BYTES || response_writer_of(c->endpoint)->parses_apart) {
        body_parse_later(c);
        return;
    }
    quire_err e =
        quire_request_parse(conn_engine(c), c->endpoint, body->n > 0 ? body->p : "", body->n, &r, &err);
    strbuf_deinit(&c->request.body);
    if (e != QUIRE_OK) {
        conn_reply_failure(c, error_of(&err));
        return;
    }
    response_start(c, r);
}

static void body_parsed(conn *c, const quire_event *ev) {
    c->pending = NULL;
    if (ev->request == NULL) {
        quire_error err = *ev->error;
        conn_reply_failure(c, error_of(&err));
        return;
    }
    response_start(c, ev->request);
}

/* ---- schemas, and numbers of tokens ---- */

void body_check(conn *c) {
    strbuf body = body_hand_over(c);
    quire_parse *job = NULL;
    quire_err e = quire_check_start(conn_queue(c), body.p, body.n, body_tenant(c), c, &job);
    body_await_job(c, e, job);
}

void body_count(conn *c) {
    if (!conn_take_model(c, body_count)) {
        return;
    }
    strbuf body = body_hand_over(c);
    quire_parse *job = NULL;
    quire_err e = quire_count_start(conn_queue(c), body.p, body.n, body_tenant(c), c, &job);
    body_await_job(c, e, job);
}

void body_load_adapter(conn *c, const char *name, const char *path, bool in_place) {
    quire_parse *job = NULL;
    quire_err e = quire_adapter_start(conn_queue(c), name, path, in_place, c, &job);
    body_await_job(c, e, job);
}

static void body_checked(conn *c, const quire_event *ev) {
    c->pending = NULL;
    body_give_room(&c->body);
    if (ev->error != NULL) {
        quire_error err = *ev->error;
        conn_reply_failure(c, error_of(&err));
        return;
    }
    /* the response about a loaded adapter is a sentence, as in vLLM */
    bool is_json = ev->n_text > 0 && ev->text[0] == '{';
    conn_reply(c, &(reply){.status = 200,
                           .content_type = is_json ? "application/json" : "text/plain; charset=utf-8",
                           .body = {ev->text, ev->n_text}});
}

/* ---- looks ---- */

bool body_look(conn *c) {
    assert(c->pending == NULL && c->body.state == BODY_READING);
    quire_parse *job;
    c->look_room = c->request.body.cap;
    strbuf body = body_hand_over(c);
    if (quire_look_start(conn_queue(c), c->endpoint, body.p, body.n, body_tenant(c), c, &job) != QUIRE_OK) {
        quire_error err;
        err_set(&err, QUIRE_NO_MEMORY, -1, "out of memory");
        conn_drop_body(c, &err);
        return false;
    }
    c->pending = &body_looking;
    c->pending_of = job;
    return true;
}

static void body_looked(conn *c, const quire_event *ev) {
    strbuf *body = &c->request.body;
    *body = (strbuf){.p = (char *)ev->text, .n = ev->n_text, .cap = c->look_room, .max = body->max};
    c->pending = NULL;
    if (ev->error != NULL) {
        conn_drop_body(c, ev->error);
    }
    conn_resume_body(c);
}

bool body_job_event(const quire_event *ev) {
    switch (ev->kind) {
    case QUIRE_EVENT_PARSED:
        body_parsed(ev->user, ev);
        return true;
    case QUIRE_EVENT_CHECKED:
        body_checked(ev->user, ev);
        return true;
    case QUIRE_EVENT_LOOKED:
        body_looked(ev->user, ev);
        return true;
    default:
        return false;
    }
}
