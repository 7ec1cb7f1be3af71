/* Lists of the server's models, and commands to load, unload and put them to sleep. */
#include <assert.h>
#include <math.h>

#include "server/adapter_list.h"
#include "server/body_jobs.h"
#include "server/conn_model.h"
#include "server/models.h"
#include "server/routes.h"
#include "json/json.h"

/* ---- lists ---- */

/* Writes a model's card. parent: the model of an adapter; NULL: not an adapter. */
static void models_write_card(const server *s, str name, const char *root, const char *parent,
                              const served_model *m, json_out *o) {
    json_begin(o, '{');
    json_text(json_name(o, "id"), name.p, name.n);
    json_cstr(json_name(o, "object"), "model");
    json_int(json_name(o, "created"), s->started_s);
    json_cstr(json_name(o, "owned_by"), "quire");
    json_cstr(json_name(o, "root"), root);
    json_cstr(json_name(o, "parent"), parent);
    if (m->max_model_len > 0) {
        json_int(json_name(o, "max_model_len"), m->max_model_len);
        json_int(json_name(o, "context_length"), m->max_model_len);
    } else { /* the model was never loaded */
        json_raw(json_name(o, "max_model_len"), "null");
        json_raw(json_name(o, "context_length"), "null");
    }
    json_raw(json_name(o, "input_modalities"), "[\"text\"]");
    json_raw(json_name(o, "output_modalities"), !m->gives_rows ? "[\"text\"]" : "[\"embeddings\"]");
    json_begin(json_name(o, "status"), '{');
    json_cstr(json_name(o, "value"), model_state_name(m->state));
    if (m->state == MODEL_LOADING) {
        json_number(json_name(o, "progress"), m->progress);
    }
    if (m->state == MODEL_UNLOADED && m->n_failures > 0 && m->error.code != QUIRE_OK) {
        json_raw(json_name(o, "failed"), "true");
        json_cstr(json_name(o, "error"), m->error.message);
    }
    json_end(o, '}');
    json_end(o, '}');
}

static void models_write_one(const server *s, str name, const served_model *m, json_out *o) {
    models_write_card(s, name, m->name, NULL, m, o);
}

static void models_write_adapter(const server *s, const quire_adapter *a, json_out *o) {
    const served_model main = models_look(s->models, models_at(s->models, 0));
    models_write_card(s, str_of(a->name), a->path, s->model_name, &main, o);
}

static void models_write_anthropic_adapter(const server *s, const quire_adapter *a, json_out *o) {
    messages_write_model(s, str_of(a->name), quire_engine_info(s->engine)->max_model_len, o);
}

void models_list(conn *c) {
    assert(c != NULL);
    json_out o = conn_begin_json(c);
    const server *s = c->loop->server;
    if (c->request.is_anthropic) {
        messages_write_models(s, &o);
        conn_reply_json(c, &o, NULL);
        return;
    }
    const served_model main = models_look(s->models, models_at(s->models, 0));
    json_begin(&o, '{');
    json_cstr(json_name(&o, "object"), "list");
    json_begin(json_name(&o, "data"), '[');
    models_write_one(s, str_of(s->model_name), &main, json_item(&o));
    for (int32_t i = 1; i < s->options.n_served_model_names; i++) {
        models_write_one(s, str_of(s->options.served_model_names[i]), &main, json_item(&o));
    }
    for (int32_t i = 1; i < models_count(s->models); i++) {
        const served_model m = models_look(s->models, models_at(s->models, i));
        models_write_one(s, str_of(m.name), &m, json_item(&o));
    }
    adapter_list_each(s, models_write_adapter, &o);
    json_end(&o, ']');
    json_end(&o, '}');
    conn_reply_json(c, &o, NULL);
}

static void models_refuse_name(conn *c, str name) {
    quire_error err;
    err_set(&err, QUIRE_NOT_FOUND, -1, "The model `%.*s` does not exist; this server has `%.200s`%s.",
            (int)(name.n < 200 ? name.n : 200), name.p, c->loop->server->model_name,
            models_count(c->loop->server->models) > 1 ? " and others (/v1/models)" : "");
    conn_reply_error(c, 404, "model", err.message, NULL);
}

