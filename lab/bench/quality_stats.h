/* How far a model's next-token probabilities lie from another's: one row of logits
 * compared, and the figures of many.
 *
 * Kullback-Leibler divergence KL(p || q) = sum over tokens of p (log p - log q), p of the
 * reference, q of the candidate, in nats; 0 where they are the same. All sums are in
 * double precision, rows in the order in which they are added: the same rows give the
 * same figures. */
#ifndef LAB_BENCH_QUALITY_STATS_H
#define LAB_BENCH_QUALITY_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* One position of a text. */
typedef struct quality_row {
    double kl;
    double loss[2]; /* -log of the probability of the text's next token: of the reference, of the candidate */
    bool is_same;   /* both choose the same token; of equal logits each takes the lowest id */
} quality_row;

/* Rows of n_vocab logits; -inf is a masked token, which the reference's probability must
 * be 0 for where the candidate's is. Of logits that are not so, or not finite, kl or a
 * loss is not finite. Pure, any thread. */
quality_row quality_compare(const float *reference, const float *candidate, int32_t n_vocab, int32_t target);

/* Rows as they are added. */
typedef struct quality_stats {
    double *kls; /* [cap], n of them */
    int64_t n, cap, n_same;
    double loss[2]; /* sums */
} quality_stats;

typedef struct quality_figures {
    double mean_kl, p99_kl;
    double perplexity[2]; /* exp of the mean loss: of the reference, of the candidate */
    double same_percent;
} quality_figures;

/* Room for cap rows. QUIRE_TOO_LARGE for more than INT32_MAX, QUIRE_NO_MEMORY; then it is
 * empty. */
quire_err quality_stats_init(quality_stats *s, int64_t cap);
void quality_stats_deinit(quality_stats *s);
/* There is room for it. */
void quality_stats_add(quality_stats *s, const quality_row *r);
/* Sorts kls. There is at least one row. */
quality_figures quality_stats_figures(quality_stats *s);

#endif
