/* SGLang's native API: generations, queries, commands. The loop's thread. */
#include "server/routes.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/conn_model.h"
#include "server/loop_order.h"
#include "server/response.h"

#define SGLANG_VERSION "0.5.2"   /* version of SGLang's API */
#define SGLANG_WEIGHTS "default" /* version of weights that were never updated */
#define US_PER_S       1e6

/* ---- the last token of each choice, reported if it ended the choice ---- */

typedef struct sglang_state {
    int32_t *last_tokens; /* [n_choices] */
} sglang_state;

static quire_err sglang_open(response *a, quire_error *err) {
    sglang_state *st = a->state;
    st->last_tokens = mem_new((size_t)a->n_choices, sizeof *st->last_tokens);
    return mem_check_for(st->last_tokens, "a response", err);
}

static void sglang_deinit(void *state) {
    mem_free(((sglang_state *)state)->last_tokens);
}

static void sglang_note(response *a, const quire_event *ev) {
    if (ev->n_tokens > 0) {
        ((sglang_state *)a->state)->last_tokens[ev->choice] = ev->tokens[ev->n_tokens - 1];
    }
}

/* ---- log-probabilities: [value, id, text] for each token ---- */

/* Writes a token's entry; p NULL: it has no number. */
static void sglang_write_token(const response *a, const quire_logprob *p, int32_t id, json_out *o) {
    json_begin(o, '[');
    if (p != NULL) {
        json_number(json_item(o), response_logprob(p->logprob));
    } else {
        json_raw(json_item(o), "null");
    }
    json_int(json_item(o), id);
    if (a->more->token_texts) {
        str text = response_token_bytes(a, id); /* an incomplete character is shown as U+FFFD */
        json_text(json_item(o), text.p, text.n);
    } else {
        json_raw(json_item(o), "null");
    }
    json_end(o, ']');
}

/* Appends a position to a list of lists, if wanted: n tokens from p on, or null. */
static quire_err sglang_list_several(const response *a, bool is_wanted, const quire_logprob *p, int32_t n,
                                     strbuf *list) {
    json_out o = {.to = list};
    if (!is_wanted) {
        return QUIRE_OK;
    }
    if (p == NULL) {
        json_raw(json_item(&o), "null");
        return o.err;
    }
    json_begin(json_item(&o), '[');
    for (int32_t i = 0; i < n; i++) {
        sglang_write_token(a, &p[i], p[i].token, json_item(&o));
    }
    json_end(&o, ']');
    return o.err;
}

/* Appends a position to the lists: its token, the likeliest tokens, and those that the
 * request names. p NULL: no numbers. */
static quire_err sglang_list_position(const response *a, response_logprobs *l, const quire_logprob *p,
                                      int32_t id) {
    json_out tokens = {.to = &l->content};
    int32_t n_top = a->info->logprobs, n_named = a->more->n_scored;
    sglang_write_token(a, p, id, json_item(&tokens));
    TRY(tokens.err);
    TRY(sglang_list_several(a, n_top > 0, p != NULL ? p + 1 : NULL, n_top, &l->tops));
    return sglang_list_several(a, n_named > 0, p != NULL ? p + 1 + n_top : NULL, n_named, &l->values);
}

static quire_err sglang_list_prompt(const response *a, response_prompt *to, const quire_event *ev, int32_t i,
                                    const quire_logprob *p) {
    int32_t start = a->more->logprobs_start;
    bool is_listed = start >= 0 ? i >= start : i == ev->n_tokens - 1;
    return is_listed ? sglang_list_position(a, &to->logprobs, p, ev->tokens[i]) : QUIRE_OK;
}

static quire_err sglang_list_token(const response *a, response_choice *c, const quire_event *ev) {
    return ev->logprobs != NULL ? sglang_list_position(a, &c->logprobs, ev->logprobs, ev->tokens[0])
                                : QUIRE_OK;
}

