#include "lab/bench/quality_stats.h"

#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "lab/bench/figures.h"

static int32_t quality_stats_largest(const float *row, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        best = row[i] > row[best] ? i : best;
    }
    return best;
}

quality_row quality_compare(const float *reference, const float *candidate, int32_t n_vocab, int32_t target) {
    int32_t best_p = quality_stats_largest(reference, n_vocab),
            best_q = quality_stats_largest(candidate, n_vocab);
    double max_p = (double)reference[best_p], max_q = (double)candidate[best_q], sum_p = 0, sum_q = 0,
           apart = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double p = (double)reference[i] - max_p, q = (double)candidate[i] - max_q, part = exp(p);
        sum_p += part;
        sum_q += exp(q);
        /* a token of probability 0 adds nothing, whatever the other says */
        apart += part > 0 ? part * (p - q) : 0;
    }
    double log_p = log(sum_p), log_q = log(sum_q), kl = apart / sum_p - (log_p - log_q);
    return (quality_row){
        .kl = kl < 0 ? 0 : kl, /* by rounding: it is never less */
        .loss = {log_p + max_p - (double)reference[target], log_q + max_q - (double)candidate[target]},
        .is_same = best_p == best_q};
}

quire_err quality_stats_init(quality_stats *s, int64_t cap) {
    *s = (quality_stats){0};
    TRY(cap >= 1 && cap <= INT32_MAX ? QUIRE_OK : QUIRE_TOO_LARGE);
    s->kls = mem_new((size_t)cap, sizeof *s->kls);
    TRY(s->kls != NULL ? QUIRE_OK : QUIRE_NO_MEMORY);
    s->cap = cap;
    return QUIRE_OK;
}

void quality_stats_deinit(quality_stats *s) {
    mem_free(s->kls);
    *s = (quality_stats){0};
}

void quality_stats_add(quality_stats *s, const quality_row *r) {
    assert(s->n < s->cap);
    s->kls[s->n++] = r->kl;
    s->n_same += r->is_same;
    s->loss[0] += r->loss[0];
    s->loss[1] += r->loss[1];
}

quality_figures quality_stats_figures(quality_stats *s) {
    assert(s->n > 0);
    double n = (double)s->n, sum = 0;
    for (int64_t i = 0; i < s->n; i++) {
        sum += s->kls[i];
    }
    return (quality_figures){.mean_kl = sum / n,
                             .p99_kl = figures_percentile(s->kls, (int32_t)s->n, 0.99),
                             .perplexity = {exp(s->loss[0] / n), exp(s->loss[1] / n)},
                             .same_percent = 100.0 * (double)s->n_same / n};
}
