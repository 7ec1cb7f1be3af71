#include "stream/stream.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sample/constraint.h"
#include "stream/choice.h"

static quire_stream *new_stream(quire_queue *q, quire_request *r, void *user) {
    quire_stream *s = mem_new(1, sizeof *s + (size_t)r->g.info.n_choices * sizeof *s->choices);
    if (!s) {
        return NULL;
    }
    s->q = q;
    s->request = r;
    s->user = user;
    s->n_choices = r->g.info.n_choices;
    for (int32_t i = 0; i < s->n_choices; i++) {
        choice_init(&s->choices[i], q->e, s, r, &s->rule, i);
        s->choices[i].want = &s->want;
    }
    return s;
}

static void free_stream(quire_stream *s) {
    token_list_deinit(&s->first);
    for (int32_t i = 0; i < s->n_choices; i++) {
        choice_deinit(&s->choices[i]);
    }
    beam_stop_matcher_close(s->watch);
    constraint_drop(s->rule.constraint);
    adapter_ref_drop(s->want.ref);
    prediction_drop(s->prediction);
    strbuf_deinit(&s->rule.keywords);
    quire_request_free(s->request);
    mem_free(s);
}

void stream_deliver(quire_queue *q, text_job *job) {
    assert(q != NULL && job != NULL);
    job->next = NULL;
    pthread_mutex_lock(&q->lock);
    *q->ran_last = job;
    q->ran_last = &job->next;
    wake_ring(&q->wake);
    pthread_mutex_unlock(&q->lock);
}

/* adapter_want.ready: s can be prepared now. */
static void stream_has_adapter(adapter_want *w) {
    quire_stream *s = (quire_stream *)(void *)((char *)w - offsetof(quire_stream, want));
    text_pool_add(s->q->e->text, &s->job);
}

/* Requests s's adapter. False: its file is being read, and run_prepare will be called
 * again when it is loaded. */
static bool stream_want_adapter(quire_stream *s) {
    const adapter_source *from = &s->q->e->adapters;
    const generation *g = &s->request->g;
    if (from->want == NULL && g->adapter.n > 0) {
        (void)err_set_param(&s->want.error, QUIRE_NOT_FOUND, "model", "The model `%.200s` does not exist.",
                            g->adapter.p);
    }
    if (from->want == NULL || s->has_wanted || g->more.prompt_only) {
        return true;
    }
    s->has_wanted = true;
    adapter_want *w = &s->want;
    w->is_off = &s->released;
    w->ready = stream_has_adapter;
    if (g->adapter.n > 0) {
        w->parts[w->n_parts++] = (want_part){.name = g->adapter.p, .scale = 1.0f};
    } else if (g->has_own_adapters) {
        memcpy(w->parts, g->loras, sizeof w->parts);
        w->n_parts = g->n_loras;
    } else {
        from->usual(from->context, w);
    }
    return w->n_parts == 0 || from->want(from->context, w);
}

/* Cancels s's request for its adapter, if it is pending. */
static void stream_stop_wanting(quire_stream *s) {
    const adapter_source *from = &s->q->e->adapters;
    if (from->want != NULL && !s->prepared) {
        from->cancel(from->context, &s->want);
    }
}

/* Runs on a text thread. */
static void run_prepare(text_job *job) {
    quire_stream *s = (quire_stream *)job;
    quire_error err = {0};
    if (!stream_want_adapter(s)) {
        return;
    }
    quire_err e = s->want.error.code != QUIRE_OK ? QUIRE_OK : stream_prepare(s, &err);
    if (e == QUIRE_BUSY && stream_waits_for_place(s)) {
        s->is_started = true;
        job->take = queue_take_held;
    } else {
        s->verdict = e != QUIRE_OK ? err : s->want.error;
    }
    stream_deliver(s->q, job);
}

/* Checks that forks and parks stay in their engine: a fork shares pages, and a park holds
 * them. */
static quire_err check_engine(const quire_queue *q, const quire_request *r, quire_error *err) {
    if (r->fork_from != NULL && r->fork_from->core != q->e->core) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "the request is a fork of another engine's stream; submit it to a queue of that engine");
    }
    for (size_t i = 0; i < r->n_parks; i++) {
        const engine_park *p = stream_park_of(r, (int32_t)i);
        if (p != NULL && (engine_park_engine(p) != q->e->core || dialect_of(&r->g)->gives_rows ||
                          r->g.more.prompt_only || request_beam_width(r) > 0)) {
            return err_set(
                err, QUIRE_INVALID, -1,
                "choice %zu cannot park: its park is another engine's, or it has beams or no tokens", i);
        }
    }
    return QUIRE_OK;
}

