/* The requests in progress, for the operator: GET /debug/requests lists them, DELETE
 * /debug/requests/{id} cancels one (docs/http.md).
 *
 * The list has no text of any request. It visits the loops one after another as an order
 * (loop_order.h); a cancellation goes to the loop that the id names. */

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "server/conn_model.h"
#include "server/loop_order.h"
#include "server/response.h"
#include "server/routes.h"

#define MAX_ROWS 4096 /* of one list */
/* clients do not repeat such a request by themselves, as after 409, 429 and 5xx */

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

/* A request in progress: of a connection, or one that continues in the background. */
typedef struct request_row {
    const request_record *record;
    const response *response; /* NULL: it is not submitted yet */
    const char *tenant;       /* NULL: none */
    bool is_receiving;        /* its body, or waiting for room for it */
    bool is_loading;          /* it waits for its model */
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
        return "preparing"; /* read, rendered and tokenised on a text thread */
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

/* Ends a loop's request of that number. False: not this loop's. */
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
            "no request of this id is in progress; GET /debug/requests lists those that are");
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
