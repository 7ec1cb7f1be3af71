/* llama.cpp's API: its completions, and requests about the server. The loop's thread. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/models.h"
#include "server/response.h"
#include "server/routes.h"
#include "json/json.h"

#define US_PER_MS 1e3

static const char *llama_error_type(const api_error *e) {
    if (e->param != NULL && strcmp(e->param, "input_tokens") == 0) {
        return "exceed_context_size_error";
    }
    return e->status == 401                       ? "authentication_error"
           : e->status == 403                     ? "permission_error"
           : e->status == 404                     ? "not_found_error"
           : e->status == 501                     ? "not_supported_error"
           : e->status == 503 || e->status == 429 ? "unavailable_error"
           : e->status >= 500                     ? "server_error"
                                                  : "invalid_request_error";
}

void llama_error(json_out *o, const api_error *e) {
    assert(e != NULL);
    json_begin(o, '{');
    json_begin(json_name(o, "error"), '{');
    json_int(json_name(o, "code"), e->status);
    json_cstr(json_name(o, "message"), e->message);
    json_cstr(json_name(o, "type"), llama_error_type(e));
    json_end(o, '}');
    json_end(o, '}');
}

/* ---- times ---- */

/* When a choice's tokens came (0: none), and what they contained. */
typedef struct llama_times {
    int64_t first_us, last_us;
    int64_t queue_us; /* time until the request was admitted */
    bool has_line;    /* the text has a newline */
} llama_times;

typedef struct llama_state {
    int64_t begun_us;   /* when the request was submitted */
    llama_times *times; /* [n_choices] */
} llama_state;

static quire_err llama_open(response *a, quire_error *err) {
    llama_state *st = a->state;
    st->begun_us = clock_us();
    st->times = mem_new((size_t)a->n_choices, sizeof *st->times);
    return mem_check_for(st->times, "a response", err);
}

static void llama_deinit(void *state) {
    mem_free(((llama_state *)state)->times);
}

static void llama_note(response *a, const quire_event *ev) {
    llama_times *t = &((llama_state *)a->state)->times[ev->choice];
    t->last_us = clock_us();
    t->has_line = t->has_line || (ev->n_text > 0 && memchr(ev->text, '\n', ev->n_text) != NULL);
    if (t->first_us == 0) {
        t->first_us = t->last_us;
        t->queue_us = ev->queue_us;
    }
}

/* Writes "NAME_n":..,"NAME_ms":.. and two rates, which are 0 if nothing was measured. */
static void llama_write_rates(const char *const names[4], int64_t n, int64_t us, json_out *o) {
    double ms = us > 0 ? (double)us / US_PER_MS : 0.0;
    json_int(json_name(o, names[0]), n);
    json_number(json_name(o, names[1]), ms);
    json_number(json_name(o, names[2]), n > 0 ? ms / (double)n : 0.0);
    json_number(json_name(o, names[3]), ms > 0 ? (double)n * 1e3 / ms : 0.0);
}

/* Writes times: of the prompt, from admission to first token, and of the other tokens. */
static void llama_write_timings(const response *a, const response_choice *c, json_out *o) {
    static const char *const of_prompt[] = {"prompt_n", "prompt_ms", "prompt_per_token_ms",
                                            "prompt_per_second"},
                             *const of_tokens[] = {"predicted_n", "predicted_ms", "predicted_per_token_ms",
                                                   "predicted_per_second"};
    const llama_state *st = a->state;
    const llama_times *t = &st->times[c - a->choices];
    int64_t prompt_us = t->first_us > 0 ? t->first_us - st->begun_us - t->queue_us : 0;
    json_begin(json_name(o, "timings"), '{');
    json_int(json_name(o, "cache_n"), c->cached_tokens);
    llama_write_rates(of_prompt, c->prompt_tokens - c->cached_tokens, prompt_us, o);
    llama_write_rates(of_tokens, c->completion_tokens, t->last_us - t->first_us, o);
    json_end(o, '}');
}

/* ---- log-probabilities: an object for each token ---- */

/* Writes a token's object without its closing brace. */
static void llama_begin_token(const response *a, const quire_logprob *p, json_out *o) {
    json_begin(json_item(o), '{');
    json_int(json_name(o, "id"), p->token);
    response_write_token_text(a, p->token, json_name(o, "token"));
    response_write_bytes(response_token_bytes(a, p->token), json_name(o, "bytes"));
    json_number(json_name(o, "logprob"), response_logprob(p->logprob));
}

static quire_err llama_list_token(const response *a, response_choice *c, const quire_event *ev) {
    json_out o = {.to = &c->logprobs.content};
    if (ev->logprobs == NULL) {
        return QUIRE_OK;
    }
    llama_begin_token(a, &ev->logprobs[0], &o);
    json_begin(json_name(&o, "top_logprobs"), '[');
    for (int32_t i = 1; i < ev->n_logprobs; i++) {
        llama_begin_token(a, &ev->logprobs[i], &o);
        json_end(&o, '}');
    }
    json_end(&o, ']');
    json_end(&o, '}');
    return o.err;
}

