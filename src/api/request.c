#include "api/request.h"

#include "api/request_read.h"
#include "base/mem.h"

uint32_t request_endpoint_flag(const quire_request *r) {
    return r->info.endpoint == QUIRE_CHAT ? FIELD_CHAT : FIELD_COMPLETIONS;
}

quire_err request_new(const request_context *ctx, quire_endpoint endpoint, quire_request **out) {
    *out = NULL;
    quire_request *r = mem_new(1, sizeof *r);
    if (r == NULL) {
        return QUIRE_NO_MEMORY;
    }
    r->context = *ctx;
    r->info.endpoint = endpoint;
    r->n = 1;
    r->best_of = r->beams.width = -1;
    request_count_choices(r);
    r->max_completion_tokens = r->n_logprobs = r->n_prompt_logprobs = r->info.logprobs = r->info.prompt_logprobs = -1;
    r->cache_priority = -1;
    sampling_params_init(&r->sampling);
    r->values = json_object_new_array();
    quire_err e = r->values == NULL ? QUIRE_NO_MEMORY : QUIRE_OK;
    int32_t n = 0;
    const field_desc *fields = params_fields(&n);
    for (int32_t i = 0; i < n && e == QUIRE_OK; i++) {
        bool mine = (fields[i].flags & request_endpoint_flag(r)) && !(fields[i].flags & FIELD_LATER);
        if (mine && strcmp(fields[i].fallback, "null") != 0) {
            e = request_set_field(r, &fields[i], NULL, NULL);
        }
    }
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    *out = r;
    return QUIRE_OK;
}

void quire_request_free(quire_request *r) {
    if (r == NULL) {
        return;
    }
    request_prompts_free(r->prompts, r->n_prompts);
    mem_free(r->messages);
    sampling_lists_drop(r->sampling.lists);
    json_object_put(r->values);
    engine_stem_drop(r->stem.held);
    mem_free(r);
}

quire_err request_keep(quire_request *r, json_object *v, quire_error *err) {
    if (json_object_array_add(r->values, v) != 0) {
        json_object_put(v);
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    return QUIRE_OK;
}

/* Reads every field of a body; with a stem, all but what the stem has said. */
static quire_err read_body(quire_request *r, const char *text, size_t n, quire_error *err) {
    json_object *body;
    TRY(json_read(text, n, &body, err));
    TRY(request_keep(r, body, err));
    if (!json_object_is_type(body, json_type_object)) {
        char brief[JSON_BRIEF_BYTES];
        return err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body is %s; it must be a JSON object", json_brief(body, brief));
    }
    json_object_object_foreach(body, key, value) {
        const field_desc *f = strchr(key, '.') == NULL ? params_field(key, request_endpoint_flag(r)) : NULL;
        if (f != NULL && r->stem.held != NULL && value != NULL && (f->type == FIELD_PROMPT || f->type == FIELD_MESSAGES)) {
            return err_set_param(err, QUIRE_BAD_REQUEST, f->name, "%s is given; a fork has the prompt of what it was forked from", f->name);
        }
        if (f != NULL) {
            TRY(request_set_field(r, f, value, err));
        }
    }
    json_object_object_del(body, "messages"); /* copied already */
    if (r->n_prompts > 0 && r->prompts[0].ids != NULL) {
        json_object_object_del(body, "prompt");
    }
    return QUIRE_OK;
}

/* A chat needs messages and a model that can read them; a completion needs a prompt. */
static quire_err check_required(const quire_request *r, quire_error *err) {
    if (r->stem.held != NULL) {
        if (r->info.beam_width > 0) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "beam_width", "beam_width is given; a fork goes on by sampling");
        }
        return r->n_prompt_logprobs < 0 ? QUIRE_OK
                                        : err_set_param(err, QUIRE_BAD_REQUEST, "prompt_logprobs",
                                                        "prompt_logprobs is given; a fork does not compute what stands before it");
    }
    if (r->info.endpoint == QUIRE_COMPLETIONS) {
        return r->n_prompts > 0 ? QUIRE_OK : err_set_param(err, QUIRE_BAD_REQUEST, "prompt", "prompt is missing; give a text or token ids");
    }
    if (!r->context.has_vocabulary) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "this model has no vocabulary, so it cannot chat; use completions with token ids");
    }
    if (!r->context.has_chat_template) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "this model has no chat template, so it cannot chat; start with --chat-template FILE to give it one");
    }
    if (r->messages == NULL) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "body.messages", "messages is missing; give an array of messages");
    }
    if (r->continue_final_message && r->add_generation_prompt) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "continue_final_message",
                             "continue_final_message and add_generation_prompt exclude each other; set add_generation_prompt to false");
    }
    return QUIRE_OK;
}

