/* Ollama's API: responses of its generations, requests about models, and requests that
 * only load one. The loop's thread. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "server/adapter_list.h"
#include "server/body_jobs.h"
#include "server/conn_model.h"
#include "server/models.h"
#include "server/response.h"
#include "server/routes.h"
#include "json/json.h"

#define OLLAMA_VERSION  "0.13.4" /* version of Ollama's API, which clients compare with what they need */
#define NS_PER_US       1000
#define OLLAMA_FOR_EVER INT64_C(32503680000) /* the year 3000, in unix seconds */

void ollama_error(json_out *o, const api_error *e) {
    assert(e != NULL);
    json_begin(o, '{');
    json_cstr(json_name(o, "error"), e->message);
    json_end(o, '}');
}

/* Writes a time as "2026-01-31T12:00:00Z". */
static void ollama_write_time(json_out *o, const char *name, int64_t unix_s) {
    char text[40];
    struct tm tm;
    time_t t = (time_t)unix_s;
    gmtime_r(&t, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_cstr(json_name(o, name), text);
}

/* ---- responses ---- */

/* Collects the calls of a streamed answer, which are sent whole at its end. */
typedef struct ollama_state {
    answer_parts calls;
} ollama_state;

static void ollama_deinit(void *state) {
    answer_parts_deinit(&((ollama_state *)state)->calls);
}

static bool ollama_is_chat(const response *a) {
    return a->info->endpoint == QUIRE_OLLAMA_CHAT;
}

/* Writes a call's arguments, an object; anything else becomes its member "arguments". */
static void ollama_write_arguments(const strbuf *text, json_out *o) {
    str given = {text->n > 0 ? text->p : "", text->n};
    json_value *v = json_model_document(given);
    if (json_is(v, JSON_KIND_OBJECT)) {
        json_add(o, v);
    } else {
        json_begin(o, '{');
        json_text(json_name(o, "arguments"), given.p, given.n);
        json_end(o, '}');
    }
    json_drop(v);
}

static void ollama_write_calls(const answer_parts *p, json_out *o) {
    if (p->n_calls == 0) {
        return;
    }
    json_begin(json_name(o, "tool_calls"), '[');
    for (size_t i = 0; i < p->n_calls; i++) {
        const answer_call *call = &p->calls[i];
        json_begin(json_item(o), '{');
        json_begin(json_name(o, "function"), '{');
        json_text(json_name(o, "name"), call->name.n > 0 ? call->name.p : "", call->name.n);
        json_int(json_name(o, "index"), call->index);
        ollama_write_arguments(&call->arguments, json_name(o, "arguments"));
        json_end(o, '}');
        json_end(o, '}');
    }
    json_end(o, ']');
}

/* Writes "message":{..} for a chat, otherwise "response":"..", with the text and the
 * other parts. */
static void ollama_write_answer(const response *a, str text, const strbuf *reasoning,
                                const answer_parts *calls, json_out *o) {
    if (ollama_is_chat(a)) {
        json_begin(json_name(o, "message"), '{');
        json_cstr(json_name(o, "role"), "assistant");
    }
    json_text(json_name(o, ollama_is_chat(a) ? "content" : "response"), text.p, text.n);
    if (reasoning->n > 0) {
        json_text(json_name(o, "thinking"), reasoning->p, reasoning->n);
    }
    ollama_write_calls(calls, o);
    if (ollama_is_chat(a)) {
        json_end(o, '}');
    }
}

static void ollama_begin(const response *a, json_out *o) {
    json_begin(o, '{');
    json_cstr(json_name(o, "model"), response_model(a));
    ollama_write_time(o, "created_at", clock_unix_s());
}

/* Writes "done":true and the durations of the answer, in nanoseconds. */
static void ollama_write_done(const response *a, const response_choice *c, json_out *o) {
    const request_record *r = &a->conn->record;
    int64_t now_us = clock_us(), first_us = r->first_token_us > 0 ? r->first_token_us : now_us;
    json_bool(json_name(o, "done"), true);
    json_cstr(json_name(o, "done_reason"), c->finish == QUIRE_FINISH_LENGTH ? "length" : "stop");
    json_int(json_name(o, "total_duration"), (now_us - r->begun_us) * NS_PER_US);
    json_int(json_name(o, "load_duration"), r->model_wait_us * NS_PER_US);
    json_int(json_name(o, "prompt_eval_count"), a->prompt_tokens);
    json_int(json_name(o, "prompt_eval_duration"), (first_us - r->begun_us) * NS_PER_US);
    json_int(json_name(o, "eval_count"), a->completion_tokens);
    json_int(json_name(o, "eval_duration"), (now_us - first_us) * NS_PER_US);
    json_end(o, '}');
}

static void ollama_write_whole(const response *a, int32_t i, json_out *o) {
    const response_choice *c = &a->choices[a->shown[i]];
    str text = {c->text.n > 0 ? c->text.p : "", c->text.n};
    ollama_write_answer(a, text, &c->parts.reasoning, &c->parts, o);
    ollama_write_done(a, c, o);
}

static void ollama_write_end(const response *a, json_out *o) {
    (void)a, (void)o; /* the only choice has already ended the object */
}

/* Adds a chunk's pieces of calls to the earlier ones. */
static quire_err ollama_gather(answer_parts *to, const answer_parts *from) {
    for (size_t i = 0; i < from->n_calls; i++) {
        const answer_call *piece = &from->calls[i];
        if (piece->begins || to->n_calls == 0) {
            TRY(mem_grow(&to->calls, &to->cap_calls, to->n_calls + 1, sizeof *to->calls));
            to->calls[to->n_calls++] = (answer_call){.index = piece->index, .begins = true};
        }
        answer_call *call = &to->calls[to->n_calls - 1];
        TRY(strbuf_add(&call->name, piece->name.p, piece->name.n));
        TRY(strbuf_add(&call->arguments, piece->arguments.p, piece->arguments.n));
    }
    return QUIRE_OK;
}

/* Writes a line with new content, if any; the last line has the calls. */
static void ollama_write_chunk(const response *a, int32_t choice, json_out *o) {
    static const answer_parts none = {.n_calls = 0};
    const response_choice *c = &a->choices[choice];
    ollama_state *st = a->state;
    quire_err e = ollama_gather(&st->calls, &c->parts);
    bool ends = c->finish != QUIRE_FINISH_NONE, has_calls = ends && st->calls.n_calls > 0;
    o->err = e != QUIRE_OK ? e : o->err;
    if (c->text.n == 0 && c->parts.reasoning.n == 0 && !has_calls) {
        return;
    }
    str text = {c->text.n > 0 ? c->text.p : "", c->text.n};
    ollama_begin(a, o);
    ollama_write_answer(a, text, &c->parts.reasoning, has_calls ? &st->calls : &none, o);
    json_bool(json_name(o, "done"), false);
    json_end(o, '}');
    json_raw(o, "\n");
}

static void ollama_write_last(const response *a, json_out *o) {
    static const answer_parts none = {.n_calls = 0};
    ollama_begin(a, o);
    ollama_write_answer(a, (str){"", 0}, &none.reasoning, &none, o);
    ollama_write_done(a, &a->choices[0], o);
    json_raw(o, "\n");
}

static void ollama_write_error(const response *a, const api_error *e, json_out *o) {
    (void)a;
    ollama_error(o, e);
    json_raw(o, "\n");
}

static quire_err ollama_list_token(const response *a, response_choice *c, const quire_event *ev) {
    (void)a, (void)c, (void)ev; /* Ollama's API has no field for log-probabilities */
    return QUIRE_OK;
}

static void ollama_write_logprobs(const response_logprobs *prompt, const response_logprobs *l, json_out *o) {
    (void)prompt, (void)l, (void)o;
}

const response_writer ollama_writer = {
    .id_prefix = "ollama-",
    .object = "",
    .chunk_object = "",
    .stream_type = "application/x-ndjson",
    .skips_empty = true,
    .state_bytes = sizeof(ollama_state),
    .deinit = ollama_deinit,
    .begin = ollama_begin,
    .choice = ollama_write_whole,
    .end = ollama_write_end,
    .chunk = ollama_write_chunk,
    .last = ollama_write_last,
    .error = ollama_write_error,
    .error_body = ollama_error,
    .logprobs = {.token = ollama_list_token, .write = ollama_write_logprobs},
};

/* ---- requests without a prompt, which load a model or keep it loaded ---- */

#define OLLAMA_LOAD_BYTES 4096 /* a longer body must have a prompt */

/* The prompt member of an endpoint, and the response to a request without it. */
typedef struct ollama_subject {
    const char *name, *some; /* name: the prompt member; some: a value for it */
    const char *response;    /* members of the response after the model */
} ollama_subject;

static const ollama_subject *ollama_subject_of(quire_endpoint e) {
    static const ollama_subject chat = {"messages", "[{\"role\":\"user\",\"content\":\"a\"}]",
                                        "\"message\":{\"role\":\"assistant\",\"content\":\"\"}"},
                                prompt = {"prompt", "\"a\"", "\"response\":\"\""},
                                input = {"input", "\"a\"", "\"embeddings\":[]"},
                                old_input = {"prompt", "\"a\"", "\"embedding\":[]"};
    return e == QUIRE_OLLAMA_CHAT         ? &chat
           : e == QUIRE_OLLAMA_EMBED      ? &input
           : e == QUIRE_OLLAMA_EMBEDDINGS ? &old_input
                                          : &prompt;
}

static bool ollama_gives_rows(quire_endpoint e) {
    return e == QUIRE_OLLAMA_EMBED || e == QUIRE_OLLAMA_EMBEDDINGS;
}

/* Checks the other fields of a body without a prompt like those of any body, and applies
 * keep_alive. *unloads: keep_alive is 0. */
static quire_err ollama_check_load(const conn *c, const json_value *body, bool *unloads, quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text};
    quire_request *r = NULL;
    const ollama_subject *subject = ollama_subject_of(c->endpoint);
    json_begin(&o, '{');
    for (json_member m = {0}; json_next(body, &m);) {
        bool is_none = strcmp(m.name, "messages") == 0 || strcmp(m.name, "prompt") == 0;
        if (!is_none && strcmp(m.name, subject->name) != 0) {
            json_add(json_name(&o, m.name), m.value);
        }
    }
    json_raw(json_name(&o, subject->name), subject->some);
    json_end(&o, '}');
    quire_err e = o.err != QUIRE_OK
                      ? err_set(err, o.err, -1, "out of memory")
                      : quire_request_parse(conn_engine(c), c->endpoint, text.p, text.n, &r, err);
    if (e == QUIRE_OK) {
        const quire_request_more *more = quire_request_describe_more(r);
        *unloads = more->has_keep_alive && more->keep_alive_us == 0;
        conn_keep_model(c, more);
    }
    quire_request_free(r);
    strbuf_deinit(&text);
    return e;
}

