/* Queues: turns engine events into text, matches stop strings, and returns one quire_event a call. */
#include <string.h>

#include "api/stream.h"
#include "base/clock.h"
#include "base/mem.h"

/* ---- open and close ---- */

quire_err quire_queue_open(quire_engine *e, quire_queue **out) {
    *out = NULL;
    quire_queue *q = mem_new(1, sizeof *q);
    if (!q) {
        return QUIRE_NO_MEMORY;
    }
    q->e = e;
    quire_err r = wake_init(&q->wake);
    if (r != QUIRE_OK) {
        mem_free(q);
        return r;
    }
    r = engine_out_open(e->parts.core, &q->wake, &q->out);
    if (r != QUIRE_OK || pthread_mutex_init(&q->lock, NULL) != 0) {
        engine_out_close(q->out);
        wake_deinit(&q->wake);
        mem_free(q);
        return QUIRE_NO_MEMORY;
    }
    *out = q;
    return QUIRE_OK;
}

void quire_queue_close(quire_queue *q) {
    if (!q) {
        return;
    }
    for (quire_stream *s = q->streams, *next; s; s = next) {
        next = s->next;
        quire_stream_release(s);
    }
    while (q->streams) {
        quire_event event;
        if (!quire_queue_next(q, &event) && q->streams) { /* that call may have freed the last one */
            quire_queue_wait(q, -1);
        }
    }
    parse_close(q);
    engine_out_close(q->out);
    pthread_mutex_destroy(&q->lock);
    wake_deinit(&q->wake);
    strbuf_deinit(&q->text);
    strbuf_deinit(&q->echo);
    mem_free(q->logprobs);
    mem_free(q);
}

int quire_queue_fd(const quire_queue *q) {
    return q->wake.fd;
}

void quire_queue_wait(quire_queue *q, int64_t timeout_us) {
    wake_wait(&q->wake, timeout_us);
}

/* ---- streams: in and out ---- */

/* On a text thread: prepares, then puts the stream into the queue's inbox; from then on the queue's thread owns it. */
static void run_job(text_job *job) {
    quire_stream *s = (quire_stream *)job;
    quire_queue *q = s->q;
    quire_error err = {0};
    if (stream_prepare(s, &err) != QUIRE_OK) { /* err is valid only then */
        s->verdict = err;
    }
    pthread_mutex_lock(&q->lock);
    s->inbox_next = q->inbox;
    q->inbox = s;
    wake_ring(&q->wake);
    pthread_mutex_unlock(&q->lock);
}

quire_err quire_submit(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err) {
    *out = NULL;
    quire_stream *s;
    quire_err e = request_check(r, err);
    e = e ? e : stream_new(q, r, user, &s, err);
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    s->next = q->streams;
    if (s->next) {
        s->next->prev = s;
    }
    q->streams = s;
    s->job.run = run_job;
    s->submitted_us = clock_us();
    *out = s;
    text_pool_add(q->e->text, &s->job);
    return QUIRE_OK;
}

/* Counts c as ended, once its finish is known. */
static void settle(choice *c) {
    if (!c->ended && c->finish != QUIRE_FINISH_NONE) {
        c->ended = true;
        c->stream->n_ended++;
        atomic_fetch_add(&c->stream->q->e->finished[c->finish - 1], 1);
    }
}

/* Frees s when neither the engine, a text thread nor the user refers to it. */
static void free_if_over(quire_stream *s) {
    if (!s->released || !s->prepared || s->n_commands > 0 || s->n_gone < s->n_submitted + s->n_replaced) {
        return;
    }
    quire_queue *q = s->q;
    *(s->prev ? &s->prev->next : &q->streams) = s->next;
    if (s->next) {
        s->next->prev = s->prev;
    }
    stream_free(s);
}

void quire_stream_cancel(quire_stream *s) {
    s->cancelled = true;
    if (s->prepared) {
        stream_cancel_choices(s);
    }
}

