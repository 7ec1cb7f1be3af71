/* Drafts in a step: which sequences are drafted for (spec/draft.h has the drafters), and
 * what is committed of them (spec/verify.h decides).
 *
 * An accepted draft that is not on the first branch has its keys and values moved to the
 * slot of its position. The slots of rejected drafts are released, pages too, in the same
 * step. Recurrent states are copied after each row that a draft follows, and the copy
 * after the last accepted one becomes the sequence's; of a tree only the first branch is
 * computed then. So every state and published page is what it would be without drafts. Owner: the
 * engine thread. */
#ifndef ENGINE_DRAFT_STEP_H
#define ENGINE_DRAFT_STEP_H

#include "engine/state.h"

/* Opens the drafter that e->options.draft names, if any. Needs e->layout, e->sched.limits
 * and e->samples. Errors as draft_open. */
quire_err draft_step_open(engine *e, quire_error *err);
void draft_step_close(engine *e);

/* outlook_worth of a step, by the costs with which it was planned. */
guess_worth step_guess_worth(const engine *e);
/* Sets draft.tree and draft.n_jump_forward of every running sequence. What a constraint
 * forces goes before what it guesses, and that before a drafter's draft, of which only
 * what the constraint allows is kept. Once a step, before planning. O(running), and the
 * drafter's own work. */
void draft_step_propose(engine *e);
/* Samples along the drafts of item `item`, whose known tokens are all computed and
 * committed, as long as they are accepted, and counts the accepted ones. `out`: its
 * first sampled row of logits, in out_rows. Afterwards its tables hold exactly what is
 * computed. */
void draft_step_verify(engine *e, int32_t item, int32_t out);
/* Tells the drafter to drop what it keeps for s, which is about to release its pages.
 * A sequence that ends may leave its output to guess from. */
void draft_step_preempted(engine *e, sequence *s);
void draft_step_ended(engine *e, sequence *s);

#endif