static void llama_write_logprobs(const response_logprobs *prompt, const response_logprobs *l, json_out *o) {
    response_write_lists("completion_probabilities", &prompt->content, &l->content, l->content.n, o);
}

/* ---- responses ---- */

/* Writes the prompt's text or, without a vocabulary, its ids. */
static void llama_write_prompt(const response *a, const response_choice *c, json_out *o) {
    const response_prompt *p = response_prompt_of(a, c);
    quire_error err;
    char *text = NULL;
    size_t n = 0;
    json_name(o, "prompt");
    if (quire_detokenize(response_engine(a), p->ids, p->n_ids, false, &text, &n, &err) == QUIRE_OK) {
        json_text(o, text, n);
    } else {
        json_ints(o, p->ids, p->n_ids);
    }
    quire_free(text);
}

/* Writes the beginning of a whole response, a chunk, a progress event or the end of a
 * stream. shows_text: with the text, which at a stream's end was sent already. */
static void llama_begin_choice(const response *a, const response_choice *c, bool shows_text, bool stops,
                               json_out *o) {
    bool shows_ids = shows_text && (a->info->stream || a->more->return_tokens);
    str text = {shows_text && c->text.n > 0 ? c->text.p : "", shows_text ? c->text.n : 0};
    json_begin(o, '{');
    json_int(json_name(o, "index"), c - a->choices);
    json_text(json_name(o, "content"), text.p, text.n);
    json_name(o, "tokens");
    json_ints(o, c->tokens, shows_ids ? c->n_tokens : 0);
    json_bool(json_name(o, "stop"), stops);
    json_int(json_name(o, "id_slot"), -1);
    json_int(json_name(o, "tokens_predicted"), c->completion_tokens);
    json_int(json_name(o, "tokens_evaluated"), c->prompt_tokens);
    if (shows_text && a->info->logprobs >= 0) {
        llama_write_logprobs(&response_prompt_of(a, c)->logprobs, &c->logprobs, o);
    }
}

static const char *llama_stop_type(const response_choice *c) {
    return c->finish == QUIRE_FINISH_LENGTH ? "limit"
           : c->finish != QUIRE_FINISH_STOP ? "none"
           : c->stop_string.n > 0           ? "word"
                                            : "eos";
}

static void llama_write_all(const response *a, const response_choice *c, bool shows_text, json_out *o) {
    llama_begin_choice(a, c, shows_text, true, o);
    json_cstr(json_name(o, "model"), response_model(a));
    json_raw(json_name(o, "generation_settings"), a->more->settings);
    llama_write_prompt(a, c, o);
    json_bool(json_name(o, "has_new_line"), ((const llama_state *)a->state)->times[c - a->choices].has_line);
    json_bool(json_name(o, "truncated"), false);
    json_cstr(json_name(o, "stop_type"), llama_stop_type(c));
    json_text(json_name(o, "stopping_word"), c->stop_string.n > 0 ? c->stop_string.p : "", c->stop_string.n);
    json_int(json_name(o, "tokens_cached"), c->cached_tokens);
    llama_write_timings(a, c, o);
    response_write_explain(a, c, o);
    json_end(o, '}');
}

/* ---- response_fields: paths of members, "timings/prompt_n" ---- */

/* The member of v at a path; NULL: absent. */
static const json_value *llama_find(const json_value *v, str path) {
    while (json_is(v, JSON_KIND_OBJECT)) {
        const char *slash = memchr(path.p, '/', path.n);
        str key = {path.p, slash != NULL ? (size_t)(slash - path.p) : path.n};
        const json_value *found = NULL;
        for (json_member m = {0}; json_next(v, &m);) {
            found = str_is(key, m.name) ? m.value : found;
        }
        if (slash == NULL) {
            return found;
        }
        v = found;
        path = (str){slash + 1, path.n - key.n - 1};
    }
    return NULL;
}

/* Writes the members at the given paths, each path once. */
static void llama_write_fields(const json_value *all, const json_value *paths, json_out *o) {
    json_begin(o, '{');
    for (size_t i = 0; i < json_length(paths); i++) {
        str path = json_str(json_at(paths, i));
        const json_value *found = llama_find(all, path);
        for (size_t k = 0; k < i && found != NULL; k++) {
            found = str_eq(json_str(json_at(paths, k)), path) ? NULL : found;
        }
        if (found != NULL) {
            json_text(json_item(o), path.p, path.n);
            json_raw(o, ":");
            json_add(o, found);
        }
    }
    json_end(o, '}');
}