void quire_stream_release(quire_stream *s) {
    s->released = true;
    if (s->q->current && s->q->current->stream == s) {
        s->q->current = NULL;
        s->q->stage = STAGE_NONE;
    }
    if (!s->done) {
        quire_stream_cancel(s);
    }
    for (int32_t i = 0; i < s->n_choices; i++) {
        settle(&s->choices[i]); /* its END will not be delivered */
    }
    free_if_over(s);
}

const quire_request_info *quire_stream_describe(const quire_stream *s) {
    return &s->request->info;
}

/* ---- events ---- */

static void fill_choice(const choice *c, quire_event_kind kind, quire_event *out) {
    *out = (quire_event){.stream = c->stream,
                         .user = c->stream->user,
                         .kind = kind,
                         .choice = c->index,
                         .stop_token = -1,
                         .prompt_tokens = (int32_t)c->prompt.n,
                         .completion_tokens = c->n_completion,
                         .cached_tokens = c->n_cached};
}

static void set_failed(quire_stream *s, quire_err e) {
    if (s->error.code == QUIRE_OK) {
        err_set(&s->error, e, -1, "%s", quire_err_text(e));
    }
}

/* Sets the error of a request that the engine ended. */
static void set_refused(quire_stream *s, const engine_event *event) {
    if (event->error == QUIRE_BAD_REQUEST) {
        err_set(&s->error, QUIRE_BAD_REQUEST, -1,
                "no token is left to choose: allowed_token_ids, bad_words, no_repeat_ngram_size and the like rule out all");
    }
    if (event->error == QUIRE_BUSY) {
        s->error.retry_after_s = event->retry_after_s;
        err_set(&s->error, QUIRE_BUSY, -1, "the first token would come after ttft_deadline_ms; try again in %d s",
                (int)event->retry_after_s);
    }
}

/* Copies n of the engine's log-probabilities for an event. */
static void fill_logprobs(quire_queue *q, const choice *c, const token_logprob *from, size_t n, int32_t width, quire_event *out) {
    void *p = q->logprobs;
    if (from == NULL || n == 0) {
        return;
    }
    if (!mem_grow_(&p, &q->cap_logprobs, n, sizeof *q->logprobs)) {
        set_failed(c->stream, QUIRE_NO_MEMORY);
        return;
    }
    q->logprobs = p;
    for (size_t i = 0; i < n; i++) {
        q->logprobs[i] = (quire_logprob){.token = from[i].id, .rank = from[i].rank, .logprob = from[i].logprob};
    }
    out->logprobs = q->logprobs;
    out->n_logprobs = width;
}

static void fill_start(quire_queue *q, choice *c, quire_event *out) {
    const quire_request *r = c->stream->request;
    fill_choice(c, QUIRE_EVENT_START, out);
    out->tokens = c->prompt.ids;
    out->n_tokens = (int32_t)c->prompt.n;
    c->started = true;
    int32_t width = r->info.prompt_logprobs + 1;
    fill_logprobs(q, c, c->prompt_logprobs, (c->prompt.n - 1) * (size_t)width, width, out);
    if (!r->info.echo) {
        return;
    }
    quire_err e = QUIRE_OK;
    strbuf_clear(&q->echo);
    if (r->info.endpoint == QUIRE_COMPLETIONS && !r->prompts[c->index / r->info.n_samples].ids) {
        const str *text = &r->prompts[c->index / r->info.n_samples].text;
        e = strbuf_add(&q->echo, text->p, text->n);
    } else if (q->e->parts.tokenizer) {
        e = tokenizer_decode(q->e->parts.tokenizer, c->prompt.ids, c->prompt.n, r->skip_special, &q->echo);
    }
    if (e != QUIRE_OK) {
        set_failed(c->stream, e);
    }
    out->text = q->echo.p;
    out->n_text = q->echo.n;
}

