/* Sampling: cases.jsonl (final distributions), mirostat.jsonl (trajectories),
 * logprobs.jsonl and spec.jsonl (speculative sampling) of a directory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check/check.h"
#include "request/request_field.h"
#include "sample/logprobs.h"
#include "sample/sampler.h"
#include "spec/verify.h"
#include "json/json.h"

#define KIND "sampling"

static int32_t int_of(json_value *o, const char *name) {
    return (int)json_int64(json_get(o, name));
}

static double number_of(json_value *v) {
    const char *text = json_is(v, JSON_KIND_TEXT) ? json_str(v).p : NULL;
    if (text == NULL) {
        return json_double(v);
    }
    return strcmp(text, "inf") == 0 ? INFINITY : strcmp(text, "-inf") == 0 ? -INFINITY : NAN;
}

static int32_t length_of(json_value *array) {
    return array == NULL ? 0 : (int32_t)json_length(array);
}

/* The numbers of an array, or of the arrays in it one after the other; mem_free frees
 * them. */
static float *floats_of(json_value *array) {
    int32_t n = length_of(array);
    bool nested = n > 0 && json_is(json_at(array, 0), JSON_KIND_ARRAY);
    int32_t width = nested ? length_of(json_at(array, 0)) : 1;
    float *out = mem_new((size_t)n * (size_t)width + 1, sizeof *out);
    for (int32_t i = 0; out != NULL && i < n * width; i++) {
        json_value *row = json_at(array, (size_t)(i / width));
        out[i] = (float)number_of(nested ? json_at(row, (size_t)(i % width)) : row);
    }
    return out;
}

static int32_t *ints_of(json_value *array) {
    int32_t n = length_of(array);
    int32_t *out = mem_new((size_t)n + 1, sizeof *out);
    for (int32_t i = 0; out != NULL && i < n; i++) {
        out[i] = (int)json_int64(json_at(array, (size_t)i));
    }
    return out;
}

/* ---- parameters ---- */

static quire_err read_seqs(json_value *array, token_seqs *out) {
    for (int32_t i = 0; i < length_of(array); i++) {
        json_value *seq = json_at(array, (size_t)i);
        int32_t *ids = ints_of(seq);
        quire_err e = ids == NULL ? QUIRE_NO_MEMORY : token_seqs_add(out, ids, length_of(seq));
        mem_free(ids);
        TRY(e);
    }
    return QUIRE_OK;
}

static quire_err read_bias(json_value *object, sampling_lists *lists) {
    int32_t n = 0, ids[1024];
    float bias[1024];
    for (json_member m = {0}; json_next(object, &m);) {
        if (n < 1024) {
            ids[n] = (int32_t)strtol(m.name, NULL, 10);
            bias[n++] = (float)number_of(m.value);
        }
    }
    return sampling_lists_set_bias(lists, ids, bias, n);
}

/* The members of sampling_params that are plain numbers. */
static bool read_number(sampling_params *p, const char *key, json_value *v) {
    const struct {
        const char *name;
        float *number;
        int32_t *integer;
    } places[] = {{"temperature", &p->temperature, NULL},
                  {"top_k", NULL, &p->top_k},
                  {"top_p", &p->top_p, NULL},
                  {"min_p", &p->min_p, NULL},
                  {"typical_p", &p->typical_p, NULL},
                  {"top_n_sigma", &p->top_n_sigma, NULL},
                  {"repetition_penalty", &p->repetition_penalty, NULL},
                  {"presence_penalty", &p->presence_penalty, NULL},
                  {"frequency_penalty", &p->frequency_penalty, NULL},
                  {"no_repeat_ngram_size", NULL, &p->no_repeat_ngram_size},
                  {"min_tokens", NULL, &p->min_tokens},
                  {"dry_multiplier", &p->dry_multiplier, NULL},
                  {"dry_base", &p->dry_base, NULL},
                  {"dry_allowed_length", NULL, &p->dry_allowed_length},
                  {"dry_penalty_last_n", NULL, &p->dry_penalty_last_n},
                  {"xtc_probability", &p->xtc_probability, NULL},
                  {"xtc_threshold", &p->xtc_threshold, NULL},
                  {"dynatemp_range", &p->dynatemp_range, NULL},
                  {"dynatemp_exponent", &p->dynatemp_exponent, NULL}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (strcmp(places[i].name, key) == 0) {
            if (places[i].number != NULL) {
                *places[i].number = (float)number_of(v);
            } else {
                *places[i].integer = (int)json_double(v);
            }
            return true;
        }
    }
    return false;
}

