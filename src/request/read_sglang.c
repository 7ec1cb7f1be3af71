/* The dialects of SGLang's native API: /generate, which has prompts and an object of
 * sampling parameters, and /encode. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "request/request_read.h"

#define SGLANG_GREEDY_BELOW 1e-6F /* lower temperatures count as 0, as in SGLang */

/* ---- prompts ---- */

static quire_err read_sglang_prompt(quire_request *r, const field_desc *f, const json_value *v, bool is_ids,
                                    quire_error *err) {
    bool has_other = r->g.n_prompts > 0 && (r->g.prompts[0].ids != NULL) != is_ids;
    const json_value *first = v;
    while (json_is(first, JSON_KIND_ARRAY) && json_length(first) > 0) {
        first = json_at(first, 0);
    }
    if (v == NULL) {
        return QUIRE_OK;
    }
    if (has_other) {
        return request_range_error(f, err, "text and input_ids are both given; give one of them");
    }
    if (is_ids ? !json_is(v, JSON_KIND_ARRAY) || json_is(first, JSON_KIND_TEXT)
               : json_is(first, JSON_KIND_INT)) {
        return request_type_error(f, -1, v,
                                  is_ids ? "an array of token ids, or an array of such arrays"
                                         : "a string or an array of strings",
                                  err);
    }
    r->g.more.is_list = json_is(v, JSON_KIND_ARRAY) && (!is_ids || json_is(json_at(v, 0), JSON_KIND_ARRAY));
    return request_read_prompt(r, f, v, err);
}

quire_err request_read_sglang_text(quire_request *r, const field_desc *f, const json_value *v,
                                   quire_error *err) {
    return read_sglang_prompt(r, f, v, false, err);
}

quire_err request_read_sglang_ids(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    return read_sglang_prompt(r, f, v, true, err);
}

quire_err request_require_sglang(const quire_request *r, quire_error *err) {
    assert(r != NULL);
    return r->g.n_prompts > 0 ? QUIRE_OK
                              : err_set_param(err, QUIRE_BAD_REQUEST, "text",
                                              "text is missing; give text, or token ids as input_ids");
}

quire_err request_long_sglang(int32_t limit, size_t n, const char *least, quire_error *err) {
    return err_set_param(err, QUIRE_BAD_REQUEST, "text", REQUEST_TOO_LONG, least, n, (int)limit);
}

quire_err request_read_sglang_priority(quire_request *r, const field_desc *f, const json_value *v,
                                       quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    int64_t n = 0;
    json_whole(v, &n);
    r->g.priority = (int32_t)-n;
    return QUIRE_OK;
}

/* ---- fields with one value for all prompts, or an array with one per prompt ---- */

static bool read_sglang_is_same(const json_value *a, const json_value *b) {
    return a == NULL || b == NULL ? a == b : json_same(a, b);
}

/* Index of the first element that differs from element 0; the array's length if none
 * does. */
static size_t read_sglang_differing(const json_value *list) {
    size_t i = 1;
    while (i < json_length(list) && read_sglang_is_same(json_at(list, 0), json_at(list, i))) {
        i++;
    }
    return i;
}

/* Reads a field that all prompts must share into *out; NULL: absent or null. It may be an
 * array of equal values. */
static quire_err read_sglang_shared(const quire_request *r, const char *field, const json_value **out,
                                    quire_error *err) {
    const json_value *v = request_part(r, field);
    bool is_ids = strcmp(field, "token_ids_logprob") == 0,
         is_list = json_is(v, JSON_KIND_ARRAY) &&
                   (!is_ids || (json_length(v) > 0 && !json_is(json_at(v, 0), JSON_KIND_INT)));
    *out = is_list ? NULL : v;
    if (!is_list) {
        return QUIRE_OK;
    }
    if (json_length(v) != (size_t)r->g.n_prompts) {
        return err_set_param(err, QUIRE_BAD_REQUEST, field, "%s has %zu elements for %d prompts", field,
                             json_length(v), (int)r->g.n_prompts);
    }
    *out = json_at(v, 0);
    size_t i = read_sglang_differing(v);
    return i >= json_length(v) ? QUIRE_OK
                               : err_set_param(err, QUIRE_BAD_REQUEST, field,
                                               "%s[%zu] differs from %s[0]; it must be the same for all "
                                               "prompts of a request; send the others as separate requests",
                                               field, i, field);
}

