/* The waiting sequences that a plan may admit, in the order of the admission policy (admission_policy.h). The engine thread. */
#ifndef ENGINE_ADMISSION_CANDIDATES_H
#define ENGINE_ADMISSION_CANDIDATES_H

#include "engine/state.h"

#define CANDIDATES_EXAMINED 64 /* waiting sequences that a step looks up; those before them may be waiting for pages */

/* Walks the waiting sequences in the order of the policy. begin returns how many of them are ordered. next returns the index in the waiting
 * list of the next one, or that number after the last. The list does not change in between. O(waiting) each. */
int32_t candidates_order_begin(engine *e);
int32_t candidates_order_next(engine *e, int32_t n);
/* s will be admitted. Its tenant's service counter grows at once, so that one plan does not admit one tenant only. */
void candidates_order_served(engine *e, int32_t n, const sequence *s);

/* Fills step.candidates with waiting sequences that wait neither for a prefix nor for tiers, in the order of admission. Returns how many:
 * at most the free places to run, and at most CANDIDATES_EXAMINED looked up in the prefix cache. O(waiting x admitted). */
int32_t admission_candidates_find(engine *e);

#endif
