/* Beam search, the rules: which continuations of a set of beams go on, which end, and when the set is over. Pure, and allocates nothing.
 *
 * A step (the new tokens being each beam's length-th) looks at the continuations of all live beams, best first; ties go to the lower beam,
 * then to the lower token. One that takes an end token, or any at the last length, ends: among the first n it is finished with the score
 * sum / length^penalty, further down it is lost. The best n of the others go on. Of the finished the best n are kept. As transformers does
 * it (its early_stopping decides when a set is over). Diverse beam search (Vijayakumar et al. 2016): several sets, each of which pays for
 * tokens that the sets before it chose in the same step. */
#ifndef ENGINE_BEAM_SELECT_H
#define ENGINE_BEAM_SELECT_H

#include <stdbool.h>

#include "core/params.h"
#include "sample/logprobs.h"

struct beam_choice;

typedef struct beam_rules {
    int32_t n;       /* beams of a set */
    int32_t max_new; /* the length at which everything ends */
    double length_penalty;
    beam_stopping stopping;
    const int32_t *ends; /* [n_ends] tokens that end a beam */
    int32_t n_ends;
    bool (*ends_too)(void *context, const struct beam_choice *choice); /* what else ends one, or NULL */
    void *context;
} beam_rules;

/* One continuation: beam `from` of the set, with entry `place` of that beam's list of candidates. */
typedef struct beam_choice {
    int32_t from, place, token;
    double score;
} beam_choice;

/* What a step decides: arrays of the caller's, [rules.n] each. */
typedef struct beam_outcome {
    beam_choice *next, *ended; /* best first */
    int32_t n_next, n_ended;
} beam_outcome;

/* choices[0..n), all finite, are reordered. Those that a beam's own list leaves out must be behind its first rules.n + rules.n_ends ones;
 * where something else ends beams, fewer than rules.n may be left to go on. O(n + rules.n (1 + ends) log n). */
void beam_choose(const beam_rules *r, int32_t length, beam_choice *choices, int32_t n, beam_outcome *out);

/* A finished continuation. The arrays have room for max_new tokens. */
typedef struct beam_result {
    double score, sum; /* by which it is ranked; of its tokens' log-probabilities */
    int32_t n_tokens;
    int32_t *tokens;
    token_logprob *logprobs; /* [n_tokens][width], or NULL where not wanted */
} beam_result;

/* The finished ones of a set, best first: pointers to results[n], each standing for one always. */
typedef struct beam_finished {
    beam_result **list; /* [n]; those behind n_kept are free */
    int32_t n_kept;
} beam_finished;

double beam_score(const beam_rules *r, double sum, int32_t length);
/* Makes place for one of that score: behind its equals, in place of the worst where n are kept. NULL: it is not among the best n. */
beam_result *beam_keep(const beam_rules *r, beam_finished *f, double score);
/* Whether nothing can be added any more, so that ended ones are not taken: asked before a step's own are. */
bool beam_is_full(const beam_rules *r, const beam_finished *f);
/* Whether the set is over after a step at that length; next are those that would go on. */
bool beam_is_over(const beam_rules *r, const beam_finished *f, int32_t length, const beam_outcome *step);

#endif
