/* Sends responses, as far as their clients read, and closes them. */

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/loop.h"
#include "server/response.h"

#define WHOLE_BYTES ((size_t)1 << 20) /* size over which a whole response is written choice by choice */

/* ---- unsent bytes ---- */

static bool response_has_room(const response *a) {
    return conn_unsent(a->conn) < a->loop->server->options.max_output_bytes;
}

void response_count(response *a, int64_t delta) {
    assert(delta >= 0 || a->n_bytes >= (size_t)-delta);
    a->n_bytes = (size_t)((int64_t)a->n_bytes + delta);
    if (a->is_done || (a->info != NULL && a->info->stream)) {
        a->loop->n_unread += delta;
    }
}

static void response_clear_tokens(response_choice *c) {
    c->n_tokens = 0;
    c->has_begun = c->has_begun || c->n_withheld > 0;
    c->n_withheld = 0;
}

/* Clears the parts of a choice that were written. */
static void response_clear_choice(response *a, response_choice *c) {
    if (a->writer->is_cumulative && a->info->stream) {
        response_count(a, -(int64_t)(c->n_tokens * sizeof *c->tokens));
        response_clear_tokens(c);
        return;
    }
    size_t n_logprobs = response_logprobs_bytes(&c->logprobs);
    response_clear_logprobs(c);
    n_logprobs -= response_logprobs_bytes(&c->logprobs);
    size_t n_parts = answer_parts_bytes(&c->parts);
    response_count(a, -(int64_t)(c->text.n + n_parts + c->n_tokens * sizeof *c->tokens + n_logprobs));
    response_clear_tokens(c);
    strbuf_clear(&c->text);
    answer_parts_clear(&c->parts);
}

/* ---- closing ---- */

static void response_free_parts(response *a) {
    for (int32_t i = 0; i < a->n_choices; i++) {
        response_choice *c = &a->choices[i];
        strbuf_deinit(&c->text);
        strbuf_deinit(&c->stop_string);
        response_deinit_logprobs(&c->logprobs);
        answer_parts_deinit(&c->parts);
        mem_free(c->tokens);
    }
    for (int32_t i = 0; i < a->n_choices / a->n_samples; i++) {
        response_prompt *p = &a->prompts[i];
        strbuf_deinit(&p->text);
        strbuf_deinit(&p->rendered);
        strbuf_deinit(&p->prompt_logprobs);
        response_deinit_logprobs(&p->logprobs);
        mem_free(p->ids);
    }
    if (a->writer->deinit != NULL) {
        a->writer->deinit(a->state);
    }
    mem_free(a->state);
    mem_free(a->choices);
    mem_free(a->prompts);
    mem_free(a->shown);
}

void response_count_tokens(const response *a, request_record *r) {
    for (int32_t i = 0; i < a->n_choices; i++) {
        const response_choice *c = &a->choices[i];
        bool first = i % a->n_samples == 0; /* only once for each prompt */
        r->prompt_tokens += first ? c->prompt_tokens : 0;
        r->cached_tokens += first ? c->cached_tokens : 0;
        r->completion_tokens += c->completion_tokens;
        r->finishes |= 1u << (c->finish == QUIRE_FINISH_NONE ? QUIRE_FINISH_CANCELLED : c->finish);
    }
}

void response_close(response *a) {
    assert(a->conn == NULL || a->conn->pending_of == a);
    loop *l = a->loop;
    for (int32_t i = 0; i < a->n_choices; i++) {
        order_settle(&a->choices[i].order, NULL);
    }
    response_count(a, -(int64_t)a->n_bytes);
    if (a->conn != NULL) {
        a->conn->record.is_generation = true;
        response_count_tokens(a, &a->conn->record);
        a->conn->pending = NULL;
    }
    if (a->stream != NULL) {
        quire_stream_release(a->stream);
    }
    for (response **p = &l->unsent; a->listed && *p != NULL; p = &(*p)->next_unsent) {
        if (*p == a) {
            *p = a->next_unsent;
            break;
        }
    }
    response_free_parts(a);
    loop_model_drop(a->model);
    mem_free(a);
}

/* ---- errors ---- */

