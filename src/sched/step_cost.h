/* The measured cost of a step on this machine with this model: least squares over the
 * form of sched_cost, in which old steps fade. It decides the planning of time only,
 * never a result. Zeroed memory is an empty estimate: all costs are 0. The engine
 * thread. */
#ifndef SCHED_STEP_COST_H
#define SCHED_STEP_COST_H

#include "sched/sched.h"

#define STEP_COST_TERMS 3

typedef struct step_cost {
    /* normal equations in scaled terms */
    double products[STEP_COST_TERMS][STEP_COST_TERMS], sums[STEP_COST_TERMS];
    double factors[STEP_COST_TERMS]; /* their solution, none negative */
    int64_t n_steps;
} step_cost;

/* Records that a step of that many rows and pairs took us microseconds. O(1). */
void step_cost_note(step_cost *p, double n_rows, double n_pairs, double us);
sched_cost step_cost_fit(const step_cost *p);

#endif
