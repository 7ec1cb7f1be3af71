/* The rules of beam search: which continuations of a set of beams are kept, which end,
 * and when the set is over. Pure; allocates nothing.
 *
 * A step adds the length-th new token to each beam. It considers the continuations of all
 * live beams, best first; ties go to the lower beam, then the lower token. A continuation
 * ends when it takes an end token, or reaches the last length. If it is among the first
 * n, it becomes a finished one with the score sum / length^penalty; otherwise it is
 * dropped. The best n of the other continuations are kept as beams, and so are the best n
 * finished ones. transformers does the same; its early_stopping decides when a set is
 * over. Diverse beam search (Vijayakumar et al. 2016) has several sets: each pays a
 * penalty for tokens that earlier sets chose in the same step. */
#ifndef SAMPLE_BEAM_SELECT_H
#define SAMPLE_BEAM_SELECT_H

#include <stdbool.h>

#include "core/params.h"
#include "sample/logprobs.h"

struct beam_choice;

typedef struct beam_rules {
    int32_t n;       /* beams of a set */
    int32_t max_new; /* the length at which every beam ends */
    double length_penalty;
    beam_stopping stopping;
    const int32_t *ends; /* [n_ends] tokens that end a beam */
    int32_t n_ends;
    /* a further condition that ends one, or NULL */
    bool (*ends_too)(void *context, const struct beam_choice *choice);
    void *context;
} beam_rules;

/* One continuation: beam `from` of the set, with entry `place` of that beam's list of
 * candidates. */
typedef struct beam_choice {
    int32_t from, place, token;
    double score;
} beam_choice;

/* The result of a step, in arrays of the caller, [rules.n] each. */
typedef struct beam_outcome {
    beam_choice *next, *ended; /* best first */
    int32_t n_next, n_ended;
} beam_outcome;

/* Chooses among choices[0..n), which are finite and get reordered. Each beam must list
 * its best rules.n + rules.n_ends continuations at least. With ends_too, fewer than
 * rules.n may be kept. O(n + rules.n (1 + ends) log n). */
void beam_choose(const beam_rules *r, int32_t length, beam_choice *choices, int32_t n, beam_outcome *out);

/* A finished continuation. The arrays have room for max_new tokens. */
typedef struct beam_result {
    double score, sum; /* score ranks it; sum adds its tokens' log-probabilities */
    int32_t n_tokens;
    int32_t *tokens;
    token_logprob *logprobs; /* [n_tokens][width], or NULL if the request does not want them */
} beam_result;

/* The finished continuations of a set, best first: pointers to results[n]. Each result is
 * always in the list exactly once. */
typedef struct beam_finished {
    beam_result **list; /* [n]; those after n_kept are free */
    int32_t n_kept;
} beam_finished;

double beam_score(const beam_rules *r, double sum, int32_t length);
/* Inserts a result of that score after its equals and returns it for the caller to fill.
 * If n are already kept, it replaces the worst. NULL: it is not among the best n. */
beam_result *beam_keep(const beam_rules *r, beam_finished *f, double score);
/* Whether no result can be added, so that continuations which end are dropped. Evaluate
 * it before a step's own results are added. */
bool beam_is_full(const beam_rules *r, const beam_finished *f);
/* Whether the set is over after a step at that length; step->next are the continuations
 * that would be kept. */
bool beam_is_over(const beam_rules *r, const beam_finished *f, int32_t length, const beam_outcome *step);

#endif
