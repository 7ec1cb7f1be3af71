#include "server/response.h"
#include "server/conn_model.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/adapter_list.h"

/* The writers of all dialects, by endpoint. */
static const response_writer *const response_writers[] = {
    [QUIRE_COMPLETIONS] = &completions_writer,
    [QUIRE_CHAT] = &chat_writer,
    [QUIRE_MESSAGES] = &messages_writer,
    [QUIRE_RESPONSES] = &responses_writer,
    [QUIRE_OLLAMA_CHAT] = &ollama_writer,
    [QUIRE_OLLAMA_GENERATE] = &ollama_writer,
    [QUIRE_OLLAMA_RAW] = &ollama_writer,
    [QUIRE_EMBEDDINGS] = &embeddings_writer,
    [QUIRE_OLLAMA_EMBED] = &ollama_embed_writer,
    [QUIRE_OLLAMA_EMBEDDINGS] = &ollama_embeddings_writer,
    [QUIRE_POOLING] = &pooling_writer,
    [QUIRE_EMBEDDING] = &embedding_writer,
    [QUIRE_SCORE] = &score_writer,
    [QUIRE_RERANK] = &rerank_writer,
    [QUIRE_RERANKING] = &reranking_writer,
    [QUIRE_COMPLETIONS_RENDER] = &completions_render_writer,
    [QUIRE_CHAT_BATCH] = &chat_writer,
    [QUIRE_CHAT_RENDER] = &chat_render_writer,
    [QUIRE_TOKENIZE] = &tokenize_writer,
    [QUIRE_TOKENIZE_CHAT] = &tokenize_writer,
    [QUIRE_TOKENIZE_CONTENT] = &tokenize_content_writer,
    [QUIRE_DETOKENIZE] = &detokenize_writer,
    [QUIRE_APPLY_TEMPLATE] = &apply_template_writer,
    [QUIRE_LLAMA_COMPLETION] = &llama_writer,
    [QUIRE_LLAMA_INFILL] = &llama_writer,
    [QUIRE_SGLANG_GENERATE] = &sglang_writer,
    [QUIRE_SGLANG_ENCODE] = &sglang_rows_writer,
};

const response_writer *response_writer_of(quire_endpoint endpoint) {
    assert(endpoint < sizeof response_writers / sizeof *response_writers);
    return response_writers[endpoint];
}

/* ---- a response as the pending object of its connection ---- */

static void response_on_close(conn *c) {
    response_close(c->pending_of);
}

static void response_on_end(conn *c, const api_error *why) {
    response_fail(c->pending_of, *why);
}

static void response_on_cut(conn *c) {
    response_cut(c->pending_of, "the client read nothing from the stream for too long");
}

static const pending_kind response_pending = {
    .close = response_on_close,
    .end = response_on_end,
    .drained = response_drained,
    .cut = response_on_cut,
    .counts_disconnects = true,
};

response *response_of(const conn *c) {
    return c->pending == &response_pending ? c->pending_of : NULL;
}

static response *response_new(conn *c, const quire_request_info *info) {
    int32_t n = info->n_choices, n_samples = info->n_samples > 0 ? info->n_samples : 1;
    const response_writer *w = response_writer_of(info->endpoint);
    response *a = mem_new(1, sizeof(*a));
    void *state = mem_new(1, w->state_bytes + 1);
    response_choice *choices = mem_new((size_t)n, sizeof(*choices));
    response_prompt *prompts = mem_new((size_t)(n / n_samples), sizeof(*prompts));
    if (a == NULL || state == NULL || choices == NULL || prompts == NULL) {
        mem_free(a);
        mem_free(state);
        mem_free(choices);
        mem_free(prompts);
        return NULL;
    }
    *a = (response){.conn = c,
                    .loop = c->loop,
                    .model = conn_hand_model(c),
                    .writer = w,
                    .state = state,
                    .choices = choices,
                    .prompts = prompts,
                    .n_choices = n,
                    .n_samples = n_samples,
                    .sent_us = clock_us(),
                    .created_s = clock_unix_s()};
    for (int32_t i = 0; i < n; i++) {
        choices[i].stop_token = -1;
    }
    snprintf(a->id, sizeof(a->id), "%s%016" PRIx64, w->id_prefix, c->record.number);
    (void)snprintf(a->tenant, sizeof a->tenant, "%s", c->has_tenant ? c->tenant : "");
    c->pending = &response_pending;
    c->pending_of = a;
    return a;
}

