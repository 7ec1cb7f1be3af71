/* Speculative sampling by rejection (Leviathan et al. 2023; Chen et al. 2023): accepts drafts so that the output is distributed as the
 * target's own samples, though not equal to them. Distributions are [n_vocab], after all processors. Pure. */
#ifndef SPEC_REJECTION_H
#define SPEC_REJECTION_H

#include <stdint.h>

/* The probability with which a token drawn from `draft` is accepted for `target`: min(1, target / draft); 0 where the draft could not have
 * drawn it. */
double rejection_accept(const float *target, const float *draft, int32_t token);
/* The distribution after a rejection: residual[i] = max(target[i] - draft[i], 0), normalised. Where both are equal nothing is left, and it
 * is the target. residual may be target. */
void rejection_residual(const float *target, const float *draft, int32_t n_vocab, float *residual);
/* The first token, in id order, at which the cumulated mass exceeds u; 0 <= u < 1. */
int32_t rejection_draw(const float *distribution, int32_t n_vocab, double u);

#endif
