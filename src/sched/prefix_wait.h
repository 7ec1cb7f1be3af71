/* A prefix wait delays a task while a running one computes pages that it will reuse,
 * instead of computing them again (docs/design.md, Pages).
 *
 * A waiting task is blocked on another one which is older, shares its namespace or public
 * prefix, and runs or is admitted in the same plan. The known tokens of both must agree
 * for at least one page beyond what the waiting one finds in the cache, in pages that are
 * still to be computed. The wait ends when the last of those pages is published, or when
 * the other task ends or is preempted; then the waiting task is looked up again. Other
 * waiting tasks are not delayed. With recurrent states, pages are useless without a state
 * after them, so the other task is told to take a snapshot where the tokens diverge.
 *
 * Progress: a task waits for older ones only, and only for running ones, which wait for
 * none. So there is no cycle, and each wait ends. */
#ifndef SCHED_PREFIX_WAIT_H
#define SCHED_PREFIX_WAIT_H

#include "sched/scheduler.h"

/* Whether the waiting t is still blocked on the task that prefix_wait_find found before.
 * O(log running). */
bool prefix_wait_blocks(const scheduler *s, const sched_task *t);
/* Finds a task on which candidates[i] must wait: a running one, or one of
 * candidates[0..i). Sets its blocked_on and blocked_until, and `prefix_wait` and
 * `blocked_on` in s->waiting_seqs[i], whose n_computed is the length that it finds in the
 * cache; earlier entries of that array are complete. O(running + i), plus the comparison
 * of tokens that may agree. */
void prefix_wait_find(scheduler *s, int32_t i);

#endif