/* ---- failing ---- */

/* Ends a response with more than `limit` bytes unsent: a stream's client is slow, or a
 * whole response is too large. */
static void response_too_large(response *a, size_t limit) {
    quire_error err;
    if (a->info->stream) {
        err_set(&err, QUIRE_BUSY, -1, "the client is %zu bytes behind the stream; --max-answer-bytes is %zu",
                a->n_bytes, limit);
        response_cut(a, err.message);
        return;
    }
    err_set(&err, QUIRE_BAD_REQUEST, -1,
            "the answer has over %zu bytes (--max-answer-bytes): stream it, or ask for fewer tokens, choices "
            "or logprobs",
            limit);
    response_fail(a, (api_error){.status = 400, .param = "max_tokens", .message = err.message});
}

/* ---- starting ---- */

/* Sets headers with what the body lacks: the dialect's, and fields without effect. */
static void response_note_headers(conn *c, const quire_request_info *info) {
    const response_writer *w = response_writer_of(info->endpoint);
    const quire_info *engine = quire_engine_info(conn_engine(c));
    int n = w->headers != NULL ? w->headers(engine, c->headers, sizeof c->headers) : 0;
    if (info->ignored != NULL) {
        snprintf(c->headers + n, sizeof c->headers - (size_t)n, "Warning: 199 quire \"ignored: %s\"\r\n",
                 info->ignored);
    }
}

/* Gives a request the adapter that it names as its model. False: there is none, or the
 * request has other adapters; c was refused. */
static bool response_take_adapter(conn *c, quire_request *r, const char *name) {
    const server *s = c->loop->server;
    quire_error err = {0};
    quire_err e = adapter_list_knows(s, str_of(name)) ? quire_request_adapter(r, name) : QUIRE_NOT_FOUND;
    if (e == QUIRE_INVALID) {
        conn_reply_error(
            c, 400, "lora",
            "lora has adapters, but model names an adapter too; leave lora out, or name the base model",
            NULL);
    } else if (e != QUIRE_OK) {
        err_set(&err, e, -1, "The model `%.200s` does not exist; this server has `%.200s`.", name,
                s->model_name);
        conn_reply_error(c, 404, "model", err.message, NULL);
    }
    return e == QUIRE_OK;
}

