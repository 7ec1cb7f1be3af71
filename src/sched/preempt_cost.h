/* The cost of preemption: whether swapping a sequence out or computing it again takes
 * less time. A pure function of measured costs: no clock, no allocation (docs/design.md,
 * Scheduler). It decides time only, never a result: pages come back byte for byte, and
 * computing again gives the same bytes. */
#ifndef SCHED_PREEMPT_COST_H
#define SCHED_PREEMPT_COST_H

#include "sched/sched.h"

typedef enum preempt_mode {
    PREEMPT_AUTO,      /* by cost */
    PREEMPT_RECOMPUTE, /* never swapped out */
    PREEMPT_SWAP       /* swapped out whenever swap space has room */
} preempt_mode;

/* The time to copy a page, learned from past copies; old ones fade. Zeroed memory is an
 * empty estimate: 0. */
typedef struct copy_cost {
    double us, pages;
} copy_cost;

/* Records that copying n_pages >= 1 took us microseconds. O(1). */
void copy_cost_note(copy_cost *p, int64_t n_pages, double us);
double copy_cost_page_us(const copy_cost *p);

/* A sequence to preempt: n_pages would be copied out and back in, or tokens from..to
 * computed again, max_rows a step. */
typedef struct preempt_case {
    int32_t n_pages;
    int32_t from, to, max_rows;
    double program_pair_us; /* time that its attention program adds to a pair; 0: no program */
} preempt_case;

/* Microseconds that each way takes. Computing again counts as a prefill with steps of its
 * own. */
double preempt_swap_us(const preempt_case *c, const copy_cost *out, const copy_cost *in);
double preempt_recompute_us(const preempt_case *c, const sched_cost *cost);

/* Whether to swap. PREEMPT_AUTO also swaps while the cost of computing is unknown. */
bool preempt_swaps(preempt_mode mode, const preempt_case *c, const copy_cost *out, const copy_cost *in,
                   const sched_cost *cost);

#endif
