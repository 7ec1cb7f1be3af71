/* Log-probabilities of tokens under a row of logits, as the OpenAI API reports them. Pure. */
#ifndef SAMPLE_LOGPROBS_H
#define SAMPLE_LOGPROBS_H

#include <stdint.h>

/* One token's: rank is how many tokens have at least this log-probability, so 1 is the best, and equal ones all have the worst of their
 * ranks (vLLM). */
typedef struct token_logprob {
    int32_t id, rank;
    float logprob;
} token_logprob;

/* The log of the sum of exp over a row; -inf entries are masked tokens. */
double logprobs_normalizer(const float *logits, int32_t n_vocab);
/* One token's, given the row's normaliser. O(n_vocab). */
token_logprob logprobs_of(const float *logits, int32_t n_vocab, double normalizer, int32_t id);
/* The n (at most n_vocab) likeliest, best first, the lowest id first among equals. O(n_vocab log n). */
void logprobs_top(const float *logits, int32_t n_vocab, double normalizer, int32_t n, token_logprob *out);

#endif
