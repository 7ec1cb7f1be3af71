/* A prefix wait delays a task while a running one computes pages that both need, so that
 * they are computed once (docs/design.md, Pages).
 *
 * A waiting task is blocked on an older one of its namespace or public prefix that runs,
 * or is admitted in the same plan. Their known tokens must agree for at least one page
 * beyond what the waiting task finds in the cache, in pages that are not computed yet.
 * The wait ends when the last of those pages is published, or when the other task ends or
 * is preempted; then the task is looked up again. Other waiting tasks are not delayed.
 * With recurrent states, pages are useless without the state after them, so the other
 * task is told to take a snapshot where the tokens diverge.
 *
 * Progress: a task waits only for older, running tasks, which wait for none. So there is
 * no cycle, and each wait ends. */
#ifndef SCHED_PREFIX_WAIT_H
#define SCHED_PREFIX_WAIT_H

#include "sched/scheduler.h"

/* Whether t still waits for the task that prefix_wait_find chose. O(log running). */
bool prefix_wait_blocks(const scheduler *s, const sched_task *t);
/* Finds a task on which candidates[i] must wait: a running one, or one of
 * candidates[0..i). Sets the candidate's blocked_on and blocked_until, and prefix_wait
 * and blocked_on of s->waiting_seqs[i]. That entry's n_computed is the length found in
 * the cache; earlier entries are complete. O(running + i), plus the comparison of
 * tokens. */
void prefix_wait_find(scheduler *s, int32_t i);

#endif
