/* Deadlines for first tokens: which waiting tasks cannot make theirs, and how long until
 * one like them could. These are refused at once, while their clients can still go
 * elsewhere. */
#ifndef SCHED_DEADLINE_H
#define SCHED_DEADLINE_H

#include "sched/scheduler.h"

/* The work before a first token: rows of prompts to compute, the task's own included, and
 * their attention pairs; and the tasks that decode meanwhile. What attention programs add
 * to the time of both is kept apart. */
typedef struct deadline_load {
    double rows, pairs, program_us;
    int32_t n_decodes;
    double decode_pairs, decode_program_us;
} deadline_load;

/* Predicts the microseconds until all of it is computed, by the costs and the step target
 * of l. Pure. */
double deadline_foretell_us(const sched_limits *l, const deadline_load *load);

/* Calls the hook `refuse` for every waiting task that cannot make its deadline; it stays
 * in the queue. Tasks that the policy admits earlier count as work before it: the first
 * CANDIDATES_EXAMINED of them, beyond that those which arrived earlier. Refuses nothing
 * before
 * steps were measured. Returns how many. O(running + CANDIDATES_EXAMINED waiting) where a
 * waiting one has a deadline. */
int32_t deadline_check(scheduler *s, int64_t now_us);

#endif
