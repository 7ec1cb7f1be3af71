/* A prefix wait delays a request while a running sequence computes pages that it will reuse, instead of computing them again
 * (docs/design.md, Pages).
 *
 * A waiting sequence is blocked on another sequence which is older, shares its namespace or public prefix, and runs or is admitted in the
 * same plan. The known tokens of both must agree for at least one page beyond what the waiting one finds in the cache, in pages that are
 * still to be computed. The wait ends when the last of those pages is published, and when the other sequence ends or is preempted; then the
 * sequence is looked up again. Other waiting sequences are not delayed.
 *
 * Progress: a sequence waits for older ones only, and only for running ones, which wait for none. So there is no cycle, and each wait ends.
 * Owner: the engine thread. */
#ifndef ENGINE_PREFIX_WAIT_H
#define ENGINE_PREFIX_WAIT_H

#include "engine/state.h"

/* Whether the waiting s is still blocked on the sequence that prefix_wait_find found before. O(log running). */
bool prefix_wait_blocks(const engine *e, const sequence *s);
/* Finds a sequence on which candidates[i] must wait: a running one, or one of candidates[0..i). Sets blocked_on and blocked_until of the
 * sequence, and `prefix_wait` and `blocked_on` in e->step.waiting[i], whose n_computed says what it finds in the cache; earlier entries of
 * that array are complete already. O(running + i), and the common prefix of those that may agree. */
void prefix_wait_find(engine *e, sequence *const *candidates, int32_t i);

#endif
