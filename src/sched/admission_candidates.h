/* The waiting tasks that a plan may admit, in the order of the admission policy
 * (admission_policy.h). */
#ifndef SCHED_ADMISSION_CANDIDATES_H
#define SCHED_ADMISSION_CANDIDATES_H

#include "sched/scheduler.h"

/* Most waiting tasks that a step looks up. Older ones may be waiting for pages. */
#define CANDIDATES_EXAMINED 64

/* Iterates over the waiting tasks in the order of the policy. begin returns how many
 * tasks are ordered; next returns the index in s->ordered of the next task, or that
 * number at the end. The queue must not change meanwhile. O(waiting) each. */
int32_t candidates_order_begin(scheduler *s);
int32_t candidates_order_next(scheduler *s, int32_t n);
/* Tells the iteration that t will be admitted: its tenant's service counter grows at
 * once, so that one plan admits tasks of several tenants. */
void candidates_order_served(scheduler *s, int32_t n, const sched_task *t);

/* How many waiting tasks the iteration returns before the waiting task t, if all of them
 * are admitted. With ADMISSION_PREFIX, tasks that are not ordered come last, by age.
 * O(waiting), and O(waiting) more for each step of a program. */
int32_t candidates_ahead(scheduler *s, const sched_task *t);

/* Whether t needs no adapter slot, or its adapter has or could get one beside the running
 * tasks. */
bool candidates_have_slot(const scheduler *s, const sched_task *t);

/* Fills s->candidates, in the order of admission, with waiting tasks that wait neither
 * for a prefix, nor for an adapter slot, nor for tiers. Returns how many: at most the
 * free places in the batch, and at most CANDIDATES_EXAMINED are looked up in the prefix
 * cache. O(waiting x admitted). */
int32_t admission_candidates_find(scheduler *s);

/* Deadlines for first tokens: finds waiting tasks that cannot meet theirs, and when a
 * similar task could. They are refused at once, while their clients can still try
 * elsewhere. */

/* The work before a task's first token: prompt rows to compute, its own included, and
 * their attention pairs; and the tasks that decode meanwhile. Time added by attention
 * programs is separate. */
typedef struct deadline_load {
    double rows, pairs, program_us;
    int32_t n_decodes;
    double decode_pairs, decode_program_us;
} deadline_load;

/* Predicts how many microseconds the load takes, from the measured costs and the step
 * target in l. Pure. */
double deadline_foretell_us(const sched_limits *l, const deadline_load *load);

/* Calls the hook `refuse` for every waiting task that cannot meet its deadline; the task
 * stays in the queue. The tasks ahead of it count as work: the first CANDIDATES_EXAMINED
 * in the policy's order, after these in order of arrival. Refuses nothing until the cost
 * of steps is known. Returns the number refused. O(running + CANDIDATES_EXAMINED waiting)
 * if any waiting task has a deadline. */
int32_t deadline_check(scheduler *s, int64_t now_us);

#endif
