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
    s->n_vocab = n_vocab;
    s->max_tokens = max_tokens;
    s->weights = mem_new(n, sizeof *s->weights);
    s->keys = mem_new(n, sizeof *s->keys);
    s->inside = mem_new(n, sizeof *s->inside);
    s->marks = mem_new(n, sizeof *s->marks);
    s->counts = mem_new(n, sizeof *s->counts);
    s->repeats = mem_new((size_t)max_tokens + 1, sizeof *s->repeats);
    if (!s->weights || !s->keys || !s->inside || !s->marks || !s->counts || !s->repeats) {
        sampler_close(s);
        return QUIRE_NO_MEMORY;
    }
    *out = s;
    return QUIRE_OK;
}

void sampler_close(sampler *s) {
    if (s) {
        mem_free(s->weights);
        mem_free(s->keys);
        mem_free(s->inside);
        mem_free(s->marks);
        mem_free(s->counts);
        mem_free(s->repeats);
        mem_free(s);
    }
}

enum { NOISE_TOKEN = 1, NOISE_XTC = 2 }; /* what a draw is for: part of the counter */

static float draw(sample_key key, uint32_t purpose) {
    uint32_t counter[4] = {key.position, key.sample_index, purpose, 0}, words[4];
    uint32_t seed[2] = {(uint32_t)key.seed, (uint32_t)(key.seed >> 32)};
    rng_philox(counter, seed, words);
    return rng_uniform(words[0]);
}

sample_noise sample_noise_of(sample_key key) {
    return (sample_noise){.token = draw(key, NOISE_TOKEN), .xtc = draw(key, NOISE_XTC)};
}

/* Whether a row is made of numbers; -inf is a masked token. */
static bool is_sound(const float *logits, int32_t n) {
    bool bad = false;
    for (int32_t i = 0; i < n; i++) {
        bad |= !(logits[i] < INFINITY); /* NaN and +inf */
    }
    return !bad;
}

/* The lowest id among the largest logits, or -1 when all are masked. */
static int32_t find_best(const float *logits, int32_t n) {
    float max = -INFINITY;
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if (logits[i] > max) {
            max = logits[i];
            best = i;
        }
    }
    return best;
}

/* Leaves the weights of the final distribution in s->weights; *greedy: the choice is *best. */
static quire_err distribute(sampler *s, float *logits, const sample_context *c, int32_t *best, bool *greedy) {
    if (!is_sound(logits, s->n_vocab)) {
        return QUIRE_NUMERIC;
    }
    sampler_change(s, logits, c);
    *best = find_best(logits, s->n_vocab);
    if (*best < 0 || logits[*best] == INFINITY) { /* a tiny repetition penalty makes infinities */
        return QUIRE_NUMERIC;
    }
    s->max = logits[*best];
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

static double total_weight(const sampler *s) {
    double total = 0.0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        total += (double)s->weights[i];
    }
    return total;
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
    double target = (double)c->noise.token * total_weight(s), cumulated = 0.0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        cumulated += (double)s->weights[i];
        if (s->weights[i] > 0.0f) {
            *token = i; /* the last one kept stands where rounding lets the walk run out */
            if (cumulated > target) {
                break;
            }
        }
    }
    return QUIRE_OK;
}

quire_err sampler_distribution(sampler *s, float *logits, const sample_context *c, const float **probs) {
    bool greedy;
    int32_t best;
    TRY(distribute(s, logits, c, &best, &greedy));
    if (greedy) {
        memset(s->weights, 0, (size_t)s->n_vocab * sizeof *s->weights);
        s->weights[best] = 1.0f;
    }
    double total = total_weight(s);
    for (int32_t i = 0; i < s->n_vocab; i++) {
        s->weights[i] = (float)((double)s->weights[i] / total);
    }
    *probs = s->weights;
    return QUIRE_OK;
}
