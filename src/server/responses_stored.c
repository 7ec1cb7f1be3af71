/* Stored responses: fetches, deletes and cancels them, and lists their input items. */
#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "server/response.h"
#include "server/response_store.h"
#include "server/routes.h"
#include "json/json_scan.h"

#define MAX_ITEMS     100 /* most items of one list */
#define DEFAULT_ITEMS 20

static const char *responses_tenant(const conn *c) {
    return c->has_tenant ? c->tenant : "";
}

static void responses_fail(conn *c, quire_err e, str id) {
    quire_error err = {0};
    if (e == QUIRE_NOT_FOUND) {
        err_set(&err, e, -1, "there is no response %.*s", (int)(id.n < 80 ? id.n : 80), id.p);
    } else {
        err_set(&err, e, -1, "out of memory");
    }
    conn_reply_failure(c, error_of(&err));
}

quire_err responses_find_history(void *user, const char *tenant, const char *id, char **lines, size_t *n) {
    const server *s = user;
    strbuf out = {0};
    quire_err e = response_store_history(s->responses, tenant, str_of(id), clock_us(), &out);
    if (e == QUIRE_OK) {
        *lines = out.p;
        *n = out.n;
    }
    return e;
}

/* ---- fetching and deleting ---- */

static void responses_get(conn *c, str id) {
    str query = http_query(&c->request), name, value;
    while (http_query_next(&query, &name, &value)) {
        /* a client that streams would find no events */
        if (http_query_is(name, "stream") && !http_query_is(value, "false")) {
            conn_reply_error(c, 400, "stream", "stored responses cannot be streamed; leave stream out", NULL);
            return;
        }
    }
    json_out o = conn_begin_json(c);
    quire_err e =
        response_store_object(c->loop->server->responses, responses_tenant(c), id, clock_us(), o.to);
    if (e != QUIRE_OK) {
        responses_fail(c, e, id);
        return;
    }
    conn_reply_json(c, &o, NULL);
}

static void responses_delete(conn *c, str id) {
    server *s = c->loop->server;
    if (!response_store_delete(s->responses, responses_tenant(c), id, clock_us())) {
        responses_fail(c, QUIRE_NOT_FOUND, id);
        return;
    }
    loop_wake_all(s); /* a loop may have to cancel it */
    json_out o = conn_begin_json(c);
    json_begin(&o, '{');
    json_text(json_name(&o, "id"), id.p, id.n);
    json_cstr(json_name(&o, "object"), "response");
    json_bool(json_name(&o, "deleted"), true);
    json_end(&o, '}');
    conn_reply_json(c, &o, NULL);
}

/* ---- cancelling ---- */

static bool responses_is_wanted(const response *a) {
    return response_store_in_progress(a->loop->server->responses, a->tenant, str_of(a->id), clock_us());
}

void responses_drop_unwanted(loop *l) {
    response_drop_detached(l, responses_is_wanted);
}

/* Appends an object with the first member "status" replaced. */
static quire_err responses_set_status(str object, const char *status, strbuf *out) {
    str span;
    TRY(json_scan_member(object, "status", &span));
    size_t begin = (size_t)(span.p - object.p), end = begin + span.n;
    TRY(strbuf_add(out, object.p, begin));
    TRY(strbuf_addf(out, "\"%s\"", status));
    return strbuf_add(out, object.p + end, object.n - end);
}

/* Ends a response in progress as cancelled, and writes its object to *out.
 * QUIRE_NOT_FOUND: it has ended. */
static quire_err responses_cancel_stored(server *s, const char *tenant, str id, const strbuf *object,
                                         strbuf *out) {
    TRY(responses_set_status((str){object->p, object->n}, "cancelled", out));
    return response_store_end(s->responses, tenant, id, (str){out->p, out->n}, clock_us());
}

