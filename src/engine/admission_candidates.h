/* Which waiting sequences a plan may admit, in the order of the policy (order.h). The engine thread. */
#ifndef ENGINE_ADMISSION_CANDIDATES_H
#define ENGINE_ADMISSION_CANDIDATES_H

#include "engine/state.h"

#define CANDIDATES_EXAMINED 64 /* waiting sequences that a step looks at: others may wait for pages first */

/* The waiting sequences in the order of the policy: begin gives how many of them are ordered, next the place in the list of one after the
 * other, that number behind the last. In between the list stays as it is. O(waiting) each. */
int32_t candidates_order_begin(engine *e);
int32_t candidates_order_next(engine *e, int32_t n);
/* One of them is to be admitted: it counts for its tenant at once, so that one plan does not give all places to one. */
void candidates_order_served(engine *e, int32_t n, const sequence *s);

/* Fills step.ready with waiting sequences that are neither held nor waiting for tiers, the first to be admitted first; returns how many:
 * not more than there are places to run, and not more than a step looks up in the prefix cache. O(waiting x admitted). */
int32_t admission_candidates_find(engine *e);

#endif