static quire_err read_sglang_type_error(const char *field, const json_value *v, const char *what,
                                        quire_error *err) {
    return request_type_error(request_field(field, FIELD_SGLANG), -1, v, what, err);
}

/* ---- sampling_params ---- */

static quire_err read_sglang_set_param(quire_request *r, const json_member *m, quire_error *err) {
    char name[64];
    (void)snprintf(name, sizeof name, "sampling_params.%.40s", m->name);
    const field_desc *f = request_field(name, FIELD_SGLANG);
    bool is_whole = strlen(m->name) <= 40 && f != NULL;
    if (!is_whole && m->value == NULL) {
        return QUIRE_OK;
    }
    if (!is_whole) {
        return err_set_param(err, QUIRE_BAD_REQUEST, name, "%s is not supported; leave it out", name);
    }
    if (f->place == offsetof(quire_request, g.sampling.max_tokens) && m->value == NULL) {
        r->g.sampling.max_tokens = -1; /* null: no limit, unlike the default */
        return QUIRE_OK;
    }
    return request_set_and_keep(r, f, m->value, err);
}

static quire_err read_sglang_set_object(quire_request *r, const json_value *params, quire_error *err) {
    if (params != NULL && !json_is(params, JSON_KIND_OBJECT)) {
        return read_sglang_type_error("sampling_params", params, "an object, or an array of objects", err);
    }
    for (json_member m = {0}; params != NULL && json_next(params, &m);) {
        TRY(read_sglang_set_param(r, &m, err));
    }
    return QUIRE_OK;
}

/* Whether prompts of a request may differ in a parameter. Not in n, text options, rules
 * and stop conditions, which rules include. */
static bool read_sglang_may_differ(const char *member) {
    char name[64];
    (void)snprintf(name, sizeof name, "sampling_params.%.40s", member);
    const field_desc *f = request_field(name, FIELD_SGLANG);
    return f != NULL && (f->flags & FIELD_SAMPLING) != 0 && f->read != request_read_stop_tokens &&
           f->place != offsetof(quire_request, g.sampling.ignore_eos);
}

/* Checks that element i, `other`, has the same values as `from` for the parameters that
 * prompts must share. */
static quire_err read_sglang_check_shared(const json_value *from, const json_value *other, size_t i,
                                          quire_error *err) {
    for (json_member m = {0}; json_next(from, &m);) {
        if (!read_sglang_is_same(m.value, json_get(other, m.name)) && !read_sglang_may_differ(m.name)) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "sampling_params",
                                 "sampling_params[%zu] and sampling_params[0] differ in %.40s; it must be "
                                 "the same for all prompts of a request",
                                 i, m.name);
        }
    }
    return QUIRE_OK;
}

/* Swaps g.sampling with prompt i's parameters, for code that sets or checks
 * g.sampling. */
static void read_sglang_swap(quire_request *r, int32_t i) {
    const sampling_params all = r->g.sampling;
    r->g.sampling = r->g.each[i];
    r->g.each[i] = all;
}

static bool read_sglang_is_longer(int32_t max_tokens, int32_t than) {
    return than >= 0 && (max_tokens < 0 || max_tokens > than);
}

