/* The dialects of llama.cpp's native API: /completion, whose prompts may mix texts and
 * ids, and /infill, which fills a gap between two texts. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "request/request_read.h"
#include "json/json_out.h"

enum {
    MAX_RESPONSE_FIELDS = 64,
    MAX_BIAS_TOKENS = 64,
    MAX_PENALTY = 1000000,   /* larger penalties make no further difference */
    MAX_LISTED = 4 * 1000000 /* log-probabilities of an answer, which are kept until its end */
};

/* ---- prompts: texts, ids, and both mixed ---- */

/* Tokenises a text of a mixed prompt and appends its ids. */
static quire_err read_llama_add_text(const quire_request *r, const field_desc *f, str text, bool is_first,
                                     token_list *out, quire_error *err) {
    size_t limit = (size_t)r->context.max_model_len;
    if (r->context.tokenizer == NULL) {
        return request_range_error(
            f, err, "this model has no vocabulary; give the %s as an array of token ids", f->name);
    }
    encode_options options = {
        .special = ENCODE_PARSE, .add_special = is_first && r->g.add_special, .max_tokens = limit};
    quire_err e = tokenizer_encode(r->context.tokenizer, text, options, out, err);
    return e == QUIRE_NO_ROOM || out->n > limit
               ? generation_too_long(&r->g, r->context.max_model_len, limit + 1, true, err)
               : e;
}

/* Appends the id at position `at` of a prompt. index: the prompt's position in the prompt
 * array, or -1. */
static quire_err read_llama_add_id(const quire_request *r, const field_desc *f, const json_value *v,
                                   int64_t index, size_t at, token_list *out, quire_error *err) {
    int64_t id;
    if (!json_whole(v, &id) || id < 0) {
        return request_type_error(f, index >= 0 ? index : (int64_t)at, v, "a string or a token id", err);
    }
    if (id >= r->context.n_vocab) {
        return request_range_error(f, err, "%s has token id %lld, which is out of the vocabulary of %d ids",
                                   f->name, (long long)id, (int)r->context.n_vocab);
    }
    int32_t one = (int32_t)id;
    return err_set(err, token_list_add_all(out, &one, 1), -1, "out of memory for a prompt");
}

/* Reads one prompt, mixed or not, as ids. */
static quire_err read_llama_one(const quire_request *r, const field_desc *f, const json_value *v,
                                int64_t index, token_list *out, quire_error *err) {
    if (json_is(v, JSON_KIND_TEXT) && json_str(v).n > 0) {
        return read_llama_add_text(r, f, json_str(v), true, out, err);
    }
    if (!json_is(v, JSON_KIND_ARRAY) || json_length(v) == 0) {
        return request_type_error(f, index, v, "a string or an array of strings and token ids, not empty",
                                  err);
    }
    for (size_t i = 0; i < json_length(v); i++) {
        const json_value *item = json_at(v, i);
        TRY(json_is(item, JSON_KIND_TEXT) ? read_llama_add_text(r, f, json_str(item), i == 0, out, err)
                                          : read_llama_add_id(r, f, item, index, i, out, err));
    }
    return QUIRE_OK;
}

/* Reads one prompt, mixed or not, into *out. */
static quire_err read_llama_prompt(const quire_request *r, const field_desc *f, const json_value *v,
                                   int64_t index, request_prompt *out, quire_error *err) {
    token_list ids = {0};
    quire_err e = read_llama_one(r, f, v, index, &ids, err);
    if (e == QUIRE_OK && ids.n == 0) {
        e = request_range_error(f, err, "%s is empty; give text or token ids", f->name);
    }
    if (e == QUIRE_OK) {
        void *copy = mem_dup(ids.ids, ids.n * sizeof *ids.ids);
        out->ids = copy;
        out->n_ids = (int32_t)ids.n; /* at most the body's, or max_model_len */
        e = mem_check_for(out->ids, "a prompt", err);
    }
    token_list_deinit(&ids);
    return e;
}

static bool read_llama_has(const json_value *array, json_kind kind) {
    bool has = false;
    for (size_t i = 0; json_is(array, JSON_KIND_ARRAY) && i < json_length(array) && !has; i++) {
        has = json_is(json_at(array, i), kind);
    }
    return has;
}

