/* Programs over HTTP: POST /v1/programs runs the program in its body (docs/programs.md);
 * POST /v1/programs/{id}/cancel and DELETE /v1/programs/{id} cancel it. The loop's
 * thread. */
#include "server/routes.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "quire_program.h"
#include "server/adapter_list.h"
#include "server/conn_model.h"
#include "server/loop_order.h"

#define TURN_US 1000 /* time that programs run before the loop serves other connections */

/* A program in progress, and the connection that waits for it. */
typedef struct program_request {
    conn *conn;
    loop_model *model;
    quire_state *state; /* NULL: the program has ended, and its end is being sent */
    char id[32];
    bool is_stream;
    int64_t sent_us;  /* stream: time of the last event sent */
    strbuf held;      /* stream: events held until the client has read earlier ones */
    size_t n_counted; /* bytes of `held` that the loop's n_unread counts */
} program_request;

/* ---- sending ---- */

/* Updates the loop's count of unread bytes by the held bytes. */
static void program_request_count(program_request *r) {
    r->conn->loop->n_unread += (int64_t)r->held.n - (int64_t)r->n_counted;
    r->n_counted = r->held.n;
}

static void program_request_free(program_request *r) {
    quire_state_close(r->state);
    strbuf_clear(&r->held);
    program_request_count(r);
    if (r->model != NULL) {
        loop_model_drop(r->model);
    }
    strbuf_deinit(&r->held);
    mem_free(r);
}

/* Drops a closing connection's program. */
static void program_api_close(conn *c) {
    program_request *r = c->pending_of;
    c->pending = NULL;
    c->pending_of = NULL;
    program_request_free(r);
}

/* Ends the request with an error: a status or, in a stream, an event. */
static void program_api_end(conn *c, const api_error *why) {
    program_request *r = c->pending_of;
    if (!r->is_stream) {
        program_api_close(c);
        conn_reply_failure(c, *why);
        return;
    }
    json_out o = conn_begin_json(c);
    json_raw(&o, "event: program.error\ndata: ");
    error_body(&o, why);
    json_raw(&o, "\n\n");
    program_api_close(c);
    request_record_fail(&c->record, why);
    if (o.err == QUIRE_OK) {
        conn_stream_add(c, (str){o.to->p, o.to->n});
    }
    conn_stream_end(c);
}

static void program_api_no_memory(conn *c) {
    program_api_end(c, &(api_error){.status = 500, .message = "out of memory"});
}

/* Sends the held events if the client has read enough; ends the stream after the last. */
static void program_api_drained(conn *c) {
    program_request *r = c->pending_of;
    if (!r->is_stream || conn_unsent(c) >= c->loop->server->options.max_output_bytes) {
        return;
    }
    if (r->held.n > 0) {
        conn_stream_take(c, &r->held);
        r->sent_us = clock_us();
        strbuf_clear(&r->held);
        program_request_count(r);
    }
    if (r->state == NULL) {
        program_api_close(c);
        conn_stream_end(c);
    }
}

static const pending_kind program_pending = {.close = program_api_close,
                                             .end = program_api_end,
                                             .drained = program_api_drained,
                                             .counts_disconnects = true};

/* ---- events ---- */

static void program_api_write_branch(const quire_state *s, json_out *o) {
    size_t n;
    const int32_t *branch = quire_state_branch(s, &n);
    json_ints(json_name(o, "branch"), branch, n);
}

static void program_api_write_value(const quire_program_event *ev, json_out *o) {
    quire_variable v = {.size = sizeof v};
    quire_error err;
    if (quire_state_get(ev->state, ev->name, -1, &v, &err) != QUIRE_OK) {
        json_raw(json_name(o, "value"), "null");
    } else if (v.n_items == 0) {
        json_text(json_name(o, "value"), v.text, v.n_text);
    } else {
        json_begin(json_name(o, "value"), '[');
        for (int32_t i = 0, n = v.n_items;
             i < n && quire_state_get(ev->state, ev->name, i, &v, &err) == QUIRE_OK; i++) {
            json_text(json_item(o), v.text, v.n_text);
        }
        json_end(o, ']');
    }
}

/* Writes an event of a stream. */
static void program_api_write_event(const quire_program_event *ev, json_out *o) {
    json_raw(o, "event: ");
    json_raw(o, ev->kind == QUIRE_PROGRAM_FAILED ? "program.failed" : ev->name);
    json_raw(o, "\ndata: ");
    json_begin(o, '{');
    program_api_write_branch(ev->state, o);
    if (ev->kind == QUIRE_PROGRAM_TEXT) {
        json_int(json_name(o, "choice"), ev->choice);
        json_text(json_name(o, "text"), ev->text, ev->n_text);
    } else if (ev->kind == QUIRE_PROGRAM_VALUE) {
        program_api_write_value(ev, o);
    } else {
        json_cstr(json_name(o, "code"), quire_err_name(ev->error->code));
        json_cstr(json_name(o, "message"), ev->error->message);
    }
    json_end(o, '}');
    json_raw(o, "\n\n");
}

