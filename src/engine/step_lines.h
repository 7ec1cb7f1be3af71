/* Lines: the samples of a step on all threads. A line is what one sequence samples after
 * its known tokens: one token, or several along its drafts (spec/verify.h) as long as the
 * sampled tokens are drafts. A thread goes down the whole of it, each sample after the
 * tokens before it, and then finds what the sequence's constraint forces or guesses next
 * (spec/outlook.h). The engine thread commits the tokens afterwards, in order. So masks,
 * log-probabilities and outlooks of the sequences are made side by side. The engine
 * thread. */
#ifndef ENGINE_STEP_LINES_H
#define ENGINE_STEP_LINES_H

#include "engine/state.h"

/* Samples for all items of the step but those of beams, those whose rows are wanted as
 * they are or go to more than one sequence, and those whose drafts rejection sampling
 * judges; s->line keeps the results for step_sample. Where the backend has noted the
 * argmax of a greedy row that no option changes, it is taken if the constraint allows it:
 * then no mask is made. Call it after the forward pass, before anything is committed. */
void step_lines_sample(engine *e);

#endif
