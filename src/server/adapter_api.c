/* Calls for LoRA adapters: vLLM's that load and unload them, llama.cpp's that scale them.
 * The loop's thread. */
#include "server/routes.h"

#include <math.h>

#include "server/body_jobs.h"
#include "server/models.h"
#include "json/json.h"

/* ---- vLLM's ---- */

/* False, with a refusal, for a client that is not the operator. */
static bool adapter_api_may(conn *c) {
    if (!c->is_operator) {
        conn_reply_error(c, 403, NULL, "adapters are the operator's to load and scale (--operator-key)",
                         NULL);
    }
    return c->is_operator;
}

/* The body as JSON; NULL, with a refusal: it is none. */
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

/* Copies a member that is a text without 0 bytes; empty: it is none. */
static quire_err adapter_api_text(const json_value *v, const char *name, strbuf *out) {
    str text = json_get_str(v, name);
    bool is_plain = text.n > 0 && memchr(text.p, '\0', text.n) == NULL;
    return is_plain ? strbuf_add(out, text.p, text.n) : QUIRE_OK;
}

/* Whether a name is that of a model, which an adapter of the same name would never be
 * found under. */
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
        conn_reply_error(c, 400, "lora_name", "a model has this name, and requests that name it get that one",
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

/* The scale that a POST's array gives an adapter: of several the last; 0: none does. */
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

/* Checks the items of a POST's array, n being how many adapters there are. */
static quire_err adapter_api_check_scales(const json_value *v, int64_t n, quire_error *err) {
    for (size_t i = 0; i < json_length(v); i++) {
        int64_t id = -1;
        const json_value *x = json_get(json_at(v, i), "scale");
        bool is_right = json_whole(json_get(json_at(v, i), "id"), &id) && json_numeric(x) &&
                        isfinite((float)json_double(x));
        if (!is_right || id < 0 || id >= n) {
            return err_set(err, QUIRE_BAD_REQUEST, -1,
                           "item %zu must be {\"id\": N, \"scale\": X}, N one of the %lld adapters of --lora",
                           i, (long long)n);
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
    for (int pass = 0; pass < 2; pass++) { /* first those set to 0, since only a few apply at once */
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
