/* The waiting tasks that a plan may admit, in the order of the admission policy
 * (admission_policy.h). */
#ifndef SCHED_ADMISSION_CANDIDATES_H
#define SCHED_ADMISSION_CANDIDATES_H

#include "sched/scheduler.h"

/* waiting tasks that a step looks up; those before them in the order may be waiting for
 * pages */
#define CANDIDATES_EXAMINED 64

/* Walks the waiting tasks in the order of the policy. begin returns how many of them are
 * ordered. next returns the index in s->ordered of the next one, or that number after the
 * last. The queue does not change in between. O(waiting) each. */
int32_t candidates_order_begin(scheduler *s);
int32_t candidates_order_next(scheduler *s, int32_t n);
/* t will be admitted: its tenant's service counter grows at once, so that one plan does
 * not admit a single tenant only. */
void candidates_order_served(scheduler *s, int32_t n, const sched_task *t);

/* How many waiting tasks the walk returns before t, which waits too, if each of them is
 * admitted. Under ADMISSION_PREFIX a task that is not ordered comes after all older ones.
 * O(waiting), and O(waiting) more for each step of a program. */
int32_t candidates_ahead(scheduler *s, const sched_task *t);

/* Whether t's adapter has a slot beside those of the running tasks, or needs none. */
bool candidates_have_slot(const scheduler *s, const sched_task *t);

/* Fills s->candidates with waiting tasks that wait neither for a prefix nor for an
 * adapter's slot nor for tiers, in the order of admission. Returns how many: at most the
 * free places to run, and at most CANDIDATES_EXAMINED looked up in the prefix cache.
 * O(waiting x admitted). */
int32_t admission_candidates_find(scheduler *s);

/* Deadlines for first tokens: which waiting tasks cannot meet theirs, and after how long
 * a similar one could. Those tasks are refused at once, while their clients can still try
 * elsewhere. */

/* The work before a first token: rows of prompts to compute, the task's own included, and
 * their attention pairs; and the tasks that decode meanwhile. The time that attention
 * programs add to both is kept separately. */
typedef struct deadline_load {
    double rows, pairs, program_us;
    int32_t n_decodes;
    double decode_pairs, decode_program_us;
} deadline_load;

/* Predicts how many microseconds all of it takes, by the costs and the step target of l.
 * Pure. */
double deadline_foretell_us(const sched_limits *l, const deadline_load *load);

/* Calls the hook `refuse` for every waiting task that cannot make its deadline; it stays
 * in the queue. Tasks that the policy admits earlier count as work before it: the first
 * CANDIDATES_EXAMINED of them, beyond that those which arrived earlier. Refuses nothing
 * until steps were measured. Returns how many it refused. O(running + CANDIDATES_EXAMINED
 * waiting) where a waiting one has a deadline. */
int32_t deadline_check(scheduler *s, int64_t now_us);

#endif