void response_fail(response *a, api_error e) {
    conn *c = a->conn;
    if (c == NULL) {
        response_end_detached(a, &e);
        return;
    }
    if (a->is_long) { /* part of a JSON object was sent: only a missing end can show the error */
        conn_close(c);
        return;
    }
    if (!a->opened) {
        response_close(a);
        conn_reply_failure(c, e);
        return;
    }
    json_out o = conn_begin_json(a->conn);
    e.request_id = c->record.id;
    a->writer->error(a, &e, &o);
    conn_stream_take(c, &c->loop->scratch);
    response_close(a);
    request_record_fail(&c->record, &e);
    conn_stream_end(c);
}

void response_fail_with(response *a, int status, const char *message) {
    response_fail(a, (api_error){.status = status, .message = message});
}

void response_cut(response *a, const char *reason) {
    conn_count_slow(a->conn);
    a->conn->keep_alive = false;
    response_fail_with(a, 408, reason);
}

/* ---- background responses, which outlive their requests ---- */

void response_detach(response *a) {
    conn *c = a->conn;
    loop *l = a->loop;
    assert(a->writer->keep != NULL && !a->info->stream);
    a->record = c->record;
    a->record.client = NULL; /* the connection owns the text */
    a->record.response = a->id;
    a->record.is_generation = true;
    a->conn = NULL;
    a->next_background = l->background;
    l->background = a;
    atomic_fetch_add(&l->n_busy, 1);
    atomic_fetch_add(&l->server->n_background, 1);
    a->writer->keep(a, RESPONSE_QUEUED, NULL);
    json_out o = conn_begin_json(c);
    a->writer->begin(a, &o);
    a->writer->end(a, &o);
    c->pending = NULL;
    conn_reply_json(c, &o, NULL);
}

/* Logs and counts a background response that ends: complete, failed (why), or cancelled
 * by its client (status 0). */
static void response_note_detached(response *a, int status, const api_error *why) {
    const char *tenant = a->tenant[0] != '\0' ? a->tenant : NULL;
    a->record.status = status;
    response_count_tokens(a, &a->record);
    if (why != NULL) {
        request_record_fail(&a->record, why);
    }
    http_stats_note_tokens(a->loop->http, &a->record, tenant);
    if (!a->loop->server->options.no_request_log) {
        request_log(&a->record, tenant);
    }
}

/* Removes a from its loop's list and frees it; a draining loop may await that. */
static void response_leave_background(response *a) {
    loop *l = a->loop;
    response **at = &l->background;
    while (*at != a) {
        at = &(*at)->next_background;
    }
    *at = a->next_background;
    response_close(a);
    atomic_fetch_sub(&l->n_busy, 1);
    atomic_fetch_sub(&l->server->n_background, 1);
    wake_ring(&l->bell);
}

void response_end_detached(response *a, const api_error *why) {
    response_note_detached(a, why != NULL ? why->status : 200, why);
    a->writer->keep(a, why != NULL ? RESPONSE_FAILED : RESPONSE_COMPLETE, why);
    response_leave_background(a);
}

void response_drop_detached(loop *l, bool (*is_wanted)(const response *a)) {
    for (response *a = l->background, *next; a != NULL; a = next) {
        next = a->next_background;
        if (!is_wanted(a)) {
            response_note_detached(a, 0, NULL);
            response_leave_background(a);
        }
    }
}

void response_fail_detached(loop *l) {
    static const api_error why = {.status = 503, .message = CONN_SHUTTING_DOWN};
    while (l->background != NULL) {
        response_end_detached(l->background, &why);
    }
}

/* ---- streams ---- */

bool response_send_piece(response *a, const json_out *o) {
    if (o->err != QUIRE_OK) {
        response_fail_with(a, 500, "out of memory");
        return false;
    }
    if (a->loop->scratch.n > 0) { /* empty if the writer has nothing to send yet */
        conn_stream_take(a->conn, &a->loop->scratch);
    }
    a->sent_us = clock_us();
    return true;
}

static bool response_send_chunk(response *a, int32_t i,
                                void (*write)(const response *, int32_t, json_out *)) {
    json_out o = conn_begin_json(a->conn);
    write(a, i, &o);
    return response_send_piece(a, &o);
}

