#include "server/streams.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "server/error_body.h"

#define LOOP_BITS  12 /* of an id's number; more loops than that cannot be opened */
#define LOOP_CHARS 3
#define MAX_DEPTH  64

static const char prefix[] = "/v1/streams/";

typedef enum order_kind { ORDER_FORK, ORDER_ROLLBACK, ORDER_STEER } order_kind;

struct stream_order {
    atomic_int holders;
    stream_order *next;   /* in a loop's mailbox */
    conn *conn;           /* who asked, or NULL when it has gone: its loop's thread only */
    loop *from, *to;
    bool is_back;         /* on the way to `from` */
    order_kind kind;
    char id[40], tenant[QUIRE_TENANT_BYTES + 1];
    bool has_tenant;
    json_object *body;    /* owns the texts below */
    int32_t index, position;
    const char *text;     /* STEER: either */
    int32_t *ids;
    size_t n_text, n_ids;
    char *fields;         /* the other members, as JSON */
    size_t n_fields;
    quire_request *fork;  /* FORK: what came of it */
    quire_error err;
};

uint64_t streams_number(loop *l) {
    uint64_t mine = (uint64_t)(l - l->server->loops), mask = (1u << LOOP_BITS) - 1;
    return (rng_next(&l->random) & ~mask) | mine;
}

static void order_drop(stream_order *o) {
    if (atomic_fetch_sub(&o->holders, 1) == 1) {
        json_object_put(o->body);
        mem_free(o->ids);
        mem_free(o->fields);
        quire_request_free(o->fork);
        mem_free(o);
    }
}

/* Hands o over to a loop's thread. */
static void send_order(stream_order *o, loop *to) {
    if (to->bell.fd < 0) { /* closed already: the server goes */
        order_drop(o);
        return;
    }
    stream_order *top = atomic_load(&to->orders);
    do {
        o->next = top;
    } while (!atomic_compare_exchange_weak(&to->orders, &top, o));
    wake_ring(&to->bell);
}

static void send_back(stream_order *o) {
    o->is_back = true;
    send_order(o, o->from);
}

/* ---- asking ---- */

/* An integer member, taken out of the body; false when it is something else. */
static bool take_int(json_object *body, const char *name, int32_t *out, quire_error *err) {
    json_object *v;
    if (!json_object_object_get_ex(body, name, &v)) {
        return true;
    }
    int64_t value = json_object_is_type(v, json_type_int) ? json_object_get_int64(v) : -1;
    if (value < 0 || value > INT32_MAX) {
        err_set_param(err, QUIRE_BAD_REQUEST, name, "%s must be an integer of at least 0", name);
        return false;
    }
    *out = (int32_t)value;
    json_object_object_del(body, name);
    return true;
}

static quire_err take_ids(stream_order *o, json_object *v, quire_error *err) {
    o->n_ids = json_object_is_type(v, json_type_array) ? json_object_array_length(v) : 0;
    o->ids = mem_new(o->n_ids, sizeof *o->ids);
    bool valid = json_object_is_type(v, json_type_array) && o->ids != NULL;
    for (size_t i = 0; valid && i < o->n_ids; i++) {
        json_object *id = json_object_array_get_idx(v, i);
        int64_t value = json_object_is_type(id, json_type_int) ? json_object_get_int64(id) : -1;
        valid = value >= 0 && value <= INT32_MAX;
        o->ids[i] = (int32_t)value;
    }
    return valid ? QUIRE_OK : err_set_param(err, QUIRE_BAD_REQUEST, "tokens", "tokens must be an array of token ids");
}

/* What is to be put in the place of the tail: a text or ids. */
static quire_err take_tail(stream_order *o, quire_error *err) {
    json_object *text = NULL, *ids = NULL;
    json_object_object_get_ex(o->body, "text", &text);
    json_object_object_get_ex(o->body, "tokens", &ids);
    if ((text == NULL) == (ids == NULL)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "text", "give the new tail as text or as tokens, one of the two");
    }
    if (ids != NULL) {
        return take_ids(o, ids, err);
    }
    if (!json_object_is_type(text, json_type_string)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "text", "text must be a string");
    }
    o->text = json_object_get_string(text); /* lives as long as the body, which keeps it */
    o->n_text = (size_t)json_object_get_string_len(text);
    return QUIRE_OK;
}

