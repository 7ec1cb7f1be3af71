/* The outlook of a sequence under a constraint: what must come behind its last token, or is likely to. It depends on the constraint's state
 * alone, so whoever has sampled that token can find it too, on whichever thread that was; then nothing is left to do where drafts are
 * proposed. */
#ifndef SPEC_OUTLOOK_H
#define SPEC_OUTLOOK_H

#include "core/model_desc.h"
#include "spec/draft.h"

/* Finds s->outlook behind its first n_known tokens, which its constraint's state has taken: what the constraint forces, else what it
 * guesses, at most `most` tokens. One thread a sequence. What the constraint takes. */
void outlook_find(draft_seq *s, const model_desc *d, int32_t n_known, int32_t most);

/* Puts the outlook behind s's tokens into its empty tree, at most `most` tokens and at most s->guess_length guesses; finds it first where
 * that was not done. False: there is none. */
bool outlook_propose(draft_seq *s, const model_desc *d, int32_t most);

#endif
