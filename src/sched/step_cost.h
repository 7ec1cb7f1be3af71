/* What a step costs on this machine with this model, learned from the steps that ran: least squares over the form of sched_cost, in which what is long
 * past fades. Only the planning of time rests on it, never a result. Zeroed memory is
 * a pace that knows nothing: all costs are 0. The engine thread. */
#ifndef SCHED_STEP_COST_H
#define SCHED_STEP_COST_H

#include "sched/sched.h"

#define PACE_TERMS 3

typedef struct pace {
    double products[PACE_TERMS][PACE_TERMS], sums[PACE_TERMS]; /* normal equations in scaled terms */
    double factors[PACE_TERMS];                                /* their solution, none negative */
    int64_t n_steps;
} pace;

/* A step of that many rows and pairs took us microseconds. O(1). */
void pace_note(pace *p, double n_rows, double n_pairs, double us);
sched_cost pace_cost(const pace *p);

#endif
