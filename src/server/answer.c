#include "server/answer.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/error_body.h"
#include "server/streams.h"

/* ---- opening and closing ---- */

void answer_close(answer *a) {
    loop *l = a->conn->loop;
    streams_end(a);
    if (a->stream != NULL) {
        quire_stream_release(a->stream);
    }
    for (answer **p = &l->unsent; a->listed && *p != NULL; p = &(*p)->next_unsent) {
        if (*p == a) {
            *p = a->next_unsent;
            break;
        }
    }
    for (int32_t i = 0; i < a->n_choices; i++) {
        answer_choice *c = &a->choices[i];
        strbuf_deinit(&c->text);
        strbuf_deinit(&c->stop_string);
        answer_deinit_logprobs(c);
        mem_free(c->tokens);
        mem_free(c->prompt);
    }
    mem_free(a->choices);
    mem_free(a->shown);
    a->conn->answer = NULL;
    mem_free(a);
}

static answer *answer_new(conn *c, quire_endpoint endpoint, int32_t n_choices) {
    answer *a = mem_new(1, sizeof(*a));
    answer_choice *choices = mem_new((size_t)n_choices, sizeof(*choices));
    if (a == NULL || choices == NULL) {
        mem_free(a);
        mem_free(choices);
        return NULL;
    }
    *a = (answer){.conn = c, .choices = choices, .n_choices = n_choices, .created_s = clock_unix_s()};
    a->format = endpoint == QUIRE_CHAT ? &chat_format : &completions_format;
    for (int32_t i = 0; i < n_choices; i++) {
        choices[i].stop_token = -1;
    }
    snprintf(a->id, sizeof(a->id), "%s-%016" PRIx64, a->format->id_prefix, streams_number(c->loop));
    c->answer = a;
    return a;
}

/* ---- failing ---- */

/* Empties the loop's scratch buffer and writes into it. */
static json_out begin_json(const answer *a) {
    strbuf_clear(&a->conn->loop->scratch);
    return (json_out){.to = &a->conn->loop->scratch};
}

static str scratch_of(const conn *c) {
    return (str){c->loop->scratch.p, c->loop->scratch.n};
}

/* Replies with an error, and with when to try again where that would help: after_s seconds, or 1 for 0. */
static void reply_error(conn *c, int status, const char *param, const char *message, int32_t after_s) {
    char retry[40];
    snprintf(retry, sizeof retry, "Retry-After: %d\r\n", (int)(after_s > 0 ? after_s : 1));
    conn_reply_error(c, status, param, message, status == 429 || status == 503 ? retry : NULL);
}

/* Ends the answer with an error: a status when nothing was sent yet, else an event. */
static void fail_for(answer *a, int status, const char *param, const char *message, int32_t retry_after_s) {
    conn *c = a->conn;
    if (!a->started) {
        answer_close(a);
        reply_error(c, status, param, message, retry_after_s);
        return;
    }
    json_out o = begin_json(a);
    json_raw(&o, "data: ");
    error_body(&o, status, param, message);
    json_raw(&o, "\n\ndata: [DONE]\n\n");
    if (conn_stream_add(c, scratch_of(c))) {
        answer_close(a);
        conn_stream_end(c);
    }
}

static void fail(answer *a, int status, const char *param, const char *message) {
    fail_for(a, status, param, message, 0);
}

void answer_abort(answer *a) {
    fail(a, 503, NULL, "the server is shutting down");
}

static void out_of_memory(answer *a) {
    fail(a, 500, NULL, "out of memory");
}

/* ---- starting ---- */

void answer_start(conn *c, quire_endpoint endpoint) {
    server *s = c->loop->server;
    quire_request *r = NULL;
    quire_error err = {0};
    const strbuf *body = &c->request.body;
    quire_err e = quire_request_parse(s->engine, endpoint, body->n > 0 ? body->p : "", body->n, &r, &err);
    strbuf_deinit(&c->request.body);
    if (e != QUIRE_OK) {
        reply_error(c, error_status(e), err.param, err.message, err.retry_after_s);
        return;
    }
    answer_start_request(c, r);
}

void answer_start_request(conn *c, quire_request *r) {
    server *s = c->loop->server;
    quire_error err = {0};
    const quire_request_info *info = quire_request_describe(r);
    if (info->model != NULL && strcmp(info->model, s->model_name) != 0) {
        err_set(&err, QUIRE_NOT_FOUND, -1, "The model `%.200s` does not exist; this server has `%.200s`.", info->model, s->model_name);
        quire_request_free(r);
        conn_reply_error(c, 404, "model", err.message, NULL);
        return;
    }
    answer *a = answer_new(c, info->endpoint, info->n_choices);
    if (a == NULL) {
        quire_request_free(r);
        conn_reply_error(c, 500, NULL, "out of memory", NULL);
        return;
    }
    if (c->tenant != NULL && quire_request_tenant(r, c->tenant) != QUIRE_OK) {
        quire_request_free(r);
        fail(a, 500, NULL, "the tenant's name is too long");
        return;
    }
    quire_err e = quire_submit(c->loop->queue, r, a, &a->stream, &err);
    if (e != QUIRE_OK) {
        a->stream = NULL;
        fail(a, error_status(e), err.param, err.message);
        return;
    }
    a->info = quire_stream_describe(a->stream);
}

