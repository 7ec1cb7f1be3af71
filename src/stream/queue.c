/* Queues: take finished jobs from text threads and events from the engine, pass them to
 * the choices, and return one quire_event per call. */
#include "answer/answer_rule.h"
#include "base/clock.h"
#include "base/mem.h"
#include "stream/stream.h"

/* ---- open and close ---- */

quire_err queue_open(stream_engine *e, quire_queue **out) {
    *out = NULL;
    quire_queue *q = mem_new(1, sizeof *q);
    TRY(mem_check(q));
    q->e = e;
    q->ran_last = &q->ran;
    quire_err r = wake_init(&q->wake);
    if (r != QUIRE_OK) {
        mem_free(q);
        return r;
    }
    r = engine_out_open(e->core, &q->wake, &q->out);
    if (r != QUIRE_OK) {
        wake_deinit(&q->wake);
        mem_free(q);
        return r;
    }
    pthread_mutex_init(&q->lock, NULL);
    *out = q;
    return QUIRE_OK;
}

bool quire_queue_idle(const quire_queue *q) {
    return q->streams == NULL && q->n_parses == 0;
}

void quire_queue_close(quire_queue *q) {
    if (!q) {
        return;
    }
    for (quire_stream *s = q->streams, *next; s; s = next) {
        next = s->next;
        quire_stream_release(s);
    }
    while (!quire_queue_idle(q)) {
        quire_event event;
        if (quire_queue_next(q, &event)) {
            quire_request_free(event.request);
            mem_free(event.kind == QUIRE_EVENT_LOOKED ? (char *)event.text : NULL);
        } else if (!quire_queue_idle(q)) { /* the call may have freed the last stream */
            quire_queue_wait(q, -1);
        }
    }
    engine_out_close(q->out);
    pthread_mutex_destroy(&q->lock);
    wake_deinit(&q->wake);
    event_memory_deinit(&q->memory);
    strbuf_deinit(&q->report);
    mem_free(q);
}

int quire_queue_fd(const quire_queue *q) {
    return q->wake.fd;
}

void quire_queue_wait(quire_queue *q, int64_t timeout_us) {
    if (wake_wait(&q->wake, timeout_us)) {
        stream_take_places(q); /* it may have been woken because there are places */
    }
}

/* ---- finished jobs of text threads ---- */

/* Removes the oldest finished job; NULL if there is none. */
static text_job *pop_job(quire_queue *q) {
    pthread_mutex_lock(&q->lock);
    text_job *job = q->ran;
    if (job) {
        q->ran = job->next;
        q->ran_last = q->ran ? q->ran_last : &q->ran;
    }
    pthread_mutex_unlock(&q->lock);
    return job;
}

/* ---- events ---- */

/* Sets a stream's error, unless e is QUIRE_OK or it has one. */
static void set_failed(quire_stream *s, quire_err e) {
    if (e != QUIRE_OK && s->error.code == QUIRE_OK) {
        err_set(&s->error, e, -1, "%s", quire_err_text(e));
    }
}

/* Sets the error of a stream whose request the engine ended. */
static void set_refused(quire_stream *s, const engine_event *event) {
    if (event->error == QUIRE_BAD_REQUEST) {
        err_set(&s->error, QUIRE_BAD_REQUEST, -1,
                "no token is left to choose: allowed_token_ids, bad_words, no_repeat_ngram_size, a grammar "
                "or similar options exclude them all");
    }
    const quire_request *r = s->request;
    bool is_rule = event->error == QUIRE_TOO_LARGE || event->error == QUIRE_NO_MEMORY;
    if (is_rule && s->rule.constraint != NULL && r->rule.field != NULL) {
        answer_rule_outgrown(&r->rule, event->error, constraint_why(s->rule.constraint), &s->error);
    }
    if (event->error == QUIRE_BUSY) {
        s->error.retry_after_s = event->retry_after_s;
        err_set(&s->error, QUIRE_BUSY, -1,
                "the first token would come after ttft_deadline_ms; try again in %d s",
                (int)event->retry_after_s);
    }
}

static void fill_done(quire_stream *s, quire_event *out) {
    *out = (quire_event){.stream = s, .user = s->user, .kind = QUIRE_EVENT_DONE, .stop_token = -1};
    for (int32_t i = 0; i < s->n_choices; i++) {
        /* samples share their prompt, which counts once */
        bool first = i % s->request->g.info.n_samples == 0;
        out->prompt_tokens += first ? (int32_t)s->choices[i].prompt.n : 0;
        out->cached_tokens += first ? s->choices[i].n_cached : 0;
        out->completion_tokens += s->choices[i].n_completion;
        out->queue_us = s->choices[i].queue_us > out->queue_us ? s->choices[i].queue_us : out->queue_us;
        out->finish = s->choices[i].finish;
    }
    if (s->error.code != QUIRE_OK) {
        out->finish = QUIRE_FINISH_ERROR;
        out->error = &s->error;
    }
    s->done = true;
}

