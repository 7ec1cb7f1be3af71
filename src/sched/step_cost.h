/* What a step costs on this machine with this model, learned from the steps that ran: least squares over the form of sched_cost, in which
 * what is long past fades. Only the planning of time rests on it, never a result. Zeroed memory is a step cost that knows nothing: all
 * costs are 0. The engine thread. */
#ifndef SCHED_STEP_COST_H
#define SCHED_STEP_COST_H

#include "sched/sched.h"

#define STEP_COST_TERMS 3

typedef struct step_cost {
    double products[STEP_COST_TERMS][STEP_COST_TERMS], sums[STEP_COST_TERMS]; /* normal equations in scaled terms */
    double factors[STEP_COST_TERMS];                                /* their solution, none negative */
    int64_t n_steps;
} step_cost;

/* A step of that many rows and pairs took us microseconds. O(1). */
void step_cost_note(step_cost *p, double n_rows, double n_pairs, double us);
sched_cost step_cost_fit(const step_cost *p);

#endif
