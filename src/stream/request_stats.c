#include "stream/request_stats.h"

#include <string.h>

#include "base/mem.h"
#include "core/histogram.h"

quire_err request_stats_open(request_stats **out) {
    request_stats *s = mem_new(1, sizeof *s);
    if (s != NULL && pthread_mutex_init(&s->lock, NULL) != 0) {
        mem_free(s);
        s = NULL;
    }
    *out = s;
    return s != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void request_stats_close(request_stats *s) {
    if (s != NULL) {
        pthread_mutex_destroy(&s->lock);
        mem_free(s);
    }
}

static void request_stats_add(request_stats *s, quire_histogram_kind kind, int64_t value) {
    histogram_add(&s->histograms[kind], kind, value);
}

void request_stats_first_token(request_stats *s, int64_t us) {
    pthread_mutex_lock(&s->lock);
    request_stats_add(s, QUIRE_HISTOGRAM_FIRST_TOKEN, us);
    pthread_mutex_unlock(&s->lock);
}

static void request_stats_add_times(request_stats *s, const request_times *t, int32_t n_completion) {
    int64_t queued_us = t->submitted_us + t->tokenise_us;
    request_stats_add(s, QUIRE_HISTOGRAM_E2E, t->ended_us - t->submitted_us);
    request_stats_add(s, QUIRE_HISTOGRAM_QUEUE,
                      (t->admitted_us > 0 ? t->admitted_us : t->ended_us) - queued_us);
    if (t->admitted_us > 0) {
        request_stats_add(s, QUIRE_HISTOGRAM_INFERENCE, t->ended_us - t->admitted_us);
    }
    if (t->first_token_us > 0) {
        int64_t decode_us = t->ended_us - t->first_token_us;
        request_stats_add(s, QUIRE_HISTOGRAM_PREFILL, t->first_token_us - t->admitted_us);
        request_stats_add(s, QUIRE_HISTOGRAM_DECODE, decode_us);
        if (n_completion > 1) {
            request_stats_add(s, QUIRE_HISTOGRAM_TOKEN_TIME, decode_us / (n_completion - 1));
        }
    }
}

void request_stats_over(request_stats *s, quire_finish finish, const request_times *t,
                        const request_numbers *n, int32_t n_samples, int32_t longest) {
    pthread_mutex_lock(&s->lock);
    s->finished[finish - 1]++;
    request_stats_add_times(s, t, n->n_completion);
    request_stats_add(s, QUIRE_HISTOGRAM_PROMPT_TOKENS, n->n_prompt);
    request_stats_add(s, QUIRE_HISTOGRAM_COMPUTED_TOKENS, n->n_computed);
    request_stats_add(s, QUIRE_HISTOGRAM_COMPLETION_TOKENS, n->n_completion);
    request_stats_add(s, QUIRE_HISTOGRAM_MAX_TOKENS, n->max_tokens);
    request_stats_add(s, QUIRE_HISTOGRAM_PREEMPTIONS, n->n_preempted);
    if (n_samples > 0) {
        request_stats_add(s, QUIRE_HISTOGRAM_LONGEST, longest);
        request_stats_add(s, QUIRE_HISTOGRAM_SAMPLES, n_samples);
    }
    pthread_mutex_unlock(&s->lock);
}

void request_stats_refused(request_stats *s) {
    pthread_mutex_lock(&s->lock);
    s->refused++;
    pthread_mutex_unlock(&s->lock);
}

void request_stats_read(request_stats *s, quire_stats *out) {
    pthread_mutex_lock(&s->lock);
    memcpy(out->requests_finished, s->finished, sizeof s->finished);
    memcpy(out->histograms, s->histograms, sizeof s->histograms);
    out->requests_refused = s->refused;
    pthread_mutex_unlock(&s->lock);
}
