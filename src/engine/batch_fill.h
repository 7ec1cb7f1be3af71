/* The batch of a step: tokens, positions, slots, wanted rows and the attention work list of the planned items. The engine thread. */
#ifndef ENGINE_BATCH_FILL_H
#define ENGINE_BATCH_FILL_H

#include "engine/state.h"

/* Allocates the arrays of e->step, so that a step allocates nothing. */
quire_err batch_open(engine *e);
void batch_close(engine *e);

/* Fills e->step.rows from the scheduler's plan. */
void batch_fill(engine *e);
/* The first position of s whose logits are wanted, as are those of all after it. */
int32_t batch_first_wanted(const sequence *s);

#endif
