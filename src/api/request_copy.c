/* Copies of requests: what a fork inherits, and what of a running request may be changed. */
#include <string.h>

#include "api/request_read.h"

/* Sets in r what was set in another by the object `set`. */
static quire_err replay(quire_request *r, json_object *set, quire_error *err) {
    json_object *copy = NULL;
    if (json_object_deep_copy(set, &copy, NULL) != 0) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    TRY(request_keep(r, copy, err));
    json_object_object_foreach(copy, key, value) {
        const field_desc *f = strchr(key, '.') == NULL ? params_field(key, request_endpoint_flag(r)) : NULL;
        if (f != NULL && f->type != FIELD_PROMPT && f->type != FIELD_MESSAGES) {
            TRY(request_set_field(r, f, value, err));
        }
    }
    return QUIRE_OK;
}

quire_err request_copy(const quire_request *r, quire_request **out, quire_error *err) {
    static const char *const own[] = {"stream", "n", "best_of", "echo", "prompt_logprobs"};
    quire_request *copy;
    *out = NULL;
    if (request_new(&r->context, r->info.endpoint, &copy) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < json_object_array_length(r->values) && e == QUIRE_OK; i++) {
        e = replay(copy, json_object_array_get_idx(r->values, i), err);
    }
    for (size_t i = 0; i < sizeof own / sizeof *own && e == QUIRE_OK; i++) {
        const field_desc *f = params_field(own[i], request_endpoint_flag(copy));
        e = f != NULL && !(f->flags & FIELD_LATER) ? request_set_field(copy, f, NULL, err) : QUIRE_OK;
    }
    if (e != QUIRE_OK) {
        quire_request_free(copy);
        return e;
    }
    copy->best_of = copy->n_prompt_logprobs = -1;
    copy->has_stream_options = copy->info.include_usage = copy->info.continuous_usage = false;
    memcpy(copy->tenant, r->tenant, sizeof copy->tenant);
    *out = copy;
    return QUIRE_OK;
}

bool request_field_steers(const char *name) {
    static const char *const names[] = {
        "allowed_token_ids", "bad_words", "dry_allowed_length", "dry_base", "dry_multiplier", "dry_penalty_last_n", "dry_sequence_breakers",
        "dynatemp_exponent", "dynatemp_range", "frequency_penalty", "ignore_eos", "logit_bias", "max_completion_tokens", "max_tokens", "min_p",
        "min_tokens", "mirostat", "mirostat_eta", "mirostat_tau", "no_repeat_ngram_size", "presence_penalty", "repetition_penalty", "seed",
        "stop_token_ids", "temperature", "top_k", "top_n_sigma", "top_p", "typical_p", "xtc_probability", "xtc_threshold",
    };
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) {
        found = strcmp(names[i], name) == 0;
    }
    return found;
}
