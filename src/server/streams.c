/* Commands to running streams from other connections: POST /v1/streams/{id}/fork,
 * rollback and steer (docs/streams.md).
 *
 * An id ends with the number of the loop that owns the stream, to which the command is
 * sent as an order (loop_order.h). */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/conn_model.h"
#include "server/loop_order.h"
#include "server/response.h"
#include "server/routes.h"

/* The orders of the three commands. */
static const order_kind stream_forking, stream_rolling_back, stream_steering;

/* Limits of a command's JSON, parsed by a loop's thread: the ids of a long context
 * fit. */
static const json_limits stream_limits = {.max_depth = 64,
                                          .max_values = (size_t)1 << 18,
                                          .max_containers = (size_t)1 << 12,
                                          .max_names = (size_t)1 << 12};

/* ---- sending an order ---- */

/* Reads an integer member, if there is one; false: it is not an integer. */
static bool stream_read_int(const json_value *body, const char *name, int32_t *out, quire_error *err) {
    if (!json_has(body, name)) {
        return true;
    }
    const json_value *v = json_get(body, name);
    int64_t value = json_is(v, JSON_KIND_INT) ? json_int64(v) : -1;
    if (value < 0 || value > INT32_MAX) {
        err_set_param(err, QUIRE_BAD_REQUEST, name, "%s must be an integer of at least 0", name);
        return false;
    }
    *out = (int32_t)value;
    return true;
}

static quire_err stream_take_ids(loop_order *o, const json_value *v, quire_error *err) {
    o->n_ids = json_is(v, JSON_KIND_ARRAY) ? json_length(v) : 0;
    o->ids = mem_new(o->n_ids, sizeof *o->ids);
    bool valid = json_is(v, JSON_KIND_ARRAY) && o->ids != NULL;
    for (size_t i = 0; valid && i < o->n_ids; i++) {
        const json_value *id = json_at(v, i);
        int64_t value = json_is(id, JSON_KIND_INT) ? json_int64(id) : -1;
        valid = value >= 0 && value <= INT32_MAX;
        o->ids[i] = (int32_t)value;
    }
    return valid ? QUIRE_OK
                 : err_set_param(err, QUIRE_BAD_REQUEST, "tokens", "tokens must be an array of token ids");
}

/* Reads the new tail of a steer: a text or ids. */
static quire_err stream_take_tail(loop_order *o, quire_error *err) {
    const json_value *text = json_get(o->body, "text"), *ids = json_get(o->body, "tokens");
    if ((text == NULL) == (ids == NULL)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "text", "give the new tail either as text or as tokens");
    }
    if (ids != NULL) {
        return stream_take_ids(o, ids, err);
    }
    if (!json_is(text, JSON_KIND_TEXT)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "text", "text must be a string");
    }
    o->text = json_str(text).p; /* the body owns the text */
    o->n_text = json_str(text).n;
    return QUIRE_OK;
}

/* Writes the members that are request fields to *out, as a JSON object; empty: none. */
static quire_err stream_write_fields(const json_value *body, strbuf *out) {
    static const char *const own[] = {"index", "position", "text", "tokens"};
    json_out o = {.to = out};
    json_begin(&o, '{');
    for (json_member m = {0}; json_next(body, &m);) {
        bool is_own = false;
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
            is_own |= strcmp(m.name, own[i]) == 0;
        }
        if (!is_own) {
            json_add(json_name(&o, m.name), m.value);
        }
    }
    json_end(&o, '}');
    if (out->n == strlen("{}")) {
        strbuf_deinit(out);
    }
    return o.err;
}

/* Refuses members that only a steer may have. */
static quire_err stream_refuse_tail(const loop_order *o, quire_error *err) {
    const char *given = json_get(o->body, "text") != NULL     ? "text"
                        : json_get(o->body, "tokens") != NULL ? "tokens"
                                                              : NULL;
    return given == NULL ? QUIRE_OK
                         : err_set_param(err, QUIRE_BAD_REQUEST, given,
                                         "%s is given; only a steer takes a new tail", given);
}

static quire_err stream_read_order(loop_order *o, const char *text, size_t n, quire_error *err) {
    json_fault fault;
    if (json_read((str){text, n}, &stream_limits, JSON_WIDE_KEPT, &o->body, &fault) != QUIRE_OK) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body is not valid JSON at byte %zu: %s",
                             fault.at, fault.what);
    }
    if (!json_is(o->body, JSON_KIND_OBJECT)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body must be a JSON object");
    }
    o->position = QUIRE_HERE;
    if (!stream_read_int(o->body, "index", &o->index, err) ||
        !stream_read_int(o->body, "position", &o->position, err)) {
        return err->code;
    }
    if (o->kind == &stream_rolling_back && o->position == QUIRE_HERE) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "position",
                             "position is missing; it counts tokens from the start of the prompt");
    }
    TRY(o->kind == &stream_steering ? stream_take_tail(o, err) : stream_refuse_tail(o, err));
    return err_set(err, stream_write_fields(o->body, &o->fields), -1, "out of memory");
}

