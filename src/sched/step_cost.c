#include "sched/step_cost.h"

#include <math.h>

#define FADE   0.98 /* weight of a step against the one after it: fifty steps count */
#define SWEEPS 8    /* sweeps of coordinate descent, which starts from the last solution */
/* a step that takes this many times longer than predicted was delayed by other
 * processes */
#define SURPRISE   4.0
#define TRUSTED    8    /* steps after which that test applies */
#define ROW_SCALE  64.0 /* makes the terms of one order of magnitude */
#define PAIR_SCALE 65536.0

static double foretold(const step_cost *p, const double *terms) {
    double us = 0.0;
    for (int i = 0; i < STEP_COST_TERMS; i++) {
        us += p->factors[i] * terms[i];
    }
    return us;
}

/* Minimises over each factor in turn. If all steps were alike the factors cannot be
 * separated, and stay near their old values. */
static void step_cost_solve(step_cost *p) {
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int i = 0; i < STEP_COST_TERMS; i++) {
            double rest = p->sums[i];
            for (int j = 0; j < STEP_COST_TERMS; j++) {
                rest -= j == i ? 0.0 : p->products[i][j] * p->factors[j];
            }
            p->factors[i] = p->products[i][i] > 0.0 ? fmax(0.0, rest / p->products[i][i]) : 0.0;
        }
    }
}

void step_cost_note(step_cost *p, double n_rows, double n_pairs, double us) {
    double terms[STEP_COST_TERMS] = {1.0, n_rows / ROW_SCALE, n_pairs / PAIR_SCALE};
    us = p->n_steps >= TRUSTED ? fmin(us, SURPRISE * foretold(p, terms)) : us;
    for (int i = 0; i < STEP_COST_TERMS; i++) {
        for (int j = 0; j < STEP_COST_TERMS; j++) {
            p->products[i][j] = FADE * p->products[i][j] + terms[i] * terms[j];
        }
        p->sums[i] = FADE * p->sums[i] + terms[i] * us;
    }
    step_cost_solve(p);
    p->n_steps++;
}

sched_cost step_cost_fit(const step_cost *p) {
    return (sched_cost){p->factors[0], p->factors[1] / ROW_SCALE, p->factors[2] / PAIR_SCALE};
}