static void fill_delta(quire_queue *q, const choice *c, bool with_token, quire_event *out) {
    fill_choice(c, QUIRE_EVENT_DELTA, out);
    out->text = q->text.p;
    out->n_text = q->text.n;
    out->tokens = &c->last_token;
    out->n_tokens = with_token ? 1 : 0;
    int32_t width = c->stream->request->info.logprobs + 1;
    fill_logprobs(q, c, with_token ? c->logprobs : NULL, (size_t)width, width, out);
}

static void fill_rollback(quire_queue *q, const choice *c, quire_event *out) {
    fill_choice(c, QUIRE_EVENT_ROLLBACK, out);
    out->text = q->text.p;
    out->n_text = q->text.n;
    out->tokens = c->history.ids;
    out->n_tokens = (int32_t)c->history.n;
}

static void fill_end(const choice *c, quire_event *out) {
    fill_choice(c, QUIRE_EVENT_END, out);
    if (c->explain) {
        c->explain->report.tokenise_us = c->stream->tokenise_us;
        c->explain->report.detokenise_us = c->detokenise_us;
        out->explain = &c->explain->report;
    }
    out->finish = c->finish;
    out->sum_logprob = c->sum_logprob;
    out->beam_score = c->beam_score;
    out->stop_token = c->stop_token;
    out->stop_string = c->stop_string >= 0 ? c->stream->request->stops[c->stop_string].p : NULL;
}

static void fill_done(quire_stream *s, quire_event *out) {
    *out = (quire_event){.stream = s, .user = s->user, .kind = QUIRE_EVENT_DONE, .stop_token = -1};
    for (int32_t i = 0; i < s->n_choices; i++) {
        bool first = i % s->request->info.n_samples == 0; /* samples share their prompt */
        out->prompt_tokens += first ? (int32_t)s->choices[i].prompt.n : 0;
        out->cached_tokens += first ? s->choices[i].n_cached : 0;
        out->completion_tokens += s->choices[i].n_completion;
        out->finish = s->choices[i].finish;
    }
    if (s->error.code != QUIRE_OK) {
        out->finish = QUIRE_FINISH_ERROR;
        out->error = &s->error;
    }
    s->done = true;
}

/* Whether the engine's end event carries more than the end. */
static bool engine_tells(const quire_stream *s) {
    return s->request->info.explain || s->request->info.beam_width > 0;
}

/* Whether c's END, with its finish known, cannot be delivered yet: a rollback or steer may still undo it, or the engine's end event brings
 * more for it. */
static bool end_waits(const choice *c) {
    return c->command != NULL || (engine_tells(c->stream) && !c->gone);
}

/* Appends the token to the choice's history. */
static quire_err remember(choice *c, int32_t token) {
    TRY(token_list_add(&c->history, token));
    if (c->stream->request->info.logprobs >= 0) {
        void *p = c->sums;
        if (!mem_grow_(&p, &c->cap_sums, c->history.n, sizeof *c->sums)) {
            return QUIRE_NO_MEMORY;
        }
        c->sums = p;
        c->sums[c->history.n - 1] = c->sum_logprob;
    }
    return QUIRE_OK;
}

/* Detokenises a token into q->text and matches stop strings. */
static void take_token(quire_queue *q, choice *c, int32_t token) {
    c->last_token = token;
    c->n_completion++;
    c->sum_logprob += c->logprobs ? (double)c->logprobs[0].logprob : 0.0;
    strbuf_clear(&q->text);
    int32_t match = -1;
    quire_err e = remember(c, token);
    if (e == QUIRE_OK && c->detok && !c->prompt_only) {
        bool may_end = c->n_completion > c->sampling.min_tokens;
        e = stream_feed(q->e, c->stream->request, &c->sampling, c->detok, c->stop_matcher, token, may_end, &q->text, &match);
    }
    if (e != QUIRE_OK) {
        set_failed(c->stream, e);
    }
    if (match >= 0) {
        c->stop_string = match;
        c->finish = QUIRE_FINISH_STOP;
        engine_cancel(q->e->parts.core, c->current);
    }
}