/* Checks a held request: its first tokens are not known yet, so its prompt must be
 * ids. */
static quire_err check_held(const quire_request *r, quire_error *err) {
    const dialect *d = dialect_of(&r->g);
    bool is_ids = d->is_chat ? request_continues(r)
                             : r->g.n_prompts == 1 && r->g.prompts[0].ids != NULL && r->fill.field == NULL;
    return d->may_be_prepared && is_ids && r->fork_from == NULL && r->g.prediction.n == 0
               ? QUIRE_OK
               : err_set(err, QUIRE_INVALID, -1,
                         "a prepared request must have one prompt, of token ids, and no prediction");
}

/* QUIRE_BUSY if the deadline for the first token has passed while the request waited. */
static quire_err check_deadline(const quire_request *r, quire_error *err) {
    if (r->g.waited_us == 0 || request_deadline_us(&r->g) >= 0) {
        return QUIRE_OK;
    }
    err_set(err, QUIRE_BUSY, -1, "the first token would come after ttft_deadline_ms: waiting took longer");
    if (err != NULL) {
        err->retry_after_s = 1;
    }
    return QUIRE_BUSY;
}

static quire_err check_submitted(quire_queue *q, quire_request *r, bool is_held, quire_error *err) {
    if (is_held) {
        TRY(check_held(r, err));
    }
    TRY(check_engine(q, r, err));
    TRY(request_check(r, err));
    return check_deadline(r, err);
}

static quire_err stream_submit(quire_queue *q, quire_request *r, void *user, bool is_held, quire_stream **out,
                               quire_error *err) {
    *out = NULL;
    quire_err e = check_submitted(q, r, is_held, err);
    quire_stream *s = e == QUIRE_OK ? new_stream(q, r, user) : NULL;
    if (!s) {
        quire_request_free(r);
        return e != QUIRE_OK ? e : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
    }
    s->next = q->streams;
    if (s->next) {
        s->next->prev = s;
    }
    q->streams = s;
    s->job = (text_job){.run = run_prepare,
                        .take = is_held ? queue_take_held : queue_take_prepared,
                        .tenant = text_tenant(r->g.tenant),
                        .n_bytes = request_text_bytes(r),
                        .is_off = &s->released};
    s->submitted_us = clock_us();
    s->is_held = is_held;
    *out = s;
    text_pool_add(q->e->text, &s->job);
    return QUIRE_OK;
}

quire_err quire_submit(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err) {
    return stream_submit(q, r, user, false, out, err);
}

quire_err quire_prepare(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err) {
    return stream_submit(q, r, user, true, out, err);
}

static void stream_want_place(quire_stream *s, bool wants) {
    s->turn = wants && !s->wants_place ? s->q->n_turns++ : s->turn; /* it keeps a turn that it has */
    s->q->n_wanting += (wants ? 1 : 0) - (s->wants_place ? 1 : 0);
    s->wants_place = wants;
}

/* Finds the stream with the first turn among those that want a place, and the deepest of
 * the same program, which takes that turn; of equally deep ones the oldest. */
static void stream_find_turn(const quire_queue *q, quire_stream **first, quire_stream **deepest) {
    *first = *deepest = NULL;
    for (quire_stream *s = q->streams; s != NULL; s = s->next) {
        *first = s->wants_place && (*first == NULL || s->turn < (*first)->turn) ? s : *first;
    }
    for (quire_stream *s = q->streams; s != NULL; s = s->next) { /* newest first */
        bool shares = s->wants_place && s->request->program == (*first)->request->program;
        bool is_deeper = *deepest == NULL || s->request->depth >= (*deepest)->request->depth;
        *deepest = shares && is_deeper ? s : *deepest;
    }
}

