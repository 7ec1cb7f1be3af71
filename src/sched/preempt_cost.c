#include "sched/preempt_cost.h"

#define FADE 0.9 /* weight of a copy of many pages against the one after it */

void copy_cost_note(copy_cost *p, int64_t n_pages, double us) {
    p->pages = FADE * p->pages + (double)n_pages;
    p->us = FADE * p->us + us;
}

double copy_cost_page_us(const copy_cost *p) {
    return p->pages > 0.0 ? p->us / p->pages : 0.0;
}

double preempt_swap_us(const preempt_case *c, const copy_cost *out, const copy_cost *in) {
    return c->n_pages * (copy_cost_page_us(out) + copy_cost_page_us(in));
}

/* A row at position p attends to p + 1 tokens. */
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