/* Sets g.each from an array of n_prompts objects; each starts from g.sampling. */
static quire_err read_sglang_set_each(quire_request *r, const json_value *list, quire_error *err) {
    int32_t n = (int32_t)json_length(list);
    r->g.each = mem_new((size_t)n, sizeof *r->g.each);
    TRY(mem_check_for(r->g.each, "the parameters of prompts", err));
    sampling_lists_drop(r->g.sampling.lists);
    r->g.sampling.lists = NULL;
    for (int32_t i = 0; i < n; i++) {
        r->g.each[i] = r->g.sampling;
    }
    r->n_each = n;
    for (int32_t i = 0; i < n; i++) {
        const json_value *own = json_at(list, (size_t)i), *first = json_at(list, 0);
        TRY(read_sglang_check_shared(first, own, (size_t)i, err));
        TRY(read_sglang_check_shared(own, first, (size_t)i, err));
        read_sglang_swap(r, i);
        quire_err e = read_sglang_set_object(r, own, err);
        read_sglang_swap(r, i);
        TRY(e);
    }
    r->g.sampling = r->g.each[0];
    sampling_lists_hold(r->g.sampling.lists);
    for (int32_t i = 0; i < n; i++) {
        bool is_longer = read_sglang_is_longer(r->g.each[i].max_tokens, r->g.sampling.max_tokens);
        r->g.sampling.max_tokens = is_longer ? r->g.each[i].max_tokens : r->g.sampling.max_tokens;
    }
    return QUIRE_OK;
}

static quire_err read_sglang_set_params(quire_request *r, quire_error *err) {
    const json_value *given = request_part(r, "sampling_params"), *params;
    size_t n = json_length(given);
    request_drop_each(r);
    if (json_is(given, JSON_KIND_ARRAY) && n == (size_t)r->g.n_prompts && read_sglang_differing(given) < n) {
        return read_sglang_set_each(r, given, err);
    }
    TRY(read_sglang_shared(r, "sampling_params", &params, err));
    return read_sglang_set_object(r, params, err);
}

/* ---- log-probabilities ---- */

/* Reads an integer from `least` to `most`; `otherwise` if absent. */
static quire_err read_sglang_number(const quire_request *r, const char *field, int32_t least, int32_t most,
                                    int32_t otherwise, int32_t *out, quire_error *err) {
    const json_value *v;
    int64_t n = otherwise;
    char what[64];
    TRY(read_sglang_shared(r, field, &v, err));
    if (v != NULL && (!json_whole(v, &n) || n < least || n > most)) {
        (void)snprintf(what, sizeof what, "an integer from %d to %d, or an array of such", (int)least,
                       (int)most);
        return read_sglang_type_error(field, v, what, err);
    }
    *out = (int32_t)n;
    return QUIRE_OK;
}

/* Reads token_ids_logprob; ignored unless log-probabilities are requested. */
static quire_err read_sglang_set_scored(quire_request *r, bool has, quire_error *err) {
    const json_value *ids;
    int64_t id;
    TRY(read_sglang_shared(r, "token_ids_logprob", &ids, err));
    bool is_array = ids == NULL || json_is(ids, JSON_KIND_ARRAY);
    for (size_t i = 0; is_array && i < json_length(ids); i++) {
        is_array = json_whole(json_at(ids, i), &id);
    }
    const field_desc *f = request_field("token_ids_logprob", FIELD_SGLANG);
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; is_array && i < r->n_each && e == QUIRE_OK; i++) {
        read_sglang_swap(r, i);
        e = request_set_scored(r, f, has ? ids : NULL, err);
        read_sglang_swap(r, i);
    }
    TRY(e);
    return is_array ? request_set_scored(r, f, has ? ids : NULL, err)
                    : read_sglang_type_error("token_ids_logprob", ids,
                                             "an array of token ids, or an array of such arrays", err);
}

/* Sets log-probabilities. The prompt's are reported from logprob_start_len on; by default
 * none are, or all if no tokens are generated. */
static quire_err read_sglang_set_logprobs(quire_request *r, quire_error *err) {
    const json_value *wanted;
    int32_t n_top, start;
    TRY(read_sglang_shared(r, "return_logprob", &wanted, err));
    if (wanted != NULL && !json_is(wanted, JSON_KIND_BOOL)) {
        return read_sglang_type_error("return_logprob", wanted, "true or false, or an array of such", err);
    }
    TRY(read_sglang_number(r, "top_logprobs_num", 0, PARAMS_MAX_LOGPROBS, 0, &n_top, err));
    TRY(read_sglang_number(r, "logprob_start_len", -1, INT32_MAX, r->g.sampling.max_tokens == 0 ? 0 : -1,
                           &start, err));
    bool has = wanted != NULL && json_truth(wanted);
    TRY(read_sglang_set_scored(r, has, err));
    r->n_logprobs = has ? n_top : -1;
    r->n_prompt_logprobs = has && start >= 0 ? n_top : -1;
    r->g.prompt_logprobs_start = start;
    r->g.more.logprobs_start = start;
    return QUIRE_OK;
}

