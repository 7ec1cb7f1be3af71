#include "setup/speculation.h"

#include <string.h>

#include "base/mem.h"
#include "json/json.h"
#include "setup/engine_config.h"

#define FLAG            "--speculative-config"
#define METHODS         "ngram, suffix or draft_model"
#define DEFAULT_TOKENS  5
#define MAX_LOOKUP      64
#define LOOKUP_MIN      2
#define LOOKUP_MAX      5

/* The object, and the error to fill. */
typedef struct reader {
    const json_value *o;
    quire_error *err;
} reader;

static bool is_known(const char *name) {
    static const char *const names[] = {"method",
                                        "model",
                                        "num_speculative_tokens",
                                        "prompt_lookup_min",
                                        "prompt_lookup_max",
                                        "rejection_sample_method",
                                        "draft_length",
                                        "tree_width",
                                        "suffix_decoding_max_tree_depth",
                                        "suffix_decoding_max_cached_requests",
                                        "suffix_decoding_max_spec_factor",
                                        "suffix_decoding_min_token_prob"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Reads a whole number in least..most; *out is unchanged where the object has none. */
static quire_err read_count(const reader *r, const char *name, int32_t least, int32_t most, int32_t *out) {
    const json_value *v = json_get(r->o, name);
    if (!json_has(r->o, name)) {
        return QUIRE_OK;
    }
    int64_t n;
    if (!json_whole(v, &n) || n < least || n > most) {
        return err_set(r->err, QUIRE_INVALID, -1, FLAG ": %s must be a whole number from %d to %d", name, (int)least, (int)most);
    }
    *out = (int32_t)n;
    return QUIRE_OK;
}

static quire_err read_number(const reader *r, const char *name, double least, double most, double *out) {
    const json_value *v = json_get(r->o, name);
    if (!json_has(r->o, name)) {
        return QUIRE_OK;
    }
    double d = json_double(v);
    bool is_number = json_is(v, JSON_KIND_REAL) || json_is(v, JSON_KIND_INT);
    if (!is_number || !(d >= least && d <= most)) {
        return err_set(r->err, QUIRE_INVALID, -1, FLAG ": %s must be a number from %g to %g", name, least, most);
    }
    *out = d;
    return QUIRE_OK;
}

/* Reads one of names[0..n) as its index; *out is unchanged where the object has none. */
static quire_err read_choice(const reader *r, const char *name, const char *const *names, int n, const char *all, int *out) {
    const json_value *v = json_get(r->o, name);
    if (!json_has(r->o, name)) {
        return QUIRE_OK;
    }
    for (int i = 0; i < n && json_is(v, JSON_KIND_TEXT); i++) {
        if (names[i] != NULL && strcmp(json_str(v).p, names[i]) == 0) {
            *out = i;
            return QUIRE_OK;
        }
    }
    return err_set(r->err, QUIRE_INVALID, -1, FLAG ": %s must be %s", name, all);
}

static quire_err read_model(const reader *r, speculation *s) {
    const json_value *v = json_get(r->o, "model");
    bool is_there = json_has(r->o, "model");
    if (s->draft.method != DRAFT_METHOD_MODEL) {
        return is_there ? err_set(r->err, QUIRE_INVALID, -1, FLAG ": model belongs to the method draft_model") : QUIRE_OK;
    }
    if (!is_there || !json_is(v, JSON_KIND_TEXT) || json_str(v).n == 0) {
        return err_set(r->err, QUIRE_INVALID, -1, FLAG ": the method draft_model needs the draft's file, directory or name as model");
    }
    s->name = mem_dup(json_str(v).p, strlen(json_str(v).p));
    return s->name ? QUIRE_OK : err_set(r->err, QUIRE_NO_MEMORY, -1, "out of memory");
}

/* Reads the lookup bounds. As in vLLM, one bound alone is used for both. */
static quire_err read_lookup(const reader *r, draft_options *d) {
    TRY(read_count(r, "prompt_lookup_min", 1, MAX_LOOKUP, &d->lookup_min));
    TRY(read_count(r, "prompt_lookup_max", 1, MAX_LOOKUP, &d->lookup_max));
    if (d->lookup_min == 0 && d->lookup_max == 0) {
        d->lookup_min = LOOKUP_MIN;
        d->lookup_max = LOOKUP_MAX;
    }
    d->lookup_min = d->lookup_min == 0 ? d->lookup_max : d->lookup_min;
    d->lookup_max = d->lookup_max == 0 ? d->lookup_min : d->lookup_max;
    if (d->lookup_min > d->lookup_max) {
        return err_set(r->err, QUIRE_INVALID, -1, FLAG ": prompt_lookup_min %d is over prompt_lookup_max %d", (int)d->lookup_min,
                       (int)d->lookup_max);
    }
    return QUIRE_OK;
}

/* Reads the suffix options, with vLLM's defaults. */
static quire_err read_suffix(const reader *r, draft_options *d) {
    d->suffix_depth = 24;
    d->suffix_texts = 10000;
    d->suffix_factor = 1.0;
    d->suffix_min_prob = 0.1;
    TRY(read_count(r, "suffix_decoding_max_tree_depth", 2, SUFFIX_MAX_DEPTH, &d->suffix_depth));
    TRY(read_count(r, "suffix_decoding_max_cached_requests", 0, 1 << 20, &d->suffix_texts));
    TRY(read_number(r, "suffix_decoding_max_spec_factor", 0.1, 100, &d->suffix_factor));
    return read_number(r, "suffix_decoding_min_token_prob", 0, 1, &d->suffix_min_prob);
}

static quire_err read_object(const reader *r, speculation *s) {
    static const char *const methods[] = {
        [DRAFT_METHOD_NGRAM] = "ngram", [DRAFT_METHOD_SUFFIX] = "suffix", [DRAFT_METHOD_MODEL] = "draft_model"};
    static const char *const rules[] = {[DRAFT_RULE_EXACT] = "exact", [DRAFT_RULE_STANDARD] = "standard"};
    static const char *const lengths[] = {"adaptive", "fixed"};
    if (!json_is(r->o, JSON_KIND_OBJECT)) {
        return err_set(r->err, QUIRE_INVALID, -1, FLAG ": must be a JSON object, as {\"method\":\"ngram\",\"num_speculative_tokens\":5}");
    }
    for (json_member m = {0}; json_next(r->o, &m);) {
        if (!is_known(m.name)) {
            return err_set(r->err, QUIRE_INVALID, -1, FLAG ": there is no member %.40s", m.name);
        }
    }
    int method = DRAFT_METHOD_NONE, rule = DRAFT_RULE_EXACT, length = 0;
    TRY(read_choice(r, "method", methods, sizeof methods / sizeof *methods, METHODS, &method));
    TRY(read_choice(r, "rejection_sample_method", rules, sizeof rules / sizeof *rules, "exact or standard", &rule));
    TRY(read_choice(r, "draft_length", lengths, 2, "adaptive or fixed", &length));
    if (method == DRAFT_METHOD_NONE) {
        return err_set(r->err, QUIRE_INVALID, -1, FLAG ": method is missing: " METHODS);
    }
    s->draft.method = (draft_method)method;
    s->draft.rule = (draft_rule)rule;
    s->draft.fixed_length = length == 1;
    s->draft.n_tokens = DEFAULT_TOKENS;
    TRY(read_count(r, "num_speculative_tokens", 1, DRAFT_MAX, &s->draft.n_tokens));
    TRY(read_count(r, "tree_width", 1, DRAFT_MAX_WIDTH, &s->draft.tree_width));
    TRY(read_lookup(r, &s->draft));
    TRY(read_suffix(r, &s->draft));
    return read_model(r, s);
}

quire_err speculation_read(const quire_options *o, speculation *out, quire_error *err) {
    *out = (speculation){.draft = {.no_jump_forward = o->no_jump_forward}};
    if (!o->speculative_config) {
        return QUIRE_OK;
    }
    json_value *config;
    json_fault fault;
    if (json_read(str_of(o->speculative_config), &json_limits_file, JSON_WIDE_REFUSED, &config, &fault) != QUIRE_OK) {
        return err_set(err, QUIRE_INVALID, -1, FLAG ": not valid JSON at byte %zu: %s", fault.at, fault.what);
    }
    quire_err e = read_object(&(reader){.o = config, .err = err}, out);
    json_drop(config);
    return e;
}

/* Loads the model, for sequences as long as the target's or, where it can have fewer tokens, its own. */
static quire_err open_model(speculation *s, const quire_options *o, model_file *f, int32_t *max_len, quire_error *err) {
    model_desc d;
    TRY(model_describe(f, &d, err));
    *max_len = d.max_positions < *max_len ? d.max_positions : *max_len;
    return loaded_model_open(o, f, &d, *max_len, &s->model, err);
}

quire_err speculation_open(speculation *s, const quire_options *o, int64_t n_tokens, int32_t max_len, quire_error *err) {
    if (s->draft.method != DRAFT_METHOD_MODEL) {
        return QUIRE_OK;
    }
    quire_options own = *o;
    model_file *f;
    own.model = s->name;
    own.compute = own.kv_dtype = "auto";
    TRY(options_open_file(&own, &f, err));
    quire_err r = open_model(s, &own, f, &max_len, err);
    model_file_close(f);
    TRY(r);
    loaded_model *l = &s->model;
    int64_t most = (int64_t)o->max_seqs * kv_pages_for(max_len, o->page_tokens), n = kv_pages_for(n_tokens, o->page_tokens);
    int64_t wanted = (n < most ? n : most) * l->layout.n_groups;
    int32_t n_pages = wanted < INT32_MAX ? (int32_t)wanted : INT32_MAX;
    step_limits limits = {.max_rows = o->max_batched_tokens, .max_seqs = o->max_seqs, .max_out = o->max_seqs};
    TRY(l->b->ops->step_open(l->b, &limits, &l->layout, model_description(l->m)->n_vocab, err));
    TRY(l->b->ops->kv_open(l->b, n_pages, err));
    s->draft.model = (draft_model_options){.m = l->m, .b = l->b, .layout = &l->layout, .n_pages = n_pages, .max_len = max_len};
    return QUIRE_OK;
}

void speculation_close(speculation *s) {
    loaded_model_close(&s->model);
    mem_free(s->name);
    *s = (speculation){0};
}