/* Takes the finish from the engine's end event, unless a stop string has ended c before. */
static void take_finish(choice *c, const engine_event *event) {
    static const quire_finish finishes[] = {[FINISH_NONE] = QUIRE_FINISH_NONE,
                                            [FINISH_STOP] = QUIRE_FINISH_STOP,
                                            [FINISH_LENGTH] = QUIRE_FINISH_LENGTH,
                                            [FINISH_CANCELLED] = QUIRE_FINISH_CANCELLED,
                                            [FINISH_ERROR] = QUIRE_FINISH_ERROR};
    c->finish = finishes[event->finish];
    if (event->finish == FINISH_STOP && !event->stopped_by_eos) {
        c->stop_token = c->last_token;
    }
    if (event->finish == FINISH_ERROR) {
        set_failed(c->stream, event->error);
        set_refused(c->stream, event);
    }
}

/* Fills START, if c's was not delivered yet. */
static bool start_first(quire_queue *q, choice *c, quire_event *out) {
    if (c->started) {
        return false;
    }
    fill_start(q, c, out);
    return true;
}

/* Appends text that the stop matcher withheld to q->text. True when there is some. */
static bool flush_text(quire_queue *q, const choice *c) {
    strbuf_clear(&q->text);
    quire_err e = c->stop_matcher && c->stop_string < 0 ? stop_matcher_flush(c->stop_matcher, &q->text) : QUIRE_OK;
    if (e != QUIRE_OK) {
        set_failed(c->stream, e);
    }
    return q->text.n > 0;
}

/* Whether every choice that was submitted has ended, and no other will be. */
static bool is_complete(const quire_stream *s) {
    return s->n_ended == s->n_choices || (s->prepared && s->error.code != QUIRE_OK && s->n_ended == s->n_submitted);
}

/* Fills the next event of q->current, a stage a call; false when none is left. */
static bool next_stage(quire_queue *q, quire_event *out) {
    choice *c = q->current;
    switch (q->stage) {
    case STAGE_ROLLBACK:
        if (!start_first(q, c, out)) {
            q->stage = STAGE_NONE;
            fill_rollback(q, c, out);
        }
        return true;
    case STAGE_REFUSED:
        q->stage = c->finish != QUIRE_FINISH_NONE && !end_waits(c) ? STAGE_FLUSH : STAGE_NONE;
        fill_choice(c, QUIRE_EVENT_REFUSED, out);
        out->error = &q->refusal;
        return true;
    case STAGE_DELTA:
        if (!start_first(q, c, out)) {
            q->stage = c->finish != QUIRE_FINISH_NONE && !end_waits(c) ? STAGE_END : STAGE_NONE;
            fill_delta(q, c, !c->prompt_only, out);
        }
        return true;
    case STAGE_FLUSH:
        if (c->finish != QUIRE_FINISH_ERROR && start_first(q, c, out)) { /* a choice that failed before its first token has no START */
            return true;
        }
        q->stage = STAGE_END;
        if (flush_text(q, c)) {
            fill_delta(q, c, false, out);
            return true;
        }
        return next_stage(q, out);
    case STAGE_END:
        settle(c);
        fill_end(c, out);
        q->stage = is_complete(c->stream) ? STAGE_DONE : STAGE_NONE;
        return true;
    case STAGE_DONE:
        fill_done(c->stream, out);
        q->stage = STAGE_NONE;
        return true;
    case STAGE_NONE:
        break;
    }
    return false;
}

static void set_stage(quire_queue *q, choice *c, queue_stage stage) {
    q->current = c;
    q->stage = stage;
}