/* Fills *p; *eos is the model's end token where the case has one. QUIRE_UNSUPPORTED for a
 * parameter that is not known. */
static quire_err read_params(json_value *o, sampling_params *p, int32_t *eos, int32_t *n_eos) {
    sampling_params_init(p);
    p->lists = sampling_lists_new();
    if (p->lists == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (json_member m = {0}; json_next(o, &m);) {
        const char *key = m.name;
        json_value *v = m.value;
        if (read_number(p, key, v)) {
            continue;
        }
        if (strcmp(key, "logit_bias") == 0) {
            TRY(read_bias(v, p->lists));
        } else if (strcmp(key, "bad_words") == 0) {
            TRY(read_seqs(v, &p->lists->bad_words));
        } else if (strcmp(key, "dry_sequence_breakers") == 0) {
            TRY(read_seqs(v, &p->lists->dry_breakers));
        } else if (strcmp(key, "eos_token_id") == 0) {
            *eos = (int)json_int64(v);
            *n_eos = 1;
        } else if (strcmp(key, "allowed_token_ids") == 0) {
            int32_t *ids = ints_of(v);
            quire_err e =
                ids == NULL ? QUIRE_NO_MEMORY : sampling_lists_set_allowed(p->lists, ids, length_of(v));
            mem_free(ids);
            TRY(e);
        } else if (strcmp(key, "stop_token_ids") == 0 && length_of(v) <= PARAMS_MAX_STOP_TOKENS) {
            for (int32_t i = 0; i < length_of(v); i++) {
                p->stop_tokens[p->n_stop_tokens++] = (int)json_int64(json_at(v, (size_t)i));
            }
        } else {
            return QUIRE_UNSUPPORTED;
        }
    }
    return QUIRE_OK;
}

/* ---- cases.jsonl ---- */

/* Compares a distribution with kept ids and their probabilities; *worst is the largest
 * error over the tolerance. False when other tokens are kept. */
static bool same_distribution(const float *probs, int32_t n, json_value *kept, json_value *want,
                              double *worst) {
    int32_t next = 0, n_kept = length_of(kept);
    *worst = 0.0;
    for (int32_t i = 0; i < n; i++) {
        bool is_kept = next < n_kept && (int)json_int64(json_at(kept, (size_t)next)) == i;
        if (is_kept != (probs[i] > 0.0f)) {
            double expected = is_kept ? number_of(json_at(want, (size_t)next)) : 0.0;
            if (!is_kept || expected > 1e-37) { /* what no float32 can hold may be 0 */
                return false;
            }
        }
        if (is_kept) {
            double w = number_of(json_at(want, (size_t)next++));
            double error = fabs((double)probs[i] - w) / (2e-5 * w + 1e-7);
            *worst = error > *worst ? error : *worst;
        }
    }
    return true;
}

typedef struct distribution_case {
    sampler *s;
    const float *logits;
    float *row;
    int32_t n;
    sample_context context;
} distribution_case;

static bool matches(distribution_case *d, json_value *want, check_report *r, const char *name) {
    float *probs;
    double worst;
    memcpy(d->row, d->logits, (size_t)d->n * sizeof *d->row);
    if (sampler_distribution(d->s, d->row, &d->context, &probs) != QUIRE_OK) {
        check_fail(r, KIND, name, "the row is refused");
    } else if (!same_distribution(probs, d->n, json_get(want, "kept"), json_get(want, "probs"), &worst)) {
        check_fail(r, KIND, name, "other tokens are kept");
    } else if (!(worst <= 1.0)) {
        check_fail(r, KIND, name, "a probability is off by %.1f times the tolerance", worst);
    } else {
        return true;
    }
    return false;
}

/* Whether a value is in the range of its row. */
static bool in_range(const char *name, double value) {
    const field_desc *f = request_field(name, FIELD_BOTH);
    bool low = f->flags & FIELD_MIN_OPEN ? !(value > f->minimum) : !(value >= f->minimum);
    return !low && value <= f->maximum;
}

static bool in_vocabulary(const int32_t *ids, int32_t n, int32_t n_vocab) {
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= n_vocab) {
            return false;
        }
    }
    return true;
}

/* The field of the lists that has an id outside the vocabulary or is empty where it may
 * not be; NULL: none. */