/* Records a program's tokens for the log and the metrics. */
static void program_api_note(conn *c, const quire_program_usage *u) {
    c->record.is_generation = true;
    c->record.finishes = 1u << (u->n_failed > 0 ? QUIRE_FINISH_ERROR : QUIRE_FINISH_STOP);
    c->record.prompt_tokens = (int32_t)(u->prompt_tokens < INT32_MAX ? u->prompt_tokens : INT32_MAX);
    c->record.cached_tokens =
        (int32_t)(u->prompt_tokens - u->computed_tokens < INT32_MAX ? u->prompt_tokens - u->computed_tokens
                                                                    : INT32_MAX);
    c->record.completion_tokens =
        (int32_t)(u->completion_tokens < INT32_MAX ? u->completion_tokens : INT32_MAX);
}

static quire_err program_api_write_done(str report, strbuf *out) {
    TRY(strbuf_add_str(out, "event: program.done\ndata: "));
    TRY(strbuf_add(out, report.p, report.n));
    return strbuf_add_str(out, "\n\n");
}

/* Sends the report of a program that has ended: as the response, or as the stream's last
 * event. If it failed before any of its calls ended, sends an error instead. */
static void program_api_finish(program_request *r) {
    conn *c = r->conn;
    quire_program_usage u = {.size = sizeof u};
    char *json;
    size_t n;
    quire_state_usage(r->state, &u);
    program_api_note(c, &u);
    if (!r->is_stream && u.error != NULL && u.n_calls == 0) {
        quire_error why = *u.error;
        program_api_close(c);
        conn_reply_failure(c, error_of(&why));
        return;
    }
    if (quire_state_report(r->state, r->id, quire_program_describe(r->state)->explain, &json, &n) !=
        QUIRE_OK) {
        program_api_no_memory(c);
        return;
    }
    if (r->is_stream) {
        quire_err e = program_api_write_done((str){json, n}, &r->held);
        quire_free(json);
        if (e != QUIRE_OK) {
            program_api_no_memory(c);
            return;
        }
        program_request_count(r);
        quire_state_close(r->state);
        r->state = NULL;
        program_api_drained(c);
        return;
    }
    program_api_close(c);
    conn_reply(c, &(reply){.status = 200, .content_type = "application/json", .body = {json, n}});
    quire_free(json);
}

static void program_api_take(const quire_program_event *ev) {
    program_request *r = ev->user;
    conn *c = r->conn;
    if (ev->kind == QUIRE_PROGRAM_TEXT && c->record.first_token_us == 0) {
        request_record_token(&c->record, 0);
    }
    if (ev->kind == QUIRE_PROGRAM_IDLE) {
        program_api_finish(r);
        return;
    }
    if (!r->is_stream) {
        return;
    }
    json_out o = {.to = &r->held};
    program_api_write_event(ev, &o);
    program_request_count(r);
    if (o.err != QUIRE_OK) {
        program_api_no_memory(c);
        return;
    }
    program_api_drained(c);
    const size_t most = quire_engine_info(r->model->m->engine)->max_answer_bytes;
    if (most > 0 && r->held.n > most) {
        quire_error why = {0};
        err_set(&why, QUIRE_BUSY, -1, "the client is %zu bytes behind the stream; --max-answer-bytes is %zu",
                r->held.n, most);
        const api_error shown = error_of(&why);
        program_api_end(c, &shown);
    }
}

LOOP_CALLBACK(program_api_on_events) {
    loop_model *p = arg;
    quire_program_event ev;
    if (p->programs != NULL) {
        quire_programs_turn(p->programs, TURN_US);
    }
    while (p->programs != NULL && quire_programs_next(p->programs, &ev)) {
        program_api_take(&ev);
    }
    loop_model_await_programs(p);
    conn_relieve(p->l);
    loop_model_look(p);
}

void program_api_ping_all(const loop *l) {
    int64_t before_us = clock_us() - l->server->options.ping_us;
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        program_request *r = c->pending == &program_pending ? c->pending_of : NULL;
        if (r != NULL && r->is_stream && r->sent_us <= before_us && conn_unsent(c) == 0) {
            r->sent_us = clock_us();
            conn_stream_add(c, str_of(": ping\n\n"));
        }
    }
}

/* ---- POST /v1/programs ---- */

/* Opens the program in c's body. */
static quire_err program_api_open(conn *c, program_request *r, quire_error *err) {
    const strbuf *body = &c->request.body;
    const server_options *from = &c->loop->server->options;
    quire_program_limits limits;
    quire_program_limits_init(&limits);
    limits.max_states = from->program_states;
    limits.max_steps = from->program_steps;
    limits.max_depth = from->program_depth;
    limits.max_tokens = from->program_tokens;
    limits.max_us = from->program_us;
    limits.max_bytes = PROGRAM_TEXT_BYTES;
    const quire_state_options o = {
        .size = sizeof o, .tenant = c->has_tenant ? c->tenant : NULL, .user = r, .limits = &limits};
    TRY(err_set(err, loop_model_open_programs(r->model), -1, "out of memory for programs"));
    return quire_program_open(r->model->programs, body->n > 0 ? body->p : "", body->n, &o, &r->state, err);
}

