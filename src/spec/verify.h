/* Verification: a sequence accepts those of its drafts that it would have sampled itself.
 *
 * The rows of a sequence's drafts follow that of its last known token, and each gives the
 * logits after its own token. Row by row the sequence samples as it does without drafts,
 * with the noise of that position. While the sampled token is a draft at that place, the
 * draft's logits are those that a later step would have computed, to the bit
 * (docs/design.md, Determinism), and sampling continues from them. At the first token
 * that is not a draft the rest is dropped. So every token is what it would be without
 * drafts.
 *
 * Under DRAFT_RULE_STANDARD rejection sampling decides instead (verify.h): a draft x
 * is accepted with probability min(1, p(x) / q(x)) of the target's and the drafter's
 * distributions. At a rejection the excess of p over q replaces p for the next draft at
 * that place, and when there is none the token is drawn from it. The output is
 * distributed as without drafts, but the tokens differ. Mirostat, whose state is not a
 * distribution, always uses the exact rule.
 *
 * Each sampled token is appended to the state of the sequence's constraint before the
 * next row is sampled, so every node of a tree is judged under the mask after it. Owner:
 * one thread, the engine's. */
#ifndef SPEC_VERIFY_H
#define SPEC_VERIFY_H

#include <stdint.h>

#include "spec/draft.h"

/* A walk down a draft along the tokens that are sampled. */
typedef struct verify_walk {
    const draft_seq *draft;
    bool by_rejection;     /* otherwise by the exact rule */
    int32_t at;            /* the node after which the next token comes */
    draft_outcome outcome; /* to_end once the walk is over */
} verify_walk;

/* Begins at the last known token of a sequence; the first n nodes of its draft were
 * computed. */
static inline verify_walk verify_begin(const draft_seq *d, int32_t n, bool by_rejection) {
    return (verify_walk){.draft = d,
                         .by_rejection = by_rejection,
                         .at = DRAFT_ROOT,
                         .outcome = {.n = n, .is_jump_forward = d->n_jump_forward > 0}};
}

/* The row of logits after the walk's node; `out` is the row after the last known token.
 * -1: none, because a jump-forward token follows, which is the next node. */
static inline int32_t verify_row(const verify_walk *w, int32_t out) {
    int32_t n = w->draft->n_jump_forward;
    /* after jump-forward tokens there is one row */
    return n == 0 ? out + 1 + w->at : w->at + 1 == n ? out : -1;
}

/* Moves to the draft with this token. False: there is none, and the walk is over. */
bool verify_advance(verify_walk *w, int32_t token);

/* Whether rejection sampling judges drafts for the next token. */
bool verify_is_judged(const verify_walk *w);
/* Judges the drafts after the walk's node: the row's token is an accepted one, or drawn,
 * and is appended to the constraint's state. Errors as sampler_distribution and
 * sampler_sample. */
void verify_judge(const verify_walk *w, const sample_pool *p, sample_row *row);

/* Speculative sampling by rejection (Leviathan et al. 2023; Chen et al. 2023): accepts
 * drafts so that the output is distributed as the target's own samples, though not equal
 * to them. Distributions are [n_vocab], after all processors. Pure. */

/* A drafted token, and the distribution from which it was drawn. */
typedef struct rejection_draft {
    int32_t token;
    const float *distribution; /* NULL: the drafter gave the token probability 1 */
} rejection_draft;

/* The probability with which a drafted token is accepted for `target`: min(1, target /
 * draft); 0 where the draft could not have drawn it. */
double rejection_accept(const float *target, const rejection_draft *draft);
/* Makes target the distribution after a rejection: max(target[i] - draft[i], 0),
 * normalised. If both are equal nothing is left, and target is unchanged. */
void rejection_residual(float *target, const rejection_draft *draft, int32_t n_vocab);
/* The first token, in id order, at which the cumulated mass exceeds u; 0 <= u < 1. */
int32_t rejection_draw(const float *distribution, int32_t n_vocab, double u);

#endif