static const char *bad_list(const sampling_lists *l, int32_t n_vocab) {
    if (!in_vocabulary(l->bias_ids, l->n_bias, n_vocab)) {
        return "logit_bias";
    }
    if (l->has_allowed && (l->n_allowed == 0 || !in_vocabulary(l->allowed, l->n_allowed, n_vocab))) {
        return "allowed_token_ids";
    }
    if (l->bad_words.n > 0 &&
        !in_vocabulary(l->bad_words.tokens, l->bad_words.starts[l->bad_words.n], n_vocab)) {
        return "bad_words";
    }
    return NULL;
}

/* Checks that every value is in its field's range and every id of the lists in the
 * vocabulary; else QUIRE_BAD_REQUEST and *field names the field. The sampler accepts more
 * than requests may contain: top_p 0, which keeps one token, and any temperature. */
static quire_err check_params(const sampling_params *p, int32_t n_vocab, const char **field) {
    const struct {
        const char *name;
        double value;
    } values[] = {{"min_p", (double)p->min_p},
                  {"typical_p", (double)p->typical_p},
                  {"top_n_sigma", (double)p->top_n_sigma},
                  {"top_k", (double)p->top_k},
                  {"min_tokens", (double)p->min_tokens},
                  {"repetition_penalty", (double)p->repetition_penalty},
                  {"frequency_penalty", (double)p->frequency_penalty},
                  {"presence_penalty", (double)p->presence_penalty},
                  {"no_repeat_ngram_size", (double)p->no_repeat_ngram_size},
                  {"dry_multiplier", (double)p->dry_multiplier},
                  {"dry_base", (double)p->dry_base},
                  {"dry_allowed_length", (double)p->dry_allowed_length},
                  {"dry_penalty_last_n", (double)p->dry_penalty_last_n},
                  {"xtc_probability", (double)p->xtc_probability},
                  {"xtc_threshold", (double)p->xtc_threshold},
                  {"dynatemp_range", (double)p->dynatemp_range},
                  {"dynatemp_exponent", (double)p->dynatemp_exponent},
                  {"mirostat", (double)p->mirostat},
                  {"mirostat_tau", (double)p->mirostat_tau},
                  {"mirostat_eta", (double)p->mirostat_eta}};
    *field = !(p->temperature >= 0.0f)                 ? "temperature"
             : !(p->top_p >= 0.0f && p->top_p <= 1.0f) ? "top_p"
                                                       : NULL;
    for (size_t i = 0; i < sizeof values / sizeof *values && *field == NULL; i++) {
        *field = in_range(values[i].name, values[i].value) ? NULL : values[i].name;
    }
    if (*field == NULL && p->lists != NULL) {
        *field = bad_list(p->lists, n_vocab);
    }
    return *field == NULL ? QUIRE_OK : QUIRE_BAD_REQUEST;
}

static void run_distribution(distribution_case *d, json_value *o, check_report *r, const char *name) {
    json_value *error = json_get(o, "error"), *draw = json_get(o, "xtc_draw");
    const char *field;
    float *probs;
    if (error != NULL) {
        quire_err e = check_params(d->context.params, d->n, &field);
        if (e != QUIRE_OK && strcmp(field, json_str(error).p) != 0) {
            check_fail(r, KIND, name, "%s is refused, must be %s", field, json_str(error).p);
        } else if (e == QUIRE_OK && sampler_distribution(d->s, d->row, &d->context, &probs) == QUIRE_OK) {
            check_fail(r, KIND, name, "it is taken, but %s must be refused", json_str(error).p);
        } else {
            check_pass(r, KIND, name);
        }
        return;
    }
    d->context.noise.xtc = draw != NULL ? (float)number_of(draw) : 0.5f;
    if (check_params(d->context.params, d->n, &field) != QUIRE_OK) {
        check_fail(r, KIND, name, "%s is refused", field);
        return;
    }
    bool ok = matches(d, o, r, name);
    if (ok && json_get(o, "xtc_on") != NULL) {
        d->context.noise.xtc = 0.0f; /* fires always, and never */
        ok = matches(d, json_get(o, "xtc_on"), r, name);
        d->context.noise.xtc = 2.0f;
        ok = ok && matches(d, json_get(o, "xtc_off"), r, name);
    }
    if (ok) {
        check_pass(r, KIND, name);
    }
}

