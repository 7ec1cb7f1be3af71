#include "program/select_score.h"

#include <stdbool.h>

static double score_mean(const select_choice *c, bool normalised) {
    double sum = 0.0;
    for (size_t i = 0; i < c->n; i++) {
        sum += c->logprobs[i] - (normalised ? c->alone[i] : 0.0);
    }
    return sum / (double)c->n;
}

/* The log-probability of a choice's token i; past its end, the mean of its tokens. */
static double score_token(const select_choice *c, size_t i, double mean) {
    return i < c->n ? c->logprobs[i] : mean;
}

/* Token by token, the choices with the greatest log-probability remain: the first of
 * the lexically greatest rows. */
static int32_t score_greedy(const select_choice *choices, size_t n, const double *means) {
    size_t longest = 0, best = 0;
    for (size_t i = 0; i < n; i++) {
        longest = choices[i].n > longest ? choices[i].n : longest;
    }
    for (size_t i = 1; i < n; i++) {
        size_t k = 0;
        while (k < longest &&
               score_token(&choices[i], k, means[i]) == score_token(&choices[best], k, means[best])) {
            k++;
        }
        bool is_better = k < longest &&
                         score_token(&choices[i], k, means[i]) > score_token(&choices[best], k, means[best]);
        best = is_better ? i : best;
    }
    return (int32_t)best;
}

int32_t select_score(const select_choice *choices, size_t n, quire_select_method method, double *scores) {
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        scores[i] = score_mean(&choices[i], method == QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED);
        best = scores[i] > scores[best] ? i : best;
    }
    return method == QUIRE_SELECT_GREEDY_TOKEN_SELECTION ? score_greedy(choices, n, scores) : (int32_t)best;
}
