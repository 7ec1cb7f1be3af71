/* An engine over the small built-in model, used through quire.h alone. Submits requests,
 * checks the order of their events and collects the result of each choice. */
#ifndef TESTS_API_API_WORLD_H
#define TESTS_API_API_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "quire.h"
#include "test.h"

#define MAX_OUT 512

/* The result of one choice. */
typedef struct outcome {
    bool started, ended;
    strbuf text, echo;
    int32_t tokens[MAX_OUT], n_tokens, n_prompt;
    quire_finish finish;
    int32_t stop_token;
    char stop_string[64];
} outcome;

/* The result of one request. */
typedef struct response {
    quire_stream *stream;
    outcome *choices;
    int32_t n_choices, n_started, n_ended, n_deltas;
    bool done;
    quire_finish finish;
    int32_t prompt_tokens, completion_tokens;
    int32_t n_rollbacks, n_refused, n_progress;
    quire_error error, refusal;
} response;

static inline quire_engine *world_open(int32_t n_pages, int32_t max_seqs) {
    quire_options o;
    quire_engine *e;
    quire_error err = {0};
    quire_options_init(&o);
    o.model = "models/builtin-small.gguf";
    o.n_pages = n_pages;
    o.max_seqs = max_seqs;
    o.n_threads = 1;
    o.n_text_threads = 1; /* so short requests are prepared in order of arrival */
    if (quire_engine_open(&o, &e, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return e;
}

/* Defines open_e and close_e, fixtures for tests that share the engine in the variable
 * e. */
#define ENGINE_FIXTURES(e, n_pages, max_seqs)                                                                \
    static int open_##e(void **state) {                                                                      \
        (void)state;                                                                                         \
        e = world_open(n_pages, max_seqs);                                                                   \
        return 0;                                                                                            \
    }                                                                                                        \
    static int close_##e(void **state) {                                                                     \
        (void)state;                                                                                         \
        quire_engine_close(e);                                                                               \
        return 0;                                                                                            \
    }

static inline quire_queue *queue_new(quire_engine *e) {
    quire_queue *q;
    assert_int_equal(quire_queue_open(e, &q), QUIRE_OK);
    return q;
}

static inline quire_request *request_of(quire_engine *e, const char *body) {
    quire_request *r;
    quire_error err = {0};
    if (quire_request_parse(e, QUIRE_COMPLETIONS, body, strlen(body), &r, &err) != QUIRE_OK) {
        fail_msg("%s: %s", body, err.message);
    }
    return r;
}