void stream_take_places(quire_queue *q) {
    assert(q != NULL);
    quire_stream *first, *deepest;
    while (q->n_wanting > 0) {
        stream_find_turn(q, &first, &deepest);
        q->is_awaiting = true;
        if (!engine_out_await_places(q->out, deepest->n_choices - deepest->n_submitted)) {
            return;
        }
        first->turn = deepest->turn; /* they swap turns */
        stream_end_wait(deepest);
    }
    if (q->is_awaiting) {
        q->is_awaiting = false;
        (void)engine_out_await_places(q->out, 0);
    }
}

void stream_end_wait(quire_stream *s) {
    quire_error err = {0};
    bool goes_on = !s->cancelled && !s->released && s->verdict.code == QUIRE_OK;
    quire_err e = goes_on ? stream_submit_held(s, &err) : QUIRE_OK;
    stream_want_place(s, e == QUIRE_BUSY && stream_waits_for_place(s));
    if (s->wants_place) {
        return;
    }
    if (e != QUIRE_OK) {
        s->verdict = err;
    } else if (!goes_on && s->verdict.code == QUIRE_OK) {
        err_set(&s->verdict, QUIRE_CANCELLED, -1, "cancelled");
    }
    s->is_ready = false;
    s->job.take = queue_take_prepared;
    stream_deliver(s->q, &s->job);
}

quire_err quire_stream_start(quire_stream *s, const int32_t *ids, size_t n, quire_error *err) {
    if (!s->is_held || s->is_started) {
        return err_set(err, QUIRE_INVALID, -1, "the stream was not prepared, or was started before");
    }
    TRY(err_set(err, token_list_add_all(&s->first, ids, n), -1, "out of memory for a prompt"));
    s->is_started = true;
    s->submitted_us = clock_us();
    if (s->is_ready) {
        stream_end_wait(s);
        stream_take_places(s->q);
    }
    return QUIRE_OK;
}

void stream_cancel_choices(quire_stream *s) {
    assert(s != NULL);
    for (int32_t i = 0; i < s->n_choices; i++) {
        choice *c = &s->choices[i];
        if (c->submitted && !c->gone) {
            engine_cancel(s->q->e->core, c->current);
        }
    }
}

void stream_settle(choice *c) {
    if (!c->ended && c->finish != QUIRE_FINISH_NONE) {
        c->ended = true;
        c->stream->n_ended++;
        stream_count(c);
    }
}

/* Whether all completions of c's prompt are counted. *longest: tokens of the longest
 * one. */
static bool are_counted(const quire_stream *s, const choice *c, int32_t *longest) {
    int32_t n = s->request->g.info.n_samples;
    const choice *first = c - c->index % n;
    bool all = true;
    *longest = 0;
    for (int32_t i = 0; i < n; i++) {
        all = all && first[i].counted;
        *longest = first[i].n_completion > *longest ? first[i].n_completion : *longest;
    }
    return all;
}

/* Most tokens that a choice may have, by its request and the context length. */
static int32_t stream_most_tokens(const choice *c) {
    bool none = c->prompt_only || dialect_of(&c->request->g)->gives_rows;
    int32_t room = c->e->context.max_model_len - (int32_t)c->prompt.n,
            most = none ? 0 : c->sampling.max_tokens;
    return most < 0 || most > room ? room : most;
}

void stream_count(choice *c) {
    assert(c != NULL);
    quire_stream *s = c->stream;
    bool is_known = c->gone || (s->prepared && !c->submitted);
    if (!c->ended || c->counted || !is_known || s->request->g.more.prompt_only) {
        return;
    }
    c->counted = true;
    request_times t = {.submitted_us = s->submitted_us,
                       .tokenise_us = c->tokenise_us,
                       .admitted_us = c->admitted_us,
                       .first_token_us = c->first_token_us,
                       .ended_us = c->over_us};
    adapter_ref *ref = s->want.ref;
    if (ref != NULL) {
        atomic_fetch_add(&ref->n_requests, 1);
        atomic_fetch_add(&ref->n_prompt_tokens, (long long)c->prompt.n);
        atomic_fetch_add(&ref->n_generated, c->n_completion);
    }
    request_numbers n = {.n_prompt = (int32_t)c->prompt.n,
                         .n_computed = c->n_prefilled,
                         .n_completion = c->n_completion,
                         .n_preempted = c->n_preempted,
                         .max_tokens = stream_most_tokens(c)};
    int32_t longest;
    bool all = are_counted(s, c, &longest);
    request_stats_over(s->q->e->requests, c->finish, &t, &n, all ? s->request->g.info.n_best : 0, longest);
}

