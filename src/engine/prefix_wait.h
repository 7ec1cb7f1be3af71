/* Holds: a request whose next page is being computed by a running sequence waits for it rather than computing it again (docs/design.md,
 * Pages).
 *
 * A waiting sequence is held for an older one of its namespace or public prefix that runs (or is admitted in the same plan) and whose known
 * tokens agree with its own for at least a page beyond what it finds in the cache now, in pages that are still to be computed. The hold
 * ends when the last of those pages is published, and when the other one ends or is preempted; then the sequence is looked up again. Those
 * behind it are not held up.
 *
 * Progress: only older sequences are waited for, and only ones that run, which wait for nobody. So no wait is in vain, none goes round, and
 * each ends. Owner: the engine thread. */
#ifndef ENGINE_PREFIX_WAIT_H
#define ENGINE_PREFIX_WAIT_H

#include "engine/state.h"

/* Whether the waiting s is held, by what prefix_wait_find found before. O(log running). */
bool prefix_wait_blocks(const engine *e, const sequence *s);
/* Looks for one that ready[i], which would find n_cached tokens in the cache now, is to wait for: a running one, or one of ready[0..i).
 * Sets `held` and `waits_for` in a->waiting[i], whose earlier entries are described already. O(running + i), and the common prefix of those
 * that may agree. */
void prefix_wait_find(engine *e, sequence *const *candidates, int32_t i);

#endif