static void check_case(json_value *o, check_report *r, const char *name) {
    sampling_params p;
    int32_t eos = 0, n_eos = 0, n = int_of(o, "vocab");
    float *logits = floats_of(json_get(o, "logits")), *row = floats_of(json_get(o, "logits"));
    int32_t *history = ints_of(json_get(o, "history")), n_history = length_of(json_get(o, "history"));
    sampler *s = NULL;
    quire_err e = read_params(json_get(o, "params"), &p, &eos, &n_eos);
    e = e != QUIRE_OK ? e : sampler_open(n, n_history, &s);
    if (e != QUIRE_OK || logits == NULL || row == NULL || history == NULL) {
        check_unsupported(r, KIND, name,
                          e == QUIRE_UNSUPPORTED ? "a parameter that this build does not know"
                                                 : "out of memory");
    } else {
        distribution_case d = {.s = s, .logits = logits, .row = row, .n = n};
        d.context = (sample_context){.params = &p,
                                     .tokens = history,
                                     .n_tokens = n_history,
                                     .n_prompt = int_of(o, "prompt_len"),
                                     .eos = &eos,
                                     .n_eos = n_eos};
        run_distribution(&d, o, r, name);
    }
    sampler_close(s);
    sampling_lists_drop(p.lists);
    mem_free(logits);
    mem_free(row);
    mem_free(history);
}

/* ---- mirostat.jsonl ---- */

static void check_mirostat(json_value *o, check_report *r, const char *name) {
    sampling_params p;
    sampler *s = NULL;
    int32_t n = int_of(o, "vocab"), n_steps = length_of(json_get(o, "steps"));
    float *logits = floats_of(json_get(o, "logits")), mu = (float)number_of(json_get(o, "mu0"));
    sampling_params_init(&p);
    p.mirostat = int_of(o, "version");
    p.mirostat_tau = (float)number_of(json_get(o, "tau"));
    p.mirostat_eta = (float)number_of(json_get(o, "eta"));
    if (logits == NULL || sampler_open(n, 1, &s) != QUIRE_OK) {
        check_fail(r, KIND, name, "out of memory");
        mem_free(logits);
        return;
    }
    bool ok = true;
    for (int32_t i = 0; ok && i < n_steps; i++) {
        json_value *step = json_at(json_get(o, "steps"), (size_t)i);
        float u = (float)number_of(json_at(json_get(o, "uniforms"), (size_t)i));
        sample_context c = {.params = &p, .noise = {.token = u}, .mirostat_mu = &mu};
        int32_t token = -1;
        quire_err e = sampler_sample(s, logits + (size_t)i * (size_t)n, &c, &token);
        double want = number_of(json_get(step, "mu"));
        if (e != QUIRE_OK || token != int_of(step, "token") ||
            !(fabs((double)mu - want) <= 1e-4 * fmax(1.0, fabs(want)))) {
            check_fail(r, KIND, name, "step %d: token %d, mu %.6f; must be %d, %.6f", i, token, (double)mu,
                       int_of(step, "token"), want);
            ok = false;
        }
    }
    if (ok) {
        check_pass(r, KIND, name);
    }
    sampler_close(s);
    mem_free(logits);
}

/* ---- logprobs.jsonl ---- */

static bool near(double got, double want) {
    return got == want || fabs(got - want) <= 2e-5 * fabs(want) + 1e-6;
}

static bool same_entry(const token_logprob *got, json_value *want) {
    return got->id == (int)json_int64(json_at(want, 0)) &&
           near((double)got->logprob, number_of(json_at(want, 1))) &&
           got->rank == (int)json_int64(json_at(want, 2));
}

/* One position: the row against {"token", "logprob", "rank", "top"}. */
static bool same_position(const float *row, int32_t n, json_value *want) {
    double normalizer = logprobs_normalizer(row, n);
    token_logprob got = logprobs_of(row, n, normalizer, int_of(want, "token"));
    int32_t n_top = length_of(json_get(want, "top"));
    bool ok =
        near((double)got.logprob, number_of(json_get(want, "logprob"))) && got.rank == int_of(want, "rank");
    token_logprob *top = mem_new((size_t)n_top + 1, sizeof *top);
    if (top == NULL || n_top > n) {
        mem_free(top);
        return false;
    }
    logprobs_top(row, n, normalizer, n_top, top);
    for (int32_t i = 0; ok && i < n_top; i++) {
        ok = same_entry(&top[i], json_at(json_get(want, "top"), (size_t)i));
    }
    mem_free(top);
    return ok;
}

