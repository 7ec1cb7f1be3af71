/* A model that does no work, on a backend without memory: every step's logits are the
 * same small row, at once. What remains of a step is the engine's own part. It reads the
 * clock whenever the engine calls it: at the start of a forward pass, when the engine
 * waits for it, and when it reads the last row.
 *
 * Owner: the engine's thread while an engine uses it, then whoever opened it. */
#ifndef LAB_BENCH_NULL_MODEL_H
#define LAB_BENCH_NULL_MODEL_H

#include "backend/backend.h"
#include "model/model.h"

/* One step in nanoseconds: since the previous pass, and the thread's CPU time in it. */
typedef struct null_step {
    int64_t wall_ns, cpu_ns;
    int64_t collect_ns;     /* part of wall_ns from waiting for the previous pass to reading its last row */
    int32_t n_seqs, n_rows; /* minimum over this pass and the previous one */
} null_step;

typedef struct null_model {
    model *m;
    backend *b;
    null_step *steps; /* [cap]; later ones are not recorded */
    int32_t n_steps, cap;
} null_model;

quire_err null_model_open(int32_t max_steps, null_model **out);
void null_model_close(null_model *n);

#endif
