#include "engine/out.h"

#include "engine/state.h"

void out_publish(sequence *s, finish_reason reason) {
    s->out->rung_later = true; /* first: once the reader has seen the end, it may close the ring */
    atomic_store_explicit(&s->n_published, s->n_known, memory_order_release);
    if (reason != FINISH_NONE) {
        atomic_store_explicit(&s->finish, reason, memory_order_release);
    }
    if (!atomic_exchange(&s->queued, true)) {
        ring_push(s->out->ring, &s); /* has room: at most one cell a sequence, and a sequence has a place in the table */
    }
}

/* Nobody will hear of s any more: its place in the table is free for another. */
static void leave_table(sequence *s) {
    engine *e = s->out->e;
    pthread_mutex_lock(&e->lock);
    e->entries[s->id.index].generation++;
    e->entries[s->id.index].sequence = NULL;
    e->free_entries[e->n_free_entries++] = (int32_t)s->id.index;
    pthread_mutex_unlock(&e->lock);
    sequence_drop(s);
}

/* The next event of s, false when it has none now. */
static bool next_of(sequence *s, engine_event *event) {
    finish_reason finish = (finish_reason)atomic_load(&s->finish); /* before the count: a finish is set after the last token */
    int32_t n = atomic_load(&s->n_published);
    *event = (engine_event){.user = s->user, .id = s->id, .token = -1, .position = n, .prompt_logprobs = s->prompt_logprobs};
    if (s->n_read < n) {
        event->n_cached = s->n_cached;
        event->position = s->n_read;
        event->logprobs =
            s->logprobs && s->n_read >= s->n_given ? s->logprobs + (size_t)(s->n_read - s->n_prompt) * (size_t)s->logprobs_width : NULL;
        event->token = s->tokens[s->n_read++];
        return true;
    }
    if (finish == FINISH_NONE) {
        return false;
    }
    event->finish = finish;
    event->prompt_logprobs = NULL; /* the sequence may go with its end */
    event->error = s->error;
    event->retry_after_s = s->retry_after_s;
    event->stopped_by_eos = s->stopped_by_eos;
    event->explain = s->explain;
    s->explain = NULL;
    event->beam_score = s->beam_score;
    event->beam_sum = s->beam_sum;
    event->n_cached = s->n_cached;
    return true;
}

bool engine_out_pop(engine_out *o, engine_event *event) {
    for (;;) {
        if (!o->current && !ring_pop(o->ring, &o->current)) {
            return false;
        }
        sequence *s = o->current;
        if (next_of(s, event)) {
            if (event->finish != FINISH_NONE) {
                o->current = NULL;
                leave_table(s);
            }
            return true;
        }
        /* Drained. Growth between the look and this exchange would be lost but for the second look: whoever sees `queued` false queues it,
         * and who saw it true has shown his growth to this exchange. */
        o->current = NULL;
        (void)atomic_exchange(&s->queued, false);
        bool grown = atomic_load(&s->n_published) > s->n_read || atomic_load(&s->finish) != FINISH_NONE;
        if (grown && !atomic_exchange(&s->queued, true)) {
            o->current = s;
        }
    }
}
