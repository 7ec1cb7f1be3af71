/* Whether a preempted sequence is swapped out or computed again, whichever is the sooner done: a pure function of measured costs. No clock,
 * no allocation (docs/design.md, Scheduler). Only time rests on it, never a result: pages come back byte for byte, and computing gives the
 * same bytes.
 */
#ifndef SCHED_PREEMPT_COST_H
#define SCHED_PREEMPT_COST_H

#include "sched/sched.h"

typedef enum preempt_mode {
    PREEMPT_AUTO,      /* by cost */
    PREEMPT_RECOMPUTE, /* never swapped out */
    PREEMPT_SWAP       /* swapped out whenever swap space has room */
} preempt_mode;

/* What copying a page takes, learned from the copies that were made; what is long past fades. Zeroed memory knows nothing: 0. */
typedef struct copy_cost {
    double us, pages;
} copy_cost;

/* n_pages >= 1 took us microseconds. O(1). */
void copy_cost_note(copy_cost *p, int64_t n_pages, double us);
double copy_cost_page_us(const copy_cost *p);

/* One victim: n_pages would be copied out and back in, or tokens from..to be computed again, max_rows a step. */
typedef struct preempt_case {
    int32_t n_pages;
    int32_t from, to, max_rows;
} preempt_case;

/* Microseconds that either way takes. Computing: as a prefill that has its steps to itself. */
double preempt_swap_us(const preempt_case *c, const copy_cost *out, const copy_cost *in);
double preempt_recompute_us(const preempt_case *c, const sched_cost *cost);

/* Whether to swap. PREEMPT_AUTO swaps too while nothing is known of what computing costs. */
bool preempt_swaps(preempt_mode mode, const preempt_case *c, const copy_cost *out, const copy_cost *in, const sched_cost *cost);

#endif
