/* Verification: a sequence accepts those of its drafts that it would have sampled itself.
 *
 * The rows of a sequence's drafts follow that of its last known token, and each gives the logits behind its own token. Row by row the
 * sequence samples as it does without drafts, with the noise of that position. While the sampled token is a draft at that place, the
 * draft's logits are those that a later step would have computed, to the bit (docs/design.md, Determinism), and sampling continues from
 * them. If the draft is not on the first branch, its keys and values are moved to the slot of that position. At the first token that is no
 * draft the rest is dropped: its slots are released, pages too, in the same step. So every token, state and published page is what it would
 * be without drafts.
 *
 * Under DRAFT_RULE_STANDARD rejection sampling decides instead (rejection.h): a draft x is accepted with probability min(1, p(x) / q(x)) of
 * the target's and the drafter's distributions. At a rejection the excess of p over q replaces p for the next draft at that place, and when
 * there is none the token is drawn from it. The output is distributed as without drafts, but the tokens differ. Mirostat, whose state is
 * not a distribution, always uses the exact rule. Owner: the engine thread. */
#ifndef ENGINE_VERIFY_H
#define ENGINE_VERIFY_H

#include "engine/state.h"

/* The first position of s whose logits are wanted when it is sampled, as are those after it. Positions before it are followed by a
 * jump-forward token. */
static inline int32_t verify_first(const sequence *s) {
    return s->task.n_known - 1 + s->draft.n_jump_forward;
}

/* Samples s's next token from logits, which it changes: by sampler_sample, or by rejection sampling where a draft is judged so. Errors as
 * sampler_sample. */
quire_err verify_sample(engine *e, sequence *s, float *logits, const sample_context *c, int32_t *token);

/* Samples for item `item`, whose known tokens are all computed and committed, as far as its drafts are accepted. `out` is its first sampled
 * row of logits, in out_rows. Afterwards its tables hold exactly what is computed. */
void verify_item(engine *e, int32_t item, int32_t out);

#endif