void models_one(conn *c) {
    assert(c != NULL);
    const server *s = c->loop->server;
    const str name = c->parameter;
    const served_model *other = models_find(s->models, name);
    json_out o = conn_begin_json(c);
    if (other == NULL && !server_answers_to(s, name)) {
        if (adapter_list_one(s, name,
                             c->request.is_anthropic ? models_write_anthropic_adapter : models_write_adapter,
                             &o)) {
            conn_reply_json(c, &o, NULL);
        } else {
            models_refuse_name(c, name);
        }
        return;
    }
    const served_model m = models_look(s->models, other != NULL ? other : models_at(s->models, 0));
    if (c->request.is_anthropic) {
        messages_write_model(s, other != NULL ? str_of(m.name) : name, m.max_model_len, &o);
    } else {
        models_write_one(s, other != NULL ? str_of(m.name) : name, &m, &o);
    }
    conn_reply_json(c, &o, NULL);
}

/* ---- commands ---- */

static bool models_may_command(conn *c) {
    if (!c->is_operator) {
        conn_reply_error(
            c, 403, NULL,
            "only the operator may load models, unload them or put them to sleep (--operator-key)", NULL);
    }
    return c->is_operator;
}

/* The other model (not the main one) that a body names; NULL: c was answered. */
static served_model *models_of_command(conn *c) {
    const server *s = c->loop->server;
    const strbuf *body = &c->request.body;
    if (!models_may_command(c)) {
        return NULL;
    }
    if (models_sleeping(s->models) != SLEEP_NONE) {
        conn_refuse_asleep(c);
        return NULL;
    }
    json_value *v = body->n > 0 ? json_document((str){body->p, body->n}) : NULL;
    const json_value *given = json_get(v, "model");
    served_model *m = NULL;
    if (!json_is(given, JSON_KIND_TEXT)) {
        conn_reply_error(c, 400, "model", "model must be a string, the name of a model in /v1/models", NULL);
    } else if (server_answers_to(s, json_str(given))) {
        conn_reply_error(c, 400, "model", "this is the server's main model, which stays loaded", NULL);
    } else {
        m = models_find(s->models, json_str(given));
        if (m == NULL) {
            models_refuse_name(c, json_str(given));
        }
    }
    json_drop(v);
    return m;
}

static void models_reply_done(conn *c) {
    json_out o = conn_begin_json(c);
    json_raw(&o, "{\"success\":true}");
    conn_reply_json(c, &o, NULL);
}

void models_post_load(conn *c) {
    served_model *m = models_of_command(c);
    if (m != NULL && !models_load(c->loop->server->models, m)) {
        conn_reply_error(c, 400, "model", "the model is already loaded or being loaded", NULL);
    } else if (m != NULL) {
        models_reply_done(c);
    }
}

void models_post_unload(conn *c) {
    served_model *m = models_of_command(c);
    if (m != NULL && !models_unload(c->loop->server->models, m)) {
        conn_reply_error(c, 400, "model", "the model is not loaded", NULL);
    } else if (m != NULL) {
        models_reply_done(c);
    }
}

/* ---- sleep ---- */

/* The parameters of POST /sleep. */
typedef struct sleep_wish {
    sleep_level level;
    bool aborts;
} sleep_wish;

/* Reads the query of POST /sleep: vLLM's level, mode and, in place of a level, tags. */
static quire_err models_read_sleep(const conn *c, sleep_wish *out, quire_error *err) {
    str query = http_query(&c->request), name, value;
    *out = (sleep_wish){.level = SLEEP_CACHES, .aborts = true};
    while (http_query_next(&query, &name, &value)) {
        if (http_query_is(name, "level")) {
            if (!http_query_is(value, "1") && !http_query_is(value, "2")) {
                return err_set_param(err, QUIRE_BAD_REQUEST, "level",
                                     "level must be 1, which drops the KV caches, or 2, which also unloads "
                                     "the models beside the first");
            }
            out->level = http_query_is(value, "1") ? SLEEP_CACHES : SLEEP_OTHERS;
        } else if (http_query_is(name, "mode")) {
            if (!http_query_is(value, "abort") && !http_query_is(value, "wait")) {
                return err_set_param(err, QUIRE_BAD_REQUEST, "mode",
                                     "mode must be abort, which ends running requests, or wait, which lets "
                                     "them finish");
            }
            out->aborts = http_query_is(value, "abort");
        } else if (http_query_is(name, "tags")) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "tags", "tags are not supported; give a level");
        }
    }
    return QUIRE_OK;
}