static void sglang_write_logprobs(const response_logprobs *p, const response_logprobs *l, json_out *o) {
    static const strbuf none = {0};
    response_write_lists("input_token_logprobs", &p->content, &none, 0, o);
    response_write_lists("output_token_logprobs", &none, &l->content, l->content.n, o);
    if (p->tops.n + l->tops.n > 0) {
        response_write_lists("input_top_logprobs", &p->tops, &none, 0, o);
        response_write_lists("output_top_logprobs", &none, &l->tops, l->tops.n, o);
    }
    if (p->values.n + l->values.n > 0) {
        response_write_lists("input_token_ids_logprobs", &p->values, &none, 0, o);
        response_write_lists("output_token_ids_logprobs", &none, &l->values, l->values.n, o);
    }
}

/* ---- responses ---- */

/* The name after this one in a request's list of names. */
static const char *sglang_next_name(const char *name) {
    return name + strlen(name) + 1;
}

/* Writes the client's name for the choice's prompt, with the choice's number if several
 * choices have the name; without a name, the server's id. */
static void sglang_write_id(const response *a, int32_t choice, json_out *o) {
    const char *name = a->more->request_id != NULL ? a->more->request_id : a->id;
    char id[RESPONSE_ANSWER_ID_BYTES];
    for (int32_t i = 0; a->more->names_prompts && i < choice / a->n_samples; i++) {
        name = sglang_next_name(name);
    }
    bool is_shared = a->more->is_list && (!a->more->names_prompts || a->n_samples > 1);
    int32_t number = a->more->names_prompts ? choice % a->n_samples : choice;
    (void)snprintf(id, sizeof id, is_shared ? "%s_%d" : "%s", name, (int)number);
    json_cstr(json_name(o, "id"), id);
}

static void sglang_write_finish(const response *a, const response_choice *c, json_out *o) {
    json_name(o, "finish_reason");
    if (c->finish == QUIRE_FINISH_NONE) {
        json_raw(o, "null");
        return;
    }
    bool stops = c->finish == QUIRE_FINISH_STOP, is_full = c->finish == QUIRE_FINISH_LENGTH;
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), stops ? "stop" : is_full ? "length" : "abort");
    if (is_full) {
        json_int(json_name(o, "length"), c->completion_tokens);
    } else if (!stops) {
        json_cstr(json_name(o, "message"), "the request was cancelled");
    } else if (c->stop_string.n > 0) {
        json_text(json_name(o, "matched"), c->stop_string.p, c->stop_string.n);
    } else {
        json_int(json_name(o, "matched"), ((const sglang_state *)a->state)->last_tokens[c - a->choices]);
    }
    json_end(o, '}');
}

/* Writes the beginning of "meta_info", common to all responses. */
static void sglang_begin_meta(const response *a, const response_choice *c, json_out *o) {
    json_begin(json_name(o, "meta_info"), '{');
    sglang_write_id(a, (int32_t)(c - a->choices), o);
    sglang_write_finish(a, c, o);
    json_int(json_name(o, "prompt_tokens"), c->prompt_tokens);
    json_cstr(json_name(o, "weight_version"), SGLANG_WEIGHTS);
}

static void sglang_end_meta(const response *a, const response_choice *c, json_out *o) {
    if (c->finish != QUIRE_FINISH_NONE) {
        json_number(json_name(o, "e2e_latency"), (double)(clock_us() - a->conn->record.begun_us) / US_PER_S);
    }
    json_end(o, '}');
}

/* Writes a choice; in a stream all text so far, but only the ids since the last chunk. */
static void sglang_write_choice(const response *a, const response_choice *c, json_out *o) {
    json_begin(o, '{');
    json_text(json_name(o, "text"), c->text.n > 0 ? c->text.p : "", c->text.n);
    json_ints(json_name(o, "output_ids"), c->tokens, c->n_tokens);
    sglang_begin_meta(a, c, o);
    if (a->info->logprobs >= 0) {
        sglang_write_logprobs(&response_prompt_of(a, c)->logprobs, &c->logprobs, o);
    }
    json_int(json_name(o, "completion_tokens"), c->completion_tokens);
    json_int(json_name(o, "cached_tokens"), c->cached_tokens);
    sglang_end_meta(a, c, o);
    if (a->info->stream && a->more->is_list) {
        json_int(json_name(o, "index"), c - a->choices);
    }
    if (c->finish != QUIRE_FINISH_NONE) {
        response_write_explain(a, c, o);
    }
    json_end(o, '}');
}