/* ---- streaming: each of these returns false when a is gone ---- */

static bool send_piece(answer *a, const json_out *o) {
    if (o->err != QUIRE_OK) {
        out_of_memory(a);
        return false;
    }
    return conn_stream_add(a->conn, scratch_of(a->conn));
}

static bool send_chunk(answer *a, int32_t i, void (*write)(const answer *, int32_t, json_out *)) {
    json_out o = begin_json(a);
    json_raw(&o, "data: ");
    write(a, i, &o);
    json_raw(&o, "\n\n");
    return send_piece(a, &o);
}

static bool send_held(answer *a, int32_t i) {
    answer_choice *c = &a->choices[i];
    bool nothing = a->format->skips_empty && c->text.n == 0 && c->logprobs.content.n == 0 && !a->info->return_token_ids && c->finish == QUIRE_FINISH_NONE;
    if (!nothing && !send_chunk(a, i, a->format->chunk)) {
        return false;
    }
    c->prompt_sent = true;
    c->held = false;
    c->n_tokens = 0;
    strbuf_clear(&c->text);
    answer_clear_logprobs(c);
    return true;
}

static void hold(answer *a, answer_choice *c) {
    c->held = true;
    if (!a->listed) {
        a->listed = true;
        a->next_unsent = a->conn->loop->unsent;
        a->conn->loop->unsent = a;
    }
}

void answer_flush_unsent(loop *l) {
    while (l->unsent != NULL) {
        answer *a = l->unsent;
        l->unsent = a->next_unsent;
        a->listed = false;
        bool alive = true;
        for (int32_t i = 0; alive && i < a->n_choices; i++) {
            alive = !a->choices[i].held || send_held(a, i);
        }
    }
}

/* ---- events ---- */

static bool add_ids(int32_t **ids, size_t *n, size_t *cap, const int32_t *more, int32_t n_more) {
    void *p = *ids;
    if (!mem_grow_(&p, cap, *n + (size_t)n_more, sizeof(int32_t))) {
        return false;
    }
    *ids = p;
    if (n_more > 0) {
        memcpy(*ids + *n, more, (size_t)n_more * sizeof(int32_t));
    }
    *n += (size_t)n_more;
    return true;
}

static void on_start(answer *a, answer_choice *c, const quire_event *ev) {
    size_t cap = 0;
    c->prompt_tokens = ev->prompt_tokens;
    if (a->info->return_token_ids && !add_ids(&c->prompt, &c->n_prompt, &cap, ev->tokens, ev->n_tokens)) {
        out_of_memory(a);
        return;
    }
    if (strbuf_add(&c->text, ev->text, ev->n_text) != QUIRE_OK || answer_take_logprobs(a, c, ev) != QUIRE_OK) { /* the echo of the prompt */
        out_of_memory(a);
        return;
    }
    c->logprobs.n_prompt_chars = c->logprobs.n_chars;
    if (!a->info->stream) {
        return;
    }
    if (!a->started) {
        a->started = true;
        a->first_started = ev->choice;
        conn_stream_begin(a->conn, "text/event-stream; charset=utf-8");
        for (int32_t i = 0; a->format->first != NULL && i < a->n_choices; i++) {
            if (!send_chunk(a, i, a->format->first)) {
                return;
            }
        }
    }
    if (c->text.n > 0) {
        hold(a, c);
    }
}

static void on_delta(answer *a, answer_choice *c, const quire_event *ev) {
    if (c->held && !send_held(a, ev->choice)) {
        return;
    }
    bool ids_fit = !a->info->return_token_ids || add_ids(&c->tokens, &c->n_tokens, &c->cap_tokens, ev->tokens, ev->n_tokens);
    if (!ids_fit || strbuf_add(&c->text, ev->text, ev->n_text) != QUIRE_OK || answer_take_logprobs(a, c, ev) != QUIRE_OK) {
        out_of_memory(a);
        return;
    }
    c->completion_tokens = ev->completion_tokens;
    if (a->info->stream) {
        hold(a, c);
    }
}

/* What was sent cannot be taken back, so the client is told what of it stands. */
static void on_rollback(answer *a, answer_choice *c, const quire_event *ev) {
    if (c->held && !send_held(a, ev->choice)) {
        return;
    }
    c->completion_tokens = ev->completion_tokens;
    answer_rollback_logprobs(a, c, ev->tokens, ev->n_tokens);
    json_out o = begin_json(a);
    json_raw(&o, "data: {");
    answer_write_head(a, a->format->chunk_object, &o);
    json_raw(&o, ",\"choices\":[],\"quire\":{\"rollback\":");
    json_int(&o, (int64_t)ev->prompt_tokens + ev->n_tokens);
    json_raw(&o, ",\"index\":");
    json_int(&o, ev->choice);
    json_raw(&o, ",\"text\":");
    json_text(&o, ev->text, ev->n_text);
    json_raw(&o, "}}\n\n");
    streams_done(a, c, ev);
    (void)send_piece(a, &o);
}