void models_post_sleep(conn *c) {
    assert(c != NULL);
    server *s = c->loop->server;
    sleep_wish wish;
    quire_error err = {0};
    if (!models_may_command(c)) {
        return;
    }
    if (models_read_sleep(c, &wish, &err) != QUIRE_OK) {
        conn_reply_failure(c, error_of(&err));
        return;
    }
    conn_await_sleep(c);
    models_sleep(s->models, wish.level);
    if (wish.aborts) {
        atomic_fetch_add(&s->n_aborts, 1);
        loop_wake_all(s);
    }
}

/* POST /wake_up. vLLM's tags wake parts of a model; here it wakes whole. */
void models_post_wake_up(conn *c) {
    str query = http_query(&c->request), name, value;
    bool has_tags = false, wakes = false;
    if (!models_may_command(c)) {
        return;
    }
    while (http_query_next(&query, &name, &value)) {
        has_tags = has_tags || http_query_is(name, "tags");
        wakes = wakes || (http_query_is(name, "tags") && http_query_is(value, "kv_cache"));
    }
    if (!has_tags || wakes) {
        models_wake_up(c->loop->server->models);
    }
    conn_reply(c, &(reply){.status = 200});
}

void models_get_sleeping(conn *c) {
    if (!models_may_command(c)) {
        return;
    }
    json_out o = conn_begin_json(c);
    json_begin(&o, '{');
    json_bool(json_name(&o, "is_sleeping"), models_sleeping(c->loop->server->models) != SLEEP_NONE);
    json_end(&o, '}');
    conn_reply_json(c, &o, NULL);
}

/* Requests about LoRA adapters: vLLM's to load and unload them, llama.cpp's to scale
 * them. The loop's thread. */

/* ---- vLLM's ---- */

/* Whether the client is the operator; otherwise c was refused. */
static bool adapter_api_may(conn *c) {
    if (!c->is_operator) {
        conn_reply_error(c, 403, NULL, "only the operator may load and scale adapters (--operator-key)",
                         NULL);
    }
    return c->is_operator;
}

/* The body as JSON of this kind; NULL: it is not, and c was refused. */
static json_value *adapter_api_body(conn *c, json_kind kind) {
    const strbuf *body = &c->request.body;
    json_value *v = json_document((str){body->n > 0 ? body->p : "", body->n});
    if (!json_is(v, kind)) {
        json_drop(v);
        conn_reply_error(c, 400, "body",
                         kind == JSON_KIND_ARRAY
                             ? "the body must be a JSON array of {\"id\": N, \"scale\": X}"
                             : "the body must be a JSON object",
                         NULL);
        return NULL;
    }
    return v;
}

/* Appends the string member `name`; nothing if v has none without 0 bytes. */
static quire_err adapter_api_text(const json_value *v, const char *name, strbuf *out) {
    str text = json_get_str(v, name);
    bool is_plain = text.n > 0 && memchr(text.p, '\0', text.n) == NULL;
    return is_plain ? strbuf_add(out, text.p, text.n) : QUIRE_OK;
}

/* Whether a model has this name; an adapter with it could never be selected. */
static bool adapter_api_is_model(const server *s, str name) {
    return server_answers_to(s, name) || models_find(s->models, name) != NULL;
}

void adapter_api_load(conn *c) {
    json_value *v = adapter_api_may(c) ? adapter_api_body(c, JSON_KIND_OBJECT) : NULL;
    strbuf name = {0}, path = {0};
    if (v == NULL) {
        return;
    }
    if (adapter_api_text(v, "lora_name", &name) != QUIRE_OK ||
        adapter_api_text(v, "lora_path", &path) != QUIRE_OK) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
    } else if (name.n == 0 || path.n == 0) {
        conn_reply_error(c, 400, name.n == 0 ? "lora_name" : "lora_path",
                         "Both 'lora_name' and 'lora_path' must be provided.", NULL);
    } else if (adapter_api_is_model(c->loop->server, (str){name.p, name.n})) {
        conn_reply_error(c, 400, "lora_name", "a model already has this name; give the adapter another",
                         NULL);
    } else {
        body_load_adapter(c, name.p, path.p, json_get_bool(v, "load_inplace", false));
    }
    json_drop(v);
    strbuf_deinit(&name);
    strbuf_deinit(&path);
}

