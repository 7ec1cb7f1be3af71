/* Drafts in a step: which sequences are drafted for, and what becomes of the counters (spec/draft.h has the drafters). Owner: the engine
 * thread. */
#ifndef ENGINE_DRAFT_STEP_H
#define ENGINE_DRAFT_STEP_H

#include "engine/state.h"

/* Opens the drafter that e->options.draft names, if any, and what verification needs. Needs e->layout, e->limits and e->sampler. Errors as
 * draft_open. */
quire_err draft_step_open(engine *e, quire_error *err);
void draft_step_close(engine *e);

/* Sets draft.tree and draft.n_jump_forward of every running sequence. Once a step, before planning. O(running), and the drafter's own
 * work. */
void draft_step_propose(engine *e);
/* Adapts the depth and the counters to the result. s may have ended with these tokens. */
void draft_step_report(engine *e, sequence *s, const draft_outcome *o);
/* Calls the drafter's forget for s, which releases its pages. */
void draft_step_forget(engine *e, sequence *s, bool over);

#endif
