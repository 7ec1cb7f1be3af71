/* Verification: what becomes of the drafts that rode in a step.
 *
 * The rows of a sequence's drafts follow that of its last known token, and each gives the logits behind its own token. Row by row the
 * sequence samples as it does without drafts, with the noise of that position; while what it picks is a draft that could come there, that
 * draft's logits are those it would have computed in a later step, to the bit (docs/design.md, Determinism), and it goes on with them; if
 * the draft is of another branch than the first, its keys and values are moved to where that token lies. At the first other pick the rest
 * is of no use: their slots are given back, pages too, in the same step. So every token, state and published page is what it would be
 * without drafts.
 *
 * Under DRAFT_RULE_STANDARD the pick goes by rejection sampling instead (rejection.h): a draft x is accepted with probability min(1, p(x) /
 * q(x)) of the target's and the drafter's distributions; at a rejection what p has more than q takes p's place for the next draft that
 * could come there, and when there is none the token is drawn from it. What comes out is distributed as without drafts, but other tokens.
 * Mirostat, whose state is not a distribution, keeps to the exact rule. Owner: the engine thread. */
#ifndef ENGINE_VERIFY_H
#define ENGINE_VERIFY_H

#include "engine/state.h"

/* The first position of s whose logits are looked at when it is sampled from, as are those behind it: not those behind which a forced token
 * comes. */
static inline int32_t verify_first(const sequence *s) {
    return s->n_known - 1 + s->draft.n_jump_forward;
}

/* Chooses s's next token from logits, which are changed: sampler_sample's, or by rejection sampling where a draft is judged so. Errors as
 * sampler_sample. */
quire_err verify_sample(engine *e, sequence *s, float *logits, const sample_context *c, int32_t *token);

/* Samples for item `item`, whose known tokens are all computed and committed now, as far as its drafts carry. `out` is its first row of
 * logits that is sampled from, in out_rows. Afterwards its tables hold what is computed. */
void verify_item(engine *e, int32_t item, int32_t out);

#endif