/* ---- adapter and request names ---- */

static quire_err read_sglang_set_adapter(quire_request *r, quire_error *err) {
    const json_value *v;
    TRY(read_sglang_shared(r, "lora_path", &v, err));
    if (v != NULL && !json_is(v, JSON_KIND_TEXT)) {
        return read_sglang_type_error("lora_path", v, "the name of an adapter, or an array of such", err);
    }
    return err_set(err, quire_request_adapter(r, v != NULL ? json_str(v).p : NULL), -1,
                   "out of memory for a request");
}

/* Reads rid, visible ASCII: one, or an array with one per prompt. */
static quire_err read_sglang_set_names(quire_request *r, quire_error *err) {
    const json_value *v = request_part(r, "rid");
    const field_desc *f = request_field("rid", dialect_of(&r->g)->fields);
    bool is_list = json_is(v, JSON_KIND_ARRAY);
    size_t n = is_list ? json_length(v) : v != NULL;
    if (is_list && n != (size_t)r->g.n_prompts) {
        return request_range_error(f, err, "rid has %zu elements for %d prompts", n, (int)r->g.n_prompts);
    }
    strbuf_clear(&r->names);
    for (size_t i = 0; i < n; i++) {
        const json_value *one = is_list ? json_at(v, i) : v;
        if (!json_is(one, JSON_KIND_TEXT) || json_str(one).n == 0) {
            return request_type_error(f, is_list ? (int64_t)i : -1, one, "a string, not empty", err);
        }
        TRY(request_read_request_id(r, f, one, err));
        if (strbuf_add(&r->names, json_str(one).p, json_str(one).n + 1) != QUIRE_OK) {
            return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
        }
    }
    r->g.more.request_id = n > 0 ? r->names.p : NULL;
    r->g.more.names_prompts = is_list;
    return QUIRE_OK;
}

/* ---- the dialects ---- */

quire_err request_assemble_sglang(quire_request *r, quire_error *err) {
    TRY(read_sglang_set_params(r, err));
    TRY(read_sglang_set_logprobs(r, err));
    TRY(read_sglang_set_adapter(r, err));
    return read_sglang_set_names(r, err);
}

quire_err request_assemble_sglang_rows(quire_request *r, quire_error *err) {
    return read_sglang_set_names(r, err);
}

quire_err request_check_sglang_rows(quire_request *r, quire_error *err) {
    TRY(request_require_sglang(r, err));
    return request_check_embedding(r, err);
}

static quire_err read_sglang_check_params(quire_request *r, quire_error *err) {
    float *temperature = &r->g.sampling.temperature;
    *temperature = *temperature < SGLANG_GREEDY_BELOW ? 0.0F : *temperature;
    return request_check_lengths(r, err);
}

quire_err request_check_sglang(quire_request *r, quire_error *err) {
    assert(r != NULL);
    quire_err e = QUIRE_OK;
    if (r->n_each > 0 && r->n_each != r->g.n_prompts) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "sampling_params",
                             "sampling_params has %d elements for %d prompts", (int)r->n_each,
                             (int)r->g.n_prompts);
    }
    for (int32_t i = 0; i < r->n_each && e == QUIRE_OK; i++) {
        read_sglang_swap(r, i);
        e = read_sglang_check_params(r, err);
        read_sglang_swap(r, i);
    }
    TRY(e);
    TRY(read_sglang_check_params(r, err));
    r->g.info.return_token_ids = true;
    r->g.more.is_list = r->g.more.is_list || r->n > 1;
    r->g.more.n_scored = sampling_n_scored(&r->g.sampling);
    return request_check_generation(r, err);
}