void program_api_post(conn *c) {
    quire_error err = {0};
    if (models_sleeping(c->loop->server->models) != SLEEP_NONE) {
        conn_refuse_asleep(c);
        return;
    }
    if (!conn_take_model(c, program_api_post)) {
        return;
    }
    program_request *r = mem_new(1, sizeof *r);
    if (r == NULL) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    r->conn = c;
    r->model = conn_hand_model(c);
    snprintf(r->id, sizeof r->id, "prog-%016" PRIx64, c->record.number);
    if (program_api_open(c, r, &err) != QUIRE_OK) {
        program_request_free(r);
        conn_reply_failure(c, error_of(&err));
        return;
    }
    const char *model = quire_program_describe(r->state)->model;
    const bool is_model =
        model == NULL || r->model->m->number > 0 || server_answers_to(c->loop->server, str_of(model));
    if (is_model) { /* adapters in a directory may have any name */
        quire_program_without_adapter(r->state);
    } else if (!adapter_list_knows(c->loop->server, str_of(model))) {
        err_set(&err, QUIRE_NOT_FOUND, -1, "The model `%.200s` does not exist (/v1/models)", model);
        program_request_free(r);
        conn_reply_failure(c, error_of(&err));
        return;
    }
    strbuf_deinit(&c->request.body);
    r->is_stream = quire_program_describe(r->state)->stream;
    assert(c->pending == NULL);
    c->pending = &program_pending;
    c->pending_of = r;
    if (r->is_stream) {
        char begin[96];
        int n = snprintf(begin, sizeof begin, "event: program.begin\ndata: {\"id\":\"%s\"}\n\n", r->id);
        r->sent_us = clock_us();
        conn_stream_begin(c, "text/event-stream; charset=utf-8");
        conn_stream_add(c, (str){begin, (size_t)n});
    }
    event_active(r->model->on_programs, EV_READ, 0);
}

bool program_api_runs(const conn *c) {
    return c->pending == &program_pending;
}

/* ---- cancelling ---- */

/* The program with an order's id, if it belongs to the order's tenant; NULL: none. */
static program_request *program_api_find(const loop *l, const loop_order *o) {
    for (const conn *c = l->conns; c != NULL; c = c->next) {
        program_request *r = c->pending == &program_pending ? c->pending_of : NULL;
        if (r != NULL && strcmp(r->id, o->id) == 0 && c->has_tenant == o->has_tenant &&
            (!c->has_tenant || strcmp(c->tenant, o->tenant) == 0)) {
            return r;
        }
    }
    return NULL;
}

static void program_api_set_unknown(quire_error *err) {
    err_set(err, QUIRE_NOT_FOUND, -1, "no program with this id is running");
}

static void program_api_cancel_one(loop *l, loop_order *o) {
    program_request *r = program_api_find(l, o);
    if (r == NULL || r->state == NULL) {
        program_api_set_unknown(&o->err);
    } else {
        quire_state_cancel(r->state);
        event_active(r->model->on_programs, EV_READ, 0);
    }
    order_send_back(o);
}

static void program_api_cancelled(conn *c, loop_order *o) {
    json_out out = conn_begin_json(c);
    json_begin(&out, '{');
    json_cstr(json_name(&out, "id"), o->id);
    json_cstr(json_name(&out, "object"), "program.cancelled");
    json_end(&out, '}');
    conn_reply_json(c, &out, NULL);
}

static const order_kind program_cancelling = {.run = program_api_cancel_one, .reply = program_api_cancelled};

void program_api_cancel(conn *c) {
    static const char verb[] = "/cancel";
    str id = c->parameter;
    quire_error err = {0};
    bool is_post = c->request.method == HTTP_POST;
    if (is_post && !str_ends(id, verb)) {
        conn_reply_error(c, 404, NULL,
                         "to cancel a program, use POST /v1/programs/ID/cancel or DELETE /v1/programs/ID",
                         NULL);
        return;
    }
    id.n -= is_post ? sizeof verb - 1 : 0;
    loop_order *o = order_new(c, &program_cancelling);
    if (o == NULL) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    if (id.n < sizeof o->id && memchr(id.p, 0, id.n) == NULL) {
        memcpy(o->id, id.p, id.n);
    }
    o->has_tenant = c->has_tenant;
    snprintf(o->tenant, sizeof o->tenant, "%s", c->has_tenant ? c->tenant : "");
    o->to = loop_of_id(c->loop->server, o->id);
    if (o->to != NULL) {
        order_begin(o);
        return;
    }
    order_drop(o);
    program_api_set_unknown(&err);
    conn_reply_failure(c, error_of(&err));
}
