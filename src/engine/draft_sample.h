/* Samples for items with drafts on all threads: a thread goes down one sequence's line or tree (spec/verify.h) as long as the sampled
 * tokens are drafts, and the engine thread then commits what was sampled, in order. So masks of constraints and samples of drafted rows are
 * made side by side, and each is sampled behind the tokens before it. The engine thread. */
#ifndef ENGINE_DRAFT_SAMPLE_H
#define ENGINE_DRAFT_SAMPLE_H

#include "engine/state.h"

/* Samples for all items of the step with drafts that the exact rule accepts, but for those whose samples have other effects (mirostat's
 * state, log-probabilities); s->line keeps the results for step_sample. Call it after the forward pass, before anything is committed. */
void draft_sample_all(engine *e);

#endif