/* Whether a value is absent, or an empty text or array. */
static bool ollama_says_nothing(const json_value *v) {
    return v == NULL || (json_is(v, JSON_KIND_ARRAY) && json_length(v) == 0) ||
           (json_is(v, JSON_KIND_TEXT) && json_str(v).n == 0);
}

/* Whether a body has no prompt, messages or input; all others are left to the parser of
 * requests. *unloads as ollama_check_load; err: a fault in the rest of such a body. */
static bool ollama_reads_load(const conn *c, strbuf *model, bool *unloads, quire_error *err) {
    const strbuf *body = &c->request.body;
    json_value *v =
        body->n > 0 && body->n < OLLAMA_LOAD_BYTES ? json_document((str){body->p, body->n}) : NULL;
    const json_value *messages = json_get(v, "messages"), *prompt = json_get(v, "prompt");
    str name = json_get_str(v, "model");
    bool is_empty = messages == NULL || (json_is(messages, JSON_KIND_ARRAY) && json_length(messages) == 0),
         says_nothing = prompt == NULL || (json_is(prompt, JSON_KIND_TEXT) && json_str(prompt).n == 0);
    if (ollama_gives_rows(c->endpoint)) {
        is_empty = true;
        says_nothing = ollama_says_nothing(json_get(v, ollama_subject_of(c->endpoint)->name));
    }
    bool is_load = is_empty && says_nothing && name.n > 0 && strbuf_add(model, name.p, name.n) == QUIRE_OK;
    if (is_load) {
        (void)ollama_check_load(c, v, unloads, err);
    }
    json_drop(v);
    return is_load;
}

