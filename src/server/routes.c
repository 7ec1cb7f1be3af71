#include "server/routes.h"

#include <assert.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "server/body_jobs.h"
#include "server/conn_model.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/response.h"
#include "server/sandbox.h"
#include "server/watch.h"
#include "server/web_pages.h"

typedef struct route {
    const char *path;
    const char *allow; /* the methods, as the Allow header lists them */
    /* returns the methods of a path with this parameter, NULL: no such path; the member
     * NULL: all paths have `allow` */
    const char *(*allow_below)(str parameter);
    void (*run)(conn *c);
    bool is_prefix; /* the path is followed by a parameter */
    bool takes_json;
    bool takes_any_type; /* the body is read as JSON, whatever type the client (unless a browser) declares */
    bool needs_key;      /* needs a key, like all paths below /v1/, /api/, /debug/ and /pool/ */
    bool is_operators;   /* needs the operator's key */
    bool is_probe;       /* a monitoring probe, logged at level debug */
    /* starts a look at a long body's beginning (conn.look); NULL: no looks */
    bool (*look)(conn *c);
    size_t max_body_bytes;   /* largest body of a request in bytes; 0: the server's limit */
    quire_endpoint endpoint; /* the endpoint, if the route generates */
    error_writer error;      /* writer of errors; NULL: the endpoint's dialect's, or OpenAI's */
} route;

/* Whether the engines of all loaded models work. */
static bool route_is_healthy(const server *s) {
    bool is_healthy = true;
    for (int32_t i = 0; i < models_count(s->models) && is_healthy; i++) {
        served_model *m = models_at(s->models, i);
        if (models_visit(s->models, m)) {
            is_healthy = quire_engine_healthy(m->engine);
            models_end_visit(s->models, m);
        }
    }
    return is_healthy;
}

static void route_health(conn *c) {
    if (route_is_healthy(c->loop->server)) {
        conn_reply(c, &(reply){.status = 200});
    } else {
        conn_reply_error(c, 503, NULL, "the engine has stopped because of a failure; restart the server",
                         NULL);
    }
}

/* GET /ready: whether a load balancer should send requests here. */
static void route_ready(conn *c) {
    const server *s = c->loop->server;
    if (!route_is_healthy(s)) {
        route_health(c);
    } else if (models_sleeping(s->models) != SLEEP_NONE) {
        c->record.is_expected = true;
        conn_refuse_asleep(c);
    } else if (atomic_load(&s->is_leaving) || c->loop->stops_seen > 0) {
        c->record.is_expected = true;
        conn_reply_error(c, 503, NULL, CONN_SHUTTING_DOWN, NULL);
    } else {
        conn_reply(c, &(reply){.status = 200});
    }
}

static void route_version(conn *c) {
    json_out o = conn_begin_json(c);
    json_raw(&o, "{\"version\":\"" QUIRE_VERSION "\"}");
    conn_reply_json(c, &o, NULL);
}

/* GET /load, vLLM's: the number of requests in progress, without this one. */
static void route_load(conn *c) {
    const server *s = c->loop->server;
    int64_t n = -1;
    for (int32_t i = 0; i < s->n_loops; i++) {
        n += atomic_load(&s->loops[i].n_busy);
    }
    json_out o = conn_begin_json(c);
    json_begin(&o, '{');
    json_int(json_name(&o, "server_load"), n > 0 ? n : 0);
    json_end(&o, '}');
    conn_reply_json(c, &o, NULL);
}

static void route_metrics(conn *c) {
    strbuf *out = &c->loop->scratch;
    strbuf_clear(out);
    if (metrics_write(c->loop->server, c->is_operator, out) != QUIRE_OK) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    conn_reply(c, &(reply){.status = 200,
                           .content_type = "text/plain; version=0.0.4; charset=utf-8",
                           .body = {out->p, out->n}});
}

/* ---- state of the page pool ---- */

