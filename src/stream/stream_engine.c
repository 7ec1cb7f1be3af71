#include "stream/stream_engine.h"

#include <assert.h>
#include <string.h>

#include "answer/grammar_constraint.h"
#include "base/mem.h"
#include "core/histogram.h"
#include "text/token_texts.h"

static quire_err stream_engine_open_caches(stream_engine *e, const stream_engine_sizes *sizes) {
    TRY(request_stats_open(&e->requests));
    if (sizes->text_cache_bytes > 0) {
        TRY(prompt_cache_open(sizes->text_cache_bytes, &e->prompts));
        TRY(turn_store_open(sizes->text_cache_bytes / 4, &e->turns));
    }
    TRY(grammar_cache_open(GRAMMAR_CACHE_BYTES, &e->grammars));
    return grammar_memory_open(sizes->rule_bytes, &e->rule_memory);
}

quire_err stream_engine_open(stream_engine *e, const stream_engine_sizes *sizes, quire_error *err) {
    quire_err r = stream_engine_open_caches(e, sizes);
    if (r != QUIRE_OK) {
        return err_set(err, r, -1, "out of memory for an engine");
    }
    r = text_pool_open(sizes->n_text_threads, TEXT_POOL_THREADS, &e->text);
    return err_set(err, r, -1, "the text threads could not start");
}

void stream_engine_stop(stream_engine *e) {
    engine_stop(e->core); /* first, since the engine gives work to the text threads */
    text_pool_close(e->text);
}

void stream_engine_close(stream_engine *e) {
    assert(e != NULL);
    prompt_cache_close(e->prompts);
    turn_store_close(e->turns);
    grammar_cache_close(e->grammars);
    request_stats_close(e->requests);
    token_texts_close(atomic_load(&e->texts));
    grammar_vocab_drop(atomic_load(&e->vocab));
    grammar_memory_close(e->rule_memory);
    marked_vocab_close(atomic_load(&e->marked));
}

quire_err stream_engine_vocab(stream_engine *e, grammar_vocab **out) {
    grammar_vocab *have = atomic_load(&e->vocab), *made;
    if (have == NULL) {
        TRY(grammar_constraint_vocab(e->tokenizer, e->context.n_vocab, NULL, &made));
        if (atomic_compare_exchange_strong(&e->vocab, &have, made)) {
            have = made;
        } else {
            grammar_vocab_drop(made);
        }
    }
    *out = have;
    return QUIRE_OK;
}

quire_err stream_engine_marked(stream_engine *e, const marked_vocab **out) {
    marked_vocab *have = atomic_load(&e->marked), *made;
    if (have == NULL) {
        TRY(marked_vocab_open(e->tokenizer, e->context.n_vocab, &made));
        if (atomic_compare_exchange_strong(&e->marked, &have, made)) {
            have = made;
        } else {
            marked_vocab_close(made);
        }
    }
    *out = have;
    return QUIRE_OK;
}

void quire_request_free(quire_request *r) {
    if (r != NULL && r->fork_from != NULL) {
        engine_fork_release(r->fork_from->held);
        mem_free(r->fork_from);
    }
    for (size_t i = 0; r != NULL && i < r->n_parks; i++) {
        engine_park_drop(stream_park_of(r, (int32_t)i));
    }
    if (r != NULL) {
        mem_free(r->parks);
    }
    request_free(r);
}

void quire_request_step(quire_request *r, uint64_t program, int32_t depth) {
    r->program = program;
    r->depth = depth;
}

/* ---- the public functions for parks (engine.h) ---- */

#define MOST_PARKS 1024 /* most choices of a request with parks */

static engine_park *core_park(const quire_park *p) {
    return (engine_park *)(uintptr_t)p;
}

engine_park *stream_park_of(const quire_request *r, int32_t choice) {
    return (size_t)choice < r->n_parks ? core_park(r->parks[choice]) : NULL;
}

quire_err quire_request_park(quire_request *r, int32_t choice, quire_park *p) {
    if (choice < 0 || choice >= MOST_PARKS) {
        return QUIRE_INVALID;
    }
    size_t n = (size_t)choice + 1;
    if (n > r->n_parks && p != NULL) {
        TRY(mem_grow(&r->parks, &r->cap_parks, n, sizeof *r->parks)); /* zeroed */
        r->n_parks = n;
    }
    if (n <= r->n_parks) {
        (void)engine_park_hold(core_park(p));
        engine_park_drop(core_park(r->parks[choice]));
        r->parks[choice] = p;
    }
    r->is_checked = false;
    return QUIRE_OK;
}

void quire_park_close(quire_park *p) {
    engine_park_close(core_park(p));
}

void quire_park_look(const quire_park *p, quire_park_info *out) {
    const engine_park_info i = engine_park_look(core_park(p));
    const quire_park_info all = {.size = out->size,
                                 .n_tokens = i.n_tokens,
                                 .n_pages = i.n_pages,
                                 .n_parked = i.n_parked,
                                 .n_bounded = i.n_bounded};
    memcpy(out, &all, out->size < sizeof all ? out->size : sizeof all);
}

/* ---- statistics of requests ---- */

quire_err request_stats_open(request_stats **out) {
    request_stats *s = mem_new(1, sizeof *s);
    *out = s;
    TRY(mem_check(s));
    pthread_mutex_init(&s->lock, NULL);
    return QUIRE_OK;
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
    assert(s != NULL && n != NULL);
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
    assert(s != NULL);
    pthread_mutex_lock(&s->lock);
    s->refused++;
    pthread_mutex_unlock(&s->lock);
}

void request_stats_read(request_stats *s, quire_stats *out) {
    assert(s != NULL && out != NULL);
    pthread_mutex_lock(&s->lock);
    memcpy(out->requests_finished, s->finished, sizeof s->finished);
    memcpy(out->histograms, s->histograms, sizeof s->histograms);
    out->requests_refused = s->refused;
    pthread_mutex_unlock(&s->lock);
}
