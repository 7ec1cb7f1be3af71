#include "sched/program_cost.h"

#include <math.h>
#include <stddef.h>

#define FADE 0.9 /* weight of a step against the one after it: ten steps count */

static const program_cost *program_cost_find(const program_costs *c, uint64_t program) {
    for (int32_t i = 0; i < PROGRAM_COSTS; i++) {
        if (c->slots[i].program == program) {
            return &c->slots[i];
        }
    }
    return NULL;
}

/* The program's slot: its own, or the one that was used longest ago. */
static program_cost *program_cost_slot_of(program_costs *c, uint64_t program) {
    program_cost *oldest = &c->slots[0];
    for (int32_t i = 0; i < PROGRAM_COSTS; i++) {
        program_cost *s = &c->slots[i];
        if (s->program == program) {
            return s;
        }
        oldest = s->noted_at < oldest->noted_at ? s : oldest;
    }
    *oldest = (program_cost){.program = program};
    return oldest;
}

double program_pair_us(const program_costs *c, uint64_t program) {
    const program_cost *s = program_cost_find(c, program);
    return s != NULL && s->pairs > 0.0 ? fmax(s->us / s->pairs, s->last_us) : 0.0;
}

double program_most_pairs(const program_costs *c, uint64_t program) {
    const program_cost *s = program_cost_find(c, program);
    return s != NULL ? fmax(PROGRAM_FIRST_PAIRS, PROGRAM_GROWTH * s->most_pairs) : PROGRAM_FIRST_PAIRS;
}

void program_costs_note(program_costs *c, const program_work *work, int32_t n, double us) {
    double foretold = 0.0, pairs = 0.0;
    for (int32_t i = 0; i < n; i++) {
        foretold += work[i].pairs * program_pair_us(c, work[i].program);
        pairs += work[i].pairs;
    }
    us = fmax(us, 0.0);
    /* what was not predicted: shared by pairs, while there is more than was predicted */
    double rest = us - foretold;
    for (int32_t i = 0; i < n; i++) {
        double own = work[i].pairs * program_pair_us(c, work[i].program);
        double part = rest > 0.0       ? own + rest * work[i].pairs / pairs
                      : foretold > 0.0 ? own / foretold * us
                                       : 0.0;
        program_cost *s = program_cost_slot_of(c, work[i].program);
        s->pairs = FADE * s->pairs + work[i].pairs;
        s->us = FADE * s->us + part;
        s->last_us = part / work[i].pairs;
        s->most_pairs = fmax(s->most_pairs, work[i].pairs);
        s->noted_at = ++c->n_notes;
    }
}
