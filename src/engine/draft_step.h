/* Makes the drafts of a step (spec/draft.h has the drafters), and commits the accepted
 * tokens (spec/verify.h decides which).
 *
 * The keys and values of an accepted draft that is not on the first branch are moved to
 * the slot of its position. The slots and pages of rejected drafts are released in the
 * same step. Recurrent states are copied after each row that a draft follows, and the
 * copy after the last accepted draft becomes the sequence's state; with states, only the
 * first branch of a tree is computed. So every state and published page is the same as
 * without drafts. Owner: the engine thread. */
#ifndef ENGINE_DRAFT_STEP_H
#define ENGINE_DRAFT_STEP_H

#include "engine/state.h"

/* Opens the drafter that e->options.draft names, if any. Needs e->layout, e->sched.limits
 * and e->samples. Errors as draft_open. */
quire_err draft_step_open(engine *e, quire_error *err);
/* Closes the drafter, if there is one. */
void draft_step_close(engine *e);

/* The least outlook_worth with which a guess is drafted in this step, from the costs with
 * which the step was planned. */
guess_worth step_guess_worth(const engine *e);
/* Sets draft.tree and draft.n_jump_forward of every running sequence. Tokens that its
 * constraint forces come first, then tokens that the constraint guesses, then the
 * drafter's draft, cut to the part that the constraint allows. Once a step, before
 * planning. O(running), and the drafter's own work. */
void draft_step_propose(engine *e);
/* Samples along the drafts of item `item`, whose known tokens are all computed and
 * committed, as long as they are accepted, and counts the accepted ones. `out`: index in
 * out_rows of its first sampled row of logits. Afterwards its tables hold exactly what is
 * computed. */
void draft_step_verify(engine *e, int32_t item, int32_t out);
/* Makes the drafter drop its state for s, which is about to release its pages. The output
 * of a sequence that ends may be kept as a source of later drafts. */
void draft_step_preempted(engine *e, sequence *s);
void draft_step_ended(engine *e, sequence *s);

#endif
