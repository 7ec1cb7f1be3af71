#include "engine/sampler.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler_parts.h"

#define GREEDY_BELOW 1e-5f

quire_err sampler_open(int32_t n_vocab, int32_t max_tokens, sampler **out) {
    sampler *s = mem_new(1, sizeof *s);
    if (!s) {
        return QUIRE_NO_MEMORY;
    }
    size_t n = (size_t)n_vocab;
    s->rows = sampler_rows_best();
    s->n_vocab = n_vocab;
    s->max_tokens = max_tokens;
    s->weights = mem_new(n, sizeof *s->weights);
    s->n_groups = (n + GROUP - 1) / GROUP;
    s->largest = mem_new(s->n_groups, sizeof *s->largest);
    s->sums = mem_new(s->n_groups, sizeof *s->sums);
    s->inside = mem_new(n + 1, sizeof *s->inside);
    s->marks = mem_new(n, sizeof *s->marks);
    s->counts = mem_new(n, sizeof *s->counts);
    s->repeats = mem_new((size_t)max_tokens + 1, sizeof *s->repeats);
    if (!s->weights || !s->largest || !s->sums || !s->inside || !s->marks || !s->counts || !s->repeats) {
        sampler_close(s);
        return QUIRE_NO_MEMORY;
    }
    *out = s;
    return QUIRE_OK;
}

void sampler_close(sampler *s) {
    if (s) {
        mem_free(s->weights);
        mem_free(s->largest);
        mem_free(s->sums);
        mem_free(s->inside);
        mem_free(s->marks);
        mem_free(s->counts);
        mem_free(s->repeats);
        mem_free(s);
    }
}

enum { NOISE_TOKEN = 1, NOISE_XTC = 2 }; /* what a draw is for, beside sample_purpose: part of the counter */

static float draw(sample_key key, uint32_t purpose) {
    uint32_t counter[4] = {key.position, key.sample_index, purpose, 0}, words[4];
    uint32_t seed[2] = {(uint32_t)key.seed, (uint32_t)(key.seed >> 32)};
    rng_philox(counter, seed, words);
    return rng_uniform(words[0]);
}

sample_noise sample_noise_of(sample_key key) {
    return (sample_noise){.token = draw(key, NOISE_TOKEN), .xtc = draw(key, NOISE_XTC)};
}

float sample_uniform(sample_key key, sample_purpose purpose) {
    return draw(key, (uint32_t)purpose);
}

/* The lowest id of the largest logit, after a scan. */
static int32_t find_max(const sampler *s, const float *logits) {
    int32_t g = 0;
    while (s->largest[g] != s->max) {
        g++;
    }
    int32_t id = g * GROUP;
    while (logits[id] != s->max) {
        id++;
    }
    return id;
}

quire_err sampler_adjust(sampler *s, float *logits, const sample_context *c) {
    if (!s->rows->scan(s, logits)) {
        return QUIRE_NUMERIC;
    }
    s->given_max = s->max;
    if (sampler_change(s, logits, c) && !s->rows->scan(s, logits)) {
        return QUIRE_NUMERIC; /* a tiny repetition penalty makes infinities */
    }
    return QUIRE_OK;
}

/* Leaves the weights of the final distribution in s->weights; *greedy: the choice is *best. */
static quire_err distribute(sampler *s, float *logits, const sample_context *c, int32_t *best, bool *greedy) {
    TRY(sampler_adjust(s, logits, c));
    if (s->max == -INFINITY) {
        return s->given_max == -INFINITY ? QUIRE_NUMERIC : QUIRE_BAD_REQUEST;
    }
    *best = find_max(s, logits);
    *greedy = c->params->temperature < GREEDY_BELOW;
    if (!*greedy) {
        s->temperature = sampler_temperature(s, logits, c->params);
        *greedy = s->temperature < GREEDY_BELOW; /* a dynamic one can come down to 0 */
    }
    if (!*greedy) {
        sampler_cut(s, logits, c);
    }
    return QUIRE_OK;
}

quire_err sampler_pick(sampler *s, float *logits, const sample_context *c, int32_t *token) {
    bool greedy;
    TRY(distribute(s, logits, c, token, &greedy));
    if (greedy) {
        return QUIRE_OK;
    }
    if (c->params->mirostat != MIROSTAT_OFF) {
        *token = sampler_mirostat(s, c->params, c->noise.token, c->mirostat_mu);
        return QUIRE_OK;
    }
    *token = sampler_draw(s, c->noise.token);
    return QUIRE_OK;
}

quire_err sampler_distribution(sampler *s, float *logits, const sample_context *c, const float **probs) {
    bool greedy;
    int32_t best;
    TRY(distribute(s, logits, c, &best, &greedy));
    if (greedy) {
        memset(s->weights, 0, (size_t)s->n_vocab * sizeof *s->weights);
        memset(s->largest, 0, s->n_groups * sizeof *s->largest);
        s->weights[best] = s->largest[best / GROUP] = 1.0f;
    }
    double total = s->rows->sum(s);
    for (int32_t i = 0; i < s->n_vocab; i++) {
        s->weights[i] = (float)((double)s->weights[i] / total);
    }
    *probs = s->weights;
    return QUIRE_OK;
}