/* The likeliest tokens of the final distribution: pairs of id and log-probability. */
static bool same_processed(json_value *o, const float *last_row, int32_t n) {
    sampling_params p;
    sampler *s = NULL;
    int32_t eos, n_eos = 0, n_history = length_of(json_get(o, "history")),
                 *history = ints_of(json_get(o, "history"));
    float *row = mem_new((size_t)n, sizeof *row);
    float *probs;
    bool ok = row != NULL && history != NULL &&
              read_params(json_get(o, "params"), &p, &eos, &n_eos) == QUIRE_OK &&
              sampler_open(n, n_history, &s) == QUIRE_OK;
    if (ok) {
        memcpy(row, last_row, (size_t)n * sizeof *row);
        sample_context c = {
            .params = &p, .tokens = history, .n_tokens = n_history, .n_prompt = int_of(o, "prompt_len")};
        ok = sampler_distribution(s, row, &c, &probs) == QUIRE_OK;
    }
    for (int32_t i = 0; ok && i < length_of(json_get(o, "top")); i++) {
        json_value *pair = json_at(json_get(o, "top"), (size_t)i);
        int32_t id = (int)json_int64(json_at(pair, 0));
        ok = id >= 0 && id < n && near(log((double)probs[id]), number_of(json_at(pair, 1)));
    }
    sampler_close(s);
    sampling_lists_drop(p.lists);
    mem_free(row);
    mem_free(history);
    return ok;
}

static void check_logprobs(json_value *o, check_report *r, const char *name) {
    int32_t n = int_of(o, "vocab"), n_rows = length_of(json_get(o, "logits")), bad = -1;
    float *logits = floats_of(json_get(o, "logits"));
    json_value *prompt = json_get(o, "prompt_logprobs");
    for (int32_t t = 1; logits != NULL && t < length_of(prompt) && bad < 0; t++) {
        bad =
            t <= n_rows && same_position(logits + (size_t)(t - 1) * (size_t)n, n, json_at(prompt, (size_t)t))
                ? -1
                : t;
    }
    const float *last = logits == NULL ? NULL : logits + (size_t)(n_rows - 1) * (size_t)n;
    if (last == NULL || bad >= 0) {
        check_fail(r, KIND, name, "prompt position %d differs", bad);
    } else if (!same_position(last, n, json_get(o, "sampled"))) {
        check_fail(r, KIND, name, "the sampled token's log-probabilities differ");
    } else if (!same_processed(json_get(o, "processed"), last, n)) {
        check_fail(r, KIND, name, "the processed log-probabilities differ");
    } else {
        check_pass(r, KIND, name);
    }
    mem_free(logits);
}

/* ---- spec.jsonl ---- */

static bool same_row(const float *got, json_value *want, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (!near((double)got[i], number_of(json_at(want, (size_t)i)))) {
            return false;
        }
    }
    return true;
}

typedef struct spec_case {
    int32_t n, gamma;
    float *target, *draft, *residual;
    int32_t *drafted;
} spec_case;

/* NULL when accept probabilities and residuals agree, else what does not. */
static const char *compare_spec(const spec_case *c, json_value *o) {
    for (int32_t i = 0; i < c->gamma; i++) {
        const float *p = c->target + (size_t)i * (size_t)c->n;
        rejection_draft draft = {c->drafted[i], c->draft + (size_t)i * (size_t)c->n};
        double want = number_of(json_at(json_get(o, "accept_prob"), (size_t)i));
        json_value *residual = json_at(json_get(o, "residual"), (size_t)i);
        if (!near(rejection_accept(p, &draft), want)) {
            return "an acceptance probability differs";
        }
        memcpy(c->residual, p, (size_t)c->n * sizeof *p);
        rejection_residual(c->residual, &draft, c->n);
        if (residual != NULL && !same_row(c->residual, residual, c->n)) {
            return "a residual distribution differs";
        }
    }
    return same_row(c->target + (size_t)c->gamma * (size_t)c->n, json_get(o, "bonus"), c->n)
               ? NULL
               : "the bonus distribution differs";
}

/* Accepts or rejects the drafted tokens, with uniforms[0..gamma) and v. out gets the
 * *n_accepted accepted ones and one more token, which comes from the residual at the
 * first rejection or from the last target row. QUIRE_NUMERIC when it reaches a token that
 * its draft distribution could not have drawn. */