static void on_end(answer *a, answer_choice *c, const quire_event *ev) {
    c->finish = ev->finish;
    c->stop_token = ev->stop_token;
    c->sum_logprob = ev->sum_logprob;
    c->explain = ev->explain;
    c->beam_score = ev->beam_score;
    c->has_score = a->info->beam_width > 0 && ev->completion_tokens > 0;
    c->prompt_tokens = ev->prompt_tokens;
    c->completion_tokens = ev->completion_tokens;
    if (ev->stop_string != NULL && strbuf_add_str(&c->stop_string, ev->stop_string) != QUIRE_OK) {
        out_of_memory(a);
        return;
    }
    if (a->info->stream && a->started) { /* else it failed before it began, and DONE says why */
        send_held(a, ev->choice);
    }
}

static void end_stream(answer *a) {
    json_out o = begin_json(a);
    if (a->info->include_usage) {
        json_raw(&o, "data: {");
        answer_write_head(a, a->format->chunk_object, &o);
        json_raw(&o, ",\"choices\":[],\"usage\":");
        answer_write_usage(a, &o);
        json_raw(&o, ",\"system_fingerprint\":\"quire-" QUIRE_VERSION "\"}\n\n");
    }
    json_raw(&o, "data: [DONE]\n\n");
    if (send_piece(a, &o)) {
        conn *c = a->conn;
        answer_close(a);
        conn_stream_end(c);
    }
}

/* The mean log-probability of a choice's tokens. */
static double merit(const answer_choice *c) {
    return c->completion_tokens > 0 ? c->sum_logprob / c->completion_tokens : 0.0;
}

/* Puts the n_best of each prompt's samples in order, the best first; all of them as they came where all are wanted. */
static bool choose_shown(answer *a) {
    int32_t n_samples = a->info->n_samples, n_best = a->info->n_best;
    a->shown = mem_new((size_t)a->n_choices, sizeof *a->shown);
    if (a->shown == NULL) {
        return false;
    }
    for (int32_t first = 0; first < a->n_choices; first += n_samples) {
        int32_t *best = a->shown + a->n_shown, n = 0;
        for (int32_t i = first; i < first + n_samples; i++) {
            int32_t at = n++; /* an insertion sort; equal ones stay as they came */
            for (; n_best < n_samples && at > 0 && merit(&a->choices[best[at - 1]]) < merit(&a->choices[i]); at--) {
                best[at] = best[at - 1];
            }
            best[at] = i;
        }
        a->n_shown += n_best;
    }
    return true;
}

static void end_whole(answer *a) {
    conn *c = a->conn;
    if (!choose_shown(a)) {
        out_of_memory(a);
        return;
    }
    json_out o = begin_json(a);
    a->format->whole(a, &o);
    if (o.err != QUIRE_OK) {
        out_of_memory(a);
        return;
    }
    answer_close(a);
    conn_reply(c, &(reply){.status = 200, .content_type = "application/json", .body = scratch_of(c)});
}

static void on_done(answer *a, const quire_event *ev) {
    if (ev->finish == QUIRE_FINISH_ERROR) {
        quire_error err = {.code = QUIRE_INTERNAL, .message = "internal error"};
        if (ev->error != NULL) {
            err = *ev->error; /* it lies in the stream, which goes first */
        }
        fail_for(a, error_status(err.code), err.param, err.message, err.retry_after_s);
        return;
    }
    if (ev->finish == QUIRE_FINISH_CANCELLED) { /* not by this server, which releases what it cancels: the engine is closing */
        answer_abort(a);
        return;
    }
    a->prompt_tokens = ev->prompt_tokens;
    a->completion_tokens = ev->completion_tokens;
    a->cached_tokens = ev->cached_tokens;
    if (a->started) {
        end_stream(a);
    } else {
        end_whole(a);
    }
}

void answer_event(const quire_event *ev) {
    answer *a = ev->user;
    if (ev->kind == QUIRE_EVENT_DONE) {
        on_done(a, ev);
        return;
    }
    if (ev->choice < 0 || ev->choice >= a->n_choices) {
        return;
    }
    answer_choice *c = &a->choices[ev->choice];
    if (ev->kind == QUIRE_EVENT_START) {
        on_start(a, c, ev);
    } else if (ev->kind == QUIRE_EVENT_DELTA) {
        on_delta(a, c, ev);
    } else if (ev->kind == QUIRE_EVENT_ROLLBACK) {
        on_rollback(a, c, ev);
    } else if (ev->kind == QUIRE_EVENT_REFUSED) {
        streams_done(a, c, ev);
    } else {
        on_end(a, c, ev);
    }
}
