/* What ends an answer of a chat besides the fields of its request: the beginning of
 * another turn (chat/chat_form.h). */
#include "request/request_read.h"

static bool has_stop_token(const sampling_params *s, int32_t id) {
    bool has = false;
    for (int32_t i = 0; i < s->n_stop_tokens && !has; i++) {
        has = s->stop_tokens[i] == id;
    }
    return has;
}

void request_end_turns(quire_request *r) {
    const chat_form *form = r->context.form;
    sampling_params *s = &r->sampling;
    r->n_stops = r->n_given_stops;
    if (r->info.endpoint != QUIRE_CHAT || form == NULL || s->ignore_eos) {
        return;
    }
    for (int32_t i = 0; i < form->n_stops; i++) {
        r->stops[r->n_stops++] = form->stops[i];
    }
    if (form->end_token >= 0 && form->end_token < r->context.n_vocab && !has_stop_token(s, form->end_token)) {
        /* the array has room for one more than a request may name */
        s->stop_tokens[s->n_stop_tokens++] = form->end_token;
    }
}