void response_start(conn *c, quire_request *r) {
    assert(r != NULL && c->pending == NULL && c->state == CONN_RESPONSE);
    server *s = c->loop->server;
    quire_error err = {0};
    const quire_request_info *info = quire_request_describe(r);
    if (models_sleeping(s->models) != SLEEP_NONE && !quire_request_describe_more(r)->prompt_only) {
        quire_request_free(r);
        conn_refuse_asleep(c);
        return;
    }
    quire_request_waited(r, c->record.model_wait_us);
    conn_keep_model(c, quire_request_describe_more(r));
    response_note_headers(c, info);
    bool has_adapter =
        info->model != NULL && c->model->m->number == 0 && !server_answers_to(s, str_of(info->model));
    if (has_adapter && !response_take_adapter(c, r, info->model)) {
        quire_request_free(r);
        return;
    }
    const response_writer *w = response_writer_of(info->endpoint);
    if (w->check != NULL &&
        w->check(quire_engine_rows(conn_engine(c)), quire_request_describe_more(r), &err) != QUIRE_OK) {
        quire_request_free(r);
        conn_reply_failure(c, error_of(&err));
        return;
    }
    response *a = response_new(c, info);
    if (a == NULL) {
        quire_request_free(r);
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    if (has_adapter) {
        (void)snprintf(a->adapter_name, sizeof a->adapter_name, "%s", info->model);
        (void)snprintf(c->record.adapter, sizeof c->record.adapter, "%s", info->model);
    }
    if (c->has_tenant && quire_request_tenant(r, c->tenant) != QUIRE_OK) {
        quire_request_free(r);
        response_fail_with(a, 500, "the tenant's name is too long");
        return;
    }
    a->responses = quire_request_responses(r);
    if (a->writer->open != NULL && a->writer->open(a, &err) != QUIRE_OK) {
        quire_request_free(r);
        response_fail(a, error_of(&err));
        return;
    }
    quire_err e = quire_submit(a->model->queue, r, a, &a->stream, &err);
    if (e != QUIRE_OK) {
        a->stream = NULL;
        a->responses = NULL;
        response_fail(a, error_of(&err));
        return;
    }
    a->info = quire_stream_describe(a->stream);
    a->more = quire_stream_describe_more(a->stream);
    if (a->responses != NULL && a->responses->is_background) {
        response_detach(a);
    }
}

/* ---- events ---- */

static bool response_add_ids(int32_t **ids, size_t *n, size_t *cap, const int32_t *more, int32_t n_more) {
    if (mem_grow(ids, cap, *n + (size_t)n_more, sizeof(int32_t)) != QUIRE_OK) {
        return false;
    }
    mem_copy(*ids + *n, more, (size_t)n_more * sizeof(int32_t));
    *n += (size_t)n_more;
    return true;
}

static size_t response_prompt_bytes(const response_prompt *p) {
    return p->n_ids * sizeof *p->ids + p->text.n + p->rendered.n + p->prompt_logprobs.n +
           response_logprobs_bytes(&p->logprobs);
}

/* Computes what all choices of a prompt show of it, at the first START of one of them. */
static bool response_take_prompt(response *a, response_prompt *p, const quire_event *ev) {
    size_t cap = 0, before = response_prompt_bytes(p);
    bool taken = p->taken || ((!a->info->return_token_ids ||
                               response_add_ids(&p->ids, &p->n_ids, &cap, ev->tokens, ev->n_tokens)) &&
                              strbuf_add(a->more->return_prompt_text ? &p->rendered : &p->text, ev->text,
                                         ev->n_text) == QUIRE_OK);
    p->taken = true;
    /* a choice that failed has none, but another may */
    if (!p->has_logprobs && (ev->logprobs != NULL || ev->n_tokens == 1 || a->info->prompt_logprobs < 0)) {
        p->has_logprobs = true;
        taken = taken && response_take_prompt_logprobs(a, p, ev) == QUIRE_OK;
    }
    response_count(a, (int64_t)(response_prompt_bytes(p) - before));
    return taken;
}

static void response_begin(response *a, response_choice *c, const quire_event *ev) {
    response_prompt *p = response_prompt_of(a, c);
    c->prompt_tokens = ev->prompt_tokens;
    bool is_first = !p->taken;
    if (!response_take_prompt(a, p, ev) ||
        (is_first && strbuf_add(&p->text, a->more->echo, a->more->n_echo) != QUIRE_OK)) {
        response_fail_with(a, 500, "out of memory");
        return;
    }
    c->logprobs.n_chars = c->logprobs.n_prompt_chars = p->logprobs.n_chars;
    if (a->conn == NULL) {
        a->writer->keep(a, RESPONSE_BEGUN, NULL);
    }
    if (!a->info->stream || (!a->started && !response_send_head(a))) {
        return;
    }
    if (p->text.n > 0) {
        response_hold(a, ev->choice);
    }
}

static size_t response_choice_bytes(const response_choice *c) {
    return c->text.n + answer_parts_bytes(&c->parts) + c->n_tokens * sizeof *c->tokens +
           response_logprobs_bytes(&c->logprobs);
}

static quire_err response_take_text(const response *a, response_choice *c, const quire_event *ev) {
    return a->info->has_parts ? answer_parts_take(&c->parts, ev, &c->text)
                              : strbuf_add(&c->text, ev->text, ev->n_text);
}

/* Copies the counts of the prediction: of ev's choice or, at DONE, of all choices. */
static void response_take_prediction(const quire_event *ev, response_prediction *out) {
    int32_t choice = ev->kind == QUIRE_EVENT_DONE ? -1 : ev->choice;
    quire_stream_prediction(ev->stream, choice, &out->n_accepted, &out->n_rejected);
}

static void response_delta(response *a, response_choice *c, const quire_event *ev) {
    if (c->held && !response_send_held(a, ev->choice)) {
        return;
    }
    size_t before = response_choice_bytes(c), limit = quire_engine_info(response_engine(a))->max_answer_bytes;
    bool ids_fit = !a->info->return_token_ids ||
                   response_add_ids(&c->tokens, &c->n_tokens, &c->cap_tokens, ev->tokens, ev->n_tokens);
    if (!ids_fit || response_take_text(a, c, ev) != QUIRE_OK ||
        response_take_logprobs(a, c, ev) != QUIRE_OK) {
        response_fail_with(a, 500, "out of memory");
        return;
    }
    response_count(a, (int64_t)(response_choice_bytes(c) - before));
    c->completion_tokens = ev->completion_tokens;
    c->cached_tokens = ev->cached_tokens;
    response_take_prediction(ev, &c->prediction);
    c->n_withheld += ev->n_tokens;
    if (a->writer->note != NULL) {
        a->writer->note(a, ev);
    }
    request_record_token(a->conn != NULL ? &a->conn->record : &a->record, ev->queue_us);
    if (limit > 0 && a->n_bytes > limit) {
        response_too_large(a, limit);
    } else if (a->info->stream) {
        response_hold(a, ev->choice);
    }
}

static void response_progress(response *a, response_choice *c, const quire_event *ev) {
    c->prompt_tokens = ev->prompt_tokens;
    if (a->info->stream && a->writer->progress != NULL) {
        (void)response_send_progress(a, ev->choice);
    }
}

static void response_row(response *a, response_choice *c, const quire_event *ev) {
    size_t before = response_choice_bytes(c);
    if (a->writer->row == NULL || a->writer->row(a, c, ev) != QUIRE_OK) {
        response_fail_with(a, 500, "out of memory");
        return;
    }
    response_count(a, (int64_t)(response_choice_bytes(c) - before));
}

/* Handles a rollback. Sent text cannot be withdrawn, so the client gets the length that
 * remains valid. A withheld chunk is sent first, even without room, since later text
 * continues the text that the event names. */
static void response_rollback(response *a, response_choice *c, const quire_event *ev) {
    if (c->held && !response_send_now(a, ev->choice)) {
        return;
    }
    c->completion_tokens = ev->completion_tokens;
    response_take_prediction(ev, &c->prediction);
    size_t before = response_choice_bytes(c);
    if (response_rollback_logprobs(a, c, ev) != QUIRE_OK) {
        response_fail_with(a, 500, "out of memory");
        return;
    }
    response_count(a, (int64_t)(response_choice_bytes(c) - before));
    json_out o = conn_begin_json(a->conn);
    json_raw(&o, "data: {");
    response_write_head(a, a->writer->chunk_object, &o);
    json_raw(json_name(&o, "choices"), "[]");
    json_begin(json_name(&o, "quire"), '{');
    json_int(json_name(&o, "rollback"), (int64_t)ev->prompt_tokens + ev->n_tokens);
    json_int(json_name(&o, "index"), ev->choice);
    json_text(json_name(&o, "text"), ev->text, ev->n_text);
    json_raw(&o, "}}\n\n");
    order_settle(&c->order, ev);
    (void)response_send_piece(a, &o);
}

/* Makes the engine keep an answer's ids, if the client's next request can name it. */
static void response_keep_turn(const response *a, const response_choice *c) {
    char id[RESPONSE_ANSWER_ID_BYTES];
    if (c->parts.has_calls) {
        answer_call_id(response_place(a, c), 0, id);
    } else if (a->writer->answer_id == NULL || !a->writer->answer_id(a, c, id)) {
        return;
    }
    (void)quire_stream_recall(a->stream, (int32_t)(c - a->choices), id); /* a failure costs only speed */
}

static void response_end(response *a, response_choice *c, const quire_event *ev) {
    c->finish = ev->finish;
    c->stop_token = ev->stop_token;
    c->sum_logprob = ev->sum_logprob;
    c->explain = ev->explain;
    c->beam_score = ev->beam_score;
    c->has_score = a->info->beam_width > 0 && ev->completion_tokens > 0;
    c->prompt_tokens = ev->prompt_tokens;
    c->completion_tokens = ev->completion_tokens;
    c->cached_tokens = ev->cached_tokens;
    response_take_prediction(ev, &c->prediction);
    size_t before = response_choice_bytes(c);
    if ((ev->stop_string != NULL && strbuf_add_str(&c->stop_string, ev->stop_string) != QUIRE_OK) ||
        response_end_logprobs(a, c) != QUIRE_OK) {
        response_fail_with(a, 500, "out of memory");
        return;
    }
    response_count(a, (int64_t)(response_choice_bytes(c) - before));
    response_keep_turn(a, c);
    if (a->info->stream && a->started) { /* otherwise it failed before it began, and DONE has the reason */
        (void)response_send_held(a, ev->choice);
    }
}

static void response_done(response *a, const quire_event *ev) {
    if (ev->finish == QUIRE_FINISH_ERROR) {
        quire_error err = {.code = QUIRE_INTERNAL, .message = "internal error"};
        if (ev->error != NULL) {
            err = *ev->error; /* a copy, since the stream owns it and is freed first */
        }
        response_fail(a, error_of(&err));
        return;
    }
    /* the engine is closing; a stream that this server cancels is released before */
    if (ev->finish == QUIRE_FINISH_CANCELLED) {
        response_fail_with(a, 503, CONN_SHUTTING_DOWN);
        return;
    }
    a->prompt_tokens = ev->prompt_tokens;
    a->completion_tokens = ev->completion_tokens;
    a->cached_tokens = ev->cached_tokens;
    response_take_prediction(ev, &a->prediction);
    response_finish(a);
}

void response_event(const quire_event *ev) {
    response *a = ev->user;
    if (a->conn != NULL) {
        body_give_room(&a->conn->body);
    }
    if (ev->kind == QUIRE_EVENT_DONE) {
        response_done(a, ev);
        return;
    }
    if (ev->choice < 0 || ev->choice >= a->n_choices) {
        return;
    }
    response_choice *c = &a->choices[ev->choice];
    if (ev->kind == QUIRE_EVENT_START) {
        response_begin(a, c, ev);
    } else if (ev->kind == QUIRE_EVENT_DELTA) {
        response_delta(a, c, ev);
    } else if (ev->kind == QUIRE_EVENT_PROGRESS) {
        response_progress(a, c, ev);
    } else if (ev->kind == QUIRE_EVENT_EMBEDDING) {
        response_row(a, c, ev);
    } else if (ev->kind == QUIRE_EVENT_ROLLBACK) {
        response_rollback(a, c, ev);
    } else if (ev->kind == QUIRE_EVENT_REFUSED) {
        order_settle(&c->order, ev);
    } else {
        response_end(a, c, ev);
    }
}

void response_ping_all(loop *l) {
    int64_t before_us = clock_us() - l->server->options.ping_us;
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        response *a = response_of(c);
        bool pings = a != NULL && a->info != NULL && a->info->stream && !a->is_done &&
                     (a->writer->ping != NULL || a->writer->stream_type == NULL);
        if (pings && a->sent_us <= before_us && conn_unsent(c) == 0) {
            response_ping(a);
        }
    }
}
