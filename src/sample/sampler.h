/* Sampler: chooses a token from a row of logits.
 *
 * Order: allowed ids, bad words, repeated n-grams, min_tokens, bias, repetition, frequency and presence penalties, DRY; then greedy, or
 * temperature, top-n-sigma, min-p, top-k, typical-p, top-p, XTC (vLLM's order, with llama.cpp's and transformers' further stages fitted
 * in); mirostat in place of all that follows the temperature. Ties go to the lowest id. The draw walks the kept tokens in id order against
 * one uniform from a counter-based generator keyed by (seed, sample, position, purpose), so a token depends on its own row, history and key
 * only. No sort of the vocabulary, and no weight for every token: kept sets are found among the few that can be kept, by counting in
 * buckets of the keys' leading bits. One thread a sampler.
 *
 * Sources: typical-p Meister et al. 2023; top-p Holtzman et al. 2020; repetition penalty Keskar et al. 2019; mirostat Basu et al. 2021;
 * min-p Nguyen et al. 2024; top-n-sigma Tang et al. 2024; DRY and XTC as llama.cpp defines them. */
#ifndef SAMPLE_SAMPLER_H
#define SAMPLE_SAMPLER_H

#include "core/params.h"

typedef struct sampler sampler;

/* For rows of n_vocab logits and histories of at most max_tokens. */
quire_err sampler_open(int32_t n_vocab, int32_t max_tokens, sampler **out);
void sampler_close(sampler *s);

/* What the noise of one choice is drawn from. */
typedef struct sample_key {
    uint64_t seed;
    uint32_t sample_index, position;
} sample_key;

/* Uniform numbers in (0, 1), one a purpose. */
typedef struct sample_noise {
    float token, xtc;
} sample_noise;

sample_noise sample_noise_of(sample_key key);

/* What else a number is drawn for: a draft, and whether it is accepted, where these go by rejection sampling. */
typedef enum sample_purpose { SAMPLE_DRAFT = 3, SAMPLE_ACCEPT = 4 } sample_purpose;

/* One more uniform number in (0, 1), independent of those above. */
float sample_uniform(sample_key key, sample_purpose purpose);

/* One choice. */
typedef struct sample_context {
    const sampling_params *params;
    const int32_t *tokens; /* prompt and output so far */
    int32_t n_tokens, n_prompt;
    const int32_t *eos; /* the model's end tokens, kept away by min_tokens as the request's stop tokens are */
    int32_t n_eos;
    sample_noise noise;
    float *mirostat_mu; /* the sequence's state, 2 tau at first; not NULL where params->mirostat is on */
} sample_context;

/* Whether sampler_sample takes the largest of the logits behind n_output tokens of an answer, the lowest id of equals, where all are
 * numbers.
 */
bool sampler_takes_argmax(const sampling_params *p, int32_t n_output);

/* The stages up to DRY, which change logits [n_vocab] in place by what the request says and what was written. QUIRE_NUMERIC when a logit is
 * NaN or +inf before or after. */
quire_err sampler_adjust(sampler *s, float *logits, const sample_context *c);

/* Chooses from logits [n_vocab], which are changed in place. QUIRE_NUMERIC when a logit is NaN or +inf, or all are -inf;
 * QUIRE_BAD_REQUEST when the request's own rules leave no token. Allocates nothing. */
quire_err sampler_sample(sampler *s, float *logits, const sample_context *c, int32_t *token);

/* The probabilities that a pick without mirostat draws from, [n_vocab], zero for tokens not kept; greedy gives one 1. For tests and
 * logprobs. Errors as sampler_sample. *probs is valid until the next call. */
quire_err sampler_distribution(sampler *s, float *logits, const sample_context *c, const float **probs);

#endif
