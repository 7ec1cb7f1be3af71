/* step_plan decides what a step computes.
 *
 *   candidates -> describe -> plan -> admit -> preempt -> reserve pages
 *   (waiting tasks in the order   (sched.h)  (kv_seq_admit)  (kv_seq_release)  (kv_seq_reserve)
 *    of the admission policy)
 *
 * The engine calls it before each forward pass. The simulator (lab/sim/serving.h) calls the same function with a clock of its own. */
#ifndef SCHED_STEP_PLAN_H
#define SCHED_STEP_PLAN_H

#include "sched/scheduler.h"

/* Plans a step, moves tasks between the queues, and reserves pages for every planned row: plan, tasks and copies of s are set. False:
 * nothing can be computed now. A task that finds no pages after all is left out. now_us: any clock that only grows.
 * O(running + waiting), and the lookups of the candidates in the prefix cache. */
bool step_plan(scheduler *s, int64_t now_us);

#endif