static quire_err read_order(stream_order *o, const char *text, size_t n, quire_error *err) {
    json_tokener *t = json_tokener_new_ex(MAX_DEPTH);
    o->body = t != NULL && n <= INT32_MAX ? json_tokener_parse_ex(t, text, (int)n) : NULL;
    bool whole = o->body != NULL && json_tokener_get_parse_end(t) == n;
    json_tokener_free(t);
    if (!whole || !json_object_is_type(o->body, json_type_object)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body must be a JSON object");
    }
    o->position = QUIRE_HERE;
    if (!take_int(o->body, "index", &o->index, err) || !take_int(o->body, "position", &o->position, err)) {
        return err->code;
    }
    if (o->kind == ORDER_ROLLBACK && o->position == QUIRE_HERE) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "position", "position is missing; it counts tokens from the start of the prompt");
    }
    if (o->kind == ORDER_STEER) {
        TRY(take_tail(o, err));
    }
    json_object *fields = NULL;
    if (json_object_deep_copy(o->body, &fields, NULL) != 0) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    json_object_object_del(fields, "text");
    json_object_object_del(fields, "tokens");
    if (json_object_object_length(fields) > 0) {
        const char *written = json_object_to_json_string_ext(fields, JSON_C_TO_STRING_PLAIN);
        o->n_fields = strlen(written);
        o->fields = mem_dup(written, o->n_fields);
    }
    json_object_put(fields);
    return o->n_fields == 0 || o->fields != NULL ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
}

/* The loop that an id names, or NULL. */
static loop *loop_of(server *s, const char *id) {
    size_t n = strlen(id);
    unsigned number;
    if (n <= LOOP_CHARS || sscanf(id + n - LOOP_CHARS, "%3x", &number) != 1 || number >= (unsigned)s->n_loops) {
        return NULL;
    }
    return &s->loops[number];
}

/* Path and tenant of the request: {id}/{verb}. */
static bool read_path(const conn *c, stream_order *o) {
    static const char *const verbs[] = {[ORDER_FORK] = "fork", [ORDER_ROLLBACK] = "rollback", [ORDER_STEER] = "steer"};
    str path = {c->request.path.p, c->request.path.n};
    const char *id = path.p + sizeof prefix - 1, *end = path.p + path.n, *slash = memchr(id, '/', (size_t)(end - id));
    if (slash == NULL || (size_t)(slash - id) >= sizeof o->id) {
        return false;
    }
    memcpy(o->id, id, (size_t)(slash - id));
    for (int i = 0; i < 3; i++) {
        if (str_is((str){slash + 1, (size_t)(end - slash - 1)}, verbs[i])) {
            o->kind = (order_kind)i;
            o->to = loop_of(c->loop->server, o->id);
            o->has_tenant = c->tenant != NULL;
            snprintf(o->tenant, sizeof o->tenant, "%s", c->tenant != NULL ? c->tenant : "");
            return true;
        }
    }
    return false;
}

void streams_post(conn *c) {
    quire_error err = {0};
    stream_order *o = mem_new(1, sizeof *o);
    if (o == NULL) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    atomic_init(&o->holders, 1);
    const strbuf *body = &c->request.body;
    if (!read_path(c, o)) {
        order_drop(o);
        conn_reply_error(c, 404, NULL, "there is nothing at this path", NULL);
        return;
    }
    quire_err e = read_order(o, body->n > 0 ? body->p : "", body->n, &err);
    e = e == QUIRE_OK && o->to == NULL ? err_set(&err, QUIRE_NOT_FOUND, -1, "there is no running stream of this id") : e;
    if (e != QUIRE_OK) {
        order_drop(o);
        conn_reply_error(c, error_status(e), err.param, err.message, NULL);
        return;
    }
    o->from = c->loop;
    o->conn = c;
    c->order = o;
    atomic_store(&o->holders, 2);
    send_order(o, o->to);
}

void streams_forget(conn *c) {
    if (c->order != NULL) {
        c->order->conn = NULL;
        order_drop(c->order);
        c->order = NULL;
    }
}

/* ---- where the stream is ---- */