/* Whether name is one of the main model's, with or without Ollama's tag. */
static bool ollama_answers_to(const server *s, str name) {
    static const char latest[] = ":latest";
    size_t tag = sizeof latest - 1;
    bool is_tagged = name.n > tag && memcmp(name.p + name.n - tag, latest, tag) == 0;
    str plain = {name.p, is_tagged ? name.n - tag : name.n};
    return server_answers_to(s, name) || server_answers_to(s, plain) || adapter_list_knows(s, plain);
}

/* Whether c's model has this name. */
static bool ollama_has(const conn *c, str name) {
    return c->model->m->number > 0 || ollama_answers_to(c->loop->server, name);
}

static void ollama_refuse_name(conn *c, str name) {
    quire_error err;
    err_set(&err, QUIRE_NOT_FOUND, -1, "model '%.*s' not found; this server has %.200s",
            (int)(name.n < 200 ? name.n : 200), name.p, c->loop->server->model_name);
    conn_reply_error(c, 404, "model", err.message, NULL);
}

/* Answers a request without a prompt for model m. */
static void ollama_reply_load(conn *c, const served_model *m, bool unloads) {
    json_out o = conn_begin_json(c);
    json_begin(&o, '{');
    if (c->endpoint != QUIRE_OLLAMA_EMBEDDINGS) {
        json_cstr(json_name(&o, "model"), m->name);
        json_raw(&o, ",");
    }
    json_raw(&o, ollama_subject_of(c->endpoint)->response);
    if (!ollama_gives_rows(c->endpoint)) {
        ollama_write_time(&o, "created_at", clock_unix_s());
        json_bool(json_name(&o, "done"), true);
        json_cstr(json_name(&o, "done_reason"), unloads ? "unload" : "load");
    }
    json_end(&o, '}');
    conn_reply_json(c, &o, NULL);
}

