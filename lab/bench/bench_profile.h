/* `quire bench profile`: where the time of a step goes, stage by stage, beside what the
 * machine could do in it.
 *
 * A real engine runs prompts and then decodes them together; the backend notes its ops
 * (op_trace), the engine its own part (engine_profile). Text is not in it: that runs on
 * other threads. */
#ifndef LAB_BENCH_BENCH_PROFILE_H
#define LAB_BENCH_BENCH_PROFILE_H

#include <stdbool.h>

#include "quire.h"

typedef struct bench_profile_options {
    quire_options engine; /* model NULL: one of random weights is made in memory */
    const char *type;     /* of its weights: "q4_0" */
    const char *shape;    /* of a random model: a name of model_shape.h */
    int32_t batch;        /* sequences that decode together */
    int32_t n_prompt;     /* tokens of each prompt */
    int32_t n_shared;     /* of them the first, which are the same in all prompts */
    int32_t n_steps;      /* decodes that are looked at */
    bool per_layer, json;
} bench_profile_options;

void bench_profile_options_init(bench_profile_options *o);

/* Measures and prints to stdout; err says why it could not. */
quire_err bench_profile_run(const bench_profile_options *o, quire_error *err);

struct step_costs;
/* A decode's costs alone, for other benches: out->layers is NULL. */
quire_err profile_decode(const bench_profile_options *o, struct step_costs *out, quire_error *err);

#endif