static void route_pool(conn *c) {
    if (c->request.method == HTTP_HEAD) {
        conn_reply(c, &(reply){.status = 200,
                               .content_type = "text/event-stream; charset=utf-8",
                               .headers = "Cache-Control: no-store\r\n"});
    } else {
        watch_stream(c);
    }
}

static void route_pool_page_text(conn *c) {
    str number = c->parameter;
    int64_t page = 0;
    for (size_t i = 0; i < number.n && page >= 0; i++) {
        bool digit = number.p[i] >= '0' && number.p[i] <= '9';
        page = digit && i < 9 ? page * 10 + (number.p[i] - '0') : -1;
    }
    int32_t n_pages = quire_engine_info(c->loop->server->engine)->n_pages;
    if (page < 0 || page >= n_pages || page >= QUIRE_POOL_VIEW_PAGES) {
        conn_reply_error(c, 404, NULL, "there is no such page", NULL);
    } else if (!c->is_operator) {
        conn_reply_error(c, 403, NULL, "the content of pages is only for the operator (--operator-key)",
                         NULL);
    } else {
        watch_page(c, (int32_t)page);
    }
}

static void route_reply_page(conn *c, web_page page, const strbuf *headers) {
    conn_reply(c, &(reply){.status = 200,
                           .content_type = "text/html; charset=utf-8",
                           .headers = headers->p,
                           .body = page_body(page)});
}

static void route_pool_page(conn *c) {
    route_reply_page(c, PAGE_POOL, &c->loop->server->pool_headers);
}

static void route_home(conn *c) {
    const server *s = c->loop->server;
    if (c->request.wants_json) {
        json_out o = conn_begin_json(c);
        home_write_json(s, (str){c->request.host.p, c->request.host.n}, routes_path, &o);
        conn_reply_json(c, &o, HOME_VARY);
    } else {
        route_reply_page(c, PAGE_HOME, &s->home_headers);
    }
}

/* GET /favicon.ico, which browsers request with each page: no icon, and no error. */
static void route_icon(conn *c) {
    conn_reply(c, &(reply){.status = 204});
}

static void route_sandbox(conn *c) {
    quire_error err = {0};
    json_out o = conn_begin_json(c);
    const strbuf *body = &c->request.body;
    quire_err e = sandboxes_run(c->loop->server->sandboxes, (str){body->n > 0 ? body->p : "", body->n},
                                clock_us(), o.to, &err);
    if (e != QUIRE_OK) {
        conn_reply_error(c, e == QUIRE_NO_ROOM ? 409 : error_status(e), err.param, err.message, NULL);
        return;
    }
    conn_reply_json(c, &o, "Cache-Control: no-store\r\n");
}

/* Drops the cached prefixes of a tenant, or of all (NULL), in every loaded model. */
static quire_err route_drop_cache(const server *s, const char *tenant) {
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < models_count(s->models); i++) {
        served_model *m = models_at(s->models, i);
        if (models_visit(s->models, m)) {
            if (tenant == NULL) {
                quire_engine_drop_cache(m->engine);
            } else if (quire_engine_drop_tenant(m->engine, tenant) != QUIRE_OK) {
                e = QUIRE_NO_MEMORY;
            }
            models_end_visit(s->models, m);
        }
    }
    return e;
}

/* POST /reset_prefix_cache, with vLLM's response. */
static void route_reset(conn *c) {
    if (c->is_operator) {
        (void)route_drop_cache(c->loop->server, NULL);
        conn_reply(c, &(reply){.status = 200});
    } else {
        conn_reply_error(c, 403, NULL, "only the operator may drop the prefix cache (--operator-key)", NULL);
    }
}

/* /flush_cache, as in SGLang: the operator drops all prefixes, a tenant its own. */
static void route_flush(conn *c) {
    if (c->is_operator || !c->has_tenant) {
        route_reset(c);
    } else if (route_drop_cache(c->loop->server, c->tenant) != QUIRE_OK) {
        conn_reply_error(c, 503, NULL, "out of memory", NULL);
    } else {
        conn_reply(c, &(reply){.status = 200});
    }
}