static void response_open_stream(response *a) {
    const char *type = a->writer->stream_type;
    if (!a->opened) {
        a->opened = true;
        conn_stream_begin(a->conn, type != NULL ? type : "text/event-stream; charset=utf-8");
    }
}

bool response_send_head(response *a) {
    assert(!a->started && a->info->stream);
    a->started = true;
    response_open_stream(a);
    for (int32_t i = 0; a->writer->first != NULL && i < a->n_choices; i++) {
        if (!response_send_chunk(a, i, a->writer->first)) {
            return false;
        }
    }
    return true;
}

void response_ping(response *a) {
    json_out o = conn_begin_json(a->conn);
    response_open_stream(a);
    if (a->writer->ping != NULL) {
        a->writer->ping(a, &o);
    } else {
        json_raw(&o, ": ping\n\n");
    }
    (void)response_send_piece(a, &o);
}

/* Whether c's chunk has content. */
static bool response_is_worth_sending(const response *a, const response_choice *c) {
    bool echoes = !c->prompt_sent && response_prompt_of(a, c)->text.n > 0;
    bool has_text = echoes || c->text.n > 0 || c->parts.n_bytes > 0;
    return !a->writer->skips_empty || has_text || c->logprobs.content.n > 0 || a->info->return_token_ids ||
           c->finish != QUIRE_FINISH_NONE;
}

static bool response_send_progress_now(response *a, int32_t i) {
    a->choices[i].progress_held = false;
    response_open_stream(a);
    return response_send_chunk(a, i, a->writer->progress);
}

bool response_send_progress(response *a, int32_t i) {
    a->choices[i].progress_held = true;
    return !response_has_room(a) || response_send_progress_now(a, i);
}

bool response_send_now(response *a, int32_t i) {
    assert(a->started && i >= 0 && i < a->n_choices);
    response_choice *c = &a->choices[i];
    if (c->progress_held && !response_send_progress_now(a, i)) {
        return false;
    }
    if (response_is_worth_sending(a, c) && !response_send_chunk(a, i, a->writer->chunk)) {
        return false;
    }
    c->prompt_sent = true;
    c->held = false;
    response_clear_choice(a, c);
    return true;
}

/* Whether c's chunk has as many tokens as the request wants in a chunk. */
static bool response_is_due(const response *a, const response_choice *c) {
    return !c->has_begun || c->finish != QUIRE_FINISH_NONE || c->n_withheld >= a->more->stream_interval;
}

bool response_send_held(response *a, int32_t i) {
    a->choices[i].held = true;
    /* without room, response_drained sends it later */
    return !response_is_due(a, &a->choices[i]) || !response_has_room(a) || response_send_now(a, i);
}

void response_hold(response *a, int32_t i) {
    assert(i >= 0 && i < a->n_choices);
    a->choices[i].held = true;
    if (!a->listed) {
        a->listed = true;
        a->next_unsent = a->loop->unsent;
        a->loop->unsent = a;
    }
}

/* Sends a's withheld chunks while there is room; false: a was freed. */
static bool response_send_all_held(response *a) {
    for (int32_t i = 0; i < a->n_choices; i++) {
        if ((a->choices[i].progress_held && !response_send_progress(a, i)) ||
            (a->choices[i].held && !response_send_held(a, i))) {
            return false;
        }
    }
    return true;
}

void response_flush_unsent(loop *l) {
    while (l->unsent != NULL) {
        response *a = l->unsent;
        l->unsent = a->next_unsent;
        a->listed = false;
        (void)response_send_all_held(a);
    }
}

static void response_keep(response *a) {
    if (a->writer->keep != NULL) {
        a->writer->keep(a, RESPONSE_COMPLETE, NULL);
    }
}

/* Ends the stream, unless a chunk is still withheld. */
static void response_finish_stream(response *a) {
    for (int32_t i = 0; i < a->n_choices; i++) {
        if (a->choices[i].held) {
            return;
        }
    }
    response_keep(a);
    json_out o = conn_begin_json(a->conn);
    a->writer->last(a, &o);
    if (response_send_piece(a, &o)) {
        conn *c = a->conn;
        response_close(a);
        conn_stream_end(c);
    }
}

