/* The batch of a step: tokens, positions, slots, wanted rows and the attention work list of the planned items. The engine thread. */
#ifndef ENGINE_BATCH_FILL_H
#define ENGINE_BATCH_FILL_H

#include "engine/state.h"

/* Fills e->step.rows from the scheduler's plan. */
void batch_fill(engine *e);
/* The first position of s whose logits are wanted, as are those of all after it. */
int32_t batch_first_wanted(const sequence *s);

#endif
