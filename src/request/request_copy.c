/* Operations on parsed requests: copies for forks, changes while they run, setters and
 * getters. */
#include <string.h>

#include "base/mem.h"
#include "request/request.h"
#include "request/request_read.h"

void quire_request_waited(quire_request *r, int64_t us) {
    r->g.waited_us = us;
}

quire_err quire_request_adapter(quire_request *r, const char *name) {
    strbuf own = {0};
    if (name != NULL && name[0] != '\0') {
        if (r->g.n_loras > 0) {
            return QUIRE_INVALID;
        }
        TRY(strbuf_add_str(&own, name));
    }
    strbuf_deinit(&r->adapter);
    r->adapter = own;
    r->g.adapter = (str){own.p, own.n};
    r->g.has_own_adapters = own.n > 0 || r->g.n_loras > 0;
    return QUIRE_OK;
}

void quire_request_logits(quire_request *r, float *out) {
    r->is_checked = false;
    r->logits_out = out;
}

const quire_request_info *quire_request_describe(const quire_request *r) {
    return &r->g.info;
}

const quire_request_more *quire_request_describe_more(const quire_request *r) {
    return &r->g.more;
}

/* ---- copies: what a fork inherits, and what can change in a running request ---- */

quire_err request_copy(const quire_request *r, quire_request **out, quire_error *err) {
    static const char *const own[] = {"stream", "n", "best_of", "echo", "prompt_logprobs"};
    quire_request *copy;
    *out = NULL;
    TRY(request_new(&r->context, r->g.info.endpoint, &copy, err));
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < r->n_values && e == QUIRE_OK; i++) {
        const field_desc *f = r->values[i].field;
        e = request_is_prompt_field(f) ? QUIRE_OK : request_set_and_keep(copy, f, r->values[i].value, err);
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
    request_count_choices(copy);
    memcpy(copy->g.tenant, r->g.tenant, sizeof copy->g.tenant);
    if (r->g.adapter.n > 0 && quire_request_adapter(copy, r->g.adapter.p) != QUIRE_OK) {
        request_free(copy);
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
    }
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
            e = err_set_param(
                err, QUIRE_BAD_REQUEST, m.name,
                "%s cannot be changed while the answer is generated; a fork can use another value", m.name);
        }
    }
    json_drop(body);
    TRY(e);
    TRY(quire_request_set_all(r, fields, n, err));
    request_end_turns(r);
    return request_check_lengths(r, err);
}
