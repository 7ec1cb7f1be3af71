#include "engine/output.h"

#include <assert.h>

#include "base/mem.h"
#include "engine/row_pooling.h"
#include "engine/state.h"

#define DIRTY_BITS 64

/* ---- the word at an index: | ended: 1 | tokens: 31 | the newest: 32 | ---- */

#define WORD_ENDED (UINT64_C(1) << 63)

static uint64_t output_word_of(int32_t n, int32_t newest, bool ended) {
    return (ended ? WORD_ENDED : 0) | (uint64_t)(uint32_t)n << 32 | (uint32_t)newest;
}

static int32_t word_tokens(uint64_t word) {
    return (int32_t)(word >> 32 & INT32_MAX);
}

static int32_t word_newest(uint64_t word) {
    return (int32_t)(uint32_t)word;
}

/* ---- open and close ---- */

static void output_close(engine_out *o) {
    mem_free((void *)o->sequences);
    mem_free(o->words);
    mem_free(o->dirty);
    mem_free(o->fresh);
    mem_free(o->fresh_words);
    mem_free(o->ended_logprobs);
    mem_free(o);
}

quire_err engine_out_open(engine *e, wake *reader, engine_out **out) {
    engine_out *o = mem_new(1, sizeof *o);
    TRY(mem_check(o));
    size_t n = (size_t)e->options.max_requests;
    o->e = e;
    o->reader = reader;
    o->n_dirty = (int32_t)((n + DIRTY_BITS - 1) / DIRTY_BITS);
    o->sequences = mem_new(n, sizeof *o->sequences);
    o->words = mem_new(n, sizeof *o->words);
    o->dirty = mem_new((size_t)o->n_dirty, sizeof *o->dirty);
    o->fresh = mem_new((size_t)o->n_dirty, sizeof *o->fresh);
    o->fresh_words = mem_new(n, sizeof *o->fresh_words);
    if (!o->sequences || !o->words || !o->dirty || !o->fresh || !o->fresh_words) {
        output_close(o);
        return QUIRE_NO_MEMORY;
    }
    pthread_mutex_lock(&e->readers_lock);
    o->next = e->outs;
    e->outs = o;
    pthread_mutex_unlock(&e->readers_lock);
    *out = o;
    return QUIRE_OK;
}

/* Whether n places are free for the reader of o. Under the engine's lock. */
static bool output_has_places(const engine_out *o, int32_t n) {
    return o->e->n_free_entries >= n + (o == o->e->awaiting ? 0 : o->e->n_saved);
}

/* Wakes the readers for whom there are enough places. Under the engine's lock. */
static void output_wake_awaiting(const engine *e) {
    for (engine_out *o = e->awaiting; o != NULL; o = o->next_awaiting) {
        if (output_has_places(o, o->n_awaited)) {
            wake_ring(o->reader);
        }
    }
}

/* Sets how many places the reader of o waits for; 0: none. Under the engine's lock. */
static void output_await(engine_out *o, int32_t n) {
    engine *e = o->e;
    engine_out **at = &e->awaiting;
    const engine_out *first = e->awaiting;
    const int32_t n_saved = e->n_saved;
    while (*at != NULL && *at != o) {
        at = &(*at)->next_awaiting;
    }
    if (at == &e->awaiting && n < n_saved) {
        e->n_saved = n;
    }
    if (n == 0 && *at == o) {
        *at = o->next_awaiting;
    } else if (n > 0 && *at == NULL) {
        o->next_awaiting = NULL;
        *at = o;
    }
    o->n_awaited = n;
    if (e->awaiting != first || e->n_saved < n_saved) { /* others may take the places that were saved for o */
        output_wake_awaiting(e);
    }
}

bool out_take_places(engine_out *o, int32_t n, bool has_waited) {
    engine *e = o->e;
    if (e->n_free_entries < n + (has_waited && o == e->awaiting ? 0 : e->n_saved)) {
        return false;
    }
    if (has_waited && o->n_awaited > 0) {
        const int32_t n_left = e->n_free_entries - n;
        if (o == e->awaiting && e->n_saved > n_left) { /* uses up unsaved places first */
            e->n_saved = n_left;
        }
        output_await(o, o->n_awaited > n ? o->n_awaited - n : 0);
    }
    return true;
}

bool engine_out_await_places(engine_out *o, int32_t n) {
    engine *e = o->e;
    assert(n >= 0 && n <= e->options.max_requests);
    pthread_mutex_lock(&e->lock);
    output_await(o, n);
    bool has = output_has_places(o, n);
    pthread_mutex_unlock(&e->lock);
    return has;
}