/* Whether texts and ids are mixed in an array: in one prompt or, if *is_many, in an array
 * of prompts. */
static bool read_llama_is_mixed(const json_value *v, bool *is_many) {
    bool has_texts = read_llama_has(v, JSON_KIND_TEXT), has_arrays = read_llama_has(v, JSON_KIND_ARRAY);
    bool is_mixed = has_texts && (has_arrays || read_llama_has(v, JSON_KIND_INT));
    *is_many = has_arrays;
    for (size_t i = 0; has_arrays && !is_mixed && i < json_length(v); i++) {
        is_mixed = read_llama_has(json_at(v, i), JSON_KIND_TEXT);
    }
    return is_mixed;
}

quire_err request_read_llama_prompt(quire_request *r, const field_desc *f, const json_value *v,
                                    quire_error *err) {
    bool is_many = false;
    if (!json_is(v, JSON_KIND_ARRAY) || !read_llama_is_mixed(v, &is_many)) {
        return request_read_prompt(r, f, v, err);
    }
    size_t n = is_many ? json_length(v) : 1;
    if (n > REQUEST_MAX_PROMPTS) {
        return request_range_error(f, err, "%s has %zu items; at most %d are allowed", f->name, n,
                                   REQUEST_MAX_PROMPTS);
    }
    request_prompt *prompts = mem_new(n, sizeof *prompts);
    TRY(mem_check_for(prompts, "prompts", err));
    for (size_t i = 0; i < n; i++) {
        quire_err e =
            read_llama_prompt(r, f, is_many ? json_at(v, i) : v, is_many ? (int64_t)i : -1, &prompts[i], err);
        if (e != QUIRE_OK) {
            request_prompts_free(prompts, (int32_t)n);
            return e;
        }
    }
    request_set_prompts(r, prompts, n);
    return QUIRE_OK;
}

/* ---- the gap of /infill ---- */

/* Makes the text the only prompt; without is_given, removes all prompts. */
static quire_err read_llama_set_text(quire_request *r, str text, bool is_given, quire_error *err) {
    request_prompt *p = is_given ? mem_new(1, sizeof *p) : NULL;
    if (is_given) {
        TRY(mem_check_for(p, "a prompt", err));
    }
    request_set_prompts(r, p, is_given);
    if (is_given) {
        p->text = text;
    }
    return QUIRE_OK;
}

quire_err request_read_infill_prompt(quire_request *r, const field_desc *f, const json_value *v,
                                     quire_error *err) {
    (void)f;
    return read_llama_set_text(r, v != NULL ? json_str(v) : (str){NULL, 0}, v != NULL, err);
}

quire_err request_read_input_prefix(quire_request *r, const field_desc *f, const json_value *v,
                                    quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->fill.before = v != NULL ? json_str(v) : (str){NULL, 0};
    r->has_input_prefix = v != NULL;
    return QUIRE_OK;
}

quire_err request_read_input_suffix(quire_request *r, const field_desc *f, const json_value *v,
                                    quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->fill.after = v != NULL ? json_str(v) : (str){NULL, 0};
    r->has_input_suffix = v != NULL;
    return QUIRE_OK;
}

quire_err request_read_input_extra(quire_request *r, const field_desc *f, const json_value *v,
                                   quire_error *err) {
    for (size_t i = 0; i < json_length(v); i++) {
        const json_value *file = json_at(v, i), *name = json_get(file, "filename");
        if (!json_is(json_get(file, "text"), JSON_KIND_TEXT) ||
            (name != NULL && !json_is(name, JSON_KIND_TEXT))) {
            return request_type_error(
                f, (int64_t)i, file,
                "an object with a \"text\" and, where given, a \"filename\", both strings", err);
        }
    }
    size_t n = json_length(v);
    request_file *files = n > 0 ? mem_new(n, sizeof *files) : NULL;
    if (n > 0) {
        TRY(mem_check_for(files, "files", err));
    }
    for (size_t i = 0; i < n; i++) {
        const json_value *file = json_at(v, i), *name = json_get(file, "filename");
        files[i] = (request_file){name != NULL ? json_str(name) : (str){0}, json_get_str(file, "text")};
    }
    mem_free(r->fill.files);
    r->fill.files = files;
    r->fill.n_files = n;
    return QUIRE_OK;
}

