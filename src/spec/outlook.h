/* The outlook of a sequence under a constraint: what must come behind its last token, or is likely to. It depends on the constraint's state
 * alone, so whoever has sampled that token can find it too, on whichever thread that was; then nothing is left to do where drafts are
 * proposed. */
#ifndef SPEC_OUTLOOK_H
#define SPEC_OUTLOOK_H

#include "core/model_desc.h"
#include "spec/draft.h"

/* Finds s->outlook behind its first n_known tokens, which its constraint's state has taken: what the constraint forces, else what it
 * guesses, at most `most` tokens, guesses of at least that probability. One thread a sequence. What the constraint takes. */
void outlook_find(draft_seq *s, const model_desc *d, int32_t n_known, int32_t most, float least);

/* Puts the outlook behind s's tokens into its empty tree; finds it first where that was not done. False: there is none. */
bool outlook_propose(draft_seq *s, const model_desc *d, int32_t most, float least);

/* The least probability of a guess that is worth a row of a step in which n_seqs sequences decode: while weights are read anyway, the rows
 * of few cost little; those of many take their time from others. row_part: what a row takes of the time of a step with one row, as
 * measured; a guess that is right saves such a step. 0: it is not known. */
static inline float outlook_least(int32_t n_seqs, float row_part) {
    float least = 0.18f + 0.07f * (float)n_seqs;
    least = row_part > least ? row_part : least;
    return least < 0.9f ? least : 0.9f;
}

#endif