static void sglang_begin(const response *a, json_out *o) {
    json_raw(o, a->more->is_list ? "[" : "");
}

static void sglang_write_shown(const response *a, int32_t i, json_out *o) {
    json_raw(o, i > 0 ? "," : "");
    sglang_write_choice(a, &a->choices[a->shown[i]], o);
}

static void sglang_end(const response *a, json_out *o) {
    json_raw(o, a->more->is_list ? "]" : "");
}

static void sglang_write_chunk(const response *a, int32_t choice, json_out *o) {
    json_raw(o, "data: ");
    sglang_write_choice(a, &a->choices[choice], o);
    json_raw(o, "\n\n");
}

static void sglang_write_row(const response *a, int32_t i, json_out *o) {
    const response_choice *c = &a->choices[a->shown[i]];
    json_raw(o, i > 0 ? "," : "");
    json_begin(o, '{');
    json_name(o, "embedding");
    json_raw_part(o, (str){c->text.p, c->text.n});
    sglang_begin_meta(a, c, o);
    sglang_end_meta(a, c, o);
    json_end(o, '}');
}

const response_writer sglang_writer = {
    .id_prefix = "sglang-",
    .object = "",
    .is_linear = true,
    .is_cumulative = true,
    .state_bytes = sizeof(sglang_state),
    .deinit = sglang_deinit,
    .open = sglang_open,
    .note = sglang_note,
    .begin = sglang_begin,
    .choice = sglang_write_shown,
    .end = sglang_end,
    .chunk = sglang_write_chunk,
    .last = response_write_last,
    .error = response_write_error,
    .logprobs = {.prompt = sglang_list_prompt,
                 .token = sglang_list_token,
                 .write = sglang_write_logprobs,
                 .lists_prompts = true},
};

const response_writer sglang_rows_writer = {
    .id_prefix = "sglang-",
    .object = "",
    .state_bytes = sizeof(sglang_state),
    .deinit = sglang_deinit,
    .open = sglang_open,
    .begin = sglang_begin,
    .choice = sglang_write_row,
    .end = sglang_end,
    .row = embeddings_take_row,
};

/* ---- the server ---- */

/* Whether the main model generates text; otherwise it returns rows. */
static bool sglang_generates(const quire_info *i) {
    return !i->has_vocabulary || i->end_tokens != NULL;
}

void sglang_model_info(conn *c) {
    assert(c != NULL);
    const server *s = c->loop->server;
    json_out o = conn_begin_json(c);
    json_begin(&o, '{');
    json_cstr(json_name(&o, "model_path"), s->model_name);
    json_cstr(json_name(&o, "tokenizer_path"), s->model_name);
    json_bool(json_name(&o, "is_generation"), sglang_generates(quire_engine_info(s->engine)));
    json_raw(json_name(&o, "preferred_sampling_params"), "null");
    json_cstr(json_name(&o, "weight_version"), SGLANG_WEIGHTS);
    json_end(&o, '}');
    conn_reply_json(c, &o, NULL);
}

void sglang_server_info(conn *c) {
    assert(c != NULL);
    const server *s = c->loop->server;
    const quire_info *i = quire_engine_info(s->engine);
    json_out o = conn_begin_json(c);
    json_begin(&o, '{');
    json_cstr(json_name(&o, "model_path"), s->model_name);
    json_cstr(json_name(&o, "tokenizer_path"), s->model_name);
    json_cstr(json_name(&o, "served_model_name"), s->model_name);
    json_bool(json_name(&o, "is_embedding"), !sglang_generates(i));
    json_int(json_name(&o, "context_length"), i->max_model_len);
    json_cstr(json_name(&o, "kv_cache_dtype"), i->kv_dtype);
    json_int(json_name(&o, "page_size"), i->page_tokens);
    json_bool(json_name(&o, "disable_radix_cache"), !i->caches_prefixes);
    json_int(json_name(&o, "max_prefill_tokens"), i->max_batched_tokens);
    json_int(json_name(&o, "max_running_requests"), i->max_seqs);
    json_int(json_name(&o, "max_total_num_tokens"), (int64_t)i->n_pages * i->page_tokens);
    json_cstr(json_name(&o, "weight_version"), SGLANG_WEIGHTS);
    json_raw(json_name(&o, "internal_states"), "[{}]");
    json_cstr(json_name(&o, "version"), SGLANG_VERSION);
    json_cstr(json_name(&o, "quire_version"), QUIRE_VERSION);
    json_end(&o, '}');
    conn_reply_json(c, &o, NULL);
}