/* Reads the path's parameter, {id}/{verb}, and the tenant of the request. */
static bool stream_read_path(const conn *c, loop_order *o) {
    static const struct {
        const char *name;
        const order_kind *kind;
    } verbs[] = {{"fork", &stream_forking}, {"rollback", &stream_rolling_back}, {"steer", &stream_steering}};
    const char *id = c->parameter.p, *end = id + c->parameter.n, *slash = memchr(id, '/', (size_t)(end - id));
    if (slash == NULL || (size_t)(slash - id) >= sizeof o->id) {
        return false;
    }
    memcpy(o->id, id, (size_t)(slash - id));
    for (int i = 0; i < 3; i++) {
        if (str_is((str){slash + 1, (size_t)(end - slash - 1)}, verbs[i].name)) {
            o->kind = verbs[i].kind;
            o->to = loop_of_id(c->loop->server, o->id);
            o->has_tenant = c->has_tenant;
            snprintf(o->tenant, sizeof o->tenant, "%s", c->has_tenant ? c->tenant : "");
            return true;
        }
    }
    return false;
}

void streams_post(conn *c) {
    quire_error err = {0};
    loop_order *o = order_new(c, NULL);
    if (o == NULL) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    const strbuf *body = &c->request.body;
    if (!stream_read_path(c, o)) {
        order_drop(o);
        conn_reply_error(c, 404, NULL,
                         "commands to a stream are POST /v1/streams/ID/fork, /v1/streams/ID/rollback and "
                         "/v1/streams/ID/steer",
                         NULL);
        return;
    }
    quire_err e = stream_read_order(o, body->n > 0 ? body->p : "", body->n, &err);
    if (e == QUIRE_OK && o->to == NULL) {
        e = err_set(&err, QUIRE_NOT_FOUND, -1, "there is no running stream with this id");
    }
    if (e != QUIRE_OK) {
        order_drop(o);
        conn_reply_failure(c, error_of(&err));
        return;
    }
    order_begin(o);
}

/* ---- on the stream's loop ---- */

/* The stream with the order's id, if it belongs to the order's tenant; NULL: none. */
static response *stream_find(const loop *l, const loop_order *o) {
    for (const conn *c = l->conns; c != NULL; c = c->next) {
        response *a = response_of(c);
        if (a != NULL && a->started && !a->writer->is_linear && strcmp(a->id, o->id) == 0) {
            bool same =
                c->has_tenant == o->has_tenant && (!o->has_tenant || strcmp(c->tenant, o->tenant) == 0);
            return same ? a : NULL;
        }
    }
    return NULL;
}

static quire_err stream_run_fork(loop_order *o, const response *a) {
    TRY(quire_stream_fork(a->stream, o->index, o->position, &o->fork, &o->err));
    o->fork_model = a->model->m;
    models_hold(a->loop->server->models, o->fork_model);
    return o->fields.n > 0 ? quire_request_set_all(o->fork, o->fields.p, o->fields.n, &o->err) : QUIRE_OK;
}

/* Runs an order. A fork is done at once; a rollback or steer returns with its event. */
static void stream_run_order(loop *l, loop_order *o) {
    response *a = stream_find(l, o);
    quire_err e;
    if (a == NULL) {
        e = err_set(&o->err, QUIRE_NOT_FOUND, -1, "there is no running stream with this id");
    } else if (o->kind == &stream_forking) {
        e = stream_run_fork(o, a);
    } else if (a->writer->chunk_object == NULL) {
        e = err_set(&o->err, QUIRE_BAD_REQUEST, -1,
                    "this stream's format has no event for a dropped tail; fork the stream instead");
    } else if (conn_unsent(a->conn) >= l->server->options.max_output_bytes) {
        e = err_set(&o->err, QUIRE_BUSY, -1,
                    "the stream's client is slow to read; try again when it has caught up");
    } else if (o->kind == &stream_rolling_back) {
        e = quire_stream_rollback(a->stream, o->index, o->position, o->fields.p, o->fields.n, &o->err);
    } else {
        quire_tail tail = {.text = o->text, .n_text = o->n_text, .ids = o->ids, .n_ids = o->n_ids};
        e = quire_stream_steer(a->stream, o->index, o->position, &tail, o->fields.p, o->fields.n, &o->err);
    }
    if (e == QUIRE_OK && o->kind != &stream_forking) {
        a->choices[o->index].order = o; /* the engine accepts only one at a time */
    } else {
        order_send_back(o);
    }
}

