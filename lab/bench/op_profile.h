/* Computes from a trace of ops where the time of a step goes: pure arithmetic over
 * op_time (backend/backend.h). */
#ifndef LAB_BENCH_OP_PROFILE_H
#define LAB_BENCH_OP_PROFILE_H

#include "backend/backend.h"

/* Stages of a step, in order. The rows of a product (norm, conversion to the format of
 * its weights) are a separate stage. */
typedef enum stage {
    STAGE_PLAN, /* engine: requests in, plan, pages, batch */
    STAGE_EMBED,
    STAGE_QKV_ROWS,
    STAGE_QKV,
    STAGE_ROPE_STORE,
    STAGE_ATTENTION,
    STAGE_OUTPUT_ROWS,
    STAGE_OUTPUT,
    STAGE_GATE_UP_ROWS,
    STAGE_GATE_UP,
    STAGE_DOWN_ROWS,
    STAGE_DOWN,
    STAGE_ELEMENTS, /* ops on activations only: separate norms, elementwise products, scaling */
    STAGE_HEAD_ROWS,
    STAGE_HEAD,
    STAGE_SAMPLE,
    STAGE_COMMIT,  /* engine: tokens into sequences, pages into the index, ends */
    STAGE_BETWEEN, /* the rest of the time between steps: waking readers, gaps between ops */
    N_STAGES
} stage;

/* What a stage is for. All kinds but STAGE_IS_OTHER are work that the model requires. */
typedef enum stage_kind {
    STAGE_IS_PRODUCT,
    STAGE_IS_ATTENTION,
    STAGE_IS_SAMPLING,
    STAGE_IS_OTHER
} stage_kind;

extern const char *const stage_names[N_STAGES];

typedef struct stage_cost {
    double us, bytes, operations;
} stage_cost;

/* Means over the faster half of the steps, which other programs disturbed least. */
typedef struct step_costs {
    int32_t n_steps, n_rows; /* n_rows: of each step */
    double us;               /* time of a step: the sum of its stages */
    stage_cost stages[N_STAGES];
    stage_cost *layers; /* [n_layers * N_STAGES] allocated by the caller, zeroed; NULL: not wanted */
    int32_t n_layers;
    int32_t n_gaps; /* steps directly followed by another one of this kind, whose whole time is known */
    double pass_us, cycle_us; /* mean time of their ops, and from step to step */
} step_costs;

/* The most rows of a whole pass in ops[0..n); 0: there is none. */
int32_t op_profile_most_rows(const op_time *ops, int32_t n);
/* Adds those whole passes of out->n_rows rows that took no longer than their median. A
 * pass begins with OP_EMBED and ends with OP_HEAD or, if it computes no logits, before
 * the next pass. */
void op_profile_add(const op_time *ops, int32_t n, step_costs *out);
/* Turns sums into means, and sets the engine's stages, given as means in microseconds
 * over all steps. The gap between consecutive steps of the faster half was measured. If
 * the engine's stages exceed it, the excess belongs to the slower half, and they share
 * the gap in proportion; what they leave of it is STAGE_BETWEEN. Call once, after the
 * last op_profile_add. */
void op_profile_finish(step_costs *c, double plan_us, double sample_us, double commit_us);
/* The part (0..1) of a step that is of this kind. */
double op_profile_share(const step_costs *c, stage_kind kind);

#endif