/* ---- whole responses ---- */

/* The mean log-probability of a choice's tokens. */
static double response_merit(const response_choice *c) {
    return c->completion_tokens > 0 ? c->sum_logprob / c->completion_tokens : 0.0;
}

/* Selects the n_best samples of each prompt, best first; if all are wanted, by index.
 * False: out of memory. */
static bool response_choose_shown(response *a) {
    int32_t n_samples = a->info->n_samples, n_best = a->info->n_best;
    a->shown = mem_new((size_t)a->n_choices, sizeof *a->shown);
    if (a->shown == NULL) {
        return false;
    }
    for (int32_t first = 0; first < a->n_choices; first += n_samples) {
        int32_t *best = a->shown + a->n_shown, n = 0;
        for (int32_t i = first; i < first + n_samples; i++) {
            int32_t at = n++; /* insertion sort, which keeps the order of equals */
            for (; n_best < n_samples && at > 0 &&
                   response_merit(&a->choices[best[at - 1]]) < response_merit(&a->choices[i]);
                 at--) {
                best[at] = best[at - 1];
            }
            best[at] = i;
        }
        a->n_shown += n_best;
    }
    return true;
}

/* The approximate size of the whole response in bytes. */
static size_t response_whole_bytes(const response *a) {
    size_t n = a->n_bytes;
    for (int32_t i = 0; i < a->n_shown; i++) {
        const response_prompt *p = response_prompt_of(a, &a->choices[a->shown[i]]);
        n += p->text.n + p->rendered.n + p->prompt_logprobs.n + p->n_ids * sizeof *p->ids +
             response_logprobs_bytes(&p->logprobs);
    }
    return n;
}

static void response_send_whole(response *a) {
    conn *c = a->conn;
    json_out o = conn_begin_json(c);
    a->writer->begin(a, &o);
    for (int32_t i = 0; i < a->n_shown; i++) {
        a->writer->choice(a, i, &o);
    }
    a->writer->end(a, &o);
    response_close(a);
    conn_reply_json(c, &o, NULL);
}

/* Writes and clears choices while there is room. Ends the response after the last. */
static void response_send_parts(response *a) {
    conn *c = a->conn;
    json_out o;
    while (a->next_shown < a->n_shown && response_has_room(a)) {
        response_choice *choice = &a->choices[a->shown[a->next_shown]];
        o = conn_begin_json(a->conn);
        a->writer->choice(a, a->next_shown++, &o);
        response_clear_choice(a, choice);
        response_deinit_logprobs(&choice->logprobs);
        answer_parts_deinit(&choice->parts);
        strbuf_deinit(&choice->text);
        if (!response_send_piece(a, &o)) {
            return;
        }
    }
    if (a->next_shown < a->n_shown) {
        return;
    }
    o = conn_begin_json(a->conn);
    a->writer->end(a, &o);
    if (response_send_piece(a, &o)) {
        response_close(a);
        conn_stream_end(c);
    }
}

static void response_send_long(response *a) {
    a->is_long = true;
    conn_stream_begin(a->conn, "application/json");
    json_out o = conn_begin_json(a->conn);
    a->writer->begin(a, &o);
    if (response_send_piece(a, &o)) {
        response_send_parts(a);
    }
}

/* ---- streams and whole responses ---- */

void response_finish(response *a) {
    assert(!a->is_done);
    if (!a->info->stream) {
        a->loop->n_unread += (int64_t)a->n_bytes;
    }
    a->is_done = true;
    if (a->conn == NULL) {
        response_end_detached(a, NULL);
        return;
    }
    if (a->opened) {
        response_finish_stream(a);
        return;
    }
    response_keep(a);
    if (!response_choose_shown(a)) {
        response_fail_with(a, 500, "out of memory");
    } else if (a->writer->is_at_once || response_whole_bytes(a) <= WHOLE_BYTES) {
        response_send_whole(a);
    } else {
        response_send_long(a);
    }
}

void response_drained(conn *c) {
    response *a = c->pending_of;
    if (a->is_long) {
        response_send_parts(a);
    } else if (a->opened && response_send_all_held(a) && a->is_done) {
        response_finish_stream(a);
    }
}