/* ---- back on the sender's loop ---- */

static void stream_reply_done(conn *c, loop_order *o) {
    json_out out = conn_begin_json(c);
    json_begin(&out, '{');
    json_cstr(json_name(&out, "id"), o->id);
    json_cstr(json_name(&out, "object"), o->kind == &stream_steering ? "stream.steer" : "stream.rollback");
    json_int(json_name(&out, "index"), o->index);
    json_int(json_name(&out, "position"), o->position);
    json_end(&out, '}');
    conn_reply_json(c, &out, NULL);
}

static void stream_reply_fork(conn *c, loop_order *o) {
    quire_request *r = o->fork;
    served_model *m = o->fork_model;
    o->fork = NULL;
    o->fork_model = NULL;
    if (conn_give_model(c, m)) {
        response_start(c, r);
    } else {
        quire_request_free(r);
    }
}

static const order_kind stream_forking = {.run = stream_run_order, .reply = stream_reply_fork};
static const order_kind stream_rolling_back = {.run = stream_run_order, .reply = stream_reply_done};
static const order_kind stream_steering = {.run = stream_run_order, .reply = stream_reply_done};

/* The requests in progress, for the operator: GET /debug/requests lists them, DELETE
 * /debug/requests/{id} cancels one (docs/http.md).
 *
 * The list contains no text of any request. An order visits the loops one after another
 * (loop_order.h); a cancellation goes to the loop that the id names. */

#define MAX_ROWS 4096 /* most rows of a list */
/* unlike 409, 429 and 5xx, clients do not retry this status on their own */

static bool requests_may_see(conn *c) {
    if (!c->is_operator) {
        conn_reply_error(c, 403, NULL, "only the operator may see requests in progress (--operator-key)",
                         NULL);
    }
    return c->is_operator;
}

/* Whether c has a request for a model, which can be cancelled. */
static bool requests_in_progress(const conn *c) {
    bool is_open =
        c->record.is_open && c->refusal == 0 && (c->body.state != BODY_NONE || c->state == CONN_RESPONSE);
    return is_open && c->is_api && c->record.endpoint != NULL;
}

/* ---- the list ---- */

/* A request in progress, of a connection or in the background. */
typedef struct request_row {
    const request_record *record;
    const response *response; /* response in progress; NULL: the request is not submitted yet */
    const char *tenant;       /* name of the tenant; NULL: none */
    bool is_receiving;        /* the request's body is arriving, or waits for room */
    bool is_loading;          /* the request waits for its model to load */
} request_row;

static const char *requests_state_of(const request_row *row, const request_record *counts) {
    bool has_token = row->record->first_token_us > 0;
    if (row->is_receiving) {
        return "receiving";
    }
    if (row->is_loading) {
        return "loading";
    }
    if (row->response == NULL || (counts->prompt_tokens == 0 && !has_token)) {
        return "preparing"; /* a text thread parses, renders and tokenises it */
    }
    return row->response->is_done ? "sending" : has_token ? "running" : "waiting";
}

static void requests_write_one(const request_row *row, json_out *o) {
    const response *a = row->response;
    const request_record *r = row->record;
    request_record counts = {0};
    char made[40];
    snprintf(made, sizeof made, "req-%016" PRIx64, r->number);
    if (a != NULL) {
        response_count_tokens(a, &counts);
    }
    json_begin(o, '{');
    json_cstr(json_name(o, "id"), a != NULL ? a->id : made);
    json_cstr(json_name(o, "request_id"), r->id);
    json_cstr(json_name(o, "tenant"), row->tenant);
    json_cstr(json_name(o, "client"), r->client);
    json_cstr(json_name(o, "endpoint"), r->endpoint);
    json_cstr(json_name(o, "state"), requests_state_of(row, &counts));
    json_number(json_name(o, "age_s"), (double)((clock_us() - r->begun_us) / 1000) * 1e-3);
    json_bool(json_name(o, "stream"), a != NULL && a->info != NULL && a->info->stream);
    json_int(json_name(o, "choices"), a != NULL ? a->n_choices : 0);
    json_int(json_name(o, "prompt_tokens"), counts.prompt_tokens);
    json_int(json_name(o, "cached_tokens"), counts.cached_tokens);
    json_int(json_name(o, "completion_tokens"), counts.completion_tokens);
    json_bool(json_name(o, "background"), r->response != NULL);
    json_end(o, '}');
}

