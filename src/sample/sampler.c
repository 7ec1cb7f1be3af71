#include "sample/sampler.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sample/sampler_parts.h"

#define GREEDY_BELOW 1e-5f

quire_err sampler_open(int32_t n_vocab, int32_t max_tokens, sampler **out) {
    sampler *s = mem_new(1, sizeof *s);
    TRY(mem_check(s));
    size_t n = (size_t)n_vocab;
    const sampler_rows *all[SAMPLER_ROWS_MOST];
    s->rows = all[sampler_rows_here(all) - 1];
    s->n_vocab = n_vocab;
    s->weights = mem_new(n + PAST_END > BLOCK ? n + PAST_END : BLOCK, sizeof *s->weights);
    s->ids = mem_new(n + PAST_END, sizeof *s->ids);
    s->n_groups = (n + GROUP - 1) / GROUP;
    size_t n_blocks = (n + BLOCK - 1) / BLOCK;
    s->largest = mem_new(n_blocks * (BLOCK / GROUP), sizeof *s->largest);
    s->bases = mem_new(n_blocks, sizeof *s->bases);
    s->sums = mem_new(s->n_groups, sizeof *s->sums);
    s->keys = mem_new(n, sizeof *s->keys);
    s->inside = mem_new(n + PAST_END, sizeof *s->inside);
    s->marks = mem_new(n, sizeof *s->marks);
    s->counts = mem_new(n, sizeof *s->counts);
    s->repeats = mem_new((size_t)max_tokens + 1, sizeof *s->repeats);
    s->bits = mem_new(s->n_groups, sizeof *s->bits);
    if (!s->weights || !s->ids || !s->largest || !s->bases || !s->sums || !s->keys || !s->inside ||
        !s->marks || !s->counts || !s->repeats || !s->bits) {
        sampler_close(s);
        return QUIRE_NO_MEMORY;
    }
    *out = s;
    return QUIRE_OK;
}

void sampler_close(sampler *s) {
    if (s) {
        void *blocks[] = {s->weights, s->ids,   s->largest, s->bases,   s->sums, s->keys,
                          s->inside,  s->marks, s->counts,  s->repeats, s->bits, s};
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            mem_free(blocks[i]);
        }
    }
}

enum { NOISE_TOKEN = 1, NOISE_XTC = 2 }; /* purposes of a draw besides sample_purpose: part of the counter */

static float sample_sampler_draw(sample_key key, uint32_t purpose) {
    uint32_t counter[4] = {key.position, key.sample_index, purpose, 0}, words[4];
    uint32_t seed[2] = {(uint32_t)key.seed, (uint32_t)(key.seed >> 32)};
    rng_philox(counter, seed, words);
    return rng_uniform(words[0]);
}

sample_noise sample_noise_of(sample_key key) {
    return (sample_noise){.token = sample_sampler_draw(key, NOISE_TOKEN),
                          .xtc = sample_sampler_draw(key, NOISE_XTC)};
}