quire_err request_check_infill(quire_request *r, quire_error *err) {
    assert(r != NULL);
    if (r->fork_from == NULL && (!r->has_input_prefix || !r->has_input_suffix)) {
        const char *name = r->has_input_prefix ? "input_suffix" : "input_prefix";
        return err_set_param(err, QUIRE_BAD_REQUEST, name, "%s is missing; give a string, which may be empty",
                             name);
    }
    r->fill.field = "input_suffix";
    r->fill.is_in_repository = true;
    if (r->g.n_prompts == 0 && r->fork_from == NULL) {
        TRY(read_llama_set_text(r, str_of(""), true, err));
        request_count_choices(r);
    }
    return request_check_llama(r, err);
}

/* ---- fields that differ from those of other dialects ---- */

quire_err request_read_n_probs(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    assert(r != NULL);
    int64_t n = 0;
    (void)f, (void)err;
    json_whole(v, &n);
    r->n_logprobs = n > 0 ? (int32_t)n : -1;
    return QUIRE_OK;
}

/* Reads a rule; clients send an empty text for none. */
quire_err request_read_llama_rule(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    bool is_none = json_is(v, JSON_KIND_TEXT) && json_str(v).n == 0;
    return request_read_rule(r, f, is_none ? NULL : v, err);
}

quire_err request_read_response_fields(quire_request *r, const field_desc *f, const json_value *v,
                                       quire_error *err) {
    size_t n = json_is(v, JSON_KIND_ARRAY) ? json_length(v) : 0;
    if (n > MAX_RESPONSE_FIELDS) {
        return request_range_error(f, err, "%s has %zu names; at most %d are allowed", f->name, n,
                                   MAX_RESPONSE_FIELDS);
    }
    r->response_fields = n > 0 || json_is(v, JSON_KIND_TEXT) ? v : NULL;
    return QUIRE_OK;
}

/* ---- logit_bias: pairs or an object. Keys are ids or texts, values numbers, or false to
 * ban ---- */

#define READ_LLAMA_BIAS_MAX 100.0 /* the usual limit; a ban is -100 */

typedef struct llama_biases {
    token_list ids;
    float *bias; /* [ids.n] */
    size_t cap;
} llama_biases;

/* Appends the token ids of a text. */
static quire_err read_llama_add_ids(const quire_request *r, const field_desc *f, str text, token_list *ids,
                                    quire_error *err) {
    const encode_options options = {.special = ENCODE_PARSE, .max_tokens = MAX_BIAS_TOKENS};
    size_t before = ids->n;
    if (r->context.tokenizer == NULL) {
        return request_range_error(f, err, "this model has no vocabulary; %s must name tokens by their ids",
                                   f->name);
    }
    quire_err e = tokenizer_encode(r->context.tokenizer, text, options, ids, err);
    return e == QUIRE_NO_ROOM || (e == QUIRE_OK && ids->n - before > MAX_BIAS_TOKENS)
               ? request_range_error(f, err, "%s has a text of over %d tokens", f->name, MAX_BIAS_TOKENS)
               : e;
}

/* Whether a key is an id: v, from a pair, or if v is NULL the member's name. */
static bool read_llama_is_id(const json_value *v, str name, int64_t *id) {
    bool is_id = json_whole(v, id), is_name = v == NULL && name.n > 0 && name.n < 10;
    *id = is_id ? *id : 0;
    for (size_t i = 0; is_name && i < name.n; i++) {
        is_name = name.p[i] >= '0' && name.p[i] <= '9';
        *id = 10 * *id + (name.p[i] - '0');
    }
    return is_id || is_name;
}