void sglang_health(conn *c) {
    static const char body[] =
        "{\"input_ids\":[0],\"sampling_params\":{\"max_new_tokens\":1,\"temperature\":0}}";
    quire_request *r = NULL;
    quire_error err = {0};
    if (!conn_take_model(c, sglang_health)) {
        return;
    }
    bool generates = sglang_generates(quire_engine_info(conn_engine(c)));
    quire_err e = quire_request_parse(conn_engine(c), generates ? QUIRE_SGLANG_GENERATE : QUIRE_SGLANG_ENCODE,
                                      body, sizeof body - 1, &r, &err);
    if (e != QUIRE_OK) {
        conn_reply_failure(c, error_of(&err));
        return;
    }
    response_start(c, r);
}

/* ---- /abort_request: visits the loops one after another ---- */

/* Whether a request or one of its prompts has this name, the client's or the server's. */
static bool sglang_has_name(const response *a, str name) {
    const char *own = a->more != NULL ? a->more->request_id : NULL;
    bool found = str_is(name, a->id);
    int32_t n = own == NULL ? 0 : a->more->names_prompts ? a->n_choices / a->n_samples : 1;
    for (int32_t i = 0; i < n && !found; i++, own = sglang_next_name(own)) {
        found = str_is(name, own);
    }
    return found;
}

/* Ends this loop's requests that the order names (o->index: all); passes the order on. */
static void sglang_abort_here(loop *l, loop_order *o) {
    static const api_error why = {.status = STATUS_CANCELLED,
                                  .code = "request_cancelled",
                                  .message = "the client aborted this request"};
    int32_t next_loop = (int32_t)(l - l->server->loops) + 1;
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        const response *a = response_of(c);
        bool is_own = c->has_tenant == o->has_tenant && (!o->has_tenant || strcmp(c->tenant, o->tenant) == 0);
        if (a != NULL && a->writer == &sglang_writer && is_own &&
            (o->index > 0 || sglang_has_name(a, (str){o->text, o->n_text}))) {
            conn_end(c, &why);
        }
    }
    if (next_loop < l->server->n_loops) {
        order_send(o, &l->server->loops[next_loop]);
    } else {
        order_send_back(o);
    }
}

static void sglang_reply_aborted(conn *c, loop_order *o) {
    (void)o;
    conn_reply(c, &(reply){.status = 200});
}

static const order_kind sglang_aborting = {.run = sglang_abort_here, .reply = sglang_reply_aborted};

void sglang_abort(conn *c) {
    const strbuf *body = &c->request.body;
    json_value *v = json_document((str){body->n > 0 ? body->p : "", body->n});
    str name = json_get_str(v, "rid");
    bool is_all = json_get_bool(v, "abort_all", false);
    if (!is_all && name.n == 0) {
        json_drop(v);
        conn_reply_error(c, 400, "rid", "the body must be {\"rid\": NAME} or {\"abort_all\": true}", NULL);
        return;
    }
    loop_order *o = order_new(c, &sglang_aborting);
    if (o == NULL) {
        json_drop(v);
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    o->body = v;
    o->text = name.p;
    o->n_text = name.n;
    o->index = is_all;
    o->has_tenant = c->has_tenant;
    memcpy(o->tenant, c->tenant, sizeof o->tenant);
    o->to = &c->loop->server->loops[0];
    order_begin(o);
}
