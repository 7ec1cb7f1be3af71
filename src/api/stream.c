#include "api/stream.h"

#include "api/beam_stop_matcher.h"
#include "base/mem.h"

quire_err stream_new(quire_queue *q, quire_request *r, void *user, quire_stream **out, quire_error *err) {
    quire_stream *s = mem_new(1, sizeof *s);
    choice *choices = mem_new((size_t)r->info.n_choices, sizeof *choices);
    if (!s || !choices) {
        mem_free(s);
        mem_free(choices);
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
    }
    s->q = q;
    s->request = r;
    s->user = user;
    s->n_choices = r->info.n_choices;
    s->choices = choices;
    for (int32_t i = 0; i < s->n_choices; i++) {
        choices[i] = (choice){.stream = s, .index = i, .stop_token = -1, .stop_string = -1, .last_token = -1};
    }
    *out = s;
    return QUIRE_OK;
}

void stream_free(quire_stream *s) {
    for (int32_t i = 0; i < s->n_choices; i++) {
        choice *c = &s->choices[i];
        token_list_deinit(&c->prompt);
        detok_close(c->detok);
        stop_matcher_close(c->stop_matcher);
        mem_free(c->explain);
        token_list_deinit(&c->history);
        mem_free(c->sums);
        quire_request_free(c->changed);
    }
    mem_free(s->choices);
    beam_stop_matcher_close(s->watch);
    quire_request_free(s->request);
    mem_free(s);
}

void stream_cancel_choices(quire_stream *s) {
    for (int32_t i = 0; i < s->n_choices; i++) {
        choice *c = &s->choices[i];
        if (c->submitted && !c->gone) {
            engine_cancel(s->q->e->parts.core, c->current);
        }
    }
}
