/* Verification: a sequence accepts those of its drafts that it would have sampled itself.
 *
 * The rows of a sequence's drafts follow the row of its last known token, and each gives
 * the logits after its own token. The sequence samples row by row as it does without
 * drafts, with the noise of that position. If the sampled token is a draft at that place,
 * the logits after the draft are the same, to the bit, as those that a later step would
 * have computed (docs/design.md, Determinism), and sampling continues from them. At the
 * first token that is not a draft the rest is dropped. So every token is the same as
 * without drafts.
 *
 * Under DRAFT_RULE_STANDARD rejection sampling decides instead: a draft x is accepted
 * with probability min(1, p(x) / q(x)), where p is the target's distribution and q the
 * drafter's. After a rejection the excess of p over q replaces p: the next draft at that
 * place is judged by it, and if there is none the token is drawn from it. The output is
 * distributed as without drafts, but the tokens differ. Mirostat, whose state is not a
 * distribution, always uses the exact rule.
 *
 * Each sampled token is appended to the state of the sequence's constraint before the
 * next row is sampled, so every node of a tree is judged under the mask at its place.
 * Owner: the engine thread. */
#ifndef SPEC_VERIFY_H
#define SPEC_VERIFY_H

#include <stdint.h>

#include "spec/draft.h"

/* A walk down a draft along the tokens that are sampled. */
typedef struct verify_walk {
    const draft_seq *draft;
    bool by_rejection;     /* false: by the exact rule */
    int32_t at;            /* the node that the next token follows */
    draft_outcome outcome; /* to_end is set when the walk is over */
} verify_walk;

/* Begins a walk at the last known token of a sequence, of whose draft the first n nodes
 * were computed. */
static inline verify_walk verify_begin(const draft_seq *d, int32_t n, bool by_rejection) {
    return (verify_walk){.draft = d,
                         .by_rejection = by_rejection,
                         .at = DRAFT_ROOT,
                         .outcome = {.n = n, .is_jump_forward = d->n_jump_forward > 0}};
}

/* Index of the logits row after the walk's node; `out` is the row after the last known
 * token. -1: none, because the next node is a jump-forward token. */
static inline int32_t verify_row(const verify_walk *w, int32_t out) {
    int32_t n = w->draft->n_jump_forward;
    /* only the last jump-forward token has a row */
    return n == 0 ? out + 1 + w->at : w->at + 1 == n ? out : -1;
}

/* Moves to the draft with this token. False: there is none; the walk is over. */
bool verify_advance(verify_walk *w, int32_t token);

/* Whether rejection sampling decides on drafts for the next token. */
bool verify_is_judged(const verify_walk *w);
/* Judges the drafts after the walk's node by rejection sampling. The row's token is an
 * accepted draft, or else drawn, and is appended to the constraint's state. Errors in
 * *row as of sampler_distribution and sampler_sample. */
void verify_judge(const verify_walk *w, const sample_pool *p, sample_row *row);

/* Speculative sampling by rejection (Leviathan et al. 2023; Chen et al. 2023): accepts
 * drafts so that the output is distributed as the target's own samples, though not equal
 * to them. Distributions are [n_vocab], after all processors. Pure. */

/* A drafted token, and the distribution from which it was drawn. */
typedef struct rejection_draft {
    int32_t token;
    const float *distribution; /* NULL: the drafter gave the token probability 1 */
} rejection_draft;

/* Probability with which a drafted token is accepted: min(1, target / draft); 0 if the
 * draft's distribution gives it probability 0. */
double rejection_accept(const float *target, const rejection_draft *draft);
/* Sets target to the distribution after a rejection: max(target[i] - draft[i], 0),
 * normalised. If both are equal nothing would be left, and target is unchanged. */
void rejection_residual(float *target, const rejection_draft *draft, int32_t n_vocab);
/* Returns the lowest id at which the cumulative probability exceeds u; 0 <= u < 1. */
int32_t rejection_draw(const float *distribution, int32_t n_vocab, double u);

#endif
