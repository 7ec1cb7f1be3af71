/* Which waiting sequences a plan may admit, in the order of the policy (order.h). The engine thread. */
#ifndef ENGINE_READY_H
#define ENGINE_READY_H

#include "engine/state.h"

/* Fills step.ready with waiting sequences that are neither held nor waiting for tiers, the first to be admitted first; returns how many: not more than there
 * are places to run, and not more than a step looks up in the prefix cache. O(waiting x admitted). */
int32_t ready_find(engine *e);

#endif