static quire_err read_llama_add_bias(const quire_request *r, const field_desc *f, const json_value *key,
                                     str name, const json_value *bias, llama_biases *to, quire_error *err) {
    char brief[JSON_BRIEF_BYTES];
    int64_t id = 0;
    bool is_id = read_llama_is_id(key, name, &id),
         is_ban = json_is(bias, JSON_KIND_BOOL) && !json_truth(bias);
    size_t n = to->ids.n;
    if (key != NULL && !is_id && !json_is(key, JSON_KIND_TEXT)) {
        return request_range_error(f, err, "%s has the token %s; it must be an id or a text", f->name,
                                   json_brief(key, brief));
    }
    if (is_id && (id < 0 || id >= r->context.n_vocab)) {
        return request_range_error(f, err, "%s names the id %lld; the vocabulary has %d ids", f->name,
                                   (long long)id, (int)r->context.n_vocab);
    }
    if (!is_ban && !json_numeric(bias)) {
        return request_range_error(f, err, "%s has the bias %s; it must be a number, or false for a ban",
                                   f->name, json_brief(bias, brief));
    }
    int32_t one = (int32_t)id;
    TRY(is_id ? token_list_add_all(&to->ids, &one, 1)
              : read_llama_add_ids(r, f, key != NULL ? json_str(key) : name, &to->ids, err));
    TRY(mem_grow(&to->bias, &to->cap, to->ids.n, sizeof *to->bias));
    double value = is_ban ? -READ_LLAMA_BIAS_MAX : json_double(bias);
    for (size_t i = n; i < to->ids.n; i++) {
        to->bias[i] = (float)fmin(fmax(value, -READ_LLAMA_BIAS_MAX), READ_LLAMA_BIAS_MAX);
    }
    return QUIRE_OK;
}

static quire_err read_llama_biases(const quire_request *r, const field_desc *f, const json_value *v,
                                   llama_biases *to, quire_error *err) {
    for (size_t i = 0; json_is(v, JSON_KIND_ARRAY) && i < json_length(v); i++) {
        const json_value *pair = json_at(v, i);
        if (!json_is(pair, JSON_KIND_ARRAY) || json_length(pair) != 2) {
            return request_type_error(f, (int64_t)i, pair, "a pair of an id or a text and its bias", err);
        }
        TRY(read_llama_add_bias(r, f, json_at(pair, 0), (str){NULL, 0}, json_at(pair, 1), to, err));
    }
    for (json_member m = {0}; json_is(v, JSON_KIND_OBJECT) && json_next(v, &m);) {
        TRY(read_llama_add_bias(r, f, NULL, str_of(m.name), m.value, to, err));
    }
    return QUIRE_OK;
}

quire_err request_read_llama_bias(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    llama_biases biases = {.bias = NULL};
    if (v != NULL && !json_is(v, JSON_KIND_ARRAY) && !json_is(v, JSON_KIND_OBJECT)) {
        return request_type_error(f, -1, v, "an array of pairs, or an object", err);
    }
    quire_err e = read_llama_biases(r, f, v, &biases, err);
    TRY_DONE(e, request_set_biases(r, f, biases.ids.ids, biases.bias, biases.ids.n, err));
done:
    token_list_deinit(&biases.ids);
    mem_free(biases.bias);
    return e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "out of memory for %s", f->name) : e;
}

/* ---- what the response repeats ---- */

static quire_err read_llama_write_more(quire_request *r, quire_error *err) {
    strbuf_clear(&r->settings);
    strbuf_clear(&r->response_paths);
    json_out settings = {.to = &r->settings}, paths = {.to = &r->response_paths};
    request_write_settings(r, &settings);
    request_write_texts(r->response_fields, &paths);
    if (settings.err != QUIRE_OK || paths.err != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request");
    }
    r->g.more.settings = r->settings.p;
    r->g.more.response_fields = r->response_fields != NULL ? r->response_paths.p : NULL;
    return QUIRE_OK;
}

/* Gives a request with cache_prompt false a unique cache salt. */
static quire_err read_llama_settle_salt(quire_request *r, quire_error *err) {
    bool is_own = r->own_salt.n > 0 && r->g.cache_salt.p == r->own_salt.p;
    if (r->reuses_prefix == !is_own) {
        return QUIRE_OK;
    }
    strbuf_clear(&r->own_salt);
    r->g.cache_salt = (str){NULL, 0};
    if (r->reuses_prefix) {
        return QUIRE_OK;
    }
    quire_err e = strbuf_addf(&r->own_salt, "%016llx%016llx", (unsigned long long)rng_os_seed(),
                              (unsigned long long)rng_os_seed());
    r->g.cache_salt = (str){r->own_salt.p, r->own_salt.n};
    return err_set(err, e, -1, "out of memory for a request");
}

