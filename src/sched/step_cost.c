#include "sched/step_cost.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

#define STEP_FADE 0.98 /* weight of a step relative to the next one: about fifty steps count */
#define SWEEPS    8    /* sweeps of coordinate descent from the last solution */
/* A step counts as at most this many times its prediction: longer ones were delayed from
 * outside. */
#define SURPRISE   4.0
#define TRUSTED    8    /* number of steps after which SURPRISE applies */
#define ROW_SCALE  64.0 /* scale that brings the terms to one order of magnitude */
#define PAIR_SCALE 65536.0

static double foretold(const step_cost *p, const double *terms) {
    double us = 0.0;
    for (int i = 0; i < STEP_COST_TERMS; i++) {
        us += p->factors[i] * terms[i];
    }
    return us;
}

/* Minimises over each factor in turn. If all steps are alike, the factors cannot be told
 * apart and stay near their old values. */
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
    assert(n_rows >= 0 && n_pairs >= 0);
    double terms[STEP_COST_TERMS] = {1.0, n_rows / ROW_SCALE, n_pairs / PAIR_SCALE};
    us = p->n_steps >= TRUSTED ? fmin(us, SURPRISE * foretold(p, terms)) : us;
    for (int i = 0; i < STEP_COST_TERMS; i++) {
        for (int j = 0; j < STEP_COST_TERMS; j++) {
            p->products[i][j] = STEP_FADE * p->products[i][j] + terms[i] * terms[j];
        }
        p->sums[i] = STEP_FADE * p->sums[i] + terms[i] * us;
    }
    step_cost_solve(p);
    p->n_steps++;
}

sched_cost step_cost_fit(const step_cost *p) {
    return (sched_cost){p->factors[0], p->factors[1] / ROW_SCALE, p->factors[2] / PAIR_SCALE};
}

#define PROGRAM_FADE 0.9 /* weight of a step relative to the next one: about ten steps count */

static const program_cost *program_cost_find(const program_costs *c, uint64_t program) {
    for (int32_t i = 0; i < PROGRAM_COSTS; i++) {
        if (c->slots[i].program == program) {
            return &c->slots[i];
        }
    }
    return NULL;
}

/* The slot of a program; if it has none, the least recently used one, emptied. */
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
    assert(n >= 0);
    double foretold = 0.0, pairs = 0.0;
    for (int32_t i = 0; i < n; i++) {
        foretold += work[i].pairs * program_pair_us(c, work[i].program);
        pairs += work[i].pairs;
    }
    us = fmax(us, 0.0);
    /* the part that was not predicted is divided by pairs */
    double rest = us - foretold;
    for (int32_t i = 0; i < n; i++) {
        double own = work[i].pairs * program_pair_us(c, work[i].program);
        double part = rest > 0.0       ? own + rest * work[i].pairs / pairs
                      : foretold > 0.0 ? own / foretold * us
                                       : 0.0;
        program_cost *s = program_cost_slot_of(c, work[i].program);
        s->pairs = PROGRAM_FADE * s->pairs + work[i].pairs;
        s->us = PROGRAM_FADE * s->us + part;
        s->last_us = part / work[i].pairs;
        s->most_pairs = fmax(s->most_pairs, work[i].pairs);
        s->noted_at = ++c->n_notes;
    }
}

/* ---- preemption ---- */

#define FADE 0.9 /* weight of a copy of many pages relative to the next one */

void copy_cost_note(copy_cost *p, int64_t n_pages, double us) {
    assert(n_pages >= 1);
    p->pages = FADE * p->pages + (double)n_pages;
    p->us = FADE * p->us + us;
}

double copy_cost_page_us(const copy_cost *p) {
    return p->pages > 0.0 ? p->us / p->pages : 0.0;
}

double preempt_swap_us(const preempt_case *c, const copy_cost *out, const copy_cost *in) {
    return c->n_pages * (copy_cost_page_us(out) + copy_cost_page_us(in));
}

/* Pairs of the first n rows: a row at position p attends to p + 1 tokens. */
static double pairs_before(double n) {
    return n * (n + 1.0) / 2.0;
}

double preempt_recompute_us(const preempt_case *c, const sched_cost *cost) {
    int32_t n_rows = c->to - c->from, n_steps = n_rows / c->max_rows + (n_rows % c->max_rows > 0);
    return n_steps * cost->step_us + n_rows * cost->row_us +
           (pairs_before(c->to) - pairs_before(c->from)) * (cost->pair_us + c->program_pair_us);
}

static bool preempt_cost_is_known(const sched_cost *cost) {
    return cost->step_us + cost->row_us + cost->pair_us > 0.0;
}

bool preempt_swaps(preempt_mode mode, const preempt_case *c, const copy_cost *out, const copy_cost *in,
                   const sched_cost *cost) {
    if (mode != PREEMPT_AUTO) {
        return mode == PREEMPT_SWAP;
    }
    return !preempt_cost_is_known(cost) || preempt_swap_us(c, out, in) <= preempt_recompute_us(c, cost);
}
