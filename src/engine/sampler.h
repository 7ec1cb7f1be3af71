/* Sampler: chooses a token from a row of logits.
 *
 * Order: temperature, min-p, top-k, top-p (as vLLM's). Ties go to the lowest id. The draw walks the kept tokens in id order against one uniform
 * from a counter-based generator keyed by (seed, sample, position), so a token depends on its own row and key only.
 * No sort of the vocabulary: kept sets are found by counting in buckets of the floats' leading bits. One thread a sampler. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include "core/params.h"

typedef struct sampler sampler;

quire_err sampler_open(int32_t n_vocab, sampler **out);
void sampler_close(sampler *s);

/* What the noise of one choice is drawn from. */
typedef struct sample_key {
    uint64_t seed;
    uint32_t sample_index, position;
} sample_key;

/* Chooses from logits [n_vocab]; forbidden[0..n_forbidden), ids of the vocabulary, are never chosen. QUIRE_NUMERIC when a logit is NaN or +inf, or all
 * are -inf. Allocates nothing. */
quire_err sampler_pick(sampler *s, const float *logits, const sampling_params *p, sample_key key, const int32_t *forbidden, int32_t n_forbidden,
                       int32_t *token);

/* The probabilities the pick draws from, [n_vocab], zero for tokens not kept; greedy gives one 1. For tests and logprobs. */
quire_err sampler_distribution(sampler *s, const float *logits, const sampling_params *p, const int32_t *forbidden, int32_t n_forbidden,
                               const float **probs);

#endif