/* Answers a request to unload a model that is not loaded; false: no such request. */
static bool ollama_unloads_nothing(conn *c) {
    models *all = c->loop->server->models;
    const served_model *m = conn_named_model(c);
    strbuf model = {0};
    quire_error err = {0};
    bool unloads = false;
    const bool is_one = models_look(all, m).state == MODEL_UNLOADED &&
                        ollama_reads_load(c, &model, &unloads, &err) && unloads;
    strbuf_deinit(&model);
    if (is_one) {
        ollama_reply_load(c, m, true);
    }
    return is_one;
}

void ollama_post(conn *c) {
    assert(c != NULL);
    if ((c->model == NULL && ollama_unloads_nothing(c)) || !conn_take_model(c, ollama_post)) {
        return;
    }
    strbuf model = {0};
    quire_error err = {0};
    bool unloads = false;
    if (!ollama_reads_load(c, &model, &unloads, &err)) {
        strbuf_deinit(&model);
        body_parse(c);
        return;
    }
    str name = {model.p, model.n};
    if (!ollama_has(c, name)) {
        ollama_refuse_name(c, name);
    } else if (err.code != QUIRE_OK) {
        conn_reply_error(c, error_status(err.code), err.param, err.message, NULL);
    } else {
        if (unloads && c->is_operator) {
            (void)models_unload(c->loop->server->models, c->model->m); /* no effect on the main model */
        }
        ollama_reply_load(c, c->model->m, unloads);
    }
    strbuf_deinit(&model);
}

/* ---- the model ---- */

static void ollama_write_details(const quire_info *i, const char *parent, json_out *o) {
    char size[32], bits[32];
    bool is_large = i->n_params >= 1000000000;
    snprintf(size, sizeof size, is_large ? "%.1fB" : "%.0fM", (double)i->n_params / (is_large ? 1e9 : 1e6));
    snprintf(bits, sizeof bits, "%.1f bits",
             i->n_params > 0 ? (double)i->weight_bytes * 8.0 / (double)i->n_params : 0.0);
    json_begin(json_name(o, "details"), '{');
    json_cstr(json_name(o, "parent_model"), parent);
    json_cstr(json_name(o, "format"), "gguf");
    json_cstr(json_name(o, "family"), i->architecture);
    json_begin(json_name(o, "families"), '[');
    json_cstr(json_item(o), i->architecture);
    json_end(o, ']');
    json_cstr(json_name(o, "parameter_size"), size);
    json_cstr(json_name(o, "quantization_level"), bits);
    json_end(o, '}');
}