float sample_uniform(sample_key key, sample_purpose purpose) {
    return sample_sampler_draw(key, (uint32_t)purpose);
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

/* Scans the row; for scale > 0 with the weights of blocks. */
static quire_err sampler_look(sampler *s, const float *logits, float scale) {
    return (scale > 0.0f ? s->rows->scan_masses(s, logits, scale) : s->rows->scan(s, logits)) ? QUIRE_OK
                                                                                              : QUIRE_NUMERIC;
}

static quire_err adjust(sampler *s, float *logits, const sample_context *c, float scale) {
    bool is_masked = c->constraint != NULL;
    if (is_masked) {
        TRY(sampler_constrain(s, c));
        if (!s->rows->scan_kept(s, logits)) {
            TRY(QUIRE_NUMERIC);
        }
    } else {
        TRY(sampler_look(s, logits, scale));
        s->given_max = s->max;
    }
    bool changed = sampler_change(s, logits, c) || (is_masked && scale > 0.0f);
    /* a tiny repetition penalty makes infinities */
    return changed ? sampler_look(s, logits, scale) : QUIRE_OK;
}

quire_err sampler_adjust(sampler *s, float *logits, const sample_context *c) {
    return adjust(s, logits, c, 0.0f);
}

/* Leaves the tokens that may be drawn (sampler_parts.h); n_kept 0: the output is over. */
static quire_err distribute(sampler *s, float *logits, const sample_context *c) {
    const sampling_params *p = c->params;
    bool ordered = p->order[0] != SAMPLING_END;
    bool masses = sampler_wants_masses(p), dynamic = p->dynatemp_range > 0.0f && !ordered;
    s->is_greedy = p->temperature < GREEDY_BELOW;
    s->scale = ordered ? LOG2_E : LOG2_E / p->temperature;
    TRY(adjust(s, logits, c, masses && !dynamic && !s->is_greedy ? s->scale : 0.0f));
    if (s->max == -INFINITY && s->given_max > -INFINITY && sampler_is_over(s, c)) {
        s->n_kept = 0;
        s->is_whole = false;
        return QUIRE_OK;
    }
    if (s->max == -INFINITY) {
        return s->given_max == -INFINITY ? QUIRE_NUMERIC : QUIRE_BAD_REQUEST;
    }
    if (!s->is_greedy && dynamic) {
        float temperature = sampler_temperature(s, logits, p);
        s->is_greedy = temperature < GREEDY_BELOW; /* it may become 0 */
        s->scale = LOG2_E / temperature;
        if (masses && !s->is_greedy) {
            TRY(sampler_look(s, logits, s->scale));
        }
    }
    if (s->is_greedy) {
        s->is_whole = false;
        s->n_kept = 1;
        s->ids[0] = find_max(s, logits);
        s->weights[0] = 1.0f;
    } else {
        sampler_cut(s, logits, c);
    }
    return QUIRE_OK;
}

/* Whether nothing is left to draw, after distribute. */
static bool sample_sampler_is_over(const sampler *s) {
    return !s->is_whole && s->n_kept == 0;
}

bool sampler_takes_argmax(const sampling_params *p, int32_t n_output) {
    return p->temperature < GREEDY_BELOW && !sampler_may_change(p, n_output);
}

quire_err sampler_sample(sampler *s, float *logits, const sample_context *c, int32_t *token) {
    TRY(distribute(s, logits, c));
    if (sample_sampler_is_over(s)) {
        *token = SAMPLE_OVER;
        return QUIRE_OK;
    }
    *token = s->is_greedy ? s->ids[0]
             : c->params->mirostat != MIROSTAT_OFF
                 ? sampler_mirostat(s, c->params, c->noise.token, c->mirostat_mu)
                 : sampler_draw(s, logits, c->noise.token);
    quire_err accepted = sample_accept(c, *token);
    return accepted == QUIRE_INVALID ? QUIRE_INTERNAL : accepted;
}

quire_err sampler_distribution(sampler *s, float *logits, const sample_context *c, float **probs) {
    TRY(distribute(s, logits, c));
    if (sample_sampler_is_over(s)) {
        return QUIRE_BAD_REQUEST;
    }
    if (s->is_whole) {
        sampler_keep_all(s, logits);
    }
    double total = s->rows->sum_blocks(s->weights, s->n_kept, s->sums);
    memset(s->weights + s->n_kept, 0, (size_t)(s->n_vocab - s->n_kept) * sizeof *s->weights);
    /* ids[i] >= i: from the last one on, each target is free */
    for (int32_t i = s->n_kept - 1; i >= 0; i--) {
        float prob = (float)((double)s->weights[i] / total);
        s->weights[i] = 0.0f;
        s->weights[s->ids[i]] = prob;
    }
    *probs = s->weights;
    return QUIRE_OK;
}
