/* Log-probabilities of tokens under a row of logits, as the OpenAI API reports them.
 * Pure. */
#ifndef SAMPLE_LOGPROBS_H
#define SAMPLE_LOGPROBS_H

#include <stdint.h>

#include "core/params.h"

/* The log-probability of one token. rank is the number of tokens with at least this
 * log-probability: 1 is the best, and equal tokens all have the worst of their ranks (as
 * in vLLM). */
typedef struct token_logprob {
    int32_t id, rank;
    float logprob;
} token_logprob;

/* The log of the sum of exp over a row; -inf entries are masked tokens. */
double logprobs_normalizer(const float *logits, int32_t n_vocab);
/* The log-probability and rank of token id, given the row's normaliser. O(n_vocab). */
token_logprob logprobs_of(const float *logits, int32_t n_vocab, double normalizer, int32_t id);
/* The log-probabilities reported for a sampled token: its own, then those of the
 * likeliest tokens, then those of p's n_scored ids, with rank 0. width: their total
 * number, at least 1 + n_scored; out has room for them. */
void logprobs_report(const float *logits, int32_t n_vocab, int32_t token, const sampling_params *p,
                     int32_t width, token_logprob *out);
/* The n (at most n_vocab) likeliest tokens, best first; in a tie the lowest id first.
 * O(n_vocab log n). */
void logprobs_top(const float *logits, int32_t n_vocab, double normalizer, int32_t n, token_logprob *out);

#endif
