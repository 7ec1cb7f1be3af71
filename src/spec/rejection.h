/* Speculative sampling by rejection (Leviathan et al. 2023; Chen et al. 2023): accepts
 * drafts so that the output is distributed as the target's own samples, though not equal
 * to them. Distributions are [n_vocab], after all processors. Pure. */
#ifndef SPEC_REJECTION_H
#define SPEC_REJECTION_H

#include <stdint.h>

/* A drafted token, and what it was drawn from. */
typedef struct rejection_draft {
    int32_t token;
    const float *distribution; /* NULL: the drafter gave the token probability 1 */
} rejection_draft;

/* The probability with which a drafted token is accepted for `target`: min(1, target /
 * draft); 0 where the draft could not have drawn it. */
double rejection_accept(const float *target, const rejection_draft *draft);
/* Makes target the distribution after a rejection: max(target[i] - draft[i], 0),
 * normalised. Where both are equal nothing is left, and it stays. */
void rejection_residual(float *target, const rejection_draft *draft, int32_t n_vocab);
/* The first token, in id order, at which the cumulated mass exceeds u; 0 <= u < 1. */
int32_t rejection_draw(const float *distribution, int32_t n_vocab, double u);

#endif
