#include "server/streams.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "json/json_out.h"
#include "server/error_body.h"

#define LOOP_BITS  12 /* of an id's number; more loops cannot be opened */
#define LOOP_CHARS 3

/* Limits of a command, which a loop's thread parses: as many ids as a long context has, in milliseconds. */
static const json_limits limits = {
    .max_depth = 64, .max_values = (size_t)1 << 18, .max_containers = (size_t)1 << 12, .max_names = (size_t)1 << 12};

static const char prefix[] = "/v1/streams/";

typedef enum order_kind { ORDER_FORK, ORDER_ROLLBACK, ORDER_STEER } order_kind;

struct stream_order {
    atomic_int holders;
    stream_order *next;   /* in a loop's mailbox */
    conn *conn;           /* the connection that sent it, or NULL when it is closed: its loop's thread only */
    loop *from, *to;
    bool is_back;         /* on the way to `from` */
    order_kind kind;
    char id[40], tenant[QUIRE_TENANT_BYTES + 1];
    bool has_tenant;
    json_value *body;     /* owns the texts below */
    int32_t index, position;
    const char *text;     /* STEER: either */
    int32_t *ids;
    size_t n_text, n_ids;
    strbuf fields;        /* the other members, as JSON; p NULL: none */
    quire_request *fork;  /* FORK: the result */
    quire_error err;
};

uint64_t streams_number(loop *l) {
    uint64_t mine = (uint64_t)(l - l->server->loops), mask = (1u << LOOP_BITS) - 1;
    return (rng_next(&l->random) & ~mask) | mine;
}

static void order_drop(stream_order *o) {
    if (atomic_fetch_sub(&o->holders, 1) == 1) {
        json_drop(o->body);
        mem_free(o->ids);
        strbuf_deinit(&o->fields);
        quire_request_free(o->fork);
        mem_free(o);
    }
}

/* Moves o to a loop's thread. */
static void send_order(stream_order *o, loop *to) {
    if (to->bell.fd < 0) { /* closed already: the server shuts down */
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

/* ---- sending an order ---- */

/* Reads an integer member; false when it is something else. */
static bool read_int(const json_value *body, const char *name, int32_t *out, quire_error *err) {
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

static quire_err take_ids(stream_order *o, const json_value *v, quire_error *err) {
    o->n_ids = json_is(v, JSON_KIND_ARRAY) ? json_length(v) : 0;
    o->ids = mem_new(o->n_ids, sizeof *o->ids);
    bool valid = json_is(v, JSON_KIND_ARRAY) && o->ids != NULL;
    for (size_t i = 0; valid && i < o->n_ids; i++) {
        const json_value *id = json_at(v, i);
        int64_t value = json_is(id, JSON_KIND_INT) ? json_int64(id) : -1;
        valid = value >= 0 && value <= INT32_MAX;
        o->ids[i] = (int32_t)value;
    }
    return valid ? QUIRE_OK : err_set_param(err, QUIRE_BAD_REQUEST, "tokens", "tokens must be an array of token ids");
}

/* Reads the replacement of the tail: a text or ids. */
static quire_err take_tail(stream_order *o, quire_error *err) {
    const json_value *text = json_get(o->body, "text"), *ids = json_get(o->body, "tokens");
    if ((text == NULL) == (ids == NULL)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "text", "give the new tail as text or as tokens, one of the two");
    }
    if (ids != NULL) {
        return take_ids(o, ids, err);
    }
    if (!json_is(text, JSON_KIND_TEXT)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "text", "text must be a string");
    }
    o->text = json_str(text).p; /* valid as long as the body, which owns it */
    o->n_text = json_str(text).n;
    return QUIRE_OK;
}

/* Writes the members that are fields of a request, as a JSON object in *out; nothing where there are none. */
static quire_err write_fields(const json_value *body, strbuf *out) {
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

/* Refuses members that only steer accepts, because they have no meaning for the other commands. */
static quire_err refuse_tail(const stream_order *o, quire_error *err) {
    const char *given = json_get(o->body, "text") != NULL ? "text" : json_get(o->body, "tokens") != NULL ? "tokens" : NULL;
    return given == NULL ? QUIRE_OK : err_set_param(err, QUIRE_BAD_REQUEST, given, "%s is given; only a steer takes a new tail", given);
}

static quire_err read_order(stream_order *o, const char *text, size_t n, quire_error *err) {
    json_fault fault;
    if (json_read((str){text, n}, &limits, JSON_WIDE_REFUSED, &o->body, &fault) != QUIRE_OK) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body is not valid JSON at byte %zu: %s", fault.at, fault.what);
    }
    if (!json_is(o->body, JSON_KIND_OBJECT)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body must be a JSON object");
    }
    o->position = QUIRE_HERE;
    if (!read_int(o->body, "index", &o->index, err) || !read_int(o->body, "position", &o->position, err)) {
        return err->code;
    }
    if (o->kind == ORDER_ROLLBACK && o->position == QUIRE_HERE) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "position", "position is missing; it counts tokens from the start of the prompt");
    }
    TRY(o->kind == ORDER_STEER ? take_tail(o, err) : refuse_tail(o, err));
    quire_err e = write_fields(o->body, &o->fields);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory");
}

