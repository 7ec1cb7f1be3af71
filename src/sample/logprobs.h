/* Log-probabilities of tokens under a row of logits, as the OpenAI API reports them.
 * Pure. */
#ifndef SAMPLE_LOGPROBS_H
#define SAMPLE_LOGPROBS_H

#include <stdint.h>

#include "core/params.h"

/* The log-probability of a token. rank is the number of tokens with at least this
 * log-probability: 1 is the best; equal tokens share the worst of their ranks, as in
 * vLLM. */
typedef struct token_logprob {
    int32_t id, rank;
    float logprob;
} token_logprob;

/* log(sum(exp(logits))); -inf marks masked tokens. */
double logprobs_normalizer(const float *logits, int32_t n_vocab);
/* The log-probability and rank of one token, given the row's normaliser. O(n_vocab). */
token_logprob logprobs_of(const float *logits, int32_t n_vocab, double normalizer, int32_t id);
/* Writes the log-probabilities reported for a sampled token: its own, then the likeliest
 * tokens', then those of p's n_scored ids with rank 0; `width` entries in total, at least
 * 1 + n_scored. */
void logprobs_report(const float *logits, int32_t n_vocab, int32_t token, const sampling_params *p,
                     int32_t width, token_logprob *out);
/* The n <= n_vocab likeliest tokens, best first; of equals the lowest id first. O(n_vocab
 * log n). */
void logprobs_top(const float *logits, int32_t n_vocab, double normalizer, int32_t n, token_logprob *out);

#endif