/* Writes all members of a response (llama_write_all), or those that the request names. */
static void llama_write_asked(const response *a, const response_choice *c, bool shows_text, json_out *o) {
    const char *asked = a->more->response_fields;
    if (asked == NULL) {
        llama_write_all(a, c, shows_text, o);
        return;
    }
    strbuf text = {0};
    json_out whole = {.to = &text};
    llama_write_all(a, c, shows_text, &whole);
    json_value *all = whole.err == QUIRE_OK ? json_document((str){text.p, text.n}) : NULL,
               *paths = json_document(str_of(asked));
    if (all == NULL || paths == NULL) {
        o->err = QUIRE_NO_MEMORY;
    } else {
        llama_write_fields(all, paths, o);
    }
    json_drop(all);
    json_drop(paths);
    strbuf_deinit(&text);
}

/* Begins a response; several choices make an array. */
static void llama_begin(const response *a, json_out *o) {
    json_raw(o, a->n_shown > 1 ? "[" : "");
}

static void llama_write_choice(const response *a, int32_t i, json_out *o) {
    json_raw(o, i > 0 ? "," : "");
    llama_write_asked(a, &a->choices[a->shown[i]], true, o);
}

static void llama_end(const response *a, json_out *o) {
    json_raw(o, a->n_shown > 1 ? "]" : "");
}

/* Writes new content, if any; the last chunk also says how the choice ended. */
static void llama_write_chunk(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    if (c->text.n > 0 || c->n_tokens > 0) {
        json_raw(o, "data: ");
        llama_begin_choice(a, c, true, false, o);
        if (a->more->timings_per_token) {
            llama_write_timings(a, c, o);
        }
        json_end(o, '}');
        json_raw(o, "\n\n");
    }
    if (c->finish != QUIRE_FINISH_NONE) {
        json_raw(o, "data: ");
        llama_write_asked(a, c, false, o);
        json_raw(o, "\n\n");
    }
}

static void llama_write_progress(const response *a, int32_t choice, json_out *o) {
    json_raw(o, "data: ");
    llama_begin_choice(a, &a->choices[choice], false, false, o);
    response_write_progress(a, choice, o);
    json_end(o, '}');
    json_raw(o, "\n\n");
}

static void llama_write_last(const response *a, json_out *o) {
    (void)a, (void)o; /* each choice has already reported its end */
}

static void llama_write_error(const response *a, const api_error *e, json_out *o) {
    (void)a;
    json_raw(o, "data: ");
    llama_error(o, e);
    json_raw(o, "\n\n");
}

const response_writer llama_writer = {
    .id_prefix = "llama-",
    .object = "",
    .is_linear = true,
    .state_bytes = sizeof(llama_state),
    .deinit = llama_deinit,
    .open = llama_open,
    .note = llama_note,
    .begin = llama_begin,
    .choice = llama_write_choice,
    .end = llama_end,
    .chunk = llama_write_chunk,
    .last = llama_write_last,
    .error = llama_write_error,
    .progress = llama_write_progress,
    .error_body = llama_error,
    .logprobs = {.token = llama_list_token, .write = llama_write_logprobs},
};

/* ---- the server ---- */

static void llama_write_token(const quire_engine *e, const char *name, int32_t id, json_out *o) {
    size_t n = 0;
    const char *text = id >= 0 ? quire_token_piece(e, id, &n) : "";
    json_text(json_name(o, name), text != NULL ? text : "", n);
}

/* Writes the default settings of requests. */
static void llama_write_defaults(const server *s, json_out *o) {
    static const char body[] = "{\"prompt\":[0]}";
    quire_request *r = NULL;
    quire_error err;
    json_begin(json_name(o, "default_generation_settings"), '{');
    json_int(json_name(o, "n_ctx"), quire_engine_info(s->engine)->max_model_len);
    if (quire_request_parse(s->engine, QUIRE_LLAMA_COMPLETION, body, sizeof body - 1, &r, &err) == QUIRE_OK) {
        json_raw(json_name(o, "params"), quire_request_describe_more(r)->settings);
        quire_request_free(r);
    }
    json_end(o, '}');
}

void llama_props(conn *c) {
    assert(c != NULL);
    const server *s = c->loop->server;
    const quire_info *i = quire_engine_info(s->engine);
    size_t n_template;
    const char *template = quire_engine_chat_template(s->engine, &n_template);
    json_out o = conn_begin_json(c);
    json_begin(&o, '{');
    llama_write_defaults(s, &o);
    json_int(json_name(&o, "total_slots"), i->max_seqs);
    json_cstr(json_name(&o, "model_alias"), s->model_name);
    json_cstr(json_name(&o, "model_path"), s->model_name);
    json_text(json_name(&o, "chat_template"), template, n_template);
    llama_write_token(s->engine, "bos_token", i->bos, &o);
    llama_write_token(s->engine, "eos_token", i->eos, &o);
    json_raw(json_name(&o, "modalities"), "{\"vision\":false,\"audio\":false}");
    json_cstr(json_name(&o, "build_info"), "quire " QUIRE_VERSION);
    json_bool(json_name(&o, "is_sleeping"), models_sleeping(s->models) != SLEEP_NONE);
    json_end(&o, '}');
    conn_reply_json(c, &o, NULL);
}