void stream_free_if_over(quire_stream *s) {
    if (!s->released || !s->prepared || s->n_commands > 0 || s->n_gone < s->n_submitted + s->n_replaced) {
        return;
    }
    quire_queue *q = s->q;
    *(s->prev ? &s->prev->next : &q->streams) = s->next;
    if (s->next) {
        s->next->prev = s->prev;
    }
    free_stream(s);
}

void quire_stream_cancel(quire_stream *s) {
    assert(s != NULL);
    s->cancelled = true;
    stream_stop_wanting(s);
    if (s->prepared) {
        stream_cancel_choices(s);
    } else if (s->is_ready) {
        stream_end_wait(s);
    }
}

void quire_stream_release(quire_stream *s) {
    assert(s != NULL);
    s->released = true;
    if (s->q->current && s->q->current->stream == s) {
        s->q->current = NULL;
        s->q->stage = STAGE_NONE;
    }
    if (!s->done) {
        quire_stream_cancel(s);
    }
    for (int32_t i = 0; i < s->n_choices; i++) {
        stream_settle(&s->choices[i]); /* its END will never be delivered */
    }
    stream_free_if_over(s);
}

quire_err quire_stream_recall(quire_stream *s, int32_t i, const char *id) {
    const choice *c = i >= 0 && i < s->n_choices ? &s->choices[i] : NULL;
    size_t n = strlen(id);
    strbuf text = {0};
    if (c == NULL || n < CHAT_CALL_ID_BYTES || !c->ended) {
        return QUIRE_INVALID;
    }
    const stream_engine *e = s->q->e;
    /* the sequence that replaced it may have had another prompt */
    if (e->turns == NULL || c->place.n == 0 || c->n_replaced > 0 || c->history.n == 0) {
        return QUIRE_OK;
    }
    /* the template writes the end token */
    size_t n_ids = c->history.n;
    n_ids -= end_token_kind(&c->sampling, e->model, c->history.ids[n_ids - 1]) != END_NONE;
    quire_err er = tokenizer_decode(e->tokenizer, c->history.ids, n_ids, false, &text);
    if (er == QUIRE_OK) {
        turn_store_keep(e->turns, text_tenant(s->request->g.tenant), id + n - CHAT_CALL_ID_BYTES, c->place,
                        (str){text.p, text.n}, c->history.ids, n_ids);
    }
    strbuf_deinit(&text);
    return er;
}

quire_err quire_stream_progress(const quire_stream *s, int32_t i, quire_progress *out) {
    const choice *c = i >= 0 && i < s->n_choices ? &s->choices[i] : NULL;
    if (c == NULL) {
        return QUIRE_INVALID;
    }
    c -= c->n_processed == 0 ? i % s->request->g.info.n_samples : 0;
    const quire_progress all = {.size = out->size,
                                .n_prompt = c->n_processed > 0 ? (int32_t)c->prompt.n : 0,
                                .n_cached = c->n_processed > 0 ? c->n_cached : 0,
                                .n_processed = c->n_processed,
                                .us = c->processed_us};
    memcpy(out, &all, out->size < sizeof all ? out->size : sizeof all);
    return QUIRE_OK;
}

const quire_explain_more *quire_stream_explain(const quire_stream *s, int32_t i) {
    const quire_explain_more *x = i >= 0 && i < s->n_choices ? &s->choices[i].explain_more : NULL;
    return x != NULL && x->size > 0 ? x : NULL;
}

void quire_stream_prediction(const quire_stream *s, int32_t index, int32_t *n_accepted, int32_t *n_rejected) {
    assert(s != NULL);
    *n_accepted = *n_rejected = 0;
    for (int32_t i = 0; i < s->n_choices; i++) {
        if (index < 0 || index == i) {
            *n_accepted += s->choices[i].predicted.n_accepted;
            *n_rejected += s->choices[i].predicted.n_rejected;
        }
    }
}

const quire_request_info *quire_stream_describe(const quire_stream *s) {
    return &s->request->g.info;
}

const quire_request_more *quire_stream_describe_more(const quire_stream *s) {
    return &s->request->g.more;
}

size_t quire_stream_namespace(const quire_stream *s, const char *name, size_t n) {
    return tool_spaces_find(&s->request->tool_spaces, (str){name, n});
}