void engine_out_close(engine_out *o) {
    if (!o) {
        return;
    }
    pthread_mutex_lock(&o->e->readers_lock);
    engine_out **at = &o->e->outs;
    while (*at != o) {
        at = &(*at)->next;
    }
    *at = o->next;
    pthread_mutex_unlock(&o->e->readers_lock);
    pthread_mutex_lock(&o->e->lock);
    output_await(o, 0);
    pthread_mutex_unlock(&o->e->lock);
    output_close(o);
}

/* ---- the engine's side ---- */

void out_enter(sequence *s) {
    engine_out *o = s->out;
    uint32_t index = s->id.index;
    atomic_store_explicit(&o->words[index], output_word_of(s->n_read, 0, false), memory_order_relaxed);
    atomic_store_explicit(&o->sequences[index], s, memory_order_release);
}

void out_publish(sequence *s, finish_reason reason) {
    engine_out *o = s->out;
    uint32_t index = s->id.index;
    o->has_fresh = true;
    o->fresh[index / DIRTY_BITS] |= UINT64_C(1) << index % DIRTY_BITS;
    o->fresh_words[index] =
        output_word_of(s->task.n_known, s->task.tokens[s->task.n_known - 1], reason != FINISH_NONE);
    if (reason != FINISH_NONE) {
        s->finish = reason; /* written only if s ends, since the reader writes to that cache line */
        s->n_ended_before = o->e->n_ended++;
        o->e->stats.requests_finished[reason - 1]++;
    }
}

void out_progress(engine *e, sequence *s, int32_t n) {
    (void)n;
    int32_t done = s->task.kv.n_computed < s->n_given ? s->task.kv.n_computed : s->n_given;
    if (s->shows_progress && done > atomic_load_explicit(&s->n_processed, memory_order_relaxed)) {
        atomic_store_explicit(&s->processed_us,
                              e->step.collected_us - s->task.submitted_us - s->task.queue_us,
                              memory_order_relaxed);
        atomic_store_explicit(&s->n_processed, done, memory_order_release);
        out_publish(s, FINISH_NONE);
    }
}

static void show_fresh(engine_out *o) {
    for (int32_t i = 0; i < o->n_dirty; i++) {
        uint64_t fresh = o->fresh[i];
        for (uint64_t left = fresh; left != 0; left &= left - 1) {
            int32_t index = i * DIRTY_BITS + __builtin_ctzll(left);
            atomic_store_explicit(&o->words[index], o->fresh_words[index], memory_order_release);
        }
        if (fresh != 0) {
            atomic_fetch_or_explicit(&o->dirty[i], fresh, memory_order_release);
            o->fresh[i] = 0;
        }
    }
}

void out_wake_readers(engine *e) {
    pthread_mutex_lock(&e->readers_lock);
    for (engine_out *o = e->outs; o; o = o->next) {
        if (o->has_fresh) {
            o->has_fresh = false;
            show_fresh(o);
            wake_ring(o->reader);
        }
    }
    pthread_mutex_unlock(&e->readers_lock);
}

/* ---- the reader's side ---- */

/* Removes s from the table after its last event, and frees its output index. */
static void leave_table(sequence *s) {
    engine *e = s->out->e;
    /* must come first, since the dirty bit of s may still be set */
    atomic_store_explicit(&s->out->sequences[s->id.index], NULL, memory_order_relaxed);
    pthread_mutex_lock(&e->lock);
    e->entries[s->id.index].generation++;
    e->entries[s->id.index].sequence = NULL;
    e->free_entries[e->n_free_entries++] = (int32_t)s->id.index;
    if (e->awaiting != NULL && e->n_saved < e->awaiting->n_awaited) { /* saves every second place */
        e->has_saved = !e->has_saved;
        e->n_saved += e->has_saved;
    }
    output_wake_awaiting(e);
    pthread_mutex_unlock(&e->lock);
    sequence_drop(s);
}

/* Fills in what was recorded up to the first token. */
static void fill_times(const sequence *s, engine_event *event) {
    event->n_cached = s->task.n_cached;
    event->queue_us = s->task.queue_us;
    event->admitted_us = s->task.submitted_us + s->task.queue_us;
    event->first_token_us = atomic_load_explicit(&s->first_token_us, memory_order_relaxed);
}

/* The prediction's counts when s had n tokens. */
static prediction_counts predicted_after(const sequence *s, int32_t n) {
    return s->predicted != NULL && n > s->task.n_prompt ? s->predicted[n - 1 - s->task.n_prompt].counts
                                                        : (prediction_counts){0};
}