static void responses_cancel(conn *c, str id) {
    server *s = c->loop->server;
    const char *tenant = responses_tenant(c);
    strbuf object = {0};
    str background = {0};
    json_out o = conn_begin_json(c);
    quire_err e = response_store_object(s->responses, tenant, id, clock_us(), &object);
    bool is_found = e == QUIRE_OK;
    if (is_found && (json_scan_member((str){object.p, object.n}, "background", &background) != QUIRE_OK ||
                     !str_is(background, "true"))) {
        strbuf_deinit(&object);
        conn_reply_error(c, 400, NULL,
                         "only background responses can be cancelled; close the connection to end another",
                         NULL);
        return;
    }
    e = is_found ? responses_cancel_stored(s, tenant, id, &object, o.to) : e;
    if (is_found && e == QUIRE_NOT_FOUND) { /* it had ended already, so it is returned unchanged */
        strbuf_clear(o.to);
        e = response_store_object(s->responses, tenant, id, clock_us(), o.to);
    }
    strbuf_deinit(&object);
    if (e != QUIRE_OK) {
        responses_fail(c, e, id);
        return;
    }
    loop_wake_all(s);
    conn_reply_json(c, &o, NULL);
}

/* ---- lists of input items ---- */

/* The page of a list, as a query requests it. */
typedef struct items_page {
    bool is_ascending;
    int32_t limit;
    str after; /* the page begins after this id; p NULL: at the start of the list */
} items_page;

static quire_err responses_bad_query(quire_error *err, const char *name, const char *what) {
    return err_set_param(err, QUIRE_BAD_REQUEST, name, "%s must be %s", name, what);
}

static quire_err responses_read_limit(str value, int32_t *out, quire_error *err) {
    int32_t n = 0;
    for (size_t i = 0; i < value.n && n <= MAX_ITEMS; i++) {
        n = value.p[i] >= '0' && value.p[i] <= '9' ? 10 * n + (value.p[i] - '0') : MAX_ITEMS + 1;
    }
    *out = n;
    return n >= 1 && n <= MAX_ITEMS ? QUIRE_OK : responses_bad_query(err, "limit", "from 1 to 100");
}

/* Reads the page that a query requests; unknown names are ignored. */
static quire_err responses_read_page(str query, items_page *out, quire_error *err) {
    str name, value;
    *out = (items_page){.limit = DEFAULT_ITEMS};
    while (http_query_next(&query, &name, &value)) {
        if (http_query_is(name, "order") && !http_query_is(value, "asc") && !http_query_is(value, "desc")) {
            return responses_bad_query(err, "order", "asc or desc");
        }
        out->is_ascending = http_query_is(name, "order") ? http_query_is(value, "asc") : out->is_ascending;
        if (http_query_is(name, "limit")) {
            TRY(responses_read_limit(value, &out->limit, err));
        }
        out->after = http_query_is(name, "after") ? value : out->after;
    }
    return QUIRE_OK;
}

/* Takes the next line from the beginning or the end of *left. False: no line is left. */
static bool responses_next_line(str *left, bool is_ascending, str *line) {
    if (left->n == 0) {
        return false;
    }
    size_t n = 0;
    if (is_ascending) {
        const char *end = memchr(left->p, '\n', left->n);
        n = end != NULL ? (size_t)(end - left->p) : left->n;
        *line = (str){left->p, n};
        n += end != NULL;
        *left = (str){left->p + n, left->n - n};
    } else {
        while (n < left->n && left->p[left->n - 1 - n] != '\n') {
            n++;
        }
        *line = (str){left->p + left->n - n, n};
        left->n -= n < left->n ? n + 1 : n;
    }
    return true;
}

/* The id at the beginning of a line, as JSON text. */
static str responses_line_id(str line) {
    static const char begin[] = "{\"id\":\"";
    size_t n = sizeof begin - 1;
    assert(str_begins(line, begin));
    while (n < line.n && line.p[n] != '"') {
        n += line.p[n] == '\\' ? 2 : 1;
    }
    return (str){line.p + sizeof begin - 1, n - (sizeof begin - 1)};
}

