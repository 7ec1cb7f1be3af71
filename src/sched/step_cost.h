/* Measured costs by which the scheduler plans: of steps, of attention programs, and of
 * preemption. */
#ifndef SCHED_STEP_COST_H
#define SCHED_STEP_COST_H

#include <stdint.h>

#include "sched/sched.h"

/* ---- the measured cost of a step on this machine with this model ----
 *
 * Least squares over the form of sched_cost, in which old steps fade. It decides the
 * planning of time only, never a result. Zeroed memory is an empty estimate: all costs
 * are 0. The engine thread. */

#define STEP_COST_TERMS 3

typedef struct step_cost {
    /* normal equations in scaled terms */
    double products[STEP_COST_TERMS][STEP_COST_TERMS], sums[STEP_COST_TERMS];
    double factors[STEP_COST_TERMS]; /* their solution, none negative */
    int64_t n_steps;
} step_cost;

/* Records that a step of n_rows and n_pairs took us microseconds. O(1). */
void step_cost_note(step_cost *p, double n_rows, double n_pairs, double us);
sched_cost step_cost_fit(const step_cost *p);

/* ---- the measured cost of attention programs ----
 *
 * Masks and changes of scores that a request
 * brings as expressions (core/attn_program.h).
 *
 * A pair of a row and a token that it attends to costs more under a program, by an amount
 * that only a run can measure: from next to nothing to a thousand times the rest. A
 * program whose cost is not known well is computed a few pairs at a time, and
 * PROGRAM_GROWTH times as many as in its largest step so far after that: so no step takes
 * much longer than the one before it suggests. Zeroed memory: nothing is known. The
 * engine thread. */

#define PROGRAM_COSTS       32   /* remembered programs; the least recently run is forgotten */
#define PROGRAM_FIRST_PAIRS 64.0 /* pairs with a program in its first step */
#define PROGRAM_GROWTH      4.0

typedef struct program_cost {
    uint64_t program; /* identifies a program; 0: the slot is free */
    double pairs, us; /* sums over its steps, in which old ones fade */
    /* cost of a pair in the last step. The higher of both counts, since later pairs may
     * cost more */
    double last_us;
    double most_pairs; /* most pairs in one step so far */
    int64_t noted_at;  /* value of program_costs.n_notes at its last step */
} program_cost;

typedef struct program_costs {
    program_cost slots[PROGRAM_COSTS];
    int64_t n_notes;
} program_costs;

/* What a step computes under one program. */
typedef struct program_work {
    uint64_t program;
    double pairs; /* more than 0 */
} program_work;

/* Microseconds that the program adds per pair; 0: unknown. */
double program_pair_us(const program_costs *c, uint64_t program);
/* Most pairs with the program that a step may have. */
double program_most_pairs(const program_costs *c, uint64_t program);
/* Records that a step which computed work[0..n) took us microseconds longer than it would
 * have without programs (below 0 counts as 0). If it ran several, each is charged by its
 * known cost. O(n). */
void program_costs_note(program_costs *c, const program_work *work, int32_t n, double us);

/* ---- the cost of preemption ---- */

/* The cost of preemption: swapping a sequence out, or computing it again. A pure function
 * of measured costs: no clock, no allocation (docs/design.md, Scheduler). The choice
 * affects time, never a result: pages come back byte for byte, and computing again gives
 * the same bytes. */

typedef enum preempt_mode {
    PREEMPT_AUTO,      /* whichever costs less */
    PREEMPT_RECOMPUTE, /* never swapped out */
    PREEMPT_SWAP       /* swapped out whenever swap space has room */
} preempt_mode;

/* The time to copy a page, estimated from past copies with fading weights. Zeroed memory
 * is an empty estimate: 0. */
typedef struct copy_cost {
    double us, pages;
} copy_cost;

/* Records that copying n_pages >= 1 took us microseconds. O(1). */
void copy_cost_note(copy_cost *p, int64_t n_pages, double us);
double copy_cost_page_us(const copy_cost *p);

/* A sequence to preempt: either n_pages are copied out and back in, or tokens from..to
 * are computed again, max_rows in a step. */
typedef struct preempt_case {
    int32_t n_pages;
    int32_t from, to, max_rows;
    double program_pair_us; /* time that its attention program adds per pair; 0: no program */
} preempt_case;

/* The microseconds that each way takes. Computing again counts as a prefill in steps of
 * its own. */
double preempt_swap_us(const preempt_case *c, const copy_cost *out, const copy_cost *in);
double preempt_recompute_us(const preempt_case *c, const sched_cost *cost);

/* Whether to swap. PREEMPT_AUTO also swaps while the cost of computing is unknown. */
bool preempt_swaps(preempt_mode mode, const preempt_case *c, const copy_cost *out, const copy_cost *in,
                   const sched_cost *cost);

#endif