/* The loop in an id, or NULL. */
static loop *loop_of(server *s, const char *id) {
    size_t n = strlen(id);
    unsigned number;
    if (n <= LOOP_CHARS || sscanf(id + n - LOOP_CHARS, "%3x", &number) != 1 || number >= (unsigned)s->n_loops) {
        return NULL;
    }
    return &s->loops[number];
}

/* Reads path and tenant of the request: {id}/{verb}. */
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
            o->has_tenant = c->has_tenant;
            snprintf(o->tenant, sizeof o->tenant, "%s", c->has_tenant ? c->tenant : "");
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
        api_error failure = error_of(&err);
        conn_reply_failure(c, &failure);
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

/* ---- on the stream's loop ---- */

/* Finds the stream of that id, if it is the tenant's. */
static response *find(const loop *l, const stream_order *o) {
    for (const conn *c = l->conns; c != NULL; c = c->next) {
        response *a = c->response;
        if (a != NULL && a->started && strcmp(a->id, o->id) == 0) {
            bool same = c->has_tenant == o->has_tenant && (!o->has_tenant || strcmp(c->tenant, o->tenant) == 0);
            return same ? a : NULL;
        }
    }
    return NULL;
}

static quire_err run_fork(stream_order *o, const response *a) {
    TRY(quire_stream_fork(a->stream, o->index, o->position, &o->fork, &o->err));
    return o->fields.n > 0 ? quire_request_set_all(o->fork, o->fields.p, o->fields.n, &o->err) : QUIRE_OK;
}

/* Runs what can be done at once; a rollback or steer returns with its event. */
static void run_order(loop *l, stream_order *o) {
    response *a = find(l, o);
    quire_err e;
    if (a == NULL) {
        e = err_set(&o->err, QUIRE_NOT_FOUND, -1, "there is no running stream of this id");
    } else if (o->kind == ORDER_FORK) {
        e = run_fork(o, a);
    } else if (conn_unsent(a->conn) >= l->server->options.max_output_bytes) {
        e = err_set(&o->err, QUIRE_BUSY, -1, "the stream's client is behind with reading; try again when it has read");
    } else if (o->kind == ORDER_ROLLBACK) {
        e = quire_stream_rollback(a->stream, o->index, o->position, o->fields.p, o->fields.n, &o->err);
    } else {
        quire_tail tail = {.text = o->text, .n_text = o->n_text, .ids = o->ids, .n_ids = o->n_ids};
        e = quire_stream_steer(a->stream, o->index, o->position, &tail, o->fields.p, o->fields.n, &o->err);
    }
    if (e == QUIRE_OK && o->kind != ORDER_FORK) {
        a->choices[o->index].order = o; /* the API takes one at a time */
    } else {
        send_back(o);
    }
}

void streams_done(response *a, response_choice *c, const quire_event *ev) {
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

void streams_end(response *a) {
    for (int32_t i = 0; i < a->n_choices; i++) {
        stream_order *o = a->choices[i].order;
        if (o != NULL) {
            a->choices[i].order = NULL;
            err_set(&o->err, QUIRE_NOT_FOUND, -1, "the stream has ended");
            send_back(o);
        }
    }
}

/* ---- back on the sender's loop ---- */

static void reply_done(conn *c, const stream_order *o) {
    strbuf_clear(&c->loop->scratch);
    json_out out = {.to = &c->loop->scratch};
    json_raw(&out, "{\"id\":");
    json_cstr(&out, o->id);
    json_raw(&out, o->kind == ORDER_STEER ? ",\"object\":\"stream.steer\",\"index\":" : ",\"object\":\"stream.rollback\",\"index\":");
    json_int(&out, o->index);
    json_raw(&out, ",\"position\":");
    json_int(&out, o->position);
    json_raw(&out, "}");
    conn_reply(c, &(reply){.status = 200, .content_type = "application/json", .body = {c->loop->scratch.p, c->loop->scratch.n}});
}

static void response_order(stream_order *o) {
    conn *c = o->conn;
    if (c == NULL) {
        return;
    }
    c->order = NULL;
    o->conn = NULL;
    if (o->err.code != QUIRE_OK) {
        api_error failure = error_of(&o->err);
        conn_reply_failure(c, &failure);
    } else if (o->kind == ORDER_FORK) {
        quire_request *r = o->fork;
        o->fork = NULL;
        response_start_request(c, r);
    } else {
        reply_done(c, o);
    }
    order_drop(o); /* the connection's reference */
}

void streams_take(loop *l) {
    stream_order *o = atomic_exchange(&l->orders, NULL);
    for (stream_order *next; o != NULL; o = next) {
        next = o->next;
        if (o->is_back) {
            response_order(o);
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