void adapter_api_unload(conn *c) {
    json_value *v = adapter_api_may(c) ? adapter_api_body(c, JSON_KIND_OBJECT) : NULL;
    strbuf name = {0}, text = {0};
    quire_error err = {0};
    if (v == NULL) {
        return;
    }
    quire_err e = adapter_api_text(v, "lora_name", &name);
    if (e != QUIRE_OK) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
    } else if (name.n == 0) {
        conn_reply_error(c, 400, "lora_name", "'lora_name' needs to be provided.", NULL);
    } else if (quire_adapter_unload(c->loop->server->engine, name.p, &err) != QUIRE_OK) {
        conn_reply_error(c, error_status(err.code), "lora_name", err.message, NULL);
    } else if (strbuf_addf(&text, "Success: LoRA adapter '%s' removed successfully.", name.p) != QUIRE_OK) {
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
    } else {
        conn_reply(
            c,
            &(reply){.status = 200, .content_type = "text/plain; charset=utf-8", .body = {text.p, text.n}});
    }
    json_drop(v);
    strbuf_deinit(&name);
    strbuf_deinit(&text);
}

/* ---- llama.cpp's ---- */

static void adapter_api_list_scales(conn *c) {
    quire_adapter **list;
    size_t n;
    json_out o = conn_begin_json(c);
    quire_err e = quire_adapters(c->loop->server->engine, &list, &n);
    if (o.err == QUIRE_OK) {
        o.err = e;
    }
    json_begin(&o, '[');
    for (size_t i = 0; i < n; i++) {
        if (list[i]->number >= 0) {
            json_begin(json_item(&o), '{');
            json_int(json_name(&o, "id"), list[i]->number);
            json_cstr(json_name(&o, "path"), list[i]->path);
            json_number(json_name(&o, "scale"), (double)list[i]->scale);
            json_raw(&o, ",\"task_name\":\"\",\"prompt_prefix\":\"\"");
            json_end(&o, '}');
        }
    }
    json_end(&o, ']');
    quire_free((void *)list);
    conn_reply_json(c, &o, NULL);
}

/* The scale that a POST's array gives an adapter: its last one, or 0 without any. */
static float adapter_api_scale_of(const json_value *v, int32_t number) {
    double scale = 0.0;
    for (size_t i = 0; i < json_length(v); i++) {
        int64_t id = -1;
        const json_value *x = json_get(json_at(v, i), "scale");
        bool is = json_whole(json_get(json_at(v, i), "id"), &id) && id == number && json_numeric(x);
        scale = is ? json_double(x) : scale;
    }
    return (float)scale;
}

/* Checks the items of a POST's array. n: number of adapters. */
static quire_err adapter_api_check_scales(const json_value *v, int64_t n, quire_error *err) {
    for (size_t i = 0; i < json_length(v); i++) {
        int64_t id = -1;
        const json_value *x = json_get(json_at(v, i), "scale");
        bool is_right = json_whole(json_get(json_at(v, i), "id"), &id) && json_numeric(x) &&
                        isfinite((float)json_double(x));
        if (!is_right || id < 0 || id >= n) {
            return err_set(
                err, QUIRE_BAD_REQUEST, -1,
                "item %zu must be {\"id\": N, \"scale\": X}, with N one of the %lld adapters from --lora", i,
                (long long)n);
        }
    }
    return QUIRE_OK;
}

static void adapter_api_set_scales(conn *c) {
    quire_engine *e = c->loop->server->engine;
    json_value *v = adapter_api_may(c) ? adapter_api_body(c, JSON_KIND_ARRAY) : NULL;
    quire_adapter **list;
    size_t n;
    quire_error err = {0};
    if (v == NULL) {
        return;
    }
    quire_err er = err_set(&err, quire_adapters(e, &list, &n), -1, "out of memory");
    int32_t n_numbered = 0;
    for (size_t i = 0; i < n; i++) {
        n_numbered += list[i]->number >= 0;
    }
    quire_free((void *)list);
    if (er == QUIRE_OK) {
        er = adapter_api_check_scales(v, n_numbered, &err);
    }
    /* scales of 0 first, since only a few adapters may apply at once */
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t k = 0; k < n_numbered && er == QUIRE_OK; k++) {
            float scale = adapter_api_scale_of(v, k);
            er = (scale == 0.0f) == (pass == 0) ? quire_adapter_scale(e, k, scale, &err) : QUIRE_OK;
        }
    }
    json_drop(v);
    if (er != QUIRE_OK) {
        conn_reply_failure(c, error_of(&err));
        return;
    }
    json_out o = conn_begin_json(c);
    json_raw(&o, "{\"success\":true}");
    conn_reply_json(c, &o, NULL);
}

void adapter_api_scales(conn *c) {
    (c->request.method == HTTP_POST ? adapter_api_set_scales : adapter_api_list_scales)(c);
}
