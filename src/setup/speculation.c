/* Parses `--speculative-config`, a JSON object as in vLLM, to the engine's options, and
 * opens the draft model. */
#include "setup/engine_parts.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "setup/engine_config.h"
#include "setup/pool_plan.h"
#include "json/json.h"

#define FLAG       "--speculative-config"
#define METHODS    "ngram, suffix or draft_model"
#define MAX_LOOKUP 64
#define LOOKUP_MIN 2
#define LOOKUP_MAX 5

/* The defaults of vLLM. */
static const draft_options defaults = {
    .n_tokens = 5, .suffix_depth = 24, .suffix_texts = 10000, .suffix_factor = 1.0, .suffix_min_prob = 0.1};

/* The members that are numbers, with their bounds and their places in draft_options. */
#define AT(member) offsetof(draft_options, member)
static const struct {
    const char *name;
    double least, most;
    bool is_count; /* a whole number, stored as int32_t; otherwise any number, stored as double */
    size_t offset;
} numbers[] = {
    {"num_speculative_tokens", 1, DRAFT_MAX, true, AT(n_tokens)},
    {"tree_width", 1, DRAFT_MAX_WIDTH, true, AT(tree_width)},
    {"prompt_lookup_min", 1, MAX_LOOKUP, true, AT(lookup_min)},
    {"prompt_lookup_max", 1, MAX_LOOKUP, true, AT(lookup_max)},
    {"suffix_decoding_max_tree_depth", 2, SUFFIX_MAX_DEPTH, true, AT(suffix_depth)},
    {"suffix_decoding_max_cached_requests", 0, 1 << 20, true, AT(suffix_texts)},
    {"suffix_decoding_max_spec_factor", 0.1, 100, false, AT(suffix_factor)},
    {"suffix_decoding_min_token_prob", 0, 1, false, AT(suffix_min_prob)},
};
#undef AT

static quire_err speculation_read_number(const json_member *m, draft_options *out, quire_error *err) {
    size_t i = 0, n = sizeof numbers / sizeof *numbers;
    while (i < n && strcmp(numbers[i].name, m->name) != 0) {
        i++;
    }
    if (i == n) {
        return err_set(err, QUIRE_INVALID, -1, FLAG ": unknown member %.40s", m->name);
    }
    bool is_count = numbers[i].is_count;
    int64_t whole;
    double value = json_double(m->value);
    bool is_number = is_count ? json_whole(m->value, &whole)
                              : json_is(m->value, JSON_KIND_REAL) || json_is(m->value, JSON_KIND_INT);
    if (!is_number || !(value >= numbers[i].least && value <= numbers[i].most)) {
        return err_set(err, QUIRE_INVALID, -1, FLAG ": %s must be a %snumber from %.10g to %.10g", m->name,
                       is_count ? "whole " : "", numbers[i].least, numbers[i].most);
    }
    if (is_count) {
        *(int32_t *)((char *)out + numbers[i].offset) = (int32_t)whole;
    } else {
        *(double *)((char *)out + numbers[i].offset) = value;
    }
    return QUIRE_OK;
}

/* Reads a member that must be one of names[0..n). *out: its index. */
static quire_err read_choice(const json_member *m, const char *const *names, int n, const char *all, int *out,
                             quire_error *err) {
    for (int i = 0; i < n && json_is(m->value, JSON_KIND_TEXT); i++) {
        if (names[i] != NULL && strcmp(json_str(m->value).p, names[i]) == 0) {
            *out = i;
            return QUIRE_OK;
        }
    }
    return err_set(err, QUIRE_INVALID, -1, FLAG ": %s must be %s", m->name, all);
}

/* Reads the member "model". The method must have been read. */
static quire_err speculation_read_model(const json_value *o, speculation *s, quire_error *err) {
    const json_value *v = json_get(o, "model");
    if (s->draft.method != DRAFT_METHOD_MODEL) {
        return json_has(o, "model") ? err_set(err, QUIRE_INVALID, -1,
                                              FLAG ": model is allowed only with the method draft_model")
                                    : QUIRE_OK;
    }
    if (!json_is(v, JSON_KIND_TEXT) || json_str(v).n == 0) {
        return err_set(err, QUIRE_INVALID, -1,
                       FLAG
                       ": the method draft_model needs model, the draft model's file, directory or name");
    }
    s->name = mem_dup(json_str(v).p, json_str(v).n);
    return s->name ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
}