/* Writes a digest of a name, by which Ollama's clients distinguish models. */
static void ollama_write_digest(const char *name, json_out *o) {
    uint8_t digest[SHA256_BYTES];
    char text[2 * SHA256_BYTES + 1];
    sha256(name, strlen(name), digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    json_cstr(json_name(o, "digest"), text);
}

/* Time, in unix seconds, when a loaded model leaves if it is not used again. */
static int64_t ollama_expiry_s(const served_model *m) {
    const int64_t now_us = clock_us(), idle_us = m->n_holds > 0 ? 0 : now_us - m->used_us;
    return m->number == 0 || m->is_pinned || m->keep_us == MODEL_STAYS
               ? OLLAMA_FOR_EVER
               : clock_unix_s() + (m->keep_us - idle_us) / 1000000;
}

/* Writes the card of a name. parent: an adapter's model; "": not an adapter. runs: the
 * model if it runs, whose context is then shown; NULL: it does not. */
static void ollama_write_card(const server *s, const quire_info *i, const char *name, int64_t bytes,
                              const char *parent, const served_model *runs, json_out *o) {
    json_begin(o, '{');
    json_cstr(json_name(o, "name"), name);
    json_cstr(json_name(o, "model"), name);
    json_int(json_name(o, "size"), bytes);
    ollama_write_digest(name, o);
    ollama_write_details(i, parent, o);
    if (runs != NULL) {
        ollama_write_time(o, "expires_at", ollama_expiry_s(runs));
        json_int(json_name(o, "size_vram"), 0);
        json_int(json_name(o, "context_length"), i->max_model_len);
    } else {
        ollama_write_time(o, "modified_at", s->started_s);
    }
    json_end(o, '}');
}

static void ollama_write_served(const server *s, const char *name, bool runs, json_out *o) {
    const quire_info *i = quire_engine_info(s->engine);
    const served_model main = models_look(s->models, models_at(s->models, 0));
    ollama_write_card(s, i, name, i->weight_bytes, "", runs ? &main : NULL, json_item(o));
}

/* Writes the models besides the main one; if not loaded, only their names are known. */
static void ollama_write_others(const server *s, bool runs, json_out *o) {
    static const quire_info unknown = {.architecture = ""};
    for (int32_t k = 1; k < models_count(s->models); k++) {
        served_model *m = models_at(s->models, k);
        const served_model now = models_look(s->models, m);
        const bool is_loaded = models_visit(s->models, m);
        const quire_info *i = is_loaded ? quire_engine_info(m->engine) : &unknown;
        if (is_loaded || !runs) {
            ollama_write_card(s, i, m->name, i->weight_bytes, "", runs ? &now : NULL, json_item(o));
        }
        if (is_loaded) {
            models_end_visit(s->models, m);
        }
    }
}

static void ollama_write_adapter(const server *s, const quire_adapter *a, json_out *o) {
    ollama_write_card(s, quire_engine_info(s->engine), a->name, a->n_bytes, s->model_name, NULL, o);
}

static void ollama_list(conn *c, bool runs) {
    const server *s = c->loop->server;
    json_out o = conn_begin_json(c);
    json_begin(&o, '{');
    json_begin(json_name(&o, "models"), '[');
    ollama_write_served(s, s->model_name, runs, &o);
    for (int32_t i = 1; i < s->options.n_served_model_names; i++) {
        ollama_write_served(s, s->options.served_model_names[i], runs, &o);
    }
    ollama_write_others(s, runs, &o);
    if (!runs) {
        adapter_list_each(s, ollama_write_adapter, &o);
    }
    json_end(&o, ']');
    json_end(&o, '}');
    conn_reply_json(c, &o, NULL);
}

void ollama_tags(conn *c) {
    ollama_list(c, false);
}

void ollama_ps(conn *c) {
    ollama_list(c, true);
}

void ollama_version(conn *c) {
    json_out o = conn_begin_json(c);
    json_raw(&o, "{\"version\":\"" OLLAMA_VERSION "\",\"quire\":\"" QUIRE_VERSION "\"}");
    conn_reply_json(c, &o, NULL);
}

/* Writes "general.architecture" and other facts under the names of GGUF. */
static void ollama_write_info(const quire_info *i, json_out *o) {
    const json_named_int numbers[] = {
        {"context_length", i->max_model_len}, {"embedding_length", i->d_model},
        {"block_count", i->n_layers},         {"feed_forward_length", i->d_ff},
        {"attention.head_count", i->n_heads}, {"attention.head_count_kv", i->n_kv_heads},
        {"attention.key_length", i->d_head},  {"vocab_size", i->n_vocab}};
    char name[128];
    json_begin(json_name(o, "model_info"), '{');
    json_cstr(json_name(o, "general.architecture"), i->architecture);
    json_int(json_name(o, "general.parameter_count"), i->n_params);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        snprintf(name, sizeof name, "%.64s.%s", i->architecture, numbers[k].name);
        json_int(json_name(o, name), numbers[k].value);
    }
    json_end(o, '}');
}