static quire_err walk_spec(const spec_case *c, const double *uniforms, double v, int32_t *out,
                           int32_t *n_accepted) {
    *n_accepted = 0;
    for (int32_t i = 0; i < c->gamma; i++) {
        const float *p = c->target + (size_t)i * (size_t)c->n;
        rejection_draft draft = {c->drafted[i], c->draft + (size_t)i * (size_t)c->n};
        if (draft.distribution[draft.token] <= 0.0f) {
            return QUIRE_NUMERIC;
        }
        if (uniforms[i] >= rejection_accept(p, &draft)) {
            memcpy(c->residual, p, (size_t)c->n * sizeof *p);
            rejection_residual(c->residual, &draft, c->n);
            out[i] = rejection_draw(c->residual, c->n, v);
            return QUIRE_OK;
        }
        out[i] = c->drafted[i];
        *n_accepted = i + 1;
    }
    out[c->gamma] = rejection_draw(c->target + (size_t)c->gamma * (size_t)c->n, c->n, v);
    return QUIRE_OK;
}

static void check_spec(json_value *o, check_report *r, const char *name) {
    json_value *draw = json_get(o, "draw"), *emitted = json_get(draw, "emitted");
    spec_case c = {.n = int_of(o, "vocab"), .gamma = int_of(o, "gamma")};
    double uniforms[64] = {0};
    int32_t out[65], n_accepted = 0;
    if (c.gamma < 0 || c.gamma > 64) {
        check_unsupported(r, KIND, name, "more than 64 drafted tokens");
        return;
    }
    c.target = floats_of(json_get(o, "target"));
    c.draft = floats_of(json_get(o, "draft"));
    c.drafted = ints_of(json_get(o, "drafted"));
    c.residual = mem_new((size_t)c.n, sizeof *c.residual);
    for (int32_t i = 0; draw != NULL && i < c.gamma; i++) {
        uniforms[i] = number_of(json_at(json_get(draw, "uniforms"), (size_t)i));
    }
    double v = draw != NULL ? number_of(json_get(draw, "v")) : 0.0;
    quire_err e = walk_spec(&c, uniforms, v, out, &n_accepted);
    const char *wrong = NULL;
    if (json_get(o, "error") != NULL) {
        wrong = e != QUIRE_OK ? NULL : "it is taken, but must be refused";
    } else {
        wrong = e != QUIRE_OK ? "it is refused" : compare_spec(&c, o);
        for (int32_t i = 0; wrong == NULL && i <= n_accepted; i++) {
            bool same = n_accepted + 1 == length_of(emitted) &&
                        out[i] == (int)json_int64(json_at(emitted, (size_t)i));
            wrong = same ? NULL : "other tokens come out";
        }
    }
    if (wrong != NULL) {
        check_fail(r, KIND, name, "%s", wrong);
    } else {
        check_pass(r, KIND, name);
    }
    mem_free(c.target);
    mem_free(c.draft);
    mem_free(c.drafted);
    mem_free(c.residual);
}

/* ---- files ---- */

typedef void (*line_check)(json_value *o, check_report *r, const char *name);

static int check_file(const char *dir, const char *file, line_check check, check_report *r) {
    char *path = check_path(dir, file);
    size_t n = 0;
    char *text = path == NULL ? NULL : check_read_file(path, &n);
    if (text == NULL) {
        fprintf(stderr, "quire-check: %s cannot be read\n", path == NULL ? file : path);
        mem_free(path);
        return 1;
    }
    str rest = {text, n}, line;
    while (check_line(&rest, &line)) {
        if (line.n == 0) {
            continue;
        }
        json_value *o = json_document(line);
        if (!json_is(o, JSON_KIND_OBJECT)) {
            check_fail(r, KIND, file, "a line is not a JSON object");
        } else {
            check(o, r, json_get_str(o, "name").p);
        }
        json_drop(o);
    }
    mem_free(text);
    mem_free(path);
    return 0;
}

int check_sampling(const char *dir, const char *root, check_report *r) {
    (void)root;
    int status = check_file(dir, "cases.jsonl", check_case, r);
    status |= check_file(dir, "mirostat.jsonl", check_mirostat, r);
    status |= check_file(dir, "logprobs.jsonl", check_logprobs, r);
    return status | check_file(dir, "spec.jsonl", check_spec, r);
}