static void output_take_end(sequence *s, engine_event *event) {
    event->finish = s->finish;
    /* other requests may have ended before their prompt was computed */
    bool is_whole = s->finish == FINISH_STOP || s->finish == FINISH_LENGTH;
    event->prompt_logprobs = is_whole ? s->prompt_logprobs : NULL;
    /* moved here, since the sequence may be freed once its end is read */
    s->out->ended_logprobs = s->prompt_logprobs;
    s->prompt_logprobs = NULL;
    event->error = s->error;
    event->retry_after_s = s->retry_after_s;
    event->stopped_by_eos = s->stopped_by_eos;
    event->n_ended_before = s->n_ended_before;
    event->explain = s->explain;
    s->explain = NULL;
    if (s->pooling != NULL && s->finish == FINISH_STOP) {
        event->row = s->pooling->result;
        event->n_row = s->pooling->width;
        s->pooling->result = NULL;
    }
    event->predicted = predicted_after(s, event->position);
    event->beam_score = s->beam_score;
    event->beam_sum = s->beam_sum;
    fill_times(s, event);
    event->admitted_us = s->task.n_admitted > 0 ? event->admitted_us : 0;
    event->ended_us = s->ended_us;
    event->n_prefilled = s->n_prefilled < s->task.n_prompt ? s->n_prefilled : s->task.n_prompt;
    event->n_preempted = s->n_preempted;
}

/* Fills an event with the progress of s since the last such event; false if there is
 * none. */
static bool output_take_progress(sequence *s, engine_event *event) {
    int32_t n = atomic_load_explicit(&s->n_processed, memory_order_acquire);
    if (n == s->n_processed_read) {
        return false;
    }
    s->n_processed_read = n;
    fill_times(s, event);
    event->n_processed = n;
    event->processed_us = atomic_load_explicit(&s->processed_us, memory_order_relaxed);
    return true;
}

/* Fills the next event of s. False: it has none. */
static bool output_next_of(sequence *s, engine_event *event) {
    uint64_t word = atomic_load_explicit(&s->out->words[s->id.index], memory_order_acquire);
    int32_t n = word_tokens(word);
    *event = (engine_event){
        .user = s->user, .id = s->id, .token = -1, .position = n, .prompt_logprobs = s->prompt_logprobs};
    if (output_take_progress(s, event)) {
        return true;
    }
    if (s->n_read < n) {
        fill_times(s, event);
        event->position = s->n_read;
        event->predicted = predicted_after(s, s->n_read + 1);
        event->logprobs =
            s->logprobs && s->n_read >= s->n_given
                ? s->logprobs + (size_t)(s->n_read - s->task.n_prompt) * (size_t)s->logprobs_width
                : NULL;
        event->token =
            /* avoids a read of the array, which the engine's processor has in its
             * cache */
            s->n_read == n - 1 ? word_newest(word) : s->task.tokens[s->n_read];
        s->n_read++;
        return true;
    }
    if ((word & WORD_ENDED) != 0) {
        output_take_end(s, event);
        return true;
    }
    return false;
}

/* The next sequence with a dirty bit, or NULL. All bits of a word are processed together,
 * and words in turn, so that no sequence starves. */
static sequence *next_dirty(engine_out *o) {
    for (int32_t looked = 0;; looked++) {
        while (o->left != 0) {
            int32_t index = o->at * DIRTY_BITS + __builtin_ctzll(o->left);
            o->left &= o->left - 1;
            sequence *s = atomic_load_explicit(&o->sequences[index], memory_order_acquire);
            if (s != NULL) {
                return s;
            }
        }
        if (looked == o->n_dirty) {
            return NULL;
        }
        o->at = o->at + 1 < o->n_dirty ? o->at + 1 : 0;
        if (atomic_load_explicit(&o->dirty[o->at], memory_order_relaxed) != 0) {
            o->left = atomic_exchange_explicit(&o->dirty[o->at], 0, memory_order_acquire);
        }
    }
}

bool engine_out_pop(engine_out *o, engine_event *event) {
    mem_free(o->ended_logprobs);
    o->ended_logprobs = NULL;
    while (o->current != NULL || (o->current = next_dirty(o)) != NULL) {
        sequence *s = o->current;
        if (output_next_of(s, event)) {
            if (event->finish != FINISH_NONE) {
                o->current = NULL;
                leave_table(s);
            }
            return true;
        }
        o->current = NULL; /* tokens published since then set the dirty bit again */
    }
    return false;
}