/* Completes the lookup bounds: if one is given, the other gets its value, as in vLLM. */
static quire_err settle_lookup(draft_options *d, quire_error *err) {
    if (d->lookup_min == 0 && d->lookup_max == 0) {
        d->lookup_min = LOOKUP_MIN;
        d->lookup_max = LOOKUP_MAX;
    }
    d->lookup_min = d->lookup_min == 0 ? d->lookup_max : d->lookup_min;
    d->lookup_max = d->lookup_max == 0 ? d->lookup_min : d->lookup_max;
    if (d->lookup_min > d->lookup_max) {
        return err_set(err, QUIRE_INVALID, -1, FLAG ": prompt_lookup_min %d is over prompt_lookup_max %d",
                       (int)d->lookup_min, (int)d->lookup_max);
    }
    return QUIRE_OK;
}

static quire_err speculation_read_object(const json_value *o, speculation *s, quire_error *err) {
    static const char *const methods[] = {[DRAFT_METHOD_NGRAM] = "ngram",
                                          [DRAFT_METHOD_SUFFIX] = "suffix",
                                          [DRAFT_METHOD_MODEL] = "draft_model"};
    static const char *const rules[] = {[DRAFT_RULE_EXACT] = "exact", [DRAFT_RULE_STANDARD] = "standard"};
    if (!json_is(o, JSON_KIND_OBJECT)) {
        return err_set(err, QUIRE_INVALID, -1,
                       FLAG
                       ": must be a JSON object such as {\"method\":\"ngram\",\"num_speculative_tokens\":5}");
    }
    int method = DRAFT_METHOD_NONE, rule = DRAFT_RULE_EXACT;
    for (json_member m = {0}; json_next(o, &m);) {
        if (strcmp(m.name, "method") == 0) {
            TRY(read_choice(&m, methods, sizeof methods / sizeof *methods, METHODS, &method, err));
        } else if (strcmp(m.name, "rejection_sample_method") == 0) {
            TRY(read_choice(&m, rules, sizeof rules / sizeof *rules, "exact or standard", &rule, err));
        } else if (strcmp(m.name, "model") != 0) {
            TRY(speculation_read_number(&m, &s->draft, err));
        }
    }
    if (method == DRAFT_METHOD_NONE) {
        return err_set(err, QUIRE_INVALID, -1, FLAG ": method is missing: " METHODS);
    }
    s->draft.method = (draft_method)method;
    s->draft.rule = (draft_rule)rule;
    TRY(settle_lookup(&s->draft, err));
    return speculation_read_model(o, s, err);
}

quire_err speculation_read(const quire_options *o, speculation *out, quire_error *err) {
    *out = (speculation){0};
    if (!o->speculative_config) {
        return QUIRE_OK;
    }
    out->draft = defaults;
    json_value *object;
    json_fault fault;
    if (json_read(str_of(o->speculative_config), &json_limits_file, JSON_WIDE_REFUSED, &object, &fault) !=
        QUIRE_OK) {
        return err_set(err, QUIRE_INVALID, -1, FLAG ": not valid JSON at byte %zu: %s", fault.at, fault.what);
    }
    quire_err e = speculation_read_object(object, out, err);
    json_drop(object);
    return e;
}

/* The draft model's options: the target's, without those that do not apply to it. */
static quire_options speculation_options(const speculation *s, const quire_options *target) {
    quire_options own = *target;
    own.model = s->name;
    own.compute = QUIRE_COMPUTE_AUTO;
    own.kv_dtype = own.kv_dtype_values = QUIRE_KV_AUTO;
    own.state_dtype = QUIRE_STATE_F32;
    own.hf_overrides = own.override_kv = own.quantization = NULL;
    return own;
}