/* Takes the text thread's result for one stream; false when there is none. */
static bool take_prepared(quire_queue *q) {
    pthread_mutex_lock(&q->lock);
    quire_stream *s = q->inbox;
    q->inbox = s ? s->inbox_next : NULL;
    pthread_mutex_unlock(&q->lock);
    if (!s) {
        return false;
    }
    s->prepared = true;
    for (int32_t i = 0; i < s->n_choices; i++) {
        choice *c = &s->choices[i];
        c->current = c->n_replaced == 0 ? c->id : c->current;
    }
    for (int32_t i = 0; s->verdict.code == QUIRE_CANCELLED && i < s->n_choices; i++) { /* released before the engine had any */
        s->choices[i].finish = QUIRE_FINISH_CANCELLED;
        settle(&s->choices[i]);
    }
    if (s->error.code == QUIRE_OK) {
        s->error = s->verdict;
    }
    if (s->cancelled || s->error.code != QUIRE_OK) {
        stream_cancel_choices(s);
    }
    if (s->released) {
        free_if_over(s);
    } else if (!s->done && is_complete(s)) {
        set_stage(q, &s->choices[0], STAGE_DONE);
    }
    return true;
}

/* Takes a rollback or steer that a text thread has prepared; false when there is none. */
static bool take_command(quire_queue *q) {
    pthread_mutex_lock(&q->lock);
    stream_command *m = q->commands;
    q->commands = m ? m->next : NULL;
    pthread_mutex_unlock(&q->lock);
    if (!m) {
        return false;
    }
    choice *c = m->c;
    quire_stream *s = c->stream;
    c->command = NULL;
    s->n_commands--;
    if (s->released) {
        free_if_over(s);
    } else if (stream_command_do(m, &q->refusal) != QUIRE_OK) {
        set_stage(q, c, STAGE_REFUSED);
    } else {
        strbuf_clear(&q->text);
        if (strbuf_add(&q->text, m->text.p, m->text.n) != QUIRE_OK) {
            set_failed(s, QUIRE_NO_MEMORY);
        }
        set_stage(q, c, STAGE_ROLLBACK);
    }
    stream_command_free(m);
    return true;
}

/* Takes an event of a sequence that another has replaced. */
static void take_stale(quire_stream *s, const engine_event *event) {
    if (event->finish != FINISH_NONE) {
        mem_free(event->explain);
        s->n_gone++;
        free_if_over(s);
    }
}

static void take_event(quire_queue *q, const engine_event *event) {
    choice *c = event->user;
    quire_stream *s = c->stream;
    if (c->n_replaced > 0 && (event->id.index != c->current.index || event->id.generation != c->current.generation)) {
        take_stale(s, event);
        return;
    }
    c->current = event->id;
    c->n_cached = event->n_cached;
    c->logprobs = event->logprobs;
    c->prompt_logprobs = event->prompt_logprobs;
    bool open = c->finish == QUIRE_FINISH_NONE; /* else a stop string has ended it, and later tokens do not count */
    if (event->finish == FINISH_NONE) {
        if (open && !s->released) {
            int64_t began_us = s->request->info.explain ? clock_us() : 0;
            take_token(q, c, event->token);
            c->detokenise_us += s->request->info.explain ? clock_us() - began_us : 0;
            set_stage(q, c, STAGE_DELTA);
        }
        return;
    }
    c->gone = true;
    c->explain = event->explain;
    s->n_gone++;
    c->beam_score = event->beam_score;
    c->sum_logprob = s->request->info.beam_width > 0 ? event->beam_sum : c->sum_logprob;
    if (open) {
        take_finish(c, event);
    }
    if (s->released) {
        settle(c);
        free_if_over(s);
    } else if (!end_waits(c) && (open || engine_tells(s))) {
        set_stage(q, c, STAGE_FLUSH);
    }
}

bool quire_queue_next(quire_queue *q, quire_event *out) {
    for (;;) {
        engine_event event;
        if (q->stage != STAGE_NONE) {
            if (next_stage(q, out)) {
                return true;
            }
        } else if (parse_next(q, out)) {
            return true;
        } else if (take_prepared(q)) { /* before tokens, which may come without end */
            continue;
        } else if (take_command(q)) {
            continue;
        } else if (engine_out_pop(q->out, &event)) {
            take_event(q, &event);
        } else if (!wake_wait(&q->wake, 0)) {
            return false; /* not woken since the last call: nothing can have come */
        }
    }
}
