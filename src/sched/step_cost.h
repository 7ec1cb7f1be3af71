/* Measured costs that the scheduler plans with: of steps, attention programs and
 * preemption. */
#ifndef SCHED_STEP_COST_H
#define SCHED_STEP_COST_H

#include <stdint.h>

#include "sched/sched.h"

/* ---- the cost of a step on this machine with this model ----
 *
 * Least squares for the terms of sched_cost; old steps fade. Affects the planning of
 * time, never a result. Zeroed memory is an empty estimate with costs of 0. Engine thread
 * only. */

#define STEP_COST_TERMS 3

typedef struct step_cost {
    /* normal equations of the scaled terms */
    double products[STEP_COST_TERMS][STEP_COST_TERMS], sums[STEP_COST_TERMS];
    double factors[STEP_COST_TERMS]; /* solution of the normal equations, none negative */
    int64_t n_steps;
} step_cost;

/* Records that a step with n_rows and n_pairs took `us` microseconds. O(1). */
void step_cost_note(step_cost *p, double n_rows, double n_pairs, double us);
sched_cost step_cost_fit(const step_cost *p);

/* ---- the cost of attention programs (core/attn_program.h) ----
 *
 * Under a program, a pair of a row and a token it attends to costs more: from next to
 * nothing to a thousand times the rest, which only a run can tell. A program of unknown
 * cost starts with a few pairs, and each step may have PROGRAM_GROWTH times its largest
 * so far, so no step takes much longer than the previous ones suggest. Zeroed memory:
 * nothing is known. Engine thread only. */

#define PROGRAM_COSTS       32   /* number of programs remembered; the least recently run is forgotten */
#define PROGRAM_FIRST_PAIRS 64.0 /* pairs with a program in its first step */
#define PROGRAM_GROWTH      4.0

typedef struct program_cost {
    uint64_t program; /* identity of the program; 0: the slot is free */
    double pairs, us; /* sums over its steps; old steps fade */
    /* cost of a pair in the last step. The higher of this and us / pairs counts, since
     * later pairs may cost more */
    double last_us;
    double most_pairs; /* most pairs in one step so far */
    int64_t noted_at;  /* value of program_costs.n_notes at its last step */
} program_cost;

typedef struct program_costs {
    program_cost slots[PROGRAM_COSTS];
    int64_t n_notes;
} program_costs;

/* What a step computes with one program. */
typedef struct program_work {
    uint64_t program;
    double pairs; /* greater than 0 */
} program_work;

/* Microseconds that the program adds per pair; 0 if unknown. */
double program_pair_us(const program_costs *c, uint64_t program);
/* The most pairs with this program that one step may have. */
double program_most_pairs(const program_costs *c, uint64_t program);
/* Records that a step with work[0..n) took `us` microseconds longer than without programs
 * (negative counts as 0). If there are several programs, each is charged by its known
 * cost. O(n). */
void program_costs_note(program_costs *c, const program_work *work, int32_t n, double us);

/* The cost of preemption: of swapping a sequence out and in, or of recomputing it. A pure
 * function of measured costs (docs/design.md, Scheduler). The choice affects time, never
 * a result: pages come back byte for byte, and recomputing gives the same bytes. */

typedef enum preempt_mode {
    PREEMPT_AUTO,      /* whichever is estimated to cost less */
    PREEMPT_RECOMPUTE, /* never swapped out */
    PREEMPT_SWAP       /* swapped out whenever swap space has room */
} preempt_mode;

/* The time to copy a page, estimated from past copies; old ones fade. Zeroed memory is an
 * empty estimate of 0. */
typedef struct copy_cost {
    double us, pages;
} copy_cost;

/* Records that copying n_pages >= 1 took `us` microseconds. O(1). */
void copy_cost_note(copy_cost *p, int64_t n_pages, double us);
double copy_cost_page_us(const copy_cost *p);

/* A sequence to preempt: either n_pages are copied out and back in, or its tokens
 * from..to are recomputed, max_rows in a step. */
typedef struct preempt_case {
    int32_t n_pages;
    int32_t from, to, max_rows;
    double program_pair_us; /* time that its attention program adds per pair; 0: it has none */
} preempt_case;

/* The time to swap the sequence out and in, and to recompute it in prefill steps without
 * other work. */
double preempt_swap_us(const preempt_case *c, const copy_cost *out, const copy_cost *in);
double preempt_recompute_us(const preempt_case *c, const sched_cost *cost);

/* Whether to swap. PREEMPT_AUTO also swaps while the cost of steps is unknown. */
bool preempt_swaps(preempt_mode mode, const preempt_case *c, const copy_cost *out, const copy_cost *in,
                   const sched_cost *cost);

#endif