static float read_llama_within(float value, float bound) {
    return fminf(fmaxf(value, -bound), bound);
}

/* Maps values that only this dialect allows to equivalent ones that all allow. */
static void read_llama_settle_values(sampling_params *p) {
    p->temperature = fmaxf(p->temperature, 0.0f);
    p->top_p = fminf(p->top_p, 1.0f);
    p->frequency_penalty = read_llama_within(p->frequency_penalty, MAX_PENALTY);
    p->presence_penalty = read_llama_within(p->presence_penalty, MAX_PENALTY);
    p->max_tokens = p->max_tokens < 0 ? -1 : p->max_tokens;
}

/* Limits the total of log-probabilities when there are many per token. */
static quire_err read_llama_check_listed(const quire_request *r, quire_error *err) {
    int64_t n = r->g.info.logprobs, n_max = r->g.sampling.max_tokens;
    n_max = n_max < 0 || n_max > r->context.max_model_len ? r->context.max_model_len : n_max;
    n_max *= r->g.info.n_choices;
    return n <= PARAMS_MAX_LOGPROBS || n * n_max <= MAX_LISTED
               ? QUIRE_OK
               : err_set_param(err, QUIRE_BAD_REQUEST, "n_probs",
                               "n_probs is %lld for up to %lld tokens; at most %d log-probabilities are "
                               "returned in all: lower n_probs or n_predict",
                               (long long)n, (long long)n_max, MAX_LISTED);
}

quire_err request_check_llama(quire_request *r, quire_error *err) {
    assert(r != NULL);
    r->g.info.return_token_ids = true; /* the response has the text of the prompt */
    read_llama_settle_values(&r->g.sampling);
    TRY(read_llama_settle_salt(r, err));
    TRY(request_settle_samplers(r, err));
    TRY(request_check_generation(r, err));
    TRY(read_llama_check_listed(r, err));
    return read_llama_write_more(r, err);
}

/* ---- settings that responses repeat ---- */

static void settings_write_numbers(const sampling_params *p, json_out *o) {
    const struct {
        const char *name;
        float value;
    } numbers[] = {{"temperature", p->temperature},
                   {"dynatemp_range", p->dynatemp_range},
                   {"dynatemp_exponent", p->dynatemp_exponent},
                   {"top_p", p->top_p},
                   {"min_p", p->min_p},
                   {"top_n_sigma", p->top_n_sigma},
                   {"xtc_probability", p->xtc_probability},
                   {"xtc_threshold", p->xtc_threshold},
                   {"typical_p", p->typical_p},
                   {"repeat_penalty", p->repetition_penalty},
                   {"presence_penalty", p->presence_penalty},
                   {"frequency_penalty", p->frequency_penalty},
                   {"dry_multiplier", p->dry_multiplier},
                   {"dry_base", p->dry_base},
                   {"mirostat_tau", p->mirostat_tau},
                   {"mirostat_eta", p->mirostat_eta}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_number(json_name(o, numbers[i].name), (double)numbers[i].value);
    }
}

static void settings_write_counts(const quire_request *r, json_out *o) {
    const sampling_params *p = &r->g.sampling;
    const json_named_int counts[] = {{"seed", p->has_seed ? (int64_t)p->seed : (int64_t)UINT32_MAX},
                                     {"top_k", p->top_k > 0 ? p->top_k : 0},
                                     {"repeat_last_n", p->penalty_last_n},
                                     {"dry_allowed_length", p->dry_allowed_length},
                                     {"dry_penalty_last_n", p->dry_penalty_last_n},
                                     {"mirostat", p->mirostat},
                                     {"max_tokens", p->max_tokens},
                                     {"n_predict", p->max_tokens},
                                     {"n_keep", 0},
                                     {"n_probs", r->n_logprobs > 0 ? r->n_logprobs : 0},
                                     {"min_keep", 0}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        json_int(json_name(o, counts[i].name), counts[i].value);
    }
}

