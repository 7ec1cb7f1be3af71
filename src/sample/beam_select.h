/* The rules of beam search: which continuations of a set of beams are kept, which end,
 * and when the set is finished. Pure; allocates nothing.
 *
 * Step `length` adds the length-th new token to each beam. It considers the continuations
 * of all live beams, best first; ties go to the lower beam, then the lower token. A
 * continuation ends at an end token or at the maximum length. An ending one among the
 * first n gets the score sum / length^penalty and joins the finished ones; others are
 * dropped. The best n of the rest stay as beams, and the best n finished ones are kept.
 * This matches transformers, whose early_stopping decides when a set is finished. Diverse
 * beam search (Vijayakumar et al. 2016) has several sets: each pays a penalty for tokens
 * that earlier sets chose in the same step. */
#ifndef SAMPLE_BEAM_SELECT_H
#define SAMPLE_BEAM_SELECT_H

#include <stdbool.h>

#include "core/params.h"
#include "sample/logprobs.h"

struct beam_choice;

typedef struct beam_rules {
    int32_t n;       /* beams in the set */
    int32_t max_new; /* length at which every beam ends */
    double length_penalty;
    beam_stopping stopping;
    const int32_t *ends; /* [n_ends] tokens that end a beam */
    int32_t n_ends;
    /* an additional condition that ends a beam; may be NULL */
    bool (*ends_too)(void *context, const struct beam_choice *choice);
    void *context;
} beam_rules;

/* One continuation: beam `from` of the set, extended by entry `place` of its
 * candidates. */
typedef struct beam_choice {
    int32_t from, place, token;
    double score;
} beam_choice;

/* The result of a step, in arrays of rules.n entries that the caller owns. */
typedef struct beam_outcome {
    beam_choice *next, *ended; /* best first */
    int32_t n_next, n_ended;
} beam_outcome;

/* Chooses among choices[0..n), which are finite; reorders them. Each beam must list at
 * least its best rules.n + rules.n_ends continuations. With ends_too, fewer than rules.n
 * may be kept. O(n + rules.n (1 + ends) log n). */
void beam_choose(const beam_rules *r, int32_t length, beam_choice *choices, int32_t n, beam_outcome *out);

/* A finished continuation. Its arrays have room for max_new tokens. */
typedef struct beam_result {
    double score, sum; /* score: for ranking; sum: of its tokens' log-probabilities */
    int32_t n_tokens;
    int32_t *tokens;
    token_logprob *logprobs; /* [n_tokens][width]; NULL if the request does not want them */
} beam_result;

/* The finished continuations of a set, best first, as pointers into results[n]. Each
 * result is in the list exactly once. */
typedef struct beam_finished {
    beam_result **list; /* [n] entries from n_kept on are unused */
    int32_t n_kept;
} beam_finished;

double beam_score(const beam_rules *r, double sum, int32_t length);
/* Inserts a result with this score, after equal ones, and returns it for the caller to
 * fill. Replaces the worst if n are kept. NULL if it is not among the best n. */
beam_result *beam_keep(const beam_rules *r, beam_finished *f, double score);
/* Whether no more results are accepted, so that ending continuations are dropped. Call it
 * before adding a step's own results. */
bool beam_is_full(const beam_rules *r, const beam_finished *f);
/* Whether the set is finished after step `length`, which would keep step->next. */
bool beam_is_over(const beam_rules *r, const beam_finished *f, int32_t length, const beam_outcome *step);

#endif
