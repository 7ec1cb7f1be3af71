/* Copies of requests: what a fork inherits, and what of a running request may be
 * changed. */
#include <string.h>

#include "request/request_read.h"

quire_err request_copy(const quire_request *r, quire_request **out, quire_error *err) {
    static const char *const own[] = {"stream", "n", "best_of", "echo", "prompt_logprobs"};
    quire_request *copy;
    *out = NULL;
    TRY(request_new(&r->context, r->g.info.endpoint, &copy, err));
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < r->n_values && e == QUIRE_OK; i++) {
        const field_desc *f = r->values[i].field;
        bool is_prompt = f->type == FIELD_PROMPT || f->type == FIELD_MESSAGES;
        e = is_prompt ? QUIRE_OK : request_set_and_keep(copy, f, r->values[i].value, err);
    }
    for (size_t i = 0; i < sizeof own / sizeof *own && e == QUIRE_OK; i++) {
        const field_desc *f = request_field(own[i], dialect_of(&copy->g)->fields);
        e = f != NULL && !(f->flags & FIELD_LATER) ? request_set_field(copy, f, NULL, err) : QUIRE_OK;
    }
    if (e != QUIRE_OK) {
        request_free(copy);
        return e;
    }
    copy->best_of = copy->n_prompt_logprobs = -1;
    copy->has_stream_options = copy->g.info.include_usage = copy->g.info.continuous_usage = false;
    memcpy(copy->g.tenant, r->g.tenant, sizeof copy->g.tenant);
    *out = copy;
    return QUIRE_OK;
}

quire_err request_change(quire_request *r, const char *fields, size_t n, quire_error *err) {
    json_value *body;
    TRY(request_read_value((str){fields, n}, 0, NULL, &body, err));
    quire_err e =
        json_is(body, JSON_KIND_OBJECT)
            ? QUIRE_OK
            : err_set_param(err, QUIRE_BAD_REQUEST, "body", "the fields to change must be a JSON object");
    for (json_member m = {0}; e == QUIRE_OK && json_next(body, &m);) {
        const field_desc *f = request_field(m.name, dialect_of(&r->g)->fields);
        if (f != NULL && !(f->flags & FIELD_SAMPLING)) {
            e = err_set_param(err, QUIRE_BAD_REQUEST, m.name,
                              "%s cannot be changed while the answer is made; a fork can have another",
                              m.name);
        }
    }
    json_drop(body);
    e = e == QUIRE_OK ? quire_request_set_all(r, fields, n, err) : e;
    TRY(e);
    request_end_turns(r);
    return request_check_lengths(r, err);
}
