#include "server/routes.h"

#include <strings.h>

#include "server/answer.h"
#include "server/error_body.h"
#include "server/metrics.h"

typedef struct route {
    const char *path;
    const char *allow; /* the methods, as the Allow header lists them */
    void (*run)(conn *c);
    bool is_prefix;    /* the path goes on with a parameter */
    bool takes_json;
} route;

static const char models_prefix[] = "/v1/models/";

static void reply_json(conn *c, const json_out *o) {
    if (o->err != QUIRE_OK) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    conn_reply(c, &(reply){.status = 200, .content_type = "application/json", .body = {o->to->p, o->to->n}});
}

static json_out begin_json(const conn *c) {
    strbuf_clear(&c->loop->scratch);
    return (json_out){.to = &c->loop->scratch};
}

static void get_health(conn *c) {
    if (quire_engine_healthy(c->loop->server->engine)) {
        conn_reply(c, &(reply){.status = 200});
    } else {
        conn_reply_error(c, 503, NULL, "the engine has stopped because of a failure; restart the server", NULL);
    }
}

static void get_version(conn *c) {
    json_out o = begin_json(c);
    json_raw(&o, "{\"version\":\"" QUIRE_VERSION "\"}");
    reply_json(c, &o);
}

static void get_metrics(conn *c) {
    strbuf *out = &c->loop->scratch;
    strbuf_clear(out);
    if (metrics_write(c->loop->server, out) != QUIRE_OK) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    conn_reply(c, &(reply){.status = 200, .content_type = "text/plain; version=0.0.4; charset=utf-8", .body = {out->p, out->n}});
}

static void write_model(const server *s, json_out *o) {
    json_raw(o, "{\"id\":");
    json_string(o, s->model_name);
    json_raw(o, ",\"object\":\"model\",\"created\":");
    json_int(o, s->started_s);
    json_raw(o, ",\"owned_by\":\"quire\",\"root\":");
    json_string(o, s->model_name);
    json_raw(o, ",\"parent\":null,\"max_model_len\":");
    json_int(o, quire_engine_info(s->engine)->max_model_len);
    json_raw(o, "}");
}

static void list_models(conn *c) {
    json_out o = begin_json(c);
    json_raw(&o, "{\"object\":\"list\",\"data\":[");
    write_model(c->loop->server, &o);
    json_raw(&o, "]}");
    reply_json(c, &o);
}

static void get_model(conn *c) {
    const server *s = c->loop->server;
    str path = {c->request.path.p, c->request.path.n};
    str name = {path.p + sizeof(models_prefix) - 1, path.n - (sizeof(models_prefix) - 1)};
    if (!str_is(name, s->model_name)) {
        quire_error err;
        err_set(&err, QUIRE_NOT_FOUND, -1, "The model `%.*s` does not exist; this server has `%.200s`.", (int)(name.n < 200 ? name.n : 200), name.p,
                s->model_name);
        conn_reply_error(c, 404, "model", err.message, NULL);
        return;
    }
    json_out o = begin_json(c);
    write_model(s, &o);
    reply_json(c, &o);
}

static void post_completions(conn *c) {
    answer_start(c, QUIRE_COMPLETIONS);
}

static void post_chat(conn *c) {
    answer_start(c, QUIRE_CHAT);
}

#define READ "GET, HEAD"

static const route routes[] = {
    {.path = "/health", .allow = READ, .run = get_health},
    {.path = "/ping", .allow = READ ", POST", .run = get_health},
    {.path = "/version", .allow = READ, .run = get_version},
    {.path = "/metrics", .allow = READ, .run = get_metrics},
    {.path = "/v1/models", .allow = READ, .run = list_models},
    {.path = models_prefix, .allow = READ, .run = get_model, .is_prefix = true},
    {.path = "/v1/completions", .allow = "POST", .run = post_completions, .takes_json = true},
    {.path = "/v1/chat/completions", .allow = "POST", .run = post_chat, .takes_json = true},
};

static const route *find(str path) {
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        size_t n = strlen(routes[i].path);
        bool fits = routes[i].is_prefix ? path.n > n && memcmp(path.p, routes[i].path, n) == 0 : str_is(path, routes[i].path);
        if (fits) {
            return &routes[i];
        }
    }
    return NULL;
}

static bool allows(const route *r, enum http_method method) {
    const char *name = http_method_str(method);
    size_t n = strlen(name);
    for (const char *p = r->allow; (p = strstr(p, name)) != NULL; p += n) {
        if ((p == r->allow || p[-1] == ' ') && (p[n] == ',' || p[n] == '\0')) {
            return true;
        }
    }
    return false;
}

static void refuse(conn *c, int status, const char *message, const char *headers) {
    c->refusal = status;
    c->refusal_text = message;
    c->refusal_headers = headers;
}

/* The media type alone, without parameters such as charset. */
static bool is_json(str type) {
    static const char json[] = "application/json";
    size_t n = 0;
    while (n < type.n && type.p[n] != ';' && type.p[n] != ' ') {
        n++;
    }
    return n == sizeof(json) - 1 && strncasecmp(type.p, json, n) == 0;
}

static bool needs_key(str path) {
    return path.n >= 4 && memcmp(path.p, "/v1/", 4) == 0;
}

void routes_check(conn *c) {
    const http_request *r = &c->request;
    str path = {r->path.p, r->path.n};
    if (r->method == HTTP_OPTIONS) {
        return;
    }
    const auth *keys = c->loop->server->keys;
    if (needs_key(path) && auth_required(keys)) {
        c->tenant = auth_check(keys, (str){r->authorization.p, r->authorization.n});
        if (c->tenant == NULL) {
            refuse(c, 401, "missing or wrong API key; send it as \"Authorization: Bearer KEY\"", "WWW-Authenticate: Bearer\r\n");
            return;
        }
    }
    const route *to = find(path);
    if (to == NULL) {
        refuse(c, 404, "there is nothing at this path", NULL);
    } else if (!allows(to, r->method)) {
        bool post_only = strcmp(to->allow, "POST") == 0;
        refuse(c, 405, post_only ? "this path takes POST" : "this path takes GET", post_only ? "Allow: POST\r\n" : "Allow: " READ "\r\n");
    } else if (to->takes_json && !is_json((str){r->content_type.p, r->content_type.n})) {
        refuse(c, 400, "the body must be sent as content-type application/json", NULL);
    }
}

/* What a browser asks before it lets a page from elsewhere post here. */
static void answer_options(conn *c) {
    conn_reply(c, &(reply){.status = 204,
                           .headers = "Allow: GET, HEAD, POST, OPTIONS\r\n"
                                      "Access-Control-Allow-Methods: GET, HEAD, POST, OPTIONS\r\n"
                                      "Access-Control-Allow-Headers: Authorization, Content-Type\r\n"
                                      "Access-Control-Max-Age: 600\r\n"});
}

void routes_run(conn *c) {
    if (c->request.method == HTTP_OPTIONS) {
        answer_options(c);
        return;
    }
    find((str){c->request.path.p, c->request.path.n})->run(c);
}