static void route_openapi(conn *c);

#define READ             "GET, HEAD"
#define OPERATORS        .is_operators = true, .max_body_bytes = 65536
#define JSON_POST        .allow = "POST", .takes_json = true, .needs_key = true
#define GENERATION(of)   JSON_POST, .run = body_parse, .look = body_look, .endpoint = of
#define ANY_TYPE         .takes_any_type = true /* for curl commands as in the docs of Ollama and llama.cpp */
#define OLLAMA_POST      JSON_POST, ANY_TYPE, .error = ollama_error
#define OLLAMA(of)       OLLAMA_POST, .run = ollama_post, .look = body_look, .endpoint = of
#define CHECK_BODY_BYTES ((size_t)4 << 20) /* a schema has at most 1 MiB */

static const route route_table[] = {
    {.path = "/", .allow = READ, .run = route_home},
    {.path = "/health", .allow = READ, .run = route_health, .is_probe = true},
    {.path = "/ready", .allow = READ, .run = route_ready, .is_probe = true},
    {.path = "/ping", .allow = READ ", POST", .run = route_health, .is_probe = true},
    {.path = "/version", .allow = READ, .run = route_version},
    {.path = "/load", .allow = READ, .run = route_load, .is_probe = true},
    {.path = "/openapi.json", .allow = READ, .run = route_openapi},
    {.path = "/metrics", .allow = READ, .run = route_metrics, .is_probe = true},
    {.path = "/favicon.ico", .allow = READ, .run = route_icon, .is_probe = true},
    {.path = "/pool", .allow = READ, .run = route_pool_page},
    {.path = "/pool/sandbox", JSON_POST, .run = route_sandbox, .max_body_bytes = SANDBOX_BODY_BYTES},
    {.path = "/reset_prefix_cache", .allow = "POST", .run = route_reset},
    {.path = "/debug/pool", .allow = READ, .run = route_pool},
    {.path = "/debug/pool/state", .allow = READ, .run = watch_state},
    {.path = "/debug/requests", .allow = READ, .run = requests_list},
    {.path = "/debug/requests/", .allow = "DELETE", .run = requests_cancel, .is_prefix = true},
    {.path = "/debug/pool/pages/", .allow = READ, .run = route_pool_page_text, .is_prefix = true},
    {.path = "/v1/models", .allow = READ, .run = models_list},
    {.path = "/v1/models/", .allow = READ, .run = models_one, .is_prefix = true},
    {.path = "/models", .allow = READ, .run = models_list, .needs_key = true},
    {.path = "/models/load", JSON_POST, ANY_TYPE, .run = models_post_load, OPERATORS},
    {.path = "/models/unload", JSON_POST, ANY_TYPE, .run = models_post_unload, OPERATORS},
    {.path = "/sleep", .allow = "POST", .run = models_post_sleep},
    {.path = "/wake_up", .allow = "POST", .run = models_post_wake_up},
    {.path = "/is_sleeping", .allow = READ, .run = models_get_sleeping},
    {.path = "/v1/completions", GENERATION(QUIRE_COMPLETIONS)},
    {.path = "/v1/streams/", JSON_POST, .run = streams_post, .is_prefix = true},
    {.path = "/v1/chat/completions", GENERATION(QUIRE_CHAT)},
    {.path = "/api/chat", OLLAMA(QUIRE_OLLAMA_CHAT)},
    {.path = "/api/generate", OLLAMA(QUIRE_OLLAMA_GENERATE)},
    {.path = "/api/embed", OLLAMA(QUIRE_OLLAMA_EMBED)},
    {.path = "/api/embeddings", OLLAMA(QUIRE_OLLAMA_EMBEDDINGS)},
    {.path = "/api/tags", .allow = READ, .run = ollama_tags, .error = ollama_error},
    {.path = "/api/ps", .allow = READ, .run = ollama_ps, .error = ollama_error},
    {.path = "/api/version", .allow = READ, .run = ollama_version, .error = ollama_error},
    {.path = "/api/show", OLLAMA_POST, .run = ollama_show, .max_body_bytes = 65536},
    {.path = "/v1/messages", GENERATION(QUIRE_MESSAGES)},
    {.path = "/v1/messages/count_tokens", JSON_POST, .run = body_count, .error = messages_error_body},
    {.path = "/v1/responses", GENERATION(QUIRE_RESPONSES)},
    {.path = "/v1/responses/",
     .allow = READ ", POST, DELETE",
     .allow_below = responses_allow,
     .run = responses_one,
     .is_prefix = true},
    {.path = "/v1/chat/completions/batch", GENERATION(QUIRE_CHAT_BATCH)},
    {.path = "/v1/completions/render", GENERATION(QUIRE_COMPLETIONS_RENDER)},
    {.path = "/v1/chat/completions/render", GENERATION(QUIRE_CHAT_RENDER)},
    {.path = "/v1/embeddings", GENERATION(QUIRE_EMBEDDINGS)},
    {.path = "/embeddings", ANY_TYPE, GENERATION(QUIRE_EMBEDDING)},
    {.path = "/embedding", ANY_TYPE, GENERATION(QUIRE_EMBEDDING)},
    {.path = "/pooling", GENERATION(QUIRE_POOLING)},
    {.path = "/v1/score", GENERATION(QUIRE_SCORE)},
    {.path = "/score", GENERATION(QUIRE_SCORE)},
    {.path = "/v1/rerank", GENERATION(QUIRE_RERANK)},
    {.path = "/v2/rerank", GENERATION(QUIRE_RERANK)},
    {.path = "/rerank", GENERATION(QUIRE_RERANK)},
    {.path = "/v1/reranking", GENERATION(QUIRE_RERANKING)},
    {.path = "/reranking", ANY_TYPE, GENERATION(QUIRE_RERANKING)},
    {.path = "/tokenize", ANY_TYPE, GENERATION(QUIRE_TOKENIZE)},
    {.path = "/detokenize", ANY_TYPE, GENERATION(QUIRE_DETOKENIZE)},
    {.path = "/apply-template", ANY_TYPE, GENERATION(QUIRE_APPLY_TEMPLATE)},
    {.path = "/completion", ANY_TYPE, GENERATION(QUIRE_LLAMA_COMPLETION)},
    {.path = "/completions", ANY_TYPE, GENERATION(QUIRE_LLAMA_COMPLETION)},
    {.path = "/infill", ANY_TYPE, GENERATION(QUIRE_LLAMA_INFILL)},
    {.path = "/props", .allow = READ, .run = llama_props, .needs_key = true, .error = llama_error},
    {.path = "/generate", ANY_TYPE, GENERATION(QUIRE_SGLANG_GENERATE)},
    {.path = "/encode", ANY_TYPE, GENERATION(QUIRE_SGLANG_ENCODE)},
    {.path = "/get_model_info", .allow = READ, .run = sglang_model_info, .needs_key = true},
    {.path = "/model_info", .allow = READ, .run = sglang_model_info, .needs_key = true},
    {.path = "/get_server_info", .allow = READ, .run = sglang_server_info, .needs_key = true},
    {.path = "/server_info", .allow = READ, .run = sglang_server_info, .needs_key = true},
    {.path = "/health_generate", .allow = READ, .run = sglang_health, .needs_key = true},
    {.path = "/abort_request", JSON_POST, ANY_TYPE, .run = sglang_abort, .max_body_bytes = 65536},
    {.path = "/flush_cache",
     .allow = "GET, POST",
     .run = route_flush,
     .needs_key = true,
     .is_operators = true},
    {.path = "/v1/schemas/check", JSON_POST, .run = body_check, .max_body_bytes = CHECK_BODY_BYTES},
    {.path = "/v1/programs", JSON_POST, .run = program_api_post, .max_body_bytes = PROGRAM_BODY_BYTES},
    {.path = "/v1/programs/", .allow = "POST, DELETE", .run = program_api_cancel, .is_prefix = true},
    {.path = "/v1/load_lora_adapter", JSON_POST, .run = adapter_api_load, OPERATORS},
    {.path = "/v1/unload_lora_adapter", JSON_POST, .run = adapter_api_unload, OPERATORS},
    {.path = "/lora-adapters",
     .allow = READ ", POST",
     .run = adapter_api_scales,
     .takes_any_type = true,
     .needs_key = true,
     OPERATORS,
     .error = llama_error},
};