/* The stream of that id, if it is the tenant's. */
static answer *find(const loop *l, const stream_order *o) {
    for (const conn *c = l->conns; c != NULL; c = c->next) {
        answer *a = c->answer;
        if (a != NULL && a->started && strcmp(a->id, o->id) == 0) {
            bool same = (c->tenant != NULL) == o->has_tenant && (!o->has_tenant || strcmp(c->tenant, o->tenant) == 0);
            return same ? a : NULL;
        }
    }
    return NULL;
}

static quire_err run_fork(stream_order *o, const answer *a) {
    TRY(quire_stream_fork(a->stream, o->index, o->position, &o->fork, &o->err));
    return o->fields != NULL ? quire_request_set_all(o->fork, o->fields, o->n_fields, &o->err) : QUIRE_OK;
}

/* Does what can be done at once; a rollback or steer comes back when its event does. */
static void run_order(loop *l, stream_order *o) {
    answer *a = find(l, o);
    quire_err e;
    if (a == NULL) {
        e = err_set(&o->err, QUIRE_NOT_FOUND, -1, "there is no running stream of this id");
    } else if (o->kind == ORDER_FORK) {
        e = run_fork(o, a);
    } else if (o->kind == ORDER_ROLLBACK) {
        e = quire_stream_rollback(a->stream, o->index, o->position, o->fields, o->n_fields, &o->err);
    } else {
        quire_tail tail = {.text = o->text, .n_text = o->n_text, .ids = o->ids, .n_ids = o->n_ids};
        e = quire_stream_steer(a->stream, o->index, o->position, &tail, o->fields, o->n_fields, &o->err);
    }
    if (e == QUIRE_OK && o->kind != ORDER_FORK) {
        a->choices[o->index].order = o; /* the API takes one at a time */
    } else {
        send_back(o);
    }
}

void streams_done(answer *a, answer_choice *c, const quire_event *ev) {
    stream_order *o = c->order;
    (void)a;
    if (o == NULL) {
        return;
    }
    c->order = NULL;
    if (ev->kind == QUIRE_EVENT_REFUSED) {
        o->err = *ev->error;
    } else {
        o->position = ev->prompt_tokens + ev->n_tokens;
    }
    send_back(o);
}

void streams_end(answer *a) {
    for (int32_t i = 0; i < a->n_choices; i++) {
        stream_order *o = a->choices[i].order;
        if (o != NULL) {
            a->choices[i].order = NULL;
            err_set(&o->err, QUIRE_NOT_FOUND, -1, "the stream has ended");
            send_back(o);
        }
    }
}

/* ---- back where it was asked ---- */

static void reply_done(conn *c, const stream_order *o) {
    strbuf_clear(&c->loop->scratch);
    json_out out = {.to = &c->loop->scratch};
    json_raw(&out, "{\"id\":");
    json_string(&out, o->id);
    json_raw(&out, o->kind == ORDER_STEER ? ",\"object\":\"stream.steer\",\"index\":" : ",\"object\":\"stream.rollback\",\"index\":");
    json_int(&out, o->index);
    json_raw(&out, ",\"position\":");
    json_int(&out, o->position);
    json_raw(&out, "}");
    conn_reply(c, &(reply){.status = 200, .content_type = "application/json", .body = {c->loop->scratch.p, c->loop->scratch.n}});
}

static void answer_order(stream_order *o) {
    conn *c = o->conn;
    if (c == NULL) {
        return;
    }
    c->order = NULL;
    o->conn = NULL;
    if (o->err.code != QUIRE_OK) {
        int status = error_status(o->err.code);
        conn_reply_error(c, status, o->err.param, o->err.message, status == 429 ? "Retry-After: 1\r\n" : NULL);
    } else if (o->kind == ORDER_FORK) {
        quire_request *r = o->fork;
        o->fork = NULL;
        answer_start_request(c, r);
    } else {
        reply_done(c, o);
    }
    order_drop(o); /* the connection's hold */
}

void streams_take(loop *l) {
    stream_order *o = atomic_exchange(&l->orders, NULL);
    for (stream_order *next; o != NULL; o = next) {
        next = o->next;
        if (o->is_back) {
            answer_order(o);
            order_drop(o);
        } else {
            run_order(l, o);
        }
    }
}

void streams_shut(loop *l) {
    stream_order *o = atomic_exchange(&l->orders, NULL);
    for (stream_order *next; o != NULL; o = next) {
        next = o->next;
        order_drop(o);
    }
}