static void responses_write_line_id(const char *name, str id, json_out *o) {
    json_raw(json_name(o, name), id.p != NULL ? "\"" : "null");
    json_raw_part(o, (str){id.p, id.n});
    json_raw(o, id.p != NULL ? "\"" : "");
}

static quire_err responses_write_page(str left, const items_page *page, json_out *o, quire_error *err) {
    str line, first = {0}, last = {0};
    bool is_past = page->after.p == NULL;
    while (!is_past && responses_next_line(&left, page->is_ascending, &line)) {
        is_past = str_eq(responses_line_id(line), page->after);
    }
    if (!is_past) {
        return responses_bad_query(err, "after", "the id of an item of this list");
    }
    json_raw(o, "{\"object\":\"list\",\"data\":[");
    for (int32_t i = 0; i < page->limit && responses_next_line(&left, page->is_ascending, &line); i++) {
        last = responses_line_id(line);
        first = first.p == NULL ? last : first;
        json_raw_part(json_item(o), line);
    }
    json_end(o, ']');
    responses_write_line_id("first_id", first, o);
    responses_write_line_id("last_id", last, o);
    json_bool(json_name(o, "has_more"), left.n > 0);
    json_end(o, '}');
    return QUIRE_OK;
}

static void responses_list_input(conn *c, str id) {
    strbuf lines = {0};
    items_page page;
    quire_error err = {0};
    json_out o = conn_begin_json(c);
    quire_err e =
        response_store_input(c->loop->server->responses, responses_tenant(c), id, clock_us(), &lines);
    if (e != QUIRE_OK) {
        responses_fail(c, e, id);
        return;
    }
    e = responses_read_page(http_query(&c->request), &page, &err);
    str left = {lines.n > 0 ? lines.p : "", lines.n};
    if (e == QUIRE_OK && (e = responses_write_page(left, &page, &o, &err)) == QUIRE_OK) {
        conn_reply_json(c, &o, NULL);
    } else {
        conn_reply_failure(c, error_of(&err));
    }
    strbuf_deinit(&lines);
}

/* ---- paths below /v1/responses/ ---- */

/* The paths below /v1/responses/ID. */
typedef struct responses_path {
    const char *below, *allow;
    void (*get)(conn *c, str id), (*post)(conn *c, str id), (*remove)(conn *c, str id);
} responses_path;

static const responses_path responses_paths[] = {
    {"", "GET, HEAD, DELETE", responses_get, NULL, responses_delete},
    {"/cancel", "POST", NULL, responses_cancel, NULL},
    {"/input_items", "GET, HEAD", responses_list_input, NULL, NULL},
};

/* Splits what follows /v1/responses/ into the id and the path below it. NULL: no such
 * path, or one of OpenAI's without an id. */
static const responses_path *responses_path_of(str parameter, str *id) {
    if (str_is(parameter, "input_tokens") || str_is(parameter, "compact")) {
        return NULL;
    }
    const char *slash = memchr(parameter.p, '/', parameter.n);
    *id = (str){parameter.p, slash != NULL ? (size_t)(slash - parameter.p) : parameter.n};
    str below = {id->p + id->n, parameter.n - id->n};
    for (size_t i = 0; i < sizeof responses_paths / sizeof *responses_paths; i++) {
        if (str_is(below, responses_paths[i].below)) {
            return &responses_paths[i];
        }
    }
    return NULL;
}

const char *responses_allow(str parameter) {
    str id;
    const responses_path *p = responses_path_of(parameter, &id);
    return p != NULL ? p->allow : NULL;
}

void responses_one(conn *c) {
    str id;
    const responses_path *p = responses_path_of(c->parameter, &id);
    enum http_method method = c->request.method;
    if (p == NULL) {
        conn_reply_error(c, 404, NULL,
                         "there is no such path; /v1/responses/ID has only cancel and input_items; "
                         "/v1/messages/count_tokens and /tokenize count tokens",
                         NULL);
        return;
    }
    (method == HTTP_POST ? p->post : method == HTTP_DELETE ? p->remove : p->get)(c, id);
}