static void settings_write_texts(const quire_request *r, json_out *o) {
    bool is_grammar = r->rule.kind == GRAMMAR_EBNF || r->rule.kind == GRAMMAR_LARK;
    str grammar = is_grammar ? r->rule.text : str_of("");
    json_begin(json_name(o, "stop"), '[');
    for (int32_t i = 0; i < r->n_given_stops; i++) {
        json_text(json_item(o), r->g.stops[i].p, r->g.stops[i].n);
    }
    json_end(o, ']');
    json_text(json_name(o, "grammar"), grammar.p, grammar.n);
}

static void settings_write_biases(const sampling_lists *lists, json_out *o) {
    json_begin(json_name(o, "logit_bias"), '[');
    for (int32_t i = 0; lists != NULL && i < lists->n_bias; i++) {
        json_begin(json_item(o), '{');
        json_number(json_name(o, "bias"), (double)lists->bias[i]);
        json_int(json_name(o, "token"), lists->bias_ids[i]);
        json_end(o, '}');
    }
    json_end(o, ']');
}

void request_write_settings(const quire_request *r, json_out *o) {
    assert(r != NULL);
    json_begin(o, '{');
    settings_write_counts(r, o);
    settings_write_numbers(&r->g.sampling, o);
    json_bool(json_name(o, "ignore_eos"), r->g.sampling.ignore_eos);
    json_bool(json_name(o, "stream"), r->g.info.stream);
    json_bool(json_name(o, "timings_per_token"), r->g.more.timings_per_token);
    json_bool(json_name(o, "post_sampling_probs"), false);
    settings_write_texts(r, o);
    settings_write_biases(r->g.sampling.lists, o);
    request_write_breakers(r, json_name(o, "dry_sequence_breakers"));
    request_write_samplers(r, o);
    json_begin(json_name(o, "lora"), '[');
    for (int32_t i = 0; i < r->g.n_loras; i++) {
        json_begin(json_item(o), '{');
        json_int(json_name(o, "id"), r->g.loras[i].number);
        json_number(json_name(o, "scale"), (double)r->g.loras[i].scale);
        json_end(o, '}');
    }
    json_end(o, ']');
    json_end(o, '}');
}

/* llama.cpp's samplers: which ones a request uses, and in which order. */

typedef enum llama_sampler {
    LLAMA_PENALTIES,
    LLAMA_DRY,
    LLAMA_TOP_N_SIGMA,
    LLAMA_TOP_K,
    LLAMA_TYP_P,
    LLAMA_TOP_P,
    LLAMA_MIN_P,
    LLAMA_XTC,
    LLAMA_TEMPERATURE,
    N_LLAMA_SAMPLERS
} llama_sampler;

/* In llama.cpp's default order. */
static const struct {
    const char *name;
    char letter;
    sampling_stage stage; /* SAMPLING_END: changes the logits before all stages */
} llama_samplers[N_LLAMA_SAMPLERS] = {
    [LLAMA_PENALTIES] = {"penalties", 'e', SAMPLING_END},
    [LLAMA_DRY] = {"dry", 'd', SAMPLING_END},
    [LLAMA_TOP_N_SIGMA] = {"top_n_sigma", 's', SAMPLING_TOP_N_SIGMA},
    [LLAMA_TOP_K] = {"top_k", 'k', SAMPLING_TOP_K},
    [LLAMA_TYP_P] = {"typ_p", 'y', SAMPLING_TYPICAL_P},
    [LLAMA_TOP_P] = {"top_p", 'p', SAMPLING_TOP_P},
    [LLAMA_MIN_P] = {"min_p", 'm', SAMPLING_MIN_P},
    [LLAMA_XTC] = {"xtc", 'x', SAMPLING_XTC},
    [LLAMA_TEMPERATURE] = {"temperature", 't', SAMPLING_TEMPERATURE},
};

/* A sampler of llama.cpp's /infill that only affects tokens that end the text. Accepted
 * and ignored. */
#define INFILL_SAMPLER "infill"
#define INFILL_LETTER  'i'

/* The samplers of a request, in order. */
typedef struct sampler_list {
    llama_sampler list[N_LLAMA_SAMPLERS];
    size_t n;
} sampler_list;

