/* Beam searches in tests: submits a search, waits for its results, and compares the
 * results of two searches bit by bit. */
#ifndef TESTS_ENGINE_BEAM_WORLD_H
#define TESTS_ENGINE_BEAM_WORLD_H

#include "engine/harness.h"
#include "test.h"

enum { MAX_RESULTS = 16, MAX_FOUND = 96, MAX_WIDTH = 4, MAX_PROMPT = 512, MAX_PROMPT_LOGPROBS = 64 };

/* One result of a search, collected from its events. */
typedef struct found {
    int32_t n_tokens, tokens[MAX_FOUND];
    token_logprob logprobs[MAX_FOUND * MAX_WIDTH];
    double score, sum;
    finish_reason finish;
    bool stopped_by_eos;
    quire_err error;
    int32_t n_preempted;
    int64_t steps; /* steps that the search took, if it explains; otherwise 0 */
    token_logprob prompt_logprobs[MAX_PROMPT_LOGPROBS];
    int32_t n_prompt_logprobs; /* number in the last event */
} found;

typedef struct search {
    int32_t prompt[MAX_PROMPT], n_prompt, n; /* n: number of results */
    beam_params beams;
    engine_ending ending;
    constraint *constraint; /* the test's; NULL: none */
    engine_outside outside; /* runs the constraint's work outside of steps; zero: nothing does */
    adapter_ref *adapter;   /* the test's; NULL: none */
    sampling_params sampling;
    int32_t width, prompt_width; /* log-probabilities per token; 0: none */
    bool explain;
    found results[MAX_RESULTS];
    request_id ids[MAX_RESULTS];
    quire_error refusal;
    int32_t n_ended;
} search;

static inline void search_init(search *s, harness *h, uint64_t seed, int32_t n_prompt, int32_t n_beams,
                               int32_t max_tokens) {
    *s = (search){.n_prompt = n_prompt,
                  .n = n_beams,
                  .beams = {.width = n_beams, .n_groups = 1, .length_penalty = 1.0f},
                  .sampling = greedy(max_tokens)};
    random_prompt(&seed, h->n_vocab, n_prompt, s->prompt);
}

static inline quire_err search_submit(harness *h, search *s) {
    void *users[MAX_RESULTS];
    int32_t *tokens = mem_new((size_t)s->n_prompt, sizeof *tokens);
    memcpy(tokens, s->prompt, (size_t)s->n_prompt * sizeof *tokens);
    engine_request r = {.tokens = tokens,
                        .n_tokens = s->n_prompt,
                        .sampling = s->sampling,
                        .beams = s->beams,
                        .ending = s->ending,
                        .constraint = s->constraint,
                        .outside = s->outside,
                        .adapter = s->adapter,
                        .logprobs_width = s->width,
                        .prompt_logprobs_width = s->prompt_width,
                        .explain = s->explain,
                        .namespace = s->adapter != NULL ? "tuned" : "test",
                        .n_namespace = s->adapter != NULL ? 5 : 4,
                        .out = h->out};
    memset(s->results, 0, sizeof s->results);
    s->n_ended = 0;
    for (int32_t i = 0; i < s->n; i++) {
        users[i] = &s->results[i];
    }
    quire_err e = engine_submit_samples(h->e, &r, s->n, users, s->ids, &s->refusal);
    if (e != QUIRE_OK) {
        mem_free(tokens);
    }
    return e;
}

/* Handles an event of any search. True: a result has ended. */
static inline bool search_take(harness *h, const search *s, const engine_event *ev) {
    found *f = ev->user;
    f->n_prompt_logprobs = ev->prompt_logprobs != NULL ? (s->n_prompt - 1) * s->prompt_width : 0;
    assert_true(f->n_prompt_logprobs <= MAX_PROMPT_LOGPROBS);
    mem_copy(f->prompt_logprobs, ev->prompt_logprobs,
             (size_t)f->n_prompt_logprobs * sizeof *f->prompt_logprobs);
    if (ev->finish == FINISH_NONE) {
        assert_true(f->n_tokens < MAX_FOUND);
        f->tokens[f->n_tokens] = ev->token;
        assert_int_equal(ev->logprobs != NULL, s->width > 0);
        if (s->width > 0) {
            memcpy(&f->logprobs[f->n_tokens * s->width], ev->logprobs,
                   (size_t)s->width * sizeof *f->logprobs);
        }
        f->n_tokens++;
        return false;
    }
    (void)h;
    f->finish = ev->finish;
    f->error = ev->error;
    f->stopped_by_eos = ev->stopped_by_eos;
    f->score = ev->beam_score;
    f->sum = ev->beam_sum;
    f->n_preempted = ev->n_preempted;
    f->steps = ev->explain ? ev->explain->report.n_chunks + ev->explain->report.n_decodes : 0;
    mem_free(ev->explain);
    return true;
}

/* Waits until n results of searches with s's log-probability widths have ended. */
static inline void search_wait(harness *h, const search *s, int32_t n) {
    while (n > 0) {
        engine_event ev;
        if (!engine_out_pop(h->out, &ev)) {
            wake_wait(&h->reader, -1);
        } else {
            n -= search_take(h, s, &ev);
        }
    }
}

static inline void search_run(harness *h, search *s) {
    quire_err e = search_submit(h, s);
    if (e != QUIRE_OK) {
        fail_msg("%s", s->refusal.message);
    }
    search_wait(h, s, s->n);
}

static inline void assert_same_results(const search *a, const search *b) {
    assert_int_equal(a->n, b->n);
    for (int32_t i = 0; i < a->n; i++) {
        const found *x = &a->results[i], *y = &b->results[i];
        assert_int_equal(x->n_tokens, y->n_tokens);
        assert_memory_equal(x->tokens, y->tokens, (size_t)x->n_tokens * sizeof *x->tokens);
        assert_memory_equal(x->logprobs, y->logprobs, sizeof x->logprobs);
        assert_memory_equal(&x->score, &y->score, sizeof x->score);
        assert_memory_equal(&x->sum, &y->sum, sizeof x->sum);
        assert_int_equal(x->finish, y->finish);
        assert_int_equal(x->stopped_by_eos, y->stopped_by_eos);
    }
}

#endif
