/* The dialect of completions: prompts in four forms (a text, several texts, ids, several
 * lists of ids), which embeddings inputs share. */
#include "base/mem.h"

#include "request/request_read.h"
#include "json/json_scan.h"
#include <assert.h>

void request_prompts_free(request_prompt *prompts, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        mem_free(prompts[i].ids);
        mem_free(prompts[i].types);
    }
    mem_free(prompts);
}

void request_set_prompts(quire_request *r, request_prompt *prompts, size_t n) {
    assert(n == 0 || prompts != NULL);
    request_prompts_free(r->g.prompts, r->g.n_prompts);
    r->g.prompts = prompts;
    r->g.n_prompts = (int32_t)n;
}

/* Checks one id. index: its position in the prompt array, or that of the array that
 * contains it. */
static quire_err read_id(const quire_request *r, const field_desc *f, const json_value *v, int64_t index,
                         int32_t *out, quire_error *err) {
    int64_t id;
    if (!json_whole(v, &id) || id < 0) {
        return request_type_error(f, index, v, "a token id, an integer of at least 0", err);
    }
    if (id >= r->context.n_vocab) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "",
                             "token id %lld is out of the vocabulary, which has %d ids", (long long)id,
                             (int)r->context.n_vocab);
    }
    *out = (int32_t)id;
    return QUIRE_OK;
}

quire_err request_read_ids(const quire_request *r, const field_desc *f, const json_value *v, int64_t index,
                           request_prompt *out, quire_error *err) {
    size_t n = json_length(v);
    if (n == 0) {
        return request_range_error(f, err, "%s has an empty array; give at least one token id", f->name);
    }
    int32_t *ids = mem_new(n, sizeof *ids);
    if (ids == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt of %zu ids", n);
    }
    for (size_t i = 0; i < n; i++) {
        quire_err e = read_id(r, f, json_at(v, i), index < 0 ? (int64_t)i : index, &ids[i], err);
        if (e != QUIRE_OK) {
            mem_free(ids);
            return e;
        }
    }
    out->ids = ids;
    out->n_ids = (int32_t)n;
    return QUIRE_OK;
}

static quire_err read_completions_read_text(const quire_request *r, const field_desc *f, const json_value *v,
                                            request_prompt *out, quire_error *err) {
    if (!r->context.has_vocabulary) {
        return request_range_error(
            f, err, "this model has no vocabulary; give the %s as an array of token ids", f->name);
    }
    out->text = json_str(v);
    return out->text.n > 0 ? QUIRE_OK
                           : request_range_error(f, err, "%s is empty; give text or token ids", f->name);
}

/* Reads element `index` of the prompt array, or with index -1 the whole value as one
 * prompt. */
static quire_err read_one(const quire_request *r, const field_desc *f, const json_value *v, int64_t index,
                          request_prompt *out, quire_error *err) {
    switch (json_kind_of(v)) {
    case JSON_KIND_TEXT:
        return read_completions_read_text(r, f, v, out, err);
    case JSON_KIND_ARRAY:
        return request_read_ids(r, f, v, index, out, err);
    default:
        return request_type_error(f, index, v, "a string or an array of token ids", err);
    }
}

/* Checks that a JSON string can fit the context. An escape takes at most six bytes for
 * one, so its text has at least a sixth of the bytes. */
static quire_err check_text_length(const quire_request *r, str span, quire_error *err) {
    size_t least =
        span.n > 2 && span.p[0] == '"' ? tokenizer_least_tokens(r->context.tokenizer, (span.n - 2) / 6) : 0;
    int32_t limit = r->context.max_model_len;
    return least > (size_t)limit ? generation_too_long(&r->g, limit, least, true, err) : QUIRE_OK;
}

quire_err request_check_prompt_length(const quire_request *r, str body, str span, quire_error *err) {
    json_scan s = {.text = span};
    bool more;
    str item;
    if (r->context.tokenizer == NULL || dialect_of(&r->g)->any_length ||
        tokenizer_least_tokens(r->context.tokenizer, span.n) <= (size_t)r->context.max_model_len) {
        return QUIRE_OK;
    }
    if (json_scan_member(body, "truncate_prompt_tokens", &item) == QUIRE_OK && !str_is(item, "null")) {
        return QUIRE_OK; /* it will be truncated */
    }
    if (span.p[0] != '[') {
        return check_text_length(r, span, err);
    }
    TRY(json_scan_open(&s, '['));
    for (;;) {
        TRY(json_scan_more(&s, ']', &more));
        if (!more) {
            return QUIRE_OK;
        }
        TRY(err_set(err, json_scan_span(&s, &item), -1, "out of memory for a request"));
        TRY(check_text_length(r, item, err));
    }
}

quire_err request_read_prompt(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    size_t n = 1;
    bool many = false;
    if (json_is(v, JSON_KIND_ARRAY)) {
        const json_value *first = json_length(v) > 0 ? json_at(v, 0) : NULL;
        many = json_is(first, JSON_KIND_TEXT) || json_is(first, JSON_KIND_ARRAY);
        n = many ? json_length(v) : 1;
    }
    if (n > REQUEST_MAX_PROMPTS) {
        return request_range_error(f, err, "%s has %zu items; at most %d are allowed", f->name, n,
                                   REQUEST_MAX_PROMPTS);
    }
    if (v == NULL) {
        return request_range_error(f, err, "%s is missing; give text or token ids", f->name);
    }
    request_prompt *prompts = mem_new(n, sizeof *prompts);
    if (prompts == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for %zu prompts", n);
    }
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < n && e == QUIRE_OK; i++) {
        const json_value *item = many ? json_at(v, i) : v;
        if (many && json_kind_of(item) != json_kind_of(json_at(v, 0))) {
            e = request_type_error(f, (int64_t)i, item, "of the same type as the first", err);
        } else {
            e = read_one(r, f, item, many ? (int64_t)i : -1, &prompts[i], err);
        }
    }
    if (e != QUIRE_OK) {
        request_prompts_free(prompts, (int32_t)n);
        return e;
    }
    request_set_prompts(r, prompts, n);
    return QUIRE_OK;
}

quire_err request_read_suffix(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    str text = v != NULL ? json_str(v) : (str){NULL, 0};
    (void)err;
    r->fill.field = text.n > 0 ? f->name : NULL; /* clients send "" for no suffix */
    r->fill.after = text;
    return QUIRE_OK;
}

quire_err request_check_fill(const quire_request *r, quire_error *err) {
    assert(r != NULL);
    return r->fill.field == NULL || !r->g.info.echo
               ? QUIRE_OK
               : err_set_param(err, QUIRE_BAD_REQUEST, "echo",
                               "echo cannot be used with %s: the answer is only the text that fills the gap",
                               r->fill.field);
}

quire_err request_require_prompt(const quire_request *r, quire_error *err) {
    assert(r != NULL);
    return r->g.n_prompts > 0
               ? QUIRE_OK
               : err_set_param(err, QUIRE_BAD_REQUEST, "prompt", "prompt is missing; give text or token ids");
}

quire_err generation_too_long(const generation *g, int32_t limit, size_t n, bool is_least, quire_error *err) {
    assert(limit >= 0);
    return dialect_of(g)->too_long(limit, n, is_least ? "at least " : "", err);
}

quire_err request_long_prompt(int32_t limit, size_t n, const char *least, quire_error *err) {
    return err_set_param(err, QUIRE_BAD_REQUEST, n == (size_t)limit ? "max_tokens" : "input_tokens",
                         REQUEST_TOO_LONG, least, n, (int)limit);
}