/* The number of samplers given: names of an array, or letters of a text. */
static size_t samplers_n_given(const json_value *v) {
    return json_is(v, JSON_KIND_TEXT) ? json_str(v).n : json_length(v);
}

static str samplers_given(const json_value *v, size_t i) {
    return json_is(v, JSON_KIND_TEXT) ? (str){json_str(v).p + i, 1} : json_str(json_at(v, i));
}

static bool samplers_is_infill(const json_value *v, str name) {
    return json_is(v, JSON_KIND_TEXT) ? name.p[0] == INFILL_LETTER : str_is(name, INFILL_SAMPLER);
}

/* The sampler with this name or letter; N_LLAMA_SAMPLERS: unknown. */
static llama_sampler samplers_find(const json_value *v, str name) {
    llama_sampler s = LLAMA_PENALTIES;
    bool is_letter = json_is(v, JSON_KIND_TEXT);
    while (s < N_LLAMA_SAMPLERS &&
           !(is_letter ? name.p[0] == llama_samplers[s].letter : str_is(name, llama_samplers[s].name))) {
        s++;
    }
    return s;
}

static bool samplers_has(const sampler_list *l, llama_sampler s) {
    bool has = false;
    for (size_t i = 0; i < l->n; i++) {
        has = has || l->list[i] == s;
    }
    return has;
}

/* Refuses item i, which names no sampler. */
static quire_err samplers_refuse(const field_desc *f, const json_value *v, size_t i, quire_error *err) {
    return json_is(v, JSON_KIND_TEXT)
               ? request_range_error(
                     f, err,
                     "samplers[%zu] is not a sampler's letter; the letters are e (penalties), d (dry), s "
                     "(top_n_sigma), k (top_k), y (typ_p), p (top_p), m (min_p), x (xtc) and t (temperature)",
                     i)
               : request_type_error(f, (int64_t)i, json_at(v, i),
                                    "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc or "
                                    "temperature",
                                    err);
}

/* Reads the field; NULL: all samplers. */
static quire_err samplers_read(const field_desc *f, const json_value *v, sampler_list *out,
                               quire_error *err) {
    *out = (sampler_list){.n = 0};
    for (llama_sampler s = LLAMA_PENALTIES; v == NULL && s < N_LLAMA_SAMPLERS; s++) {
        out->list[out->n++] = s;
    }
    for (size_t i = 0; v != NULL && i < samplers_n_given(v); i++) {
        str name = samplers_given(v, i);
        llama_sampler s = samplers_find(v, name);
        if (samplers_is_infill(v, name)) {
            continue;
        }
        if (s == N_LLAMA_SAMPLERS) {
            return samplers_refuse(f, v, i, err);
        }
        if (samplers_has(out, s)) {
            return request_range_error(f, err, "samplers[%zu] repeats %s; each sampler runs once", i,
                                       llama_samplers[s].name);
        }
        out->list[out->n++] = s;
    }
    return QUIRE_OK;
}

quire_err request_read_samplers(quire_request *r, const field_desc *f, const json_value *v,
                                quire_error *err) {
    sampler_list l;
    if (v != NULL && !json_is(v, JSON_KIND_ARRAY) && !json_is(v, JSON_KIND_TEXT)) {
        return request_type_error(f, -1, v, "an array of names, or a string of their letters", err);
    }
    TRY(samplers_read(f, v, &l, err));
    for (size_t i = 0; v != NULL && i < samplers_n_given(v); i++) {
        if (samplers_is_infill(v, samplers_given(v, i)) &&
            request_ignore(r, "samplers.", str_of(INFILL_SAMPLER)) != QUIRE_OK) {
            return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
        }
    }
    r->samplers = v;
    return QUIRE_OK;
}

static void samplers_switch_off(sampling_params *p, llama_sampler s) {
    switch (s) {
    case LLAMA_PENALTIES:
        p->repetition_penalty = 1;
        p->frequency_penalty = p->presence_penalty = 0;
        break;
    case LLAMA_DRY:
        p->dry_multiplier = 0;
        break;
    case LLAMA_TOP_N_SIGMA:
        p->top_n_sigma = 0;
        break;
    case LLAMA_TOP_K:
        p->top_k = 0;
        break;
    case LLAMA_TYP_P:
        p->typical_p = 1;
        break;
    case LLAMA_TOP_P:
        p->top_p = 1;
        break;
    case LLAMA_MIN_P:
        p->min_p = 0;
        break;
    case LLAMA_XTC:
        p->xtc_probability = 0;
        break;
    default:
        p->temperature = 1;
        p->dynatemp_range = 0;
        break;
    }
}