static inline void submit_request(quire_queue *q, quire_request *r, response *a) {
    quire_error err = {0};
    *a = (response){.n_choices = quire_request_describe(r)->n_choices};
    a->choices = mem_new((size_t)a->n_choices, sizeof *a->choices);
    assert_non_null(a->choices);
    if (quire_submit(q, r, a, &a->stream, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static inline void submit(quire_engine *e, quire_queue *q, response *a, const char *body) {
    submit_request(q, request_of(e, body), a);
}

static inline void response_clear(response *a) {
    for (int32_t i = 0; i < a->n_choices; i++) {
        strbuf_deinit(&a->choices[i].text);
        strbuf_deinit(&a->choices[i].echo);
    }
    mem_free(a->choices);
    *a = (response){0};
}

static inline void take_delta(response *a, outcome *c, const quire_event *ev) {
    assert_true(c->started && !c->ended);
    assert_int_equal(strbuf_add(&c->text, ev->text, ev->n_text), QUIRE_OK);
    assert_true(c->n_tokens + ev->n_tokens <= MAX_OUT);
    for (int32_t i = 0; i < ev->n_tokens; i++) {
        c->tokens[c->n_tokens++] = ev->tokens[i];
    }
    assert_int_equal(ev->completion_tokens, c->n_tokens);
    a->n_deltas++;
}

static inline void take_end(response *a, outcome *c, const quire_event *ev) {
    assert_true((c->started || ev->finish == QUIRE_FINISH_ERROR) && !c->ended);
    assert_int_not_equal(ev->finish, QUIRE_FINISH_NONE);
    c->ended = true;
    c->finish = ev->finish;
    c->stop_token = ev->stop_token;
    if (ev->stop_string) {
        snprintf(c->stop_string, sizeof c->stop_string, "%s", ev->stop_string);
    }
    assert_int_equal(ev->completion_tokens, c->n_tokens);
    c->n_prompt = ev->prompt_tokens;
    a->n_ended++;
}

/* Adds an event to its response, and checks that it may come at this point. */
static inline void take(const quire_event *ev) {
    response *a = ev->user;
    assert_non_null(a);
    assert_false(a->done);
    assert_ptr_equal(ev->stream, a->stream);
    outcome *c = &a->choices[ev->choice];
    switch (ev->kind) {
    case QUIRE_EVENT_START:
        assert_false(c->started);
        c->started = true;
        a->n_started++;
        assert_int_equal(ev->n_tokens, ev->prompt_tokens);
        assert_int_equal(strbuf_add(&c->echo, ev->text, ev->n_text), QUIRE_OK);
        break;
    case QUIRE_EVENT_DELTA:
        take_delta(a, c, ev);
        break;
    case QUIRE_EVENT_ROLLBACK:
        assert_true(c->started && !c->ended);
        assert_true(ev->n_tokens <= c->n_tokens);
        assert_int_equal(ev->completion_tokens, ev->n_tokens);
        assert_memory_equal(ev->tokens, c->tokens, (size_t)ev->n_tokens * sizeof *ev->tokens);
        assert_true(ev->n_text <= c->text.n);
        assert_true(ev->n_text == 0 || memcmp(ev->text, c->text.p, ev->n_text) == 0);
        c->n_tokens = ev->n_tokens;
        c->text.n = ev->n_text;
        a->n_rollbacks++;
        break;
    case QUIRE_EVENT_REFUSED:
        assert_non_null(ev->error);
        a->refusal = *ev->error;
        a->n_refused++;
        break;
    case QUIRE_EVENT_PROGRESS:
        assert_false(c->started);
        a->n_progress++;
        break;
    case QUIRE_EVENT_EMBEDDING:
        fail_msg("a row for a request that wants text");
        break;
    case QUIRE_EVENT_END:
        take_end(a, c, ev);
        break;
    case QUIRE_EVENT_PARSED:
    case QUIRE_EVENT_LOOKED:
    case QUIRE_EVENT_CHECKED:
        fail_msg("a PARSED or CHECKED for a stream");
        break;
    case QUIRE_EVENT_DONE:
        assert_true(a->n_started == a->n_ended || ev->finish == QUIRE_FINISH_ERROR);
        a->done = true;
        a->finish = ev->finish;
        a->prompt_tokens = ev->prompt_tokens;
        a->completion_tokens = ev->completion_tokens;
        assert_int_equal(ev->error != NULL, ev->finish == QUIRE_FINISH_ERROR);
        if (ev->error) {
            a->error = *ev->error;
        } else {
            assert_int_equal(a->n_ended, a->n_choices);
        }
        break;
    }
}

/* Waits for the next event and returns it. */
static inline quire_event event_of(quire_queue *q) {
    quire_event ev;
    while (!quire_queue_next(q, &ev)) {
        quire_queue_wait(q, -1);
    }
    return ev;
}

/* Waits for the next event; fails the test after a generous time limit. */
static inline void next_event(quire_queue *q, quire_event *ev) {
    for (int i = 0; i < 120; i++) {
        if (quire_queue_next(q, ev)) {
            return;
        }
        quire_queue_wait(q, 1000000);
    }
    fail_msg("no event for two minutes");
}

static inline void wait_done(quire_queue *q, const response *a) {
    while (!a->done) {
        quire_event ev;
        next_event(q, &ev);
        take(&ev);
    }
}

/* Submits a request, waits until it is done, and releases its stream. */
static inline void complete(quire_engine *e, quire_queue *q, response *a, const char *body) {
    submit(e, q, a, body);
    wait_done(q, a);
    quire_stream_release(a->stream);
}

static inline quire_stats stats_of(const quire_engine *e) {
    quire_stats s;
    quire_engine_stats(e, &s);
    return s;
}

static inline void sleep_ms(int ms) {
    nanosleep(&(struct timespec){0, (long)ms * 1000000}, NULL);
}

/* Checks what always holds of the statistics: a completion that has ended is counted in
 * every histogram for which it has a value. */
static inline void expect_numbers_agree(const quire_stats *s) {
    const quire_histogram *h = s->histograms;
    int64_t n_over =
        s->requests_finished[0] + s->requests_finished[1] + s->requests_finished[2] + s->requests_finished[3];
    static const quire_histogram_kind of_all[] = {QUIRE_HISTOGRAM_E2E,
                                                  QUIRE_HISTOGRAM_QUEUE,
                                                  QUIRE_HISTOGRAM_PROMPT_TOKENS,
                                                  QUIRE_HISTOGRAM_COMPUTED_TOKENS,
                                                  QUIRE_HISTOGRAM_COMPLETION_TOKENS,
                                                  QUIRE_HISTOGRAM_MAX_TOKENS,
                                                  QUIRE_HISTOGRAM_PREEMPTIONS};
    for (size_t i = 0; i < sizeof of_all / sizeof *of_all; i++) {
        assert_int_equal(h[of_all[i]].count, n_over);
    }
    int64_t n_admitted = h[QUIRE_HISTOGRAM_INFERENCE].count, n_begun = h[QUIRE_HISTOGRAM_DECODE].count;
    assert_true(n_begun == h[QUIRE_HISTOGRAM_PREFILL].count && n_begun <= n_admitted && n_admitted <= n_over);
    assert_true(n_begun <= h[QUIRE_HISTOGRAM_FIRST_TOKEN].count);
    int64_t inference_us = h[QUIRE_HISTOGRAM_INFERENCE].sum;
    assert_true(inference_us >= h[QUIRE_HISTOGRAM_PREFILL].sum + h[QUIRE_HISTOGRAM_DECODE].sum);
    assert_true(h[QUIRE_HISTOGRAM_E2E].sum >= inference_us);
    assert_true(h[QUIRE_HISTOGRAM_COMPUTED_TOKENS].sum <= h[QUIRE_HISTOGRAM_PROMPT_TOKENS].sum);
    assert_int_equal(h[QUIRE_HISTOGRAM_LONGEST].count, h[QUIRE_HISTOGRAM_SAMPLES].count);
}

/* Waits until nothing runs or waits and no page is held: the counters are published only
 * after the step that sent the last event. */
static inline void wait_until_idle(const quire_engine *e) {
    for (int i = 0; i < 20000; i++) {
        quire_stats s = stats_of(e);
        if (s.n_requests_running == 0 && s.n_requests_waiting == 0 && s.n_pages_held == 0) {
            assert_int_equal(s.n_pages_free + s.n_pages_cached, s.n_pages);
            expect_numbers_agree(&s);
            return;
        }
        sleep_ms(1);
    }
    fail_msg("%lld pages are still held", (long long)stats_of(e).n_pages_held);
}

/* Handles events until choice i has n tokens or the response is done. */
static inline void read_to(quire_queue *q, response *a, int32_t i, int32_t n) {
    while (a->choices[i].n_tokens < n && !a->done) {
        quire_event ev;
        next_event(q, &ev);
        take(&ev);
    }
}

/* Handles events until n rollbacks, steers or their refusals have arrived, or the
 * response is done. */
static inline void read_command(quire_queue *q, response *a, int32_t n) {
    while (a->n_rollbacks + a->n_refused < n && !a->done) {
        quire_event ev;
        next_event(q, &ev);
        take(&ev);
    }
}

#endif