static const route *route_find(str path) {
    for (size_t i = 0; i < sizeof(route_table) / sizeof(route_table[0]); i++) {
        bool fits = str_is(path, route_table[i].path);
        fits = route_table[i].is_prefix ? !fits && str_begins(path, route_table[i].path) : fits;
        if (fits) {
            return &route_table[i];
        }
    }
    return NULL;
}

const char *routes_path(size_t i) {
    return i < sizeof(route_table) / sizeof(route_table[0]) ? route_table[i].path : NULL;
}

/* The parameter: what follows the route's own path. */
static str route_parameter(const route *r, str path) {
    size_t n = strlen(r->path);
    return (str){path.p + n, path.n - n};
}

/* The methods of a path of the route. An invalid path has all of them, so that the
 * handler can refuse it. */
static const char *route_methods(const route *r, str path) {
    const char *own = r->allow_below != NULL ? r->allow_below(route_parameter(r, path)) : NULL;
    return own != NULL ? own : r->allow;
}

static bool route_allows(const char *methods, enum http_method method) {
    const char *name = http_method_str(method);
    size_t n = strlen(name);
    for (const char *p = methods; (p = strstr(p, name)) != NULL; p += n) {
        if ((p == methods || p[-1] == ' ') && (p[n] == ',' || p[n] == '\0')) {
            return true;
        }
    }
    return false;
}