static bool samplers_is_on(const sampling_params *p, llama_sampler s) {
    switch (s) {
    case LLAMA_PENALTIES:
        return p->penalty_last_n != 0 &&
               (p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0);
    case LLAMA_DRY:
        return p->dry_multiplier != 0;
    case LLAMA_TOP_N_SIGMA:
        return p->top_n_sigma > 0;
    case LLAMA_TOP_K:
        return p->top_k > 0;
    case LLAMA_TYP_P:
        return p->typical_p < 1;
    case LLAMA_TOP_P:
        return p->top_p < 1;
    case LLAMA_MIN_P:
        return p->min_p > 0;
    case LLAMA_XTC:
        return p->xtc_probability > 0;
    default:
        return p->temperature != 1 || p->dynatemp_range > 0;
    }
}

/* Checks that penalties come first, DRY next and the others after them, the only order
 * supported. */
static quire_err samplers_check_order(const sampling_params *p, const sampler_list *l, quire_error *err) {
    const char *before = NULL; /* the last active sampler that penalties or DRY may not follow */
    for (size_t i = 0; i < l->n; i++) {
        llama_sampler s = l->list[i];
        bool is_on = samplers_is_on(p, s), is_change = llama_samplers[s].stage == SAMPLING_END;
        if (is_on && is_change && before != NULL) {
            return err_set_param(
                err, QUIRE_BAD_REQUEST, "samplers",
                "samplers has %s before %s; on this server penalties come first, then dry, then the others",
                before, llama_samplers[s].name);
        }
        before = is_on && s != LLAMA_PENALTIES ? llama_samplers[s].name : before;
    }
    return QUIRE_OK;
}

/* Sets the order of active stages, or the default order if that is the same or no order
 * matters. */
static void samplers_set_order(sampling_params *p, const sampler_list *l) {
    size_t n = 0;
    bool is_usual = p->temperature <= 0; /* greedy: order does not matter */
    memset(p->order, SAMPLING_END, sizeof p->order);
    for (size_t i = 0; i < l->n && !is_usual; i++) {
        sampling_stage stage = llama_samplers[l->list[i]].stage;
        if (stage != SAMPLING_END && samplers_is_on(p, l->list[i])) {
            p->order[n++] = (uint8_t)stage;
        }
    }
    bool ascends = true; /* same as the default order */
    for (size_t i = 1; i < n; i++) {
        ascends = ascends && p->order[i - 1] < p->order[i];
    }
    if (ascends) {
        memset(p->order, SAMPLING_END, sizeof p->order);
    }
}

quire_err request_settle_samplers(quire_request *r, quire_error *err) {
    assert(r != NULL);
    sampling_params *p = &r->g.sampling;
    sampler_list l;
    TRY(samplers_read(request_field("samplers", FIELD_LLAMA), r->samplers, &l, err));
    memset(p->order, SAMPLING_END, sizeof p->order);
    if (p->mirostat != MIROSTAT_OFF) { /* mirostat replaces all cuts */
        return QUIRE_OK;
    }
    for (llama_sampler s = LLAMA_PENALTIES; s < N_LLAMA_SAMPLERS; s++) {
        if (!samplers_has(&l, s)) {
            samplers_switch_off(p, s);
        }
    }
    TRY(samplers_check_order(p, &l, err));
    samplers_set_order(p, &l);
    return QUIRE_OK;
}

void request_write_samplers(const quire_request *r, json_out *o) {
    assert(r != NULL);
    sampler_list l;
    quire_error err;
    json_begin(json_name(o, "samplers"), '[');
    if (samplers_read(request_field("samplers", FIELD_LLAMA), r->samplers, &l, &err) == QUIRE_OK) {
        for (size_t i = 0; i < l.n; i++) {
            json_cstr(json_item(o), llama_samplers[l.list[i]].name);
        }
    }
    json_end(o, ']');
}