void request_count_choices(quire_request *r) {
    int32_t n_prompts = r->info.endpoint == QUIRE_CHAT ? 1 : r->n_prompts;
    r->info.n_best = r->n;
    r->info.beam_width = request_beam_width(r);
    r->info.n_samples = r->best_of > r->n && r->info.beam_width == 0 ? r->best_of : r->n;
    r->info.n_choices = n_prompts * r->info.n_samples; /* at most REQUEST_MAX_PROMPTS * PARAMS_MAX_CHOICES */
}

static quire_err check_choices(const quire_request *r, quire_error *err) {
    if (r->best_of >= 0 && r->best_of < r->n) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "best_of", "best_of is %d; it must be at least n, which is %d", (int)r->best_of, (int)r->n);
    }
    if (r->info.n_samples > r->n && r->info.stream) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "best_of", "the best of several cannot be streamed; leave best_of or stream out");
    }
    if (r->info.n_choices > PARAMS_MAX_CHOICES) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "n", "the request asks for %d answers in all; at most %d are given", (int)r->info.n_choices,
                             PARAMS_MAX_CHOICES);
    }
    return QUIRE_OK;
}

/* What is reported beside tokens: echo with logprobs reports the prompt's as well. */
static quire_err check_logprobs(quire_request *r, quire_error *err) {
    quire_request_info *i = &r->info;
    bool chat = i->endpoint == QUIRE_CHAT;
    if (chat && r->n_top_logprobs > 0 && r->n_logprobs < 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "top_logprobs", "top_logprobs is given without logprobs; set logprobs to true");
    }
    if (r->n_top_logprobs > PARAMS_MAX_LOGPROBS) { /* the reference names logprobs */
        return err_set_param(err, QUIRE_BAD_REQUEST, "logprobs", "top_logprobs is %d; it must be from 0 to %d", (int)r->n_top_logprobs,
                             PARAMS_MAX_LOGPROBS);
    }
    if (i->stream && r->n_prompt_logprobs > 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "prompt_logprobs", "prompt_logprobs cannot be streamed; leave stream out");
    }
    i->logprobs = chat && r->n_logprobs >= 0 ? r->n_top_logprobs : r->n_logprobs;
    i->prompt_logprobs = i->echo && !chat && i->logprobs > r->n_prompt_logprobs ? i->logprobs : r->n_prompt_logprobs;
    return QUIRE_OK;
}

quire_err request_check(quire_request *r, quire_error *err) {
    TRY(check_required(r, err));
    TRY(check_choices(r, err));
    TRY(request_check_beams(r, err));
    TRY(check_logprobs(r, err));
    sampling_params *s = &r->sampling;
    if (r->has_stream_options && !r->info.stream) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "stream_options", "stream_options is given without stream; set stream to true");
    }
    if (r->max_completion_tokens >= 0) {
        s->max_tokens = r->max_completion_tokens;
    }
    if (s->max_tokens == 0 && !r->info.echo) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "max_tokens", "max_tokens is 0; it must be at least 1, or echo must be true");
    }
    if (s->max_tokens > r->context.max_model_len) {
        return err_set_param(err, QUIRE_BAD_REQUEST, r->max_completion_tokens >= 0 ? "max_completion_tokens" : "max_tokens",
                             "max_tokens is %d; a sequence has at most %d tokens here", (int)s->max_tokens, (int)r->context.max_model_len);
    }
    if (s->max_tokens > 0 && s->min_tokens > s->max_tokens) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "min_tokens", "min_tokens is %d; it must be at most max_tokens, which is %d",
                             (int)s->min_tokens, (int)s->max_tokens);
    }
    if (r->logits_out != NULL && r->n_prompts != 1) {
        return err_set(err, QUIRE_INVALID, -1, "logits can be had of a single prompt only");
    }
    return QUIRE_OK;
}

