/* The requests in progress, for the operator: GET /debug/requests lists them, DELETE
 * /debug/requests/{id} cancels one (docs/http.md).
 *
 * The list has no text of any request. It visits the loops one after another as an order
 * (loop_order.h); a cancellation goes to the loop that the id names. */

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "server/loop_order.h"
#include "server/response.h"
#include "server/routes.h"

#define MAX_ROWS 4096 /* of one list */
/* clients do not repeat such a request by themselves, as after 409, 429 and 5xx */
#define STATUS_CANCELLED 410

static bool requests_may_see(conn *c) {
    if (!c->is_operator) {
        conn_reply_error(c, 403, NULL,
                         "requests in progress are for the operator's key only (--operator-key)", NULL);
    }
    return c->is_operator;
}

/* True for a connection with a request for the model, which its client may cancel. */
static bool requests_in_progress(const conn *c) {
    bool is_open =
        c->record.is_open && c->refusal == 0 && (c->body.state != BODY_NONE || c->state == CONN_RESPONSE);
    return is_open && c->is_api && c->record.endpoint != NULL;
}

/* ---- the list ---- */

static const char *requests_state_of(const conn *c, const response *a, const request_record *counts) {
    if (c->body.state != BODY_NONE) {
        return "receiving"; /* its body, or waiting for room for it */
    }
    if (a == NULL || (counts->prompt_tokens == 0 && c->record.first_token_us == 0)) {
        return "preparing"; /* read, rendered and tokenised on a text thread */
    }
    return a->is_done ? "sending" : c->record.first_token_us > 0 ? "running" : "waiting";
}

static void requests_write_one(const conn *c, json_out *o) {
    const response *a = response_of(c);
    request_record counts = {0};
    char made[40];
    snprintf(made, sizeof made, "req-%016" PRIx64, c->record.number);
    if (a != NULL) {
        response_count_tokens(a, &counts);
    }
    json_begin(o, '{');
    json_cstr(json_name(o, "id"), a != NULL ? a->id : made);
    json_cstr(json_name(o, "request_id"), c->record.id);
    json_cstr(json_name(o, "tenant"), c->has_tenant ? c->tenant : NULL);
    json_cstr(json_name(o, "client"), c->record.client);
    json_cstr(json_name(o, "endpoint"), c->record.endpoint);
    json_cstr(json_name(o, "state"), requests_state_of(c, a, &counts));
    json_number(json_name(o, "age_s"), (double)((clock_us() - c->record.begun_us) / 1000) * 1e-3);
    json_bool(json_name(o, "stream"), a != NULL && a->info != NULL && a->info->stream);
    json_int(json_name(o, "choices"), a != NULL ? a->n_choices : 0);
    json_int(json_name(o, "prompt_tokens"), counts.prompt_tokens);
    json_int(json_name(o, "cached_tokens"), counts.cached_tokens);
    json_int(json_name(o, "completion_tokens"), counts.completion_tokens);
    json_end(o, '}');
}

/* Adds this loop's requests and goes on to the next loop. */
static void requests_list_loop(loop *l, loop_order *o) {
    json_out out = {.to = &o->rows};
    int32_t next = (int32_t)(l - l->server->loops) + 1;
    for (const conn *c = l->conns; c != NULL; c = c->next) {
        if (!requests_in_progress(c)) {
            continue;
        }
        if (o->n_rows == MAX_ROWS) {
            o->n_left_out++;
            continue;
        }
        json_raw(&out, o->n_rows++ > 0 ? "," : "");
        requests_write_one(c, &out);
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

static conn *requests_find(const loop *l, const char *id) {
    uint64_t number;
    bool is_number = loop_read_id(id, &number);
    for (conn *c = l->conns; is_number && c != NULL; c = c->next) {
        if (requests_in_progress(c) && c->record.number == number) {
            return c;
        }
    }
    return NULL;
}

static void requests_set_unknown(quire_error *err) {
    err_set(err, QUIRE_NOT_FOUND, -1,
            "no request of this id is in progress; GET /debug/requests lists those that are");
}

static void requests_cancel_one(loop *l, loop_order *o) {
    conn *c = requests_find(l, o->id);
    if (c == NULL) {
        requests_set_unknown(&o->err);
    } else {
        static const api_error why = {.status = STATUS_CANCELLED,
                                      .code = "request_cancelled",
                                      .message = "the operator cancelled this request"};
        conn_end(c, &why);
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