static void ollama_write_capabilities(const quire_info *i, json_out *o) {
    json_begin(json_name(o, "capabilities"), '[');
    if (i->has_vocabulary) {
        json_cstr(json_item(o), "completion");
    }
    if (i->tool_format != NULL) {
        json_cstr(json_item(o), "tools");
    }
    if (i->reasoning_format != NULL) {
        json_cstr(json_item(o), "thinking");
    }
    json_end(o, ']');
}

/* Facts of a model that is not loaded, from quire_inspect's JSON. Borrows v's texts. */
static quire_info ollama_facts_info(const json_value *v) {
    quire_info i = {.architecture = json_get_str(v, "architecture").p,
                    .generation_defaults = "",
                    .max_model_len = json_get_int32(v, "max_positions", 0),
                    .d_model = json_get_int32(v, "d_model", 0),
                    .n_layers = json_get_int32(v, "n_layers", 0),
                    .d_ff = json_get_int32(v, "d_ff", 0),
                    .n_heads = json_get_int32(v, "n_heads", 0),
                    .n_kv_heads = json_get_int32(v, "n_kv_heads", 0),
                    .d_head = json_get_int32(v, "d_head", 0),
                    .n_vocab = json_get_int32(v, "n_vocab", 0),
                    .n_params = json_int64(json_get(v, "n_params")),
                    .weight_bytes = json_int64(json_get(v, "weight_bytes"))};
    i.has_vocabulary = !str_begins(json_get_str(v, "vocabulary"), "none");
    i.chat_form = json_get_bool(v, "chat_template", false) ? "model" : NULL;
    i.tool_format = json_is(json_get(v, "tool_format"), JSON_KIND_TEXT) ? "" : NULL;
    i.reasoning_format = json_is(json_get(v, "reasoning_format"), JSON_KIND_TEXT) ? "" : NULL;
    return i;
}

static void ollama_write_model(const server *s, const quire_info *i, json_out *o) {
    json_begin(o, '{');
    json_cstr(json_name(o, "modelfile"), "");
    json_cstr(json_name(o, "parameters"), i->generation_defaults);
    json_cstr(json_name(o, "template"), i->chat_form != NULL ? i->chat_form : "");
    ollama_write_details(i, "", o);
    ollama_write_info(i, o);
    ollama_write_capabilities(i, o);
    ollama_write_time(o, "modified_at", s->started_s);
    json_end(o, '}');
}

/* Answers with a model's facts: of the loaded engine, or of its file, read first. */
static void ollama_show_model(conn *c, served_model *m) {
    const server *s = c->loop->server;
    strbuf facts = {0};
    if (models_visit(s->models, m)) {
        json_out o = conn_begin_json(c);
        ollama_write_model(s, quire_engine_info(m->engine), &o);
        models_end_visit(s->models, m);
        conn_reply_json(c, &o, NULL);
    } else if (conn_read_facts(c, m, &facts, ollama_show)) {
        json_value *v = json_document((str){facts.p, facts.n});
        const quire_info i = ollama_facts_info(v);
        json_out o = conn_begin_json(c);
        ollama_write_model(s, &i, &o);
        json_drop(v);
        conn_reply_json(c, &o, NULL);
    }
    strbuf_deinit(&facts);
}

void ollama_show(conn *c) {
    assert(c != NULL);
    const server *s = c->loop->server;
    const strbuf *body = &c->request.body;
    json_value *v = json_document((str){body->n > 0 ? body->p : "", body->n});
    str name = json_get_str(v, "model");
    name = name.n > 0 ? name : json_get_str(v, "name");
    served_model *other = models_find(s->models, name);
    if (name.n == 0) {
        conn_reply_error(c, 400, "model", "model is missing; give {\"model\": NAME}", NULL);
    } else if (other == NULL && !ollama_answers_to(s, name)) {
        ollama_refuse_name(c, name);
    } else {
        ollama_show_model(c, other != NULL ? other : models_at(s->models, 0));
    }
    json_drop(v);
}