quire_err request_parse(const request_context *ctx, quire_endpoint endpoint, const char *body, size_t n, quire_request **out,
                        quire_error *err) {
    *out = NULL;
    quire_request *r;
    if (request_new(ctx, endpoint, &r) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    quire_err e = read_body(r, body, n, err);
    e = e == QUIRE_OK ? request_check(r, err) : e;
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    *out = r;
    return QUIRE_OK;
}

quire_err request_ids(const request_context *ctx, const int32_t *ids, size_t n, quire_request **out, quire_error *err) {
    *out = NULL;
    if (n == 0 || n > INT32_MAX) {
        return err_set(err, QUIRE_INVALID, -1, "a prompt of %zu ids; it must have at least one", n);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= ctx->n_vocab) {
            return err_set(err, QUIRE_BAD_REQUEST, -1, "token id %d is out of the vocabulary, which has %d ids", (int)ids[i],
                           (int)ctx->n_vocab);
        }
    }
    quire_request *r;
    if (request_new(ctx, QUIRE_COMPLETIONS, &r) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    r->prompts = mem_new(1, sizeof *r->prompts);
    int32_t *copy = mem_new(n, sizeof *copy);
    if (r->prompts == NULL || copy == NULL) {
        mem_free(copy);
        quire_request_free(r);
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt of %zu ids", n);
    }
    memcpy(copy, ids, n * sizeof *copy);
    r->prompts[0] = (request_prompt){.ids = copy, .n_ids = (int32_t)n};
    r->n_prompts = 1;
    request_count_choices(r);
    *out = r;
    return QUIRE_OK;
}

quire_err quire_request_parse(const quire_engine *e, quire_endpoint endpoint, const char *body, size_t n, quire_request **out,
                              quire_error *err) {
    return request_parse(engine_request_context(e), endpoint, body, n, out, err);
}

quire_err quire_request_ids(const quire_engine *e, const int32_t *ids, size_t n, quire_request **out, quire_error *err) {
    return request_ids(engine_request_context(e), ids, n, out, err);
}

quire_err quire_request_set(quire_request *r, const char *field, const char *json, quire_error *err) {
    const field_desc *f = params_field(field, request_endpoint_flag(r));
    if (f == NULL) {
        return err_set(err, QUIRE_NOT_FOUND, -1, "a request has no field %s", field);
    }
    json_object *value;
    TRY(json_read(json, strlen(json), &value, err));
    json_object *body = json_object_new_object(); /* kept as a body, for request_copy */
    if (body == NULL || json_object_object_add(body, field, value) != 0) {
        json_object_put(value);
        json_object_put(body);
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    TRY(request_keep(r, body, err));
    return request_set_field(r, f, value, err);
}

quire_err quire_request_set_all(quire_request *r, const char *json, size_t n, quire_error *err) {
    return read_body(r, json, n, err);
}

quire_err quire_request_tenant(quire_request *r, const char *tenant) {
    size_t n = strlen(tenant);
    if (n > QUIRE_TENANT_BYTES) {
        return QUIRE_INVALID;
    }
    memcpy(r->tenant, tenant, n + 1);
    return QUIRE_OK;
}

void quire_request_logits(quire_request *r, float *out) {
    r->logits_out = out;
}

const quire_request_info *quire_request_describe(const quire_request *r) {
    return &r->info;
}