/* Fills START if c's was not delivered yet. */
static bool start_first(quire_queue *q, choice *c, quire_event *out) {
    if (c->started) {
        return false;
    }
    set_failed(c->stream, choice_start(c, &q->memory, out));
    return true;
}

/* Whether all submitted choices have ended and no others will be submitted. */
static bool is_complete(const quire_stream *s) {
    return s->n_ended == s->n_choices ||
           (s->prepared && s->error.code != QUIRE_OK && s->n_ended == s->n_submitted);
}

static void set_stage(quire_queue *q, choice *c, queue_stage stage) {
    q->current = c;
    q->stage = stage;
}

/* Fills the next event of q->current, one stage per call. False if no stage is left. */
static bool next_stage(quire_queue *q, quire_event *out) {
    choice *c = q->current;
    switch (q->stage) {
    case STAGE_PROGRESS:
        q->stage = STAGE_NONE;
        choice_event(c, QUIRE_EVENT_PROGRESS, out);
        return true;
    case STAGE_ROLLBACK:
        if (!start_first(q, c, out)) {
            q->stage = STAGE_NONE;
            choice_rollback(c, &q->memory, out);
        }
        return true;
    case STAGE_REFUSED:
        q->stage = c->finish != QUIRE_FINISH_NONE && !choice_end_waits(c) ? STAGE_FLUSH : STAGE_NONE;
        choice_event(c, QUIRE_EVENT_REFUSED, out);
        out->error = &q->refusal;
        return true;
    case STAGE_DELTA:
        if (!start_first(q, c, out)) {
            q->stage = c->finish != QUIRE_FINISH_NONE && !choice_end_waits(c) ? STAGE_FLUSH : STAGE_NONE;
            set_failed(c->stream, choice_delta(c, !c->prompt_only, &q->memory, out));
        }
        return true;
    case STAGE_FLUSH:
        /* a choice that fails before its first token gets no START */
        if (c->finish != QUIRE_FINISH_ERROR && start_first(q, c, out)) {
            return true;
        }
        q->stage = STAGE_END;
        if (c->row != NULL && c->finish != QUIRE_FINISH_ERROR) {
            choice_row(c, out);
            return true;
        }
        set_failed(c->stream, choice_flush(c, &q->memory));
        if (q->memory.text.n > 0 || q->memory.found.n > 0) {
            (void)choice_delta(c, false, &q->memory, out);
            return true;
        }
        return next_stage(q, out);
    case STAGE_END:
        stream_settle(c);
        choice_end(c, out);
        q->stage = is_complete(c->stream) ? STAGE_DONE : STAGE_NONE;
        if (q->stage == STAGE_NONE && c->request->g.more.prompt_only) {
            set_stage(q, c + 1, STAGE_FLUSH); /* the END events go in order of choices */
        }
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

/* Ends a request that ends with its prompts, once all are known. */
static void end_with_prompts(quire_stream *s) {
    for (int32_t i = 0; i < s->n_choices; i++) {
        s->choices[i].finish = QUIRE_FINISH_STOP;
        s->choices[i].over_us = clock_us();
    }
    set_stage(s->q, &s->choices[0], STAGE_FLUSH);
}

bool queue_take_prepared(text_job *job, quire_event *out) {
    (void)out;
    quire_stream *s = (quire_stream *)job;
    s->prepared = true;
    for (int32_t i = 0; i < s->n_choices; i++) {
        choice *c = &s->choices[i];
        c->current = c->n_replaced == 0 ? c->id : c->current;
    }
    /* released before a choice reached the engine */
    for (int32_t i = 0; s->verdict.code == QUIRE_CANCELLED && i < s->n_choices; i++) {
        s->choices[i].finish = QUIRE_FINISH_CANCELLED;
        s->choices[i].over_us = clock_us();
        stream_settle(&s->choices[i]);
    }
    if (s->error.code == QUIRE_OK) {
        s->error = s->verdict;
    }
    if (s->cancelled || s->error.code != QUIRE_OK) {
        stream_cancel_choices(s);
    }
    if (s->released) {
        stream_free_if_over(s);
    } else if (!s->done && is_complete(s)) {
        set_stage(s->q, &s->choices[0], STAGE_DONE);
    } else if (s->request->g.more.prompt_only) {
        end_with_prompts(s);
    }
    return false;
}

bool queue_take_held(text_job *job, quire_event *out) {
    (void)out;
    quire_stream *s = (quire_stream *)job;
    s->is_ready = true;
    if (s->is_started || s->cancelled || s->released || s->verdict.code != QUIRE_OK) {
        stream_end_wait(s);
        stream_take_places(s->q);
    }
    return false;
}

bool queue_take_command(text_job *job, quire_event *out) {
    (void)out;
    stream_command *m = (stream_command *)job;
    choice *c = m->c;
    quire_stream *s = c->stream;
    quire_queue *q = s->q;
    c->command = NULL;
    s->n_commands--;
    if (s->released) {
        stream_free_if_over(s);
    } else if (stream_command_do(m, &q->refusal) != QUIRE_OK) {
        set_stage(q, c, STAGE_REFUSED);
    } else {
        strbuf_clear(&q->memory.text);
        set_failed(s, strbuf_add(&q->memory.text, m->text.p, m->text.n));
        set_stage(q, c, STAGE_ROLLBACK);
    }
    stream_command_free(m);
    return false;
}

/* Handles an event of a replaced sequence. */
static void take_stale(quire_stream *s, const engine_event *event) {
    if (event->finish != FINISH_NONE) {
        mem_free(event->explain);
        mem_free(event->row);
        s->n_gone++;
        stream_free_if_over(s);
    }
}

/* Keeps the times of a replaced sequence in its choice. */
static void queue_take_times(choice *c, const engine_event *event) {
    c->admitted_us = c->admitted_us > 0 ? c->admitted_us : event->admitted_us;
    if (c->first_token_us == 0 && event->first_token_us > 0) {
        c->first_token_us = event->first_token_us;
        request_stats_first_token(c->e->requests, c->first_token_us - c->stream->submitted_us);
    }
}

/* Whether the stream failed before any choice began: then only the error is delivered. */
static bool is_refused(const quire_stream *s) {
    bool has_begun = s->error.code == QUIRE_OK;
    for (int32_t i = 0; i < s->n_choices && !has_begun; i++) {
        has_begun = s->choices[i].started;
    }
    return !has_begun;
}

/* Handles a token, or progress with the prompt. */
static void queue_take_growth(quire_queue *q, choice *c, const engine_event *event) {
    if (event->n_processed > 0) {
        c->n_processed = event->n_processed;
        c->processed_us = event->processed_us;
        set_stage(q, c, STAGE_PROGRESS);
        return;
    }
    set_failed(c->stream, choice_take_token(c, event, &q->memory));
    set_stage(q, c, STAGE_DELTA);
}

static void take_event(quire_queue *q, const engine_event *event) {
    choice *c = event->user;
    quire_stream *s = c->stream;
    if (c->n_replaced > 0 &&
        (event->id.index != c->current.index || event->id.generation != c->current.generation)) {
        take_stale(s, event);
        return;
    }
    c->current = event->id;
    c->n_cached = event->n_cached;
    c->queue_us = event->queue_us;
    queue_take_times(c, event);
    c->logprobs = event->logprobs;
    c->prompt_logprobs = event->prompt_logprobs;
    /* false: a stop string has ended it, and later tokens are ignored */
    bool open = c->finish == QUIRE_FINISH_NONE;
    if (event->finish == FINISH_NONE) {
        if (open && !s->released && !is_refused(s)) {
            queue_take_growth(q, c, event);
        }
        return;
    }
    bool end_waited = choice_end_waits(c);
    choice_take_end(c, event);
    c->finish = open && is_refused(s) ? QUIRE_FINISH_ERROR : c->finish;
    s->n_gone++;
    stream_count(c);
    if (open && event->finish == FINISH_ERROR) {
        set_failed(s, event->error);
        set_refused(s, event);
    }
    if (s->released) {
        stream_settle(c);
        stream_free_if_over(s);
    } else if (!choice_end_waits(c) && (open || end_waited)) {
        set_stage(q, c, STAGE_FLUSH);
    }
}

bool quire_queue_next(quire_queue *q, quire_event *out) {
    for (;;) {
        engine_event event;
        text_job *job;
        if (q->stage != STAGE_NONE) {
            if (next_stage(q, out)) {
                out->user = out->stream->user;
                return true;
            }
        } else if ((job = pop_job(q)) != NULL) { /* jobs before tokens, which may keep coming */
            if (job->take(job, out)) {
                return true;
            }
        } else if (engine_out_pop(q->out, &event)) {
            take_event(q, &event);
        } else if (!wake_wait(&q->wake, 0)) {
            return false; /* not woken since the last call: nothing has arrived */
        } else {
            stream_take_places(q);
        }
    }
}