static void route_refuse(conn *c, int status, const char *message, const char *headers) {
    assert(status >= 400 && c->refusal == 0);
    c->refusal = status;
    c->refusal_text = message;
    c->refusal_headers = headers;
}

/* Whether a media type is JSON, with any parameters. */
static bool route_is_json(str type) {
    static const char json[] = "application/json";
    size_t n = 0;
    while (n < type.n && type.p[n] != ';' && type.p[n] != ' ') {
        n++;
    }
    return n == sizeof(json) - 1 && strncasecmp(type.p, json, n) == 0;
}

/* Whether the route takes the body's type. Another site's page can send a form, whose
 * type is not JSON, without a preflight request; the browser then reports its origin. */
static bool route_takes_type(const conn *c, const route *to) {
    const http_request *r = &c->request;
    bool is_browser = r->origin.n > 0 || r->fetch_site.n > 0;
    return route_is_json((str){r->content_type.p, r->content_type.n}) || (to->takes_any_type && !is_browser);
}

/* Whether a path belongs to an API, whose clients have keys. */
static bool route_is_api(const route *to, str path) {
    return path_is_in(path, "/v1") || path_is_in(path, "/api") || (to != NULL && to->needs_key);
}

/* Whether a path needs a key. The pages at / and /pool, which are the same for all
 * clients and contain no data, do not, so that a browser can open them. */
static bool route_needs_key(const route *to, str path) {
    return route_is_api(to, path) || str_begins(path, "/debug/") || str_begins(path, "/pool/");
}

/* Describes route i for the OpenAPI document; false: i is past the last. */
static bool route_describe(size_t i, openapi_route *out) {
    if (i >= sizeof(route_table) / sizeof(route_table[0])) {
        return false;
    }
    const route *r = &route_table[i];
    *out = (openapi_route){.path = r->path,
                           .allow = r->allow,
                           .is_prefix = r->is_prefix,
                           .takes_json = r->takes_json,
                           .needs_key = route_needs_key(r, str_of(r->path)),
                           .has_fields = r->look == body_look,
                           .endpoint = r->endpoint};
    return true;
}

