/* Measurements that one bench takes for another, each in the file of its own command. */
#ifndef LAB_COMMANDS_MEASURES_H
#define LAB_COMMANDS_MEASURES_H

#include "lab/bench/op_profile.h"
#include "lab/commands/lab_commands.h"
#include "lab/sim/cost.h"

/* bench calibrate: what a step of o's model costs. */
quire_err calibrate_cost(const quire_options *o, cost_model *out, quire_error *err);

/* bench profile: the costs of n_steps decodes of batch sequences of a model of random
 * weights; out->layers is NULL. Of o threads and instruction set count. */
quire_err profile_decode(const quire_options *o, int32_t batch, int32_t n_steps, step_costs *out,
                         quire_error *err);

/* Milliseconds from before the program is started to the first bytes that it writes of a
 * prompt of one token's logits. */
typedef struct start_figure {
    double least_ms, median_ms;
} start_figure;

/* All with the files in the page cache: one start before them does not count. */
typedef struct start_times {
    start_figure first;  /* with an empty pack cache; of a packed model without one */
    start_figure second; /* with the entry that a start has left there */
    bool has_second;     /* false for packed models and the built-in one, which no cache keeps */
    double token_ms;     /* the same request in an engine that is open, at least */
} start_times;

/* bench start: starts quire, which lies beside quire-lab or in PATH, again and again. Of
 * o model, compute mode, KV type, threads and instruction set count. */
quire_err start_measure(const quire_options *o, int32_t n_runs, start_times *out, quire_error *err);

/* bench speed */
typedef struct bench_speed_options {
    cli_options cli;
    const char *types;   /* of weights: "q4_0,q8_0,q4_k,int8,bf16"; NULL: these, or with shapes q4_0 */
    const char *batches; /* sequences that decode together: "1,4,16,32" */
    /* NULL: the 1.1B model beside limits; else these models beside it:
     * "qwen3-0.6b,mixtral", "all" */
    const char *shapes;
    const char *isa;
    int32_t n_threads; /* 0: one a core */
    int32_t n_runs;    /* each figure is the mean and spread of this many */
    int32_t context;   /* longest of attention alone */
    bool small;        /* a model of a few million weights: to see that all works */
} bench_speed_options;

/* bench speed --shape: models of published shapes beside Llama's. Measures and prints to
 * stdout. INVALID names a shape that is not there. What memory does not hold is left out,
 * saying so. */
quire_err bench_shapes_run(const bench_speed_options *o, quire_error *err);

#endif