static void requests_add_row(loop_order *o, const request_row *row, json_out *out) {
    if (o->n_rows == MAX_ROWS) {
        o->n_left_out++;
        return;
    }
    json_raw(out, o->n_rows++ > 0 ? "," : "");
    requests_write_one(row, out);
}

/* Adds this loop's requests, and passes the order to the next loop. */
static void requests_list_loop(loop *l, loop_order *o) {
    json_out out = {.to = &o->rows};
    int32_t next = (int32_t)(l - l->server->loops) + 1;
    for (const conn *c = l->conns; c != NULL; c = c->next) {
        if (requests_in_progress(c)) {
            const request_row row = {.record = &c->record,
                                     .response = response_of(c),
                                     .tenant = c->has_tenant ? c->tenant : NULL,
                                     .is_receiving = c->body.state != BODY_NONE,
                                     .is_loading = conn_waits_for_model(c)};
            requests_add_row(o, &row, &out);
        }
    }
    for (const response *a = l->background; a != NULL; a = a->next_background) {
        const request_row row = {
            .record = &a->record, .response = a, .tenant = a->tenant[0] != '\0' ? a->tenant : NULL};
        requests_add_row(o, &row, &out);
    }
    if (out.err != QUIRE_OK) {
        err_set(&o->err, out.err, -1, "out of memory");
    }
    if (next < l->server->n_loops && out.err == QUIRE_OK) {
        order_send(o, &l->server->loops[next]);
    } else {
        order_send_back(o);
    }
}

static void requests_reply_list(conn *c, loop_order *o) {
    json_out out = conn_begin_json(c);
    json_raw(&out, "{\"object\":\"list\",\"data\":[");
    json_raw(&out, o->rows.n > 0 ? o->rows.p : "");
    json_raw(&out, "],\"left_out\":");
    json_int(&out, o->n_left_out);
    json_raw(&out, "}");
    conn_reply_json(c, &out, "Cache-Control: no-store\r\n");
}

static const order_kind requests_listing = {.run = requests_list_loop, .reply = requests_reply_list};

void requests_list(conn *c) {
    loop_order *o = requests_may_see(c) ? order_new(c, &requests_listing) : NULL;
    if (o != NULL) {
        o->to = &c->loop->server->loops[0];
        order_begin(o);
    } else if (c->is_operator) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
    }
}

/* ---- cancelling ---- */

/* Ends the request of l with this number. False: l has none. */
static bool requests_end(loop *l, uint64_t number) {
    static const api_error why = {.status = STATUS_CANCELLED,
                                  .code = "request_cancelled",
                                  .message = "the operator cancelled this request"};
    for (response *a = l->background; a != NULL; a = a->next_background) {
        if (a->record.number == number) {
            response_end_detached(a, &why);
            return true;
        }
    }
    for (conn *c = l->conns; c != NULL; c = c->next) {
        if (requests_in_progress(c) && c->record.number == number) {
            conn_end(c, &why);
            return true;
        }
    }
    return false;
}

static void requests_set_unknown(quire_error *err) {
    err_set(err, QUIRE_NOT_FOUND, -1,
            "no request with this id is in progress; GET /debug/requests lists those that are");
}

static void requests_cancel_one(loop *l, loop_order *o) {
    uint64_t number;
    if (!loop_read_id(o->id, &number) || !requests_end(l, number)) {
        requests_set_unknown(&o->err);
    }
    order_send_back(o);
}

static void requests_reply_cancelled(conn *c, loop_order *o) {
    json_out out = conn_begin_json(c);
    json_begin(&out, '{');
    json_cstr(json_name(&out, "id"), o->id);
    json_cstr(json_name(&out, "object"), "request.cancelled");
    json_end(&out, '}');
    conn_reply_json(c, &out, NULL);
}

static const order_kind requests_cancelling = {.run = requests_cancel_one, .reply = requests_reply_cancelled};

void requests_cancel(conn *c) {
    if (!requests_may_see(c)) {
        return;
    }
    str id = c->parameter;
    quire_error err = {0};
    loop_order *o = order_new(c, &requests_cancelling);
    if (o == NULL) {
        err_set(&err, QUIRE_NO_MEMORY, -1, "out of memory");
    } else {
        bool fits = id.n < sizeof o->id && memchr(id.p, '\0', id.n) == NULL;
        memcpy(o->id, id.p, fits ? id.n : 0);
        o->to = loop_of_id(c->loop->server, o->id);
        if (o->to != NULL) {
            order_begin(o);
            return;
        }
        requests_set_unknown(&err);
        order_drop(o);
    }
    conn_reply_failure(c, error_of(&err));
}