static void route_openapi(conn *c) {
    json_out o = conn_begin_json(c);
    openapi_write(c->loop->server, route_describe, &o);
    conn_reply_json(c, &o, NULL);
}

/* Whether the options allow requests to this host name (--allowed-hosts, --host). */
static bool route_allows_host(const server_options *o, str name) {
    if (strlen(o->host) == name.n && strncasecmp(o->host, name.p, name.n) == 0) {
        return true;
    }
    for (const char *p = o->allowed_hosts; p != NULL && *p != '\0';) {
        size_t n = strcspn(p, ",");
        if (n == name.n && strncasecmp(p, name.p, n) == 0) {
            return true;
        }
        p += p[n] == ',' ? n + 1 : n;
    }
    return false;
}

/* Whether no web page can have chosen the request's host name. A request without one is
 * not from a browser. */
static bool route_has_safe_host(const conn *c) {
    str name = {"", 0};
    if (c->request.n_hosts == 0) {
        return true;
    }
    host_kind kind = host_parse((str){c->request.host.p, c->request.host.n}, &name);
    return kind != HOST_MALFORMED &&
           (kind != HOST_NAME || route_allows_host(&c->loop->server->options, name));
}

/* Whether a browser reports that a page of another site sent the request. */
static bool route_is_cross_site(const conn *c) {
    str site = {c->request.fetch_site.p, c->request.fetch_site.n};
    return site.n > 0 && !str_is(site, "same-origin") && !str_is(site, "none");
}

/* Whether the request may see the contents of pages: it has the operator's key; or no
 * keys are set, only this machine can connect, the request names this machine by its
 * address, and no other site's web page sent it. */
static bool route_is_operator(const conn *c, str authorization) {
    const server *s = c->loop->server;
    if (auth_has_operator(s->keys)) {
        return auth_is_operator(s->keys, authorization);
    }
    return !auth_required(s->keys) && s->on_loopback && c->request.origin.n == 0 && !route_is_cross_site(c) &&
           host_parse((str){c->request.host.p, c->request.host.n}, NULL) == HOST_LOOPBACK;
}

/* Refuses requests without access: if keys are set, those without one; otherwise those of
 * a web page that reached this server under its own name. */
static bool route_may_enter(conn *c, const route *to, str path, str authorization) {
    const auth *keys = c->loop->server->keys;
    bool shows_inside = path_is_in(path, "/pool") || path_is_in(path, "/debug");
    if (shows_inside && route_is_cross_site(c)) {
        route_refuse(c, 403, "the request comes from a page of another site", NULL);
        return false;
    }
    if (!auth_required(keys) && (shows_inside || route_is_api(to, path)) && !route_has_safe_host(c)) {
        route_refuse(c, 403,
                     "the request names a host that is not known to be this server: use an IP address, allow "
                     "the name with --allowed-hosts, or set --api-key",
                     NULL);
        return false;
    }
    if (route_needs_key(to, path) && auth_required(keys)) {
        c->has_tenant = auth_check(keys, authorization, c->tenant);
        bool is_operators = shows_inside || (to != NULL && to->is_operators);
        if (!c->has_tenant && (!is_operators || !c->is_operator)) {
            route_refuse(
                c, 401,
                "missing or wrong API key; send it as \"Authorization: Bearer KEY\" or \"X-Api-Key: KEY\"",
                "WWW-Authenticate: Bearer\r\n");
            return false;
        }
    }
    return true;
}

/* The error writer of a route or, for a path without one (NULL), of the API whose paths
 * begin like it; NULL: error_body. */
static error_writer route_error_writer(const conn *c, const route *to, str path) {
    if (to != NULL && to->error != NULL) {
        return to->error;
    }
    if (to != NULL && to->run == body_parse) {
        const response_writer *w = response_writer_of(to->endpoint);
        return w != NULL ? w->error_body : NULL;
    }
    bool is_messages = c->request.is_anthropic || path_is_in(path, "/v1/messages");
    return is_messages ? messages_error_body : path_is_in(path, "/api") ? ollama_error : NULL;
}

