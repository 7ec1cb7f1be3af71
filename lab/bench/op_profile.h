/* From a trace of ops to where the time of a step goes: pure arithmetic over op_time
 * (backend/backend.h). */
#ifndef LAB_BENCH_OP_PROFILE_H
#define LAB_BENCH_OP_PROFILE_H

#include "backend/backend.h"

/* What a step consists of, in order. A product's rows (norm, conversion to the format of
 * its weights) are a stage of their own. */
typedef enum stage {
    STAGE_PLAN, /* the engine: requests in, plan, pages, batch */
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
    STAGE_ELEMENTS, /* ops on activations only: separate norms, products of elements, scaling */
    STAGE_HEAD_ROWS,
    STAGE_HEAD,
    STAGE_SAMPLE,
    STAGE_COMMIT,  /* the engine: tokens into sequences, pages into the index, ends */
    STAGE_BETWEEN, /* the rest of the time from step to step: waking readers, gaps between ops */
    N_STAGES
} stage;

/* What a stage is for: everything but STAGE_IS_OTHER is work that the model asks for. */
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

/* Means over the faster half of the steps: what other programs did to a step is not what
 * it costs. */
typedef struct step_costs {
    int32_t n_steps, n_rows; /* n_rows: of each of them */
    double us;               /* of a step; the stages' sum */
    stage_cost stages[N_STAGES];
    stage_cost *layers; /* [n_layers * N_STAGES], the caller's, zeroed; NULL: not wanted */
    int32_t n_layers;
    int32_t n_gaps;           /* steps that another such step followed: their whole time is known */
    double pass_us, cycle_us; /* of those: ops alone, and from step to step */
} step_costs;

/* The most rows that a whole pass in ops[0..n) has; 0: there is none. */
int32_t op_profile_most_rows(const op_time *ops, int32_t n);
/* Adds, of all whole passes of out->n_rows rows, those that took no longer than their
 * median. A pass begins with OP_EMBED and ends with OP_HEAD or, where no logits are
 * wanted, before the next. */
void op_profile_add(const op_time *ops, int32_t n, step_costs *out);
/* Turns sums into means, and fills the engine's stages (microseconds of a step), given as
 * means over all steps. Between steps of the faster half that followed each other there
 * is a gap, which was measured: where the engine's stages take more than it, what is over
 * belongs to the slower half, and they share the gap in proportion; what they leave of it
 * is STAGE_BETWEEN. Once, after the last op_profile_add. */
void op_profile_finish(step_costs *c, double plan_us, double sample_us, double commit_us);
/* The part (0..1) of a step that is of this kind. */
double op_profile_share(const step_costs *c, stage_kind kind);

#endif