quire_err speculation_describe(const speculation *s, const quire_options *o, model_desc *out,
                               quire_error *err) {
    const quire_options own = speculation_options(s, o);
    model_file *f;
    TRY(options_open_file(&own, &f, err));
    const quire_err e = model_describe(f, out, err);
    model_file_close(f);
    return e;
}

/* Loads the draft model, for sequences as long as the target's or, if it supports fewer
 * tokens, as its own limit. */
static quire_err speculation_load_model(speculation *s, const quire_options *o, model_file *f,
                                        int32_t max_len, quire_error *err) {
    model_desc d;
    TRY(model_describe(f, &d, err));
    return loaded_model_open(o, f, &d, d.max_positions < max_len ? d.max_positions : max_len, &s->model, err);
}

quire_err speculation_load(speculation *s, const quire_options *o, int32_t max_len, const backend *target,
                           quire_error *err) {
    assert(s != NULL);
    if (s->draft.method != DRAFT_METHOD_MODEL) {
        return QUIRE_OK;
    }
    const quire_options own = speculation_options(s, o);
    model_file *f;
    TRY(options_open_file(&own, &f, err));
    quire_err r = speculation_load_model(s, &own, f, max_len, err);
    model_file_close(f);
    TRY(r);
    loaded_model *l = &s->model;
    l->b->ops->share_threads(l->b, target);
    step_limits limits = {.max_rows = o->max_batched_tokens, .max_seqs = o->max_seqs, .max_out = o->max_seqs};
    return l->b->ops->step_open(l->b, &limits, &l->layout, model_description(l->m)->n_vocab, err);
}

/* Pages of one sequence besides those of its tokens: a state and, for its drafts, another
 * state and a copy of the last page in each group. */
static int64_t speculation_state_pages(const kv_layout *l) {
    const kv_group *last = &l->groups[l->n_groups - 1];
    return last->kind == LAYER_STATE ? 2 * (int64_t)last->state_pages + l->n_groups - 1 : 0;
}

/* The draft model's number of pages: those of its tokens and states, at most the whole
 * budget. */
static quire_err speculation_pages(const kv_layout *l, int64_t n_tokens, int32_t max_seqs,
                                   const kv_budget *budget, int32_t *n_pages, quire_error *err) {
    int64_t n_states = speculation_state_pages(l), n_token_groups = l->n_groups - (n_states > 0);
    int64_t bytes = kv_budget_count(budget).bytes, most = bytes / l->page_bytes,
            n = n_tokens / l->page_tokens * n_token_groups + max_seqs * n_states;
    if (most < n_token_groups + n_states) {
        return err_set(err, QUIRE_NO_MEMORY, -1,
                       "the draft model's KV pages of %lld bytes do not fit into the %lld bytes for both "
                       "models; raise --kv-pages or --memory-utilization",
                       (long long)l->page_bytes, (long long)bytes);
    }
    n = n < most ? n : most;
    *n_pages = n < POOL_MAX_PAGES ? (int32_t)n : (int32_t)POOL_MAX_PAGES;
    return QUIRE_OK;
}

quire_err speculation_open_pages(speculation *s, const quire_options *o, int64_t n_tokens, int32_t max_len,
                                 kv_budget *budget, quire_error *err) {
    assert(n_tokens >= 0 && max_len >= 0);
    const loaded_model *l = &s->model;
    const int32_t own_len = model_description(l->m)->max_positions;
    max_len = own_len < max_len ? own_len : max_len;
    int64_t most = (int64_t)o->max_seqs * kv_pages_for(max_len, o->page_tokens) * o->page_tokens,
            all = kv_pages_for(n_tokens, o->page_tokens) * o->page_tokens;
    int32_t n_pages = 0;
    TRY(speculation_pages(&l->layout, all < most ? all : most, o->max_seqs, budget, &n_pages, err));
    TRY(l->b->ops->kv_open(l->b, n_pages, err));
    s->draft.model = (draft_model_options){
        .m = l->m, .b = l->b, .layout = &l->layout, .n_pages = n_pages, .max_len = max_len, .budget = budget};
    return QUIRE_OK;
}

void speculation_close(speculation *s) {
    loaded_model_close(&s->model);
    mem_free(s->name);
    *s = (speculation){0};
}