/* Checks a request's head: sets c->tenant, c->look, the body's limit, or c->refusal. */
static void route_check(conn *c) {
    http_request *r = &c->request;
    str path = {r->path.p, r->path.n};
    const route *to = route_find(path);
    c->error = route_error_writer(c, to, path);
    if (r->method == HTTP_OPTIONS) {
        return;
    }
    c->record.endpoint = to != NULL ? to->path : NULL;
    c->record.is_probe = to != NULL && to->is_probe;
    c->look = to != NULL ? to->look : NULL;
    c->endpoint = to != NULL ? to->endpoint : QUIRE_COMPLETIONS;
    c->is_api = route_is_api(to, path);
    const strbuf *key = r->n_authorizations > 0 ? &r->authorization : &r->api_key;
    str authorization = {key->p, key->n};
    c->is_operator = route_is_operator(c, authorization);
    if (!route_may_enter(c, to, path, authorization)) {
        return;
    }
    if (to == NULL) {
        unknown_path_explain(http_method_str(r->method), path, routes_path, &c->refusal_error);
        route_refuse(c, 404, c->refusal_error.message, NULL);
    } else if (!route_allows(route_methods(to, path), r->method)) {
        char shown[SHOWN_PATH_BYTES];
        path_show(path, shown);
        err_set(&c->refusal_error, QUIRE_BAD_REQUEST, -1, "%s %s: this path takes %s",
                http_method_str(r->method), shown, route_methods(to, path));
        snprintf(c->headers, sizeof c->headers, "Allow: %s\r\n", route_methods(to, path));
        route_refuse(c, 405, c->refusal_error.message, NULL);
    } else if (to->takes_json && !route_takes_type(c, to)) {
        route_refuse(c, 400, "the body must be sent as content-type application/json", NULL);
    } else if (to->max_body_bytes > 0 && r->length > to->max_body_bytes) {
        route_refuse(c, 413, "the body is too large", NULL);
    } else if (to->max_body_bytes > 0 && to->max_body_bytes < r->body_limit) {
        r->body_limit = to->max_body_bytes; /* a chunked body has no announced length */
    }
}

/* Answers a preflight request, which a browser sends for a page of another origin. */
static void route_options(conn *c) {
    /* in browsers, * does not include Authorization */
    static const char allowed[] = "Access-Control-Allow-Headers: *, Authorization\r\n"
                                  "Access-Control-Max-Age: 600\r\n";
    str path = {c->request.path.p, c->request.path.n};
    const route *to = route_find(path);
    const char *methods = to != NULL ? route_methods(to, path) : READ ", POST";
    bool is_allowed = c->loop->server->options.allow_origin != NULL;
    size_t n = (size_t)snprintf(c->headers, sizeof c->headers, "Allow: %s, OPTIONS\r\n", methods);
    if (is_allowed) {
        (void)snprintf(c->headers + n, sizeof c->headers - n,
                       "Access-Control-Allow-Methods: %s, OPTIONS\r\n%s", methods, allowed);
    }
    conn_reply(c, &(reply){.status = 204});
}

static void route_run(conn *c) {
    if (c->request.method == HTTP_OPTIONS) {
        route_options(c);
        return;
    }
    str path = {c->request.path.p, c->request.path.n};
    const route *to = route_find(path);
    c->parameter = route_parameter(to, path);
    to->run(c);
}

static void route_refuse_while_loading(conn *c) {
    str path = {c->request.path.p, c->request.path.n};
    const route *to = route_find(path);
    c->record.endpoint = to != NULL ? to->path : NULL;
    c->record.is_probe = to != NULL && to->is_probe;
    c->record.is_expected = true;
    c->error = route_error_writer(c, to, path);
    route_refuse(c, 503, "the model is being loaded; GET /ready returns 200 when it is ready",
                 "Retry-After: 1\r\n");
}

const conn_handler routes_while_loading = {.check = route_refuse_while_loading, .run = NULL};
const conn_handler routes = {.check = route_check, .run = route_run};
