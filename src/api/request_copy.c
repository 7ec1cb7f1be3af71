/* Copies of requests: what a fork inherits, and what of a running request may be changed. */
#include <string.h>

#include "api/request_read.h"

quire_err request_copy(const quire_request *r, quire_request **out, quire_error *err) {
    static const char *const own[] = {"stream", "n", "best_of", "echo", "prompt_logprobs"};
    quire_request *copy;
    *out = NULL;
    if (request_new(&r->context, r->info.endpoint, &copy) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < r->n_values && e == QUIRE_OK; i++) {
        const field_desc *f = r->values[i].field;
        e = f->type != FIELD_PROMPT ? request_set_and_keep(copy, f, r->values[i].value, err) : QUIRE_OK;
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
        "allowed_token_ids",
        "bad_words",
        "dry_allowed_length",
        "dry_base",
        "dry_multiplier",
        "dry_penalty_last_n",
        "dry_sequence_breakers",
        "dynatemp_exponent",
        "dynatemp_range",
        "frequency_penalty",
        "ignore_eos",
        "logit_bias",
        "max_completion_tokens",
        "max_tokens",
        "min_p",
        "min_tokens",
        "mirostat",
        "mirostat_eta",
        "mirostat_tau",
        "no_repeat_ngram_size",
        "presence_penalty",
        "repetition_penalty",
        "seed",
        "stop_token_ids",
        "temperature",
        "top_k",
        "top_n_sigma",
        "top_p",
        "typical_p",
        "xtc_probability",
        "xtc_threshold",
    };
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) {
        found = strcmp(names[i], name) == 0;
    }
    return found;
}
