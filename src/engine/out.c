#include "engine/out.h"

#include "base/mem.h"

void out_publish(sequence *s) {
    s->out->rung_later = true;
    if (!atomic_exchange(&s->queued, true)) {
        ring_push(s->out->ring, &s); /* has room: one entry a sequence at most */
    }
}

/* The next event of s, false when it has none now. */
static bool next_of(sequence *s, engine_event *event) {
    finish_reason finish = (finish_reason)atomic_load(&s->finish); /* before the count: a finish is set after the last token */
    int32_t n = atomic_load(&s->n_published);
    *event = (engine_event){.user = s->user, .token = -1, .position = n};
    if (s->n_read < n) {
        event->position = s->n_read;
        event->token = s->tokens[s->n_read++];
        return true;
    }
    if (finish == FINISH_NONE) {
        return false;
    }
    event->finish = finish;
    event->error = s->error;
    event->stopped_by_eos = s->stopped_by_eos;
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
                sequence_drop(s);
            }
            return true;
        }
        /* Drained. Growth between the look and this store would be lost but for the second look: whoever sees `queued` false queues it. */
        o->current = NULL;
        atomic_store(&s->queued, false);
        bool grown = atomic_load(&s->n_published) > s->n_read || atomic_load(&s->finish) != FINISH_NONE;
        if (grown && !atomic_exchange(&s->queued, true)) {
            o->current = s;
        }
    }
}
