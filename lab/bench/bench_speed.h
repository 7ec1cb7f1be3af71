/* `quire bench speed`, which `make bench` runs: everything that speed is held to,
 * measured in one run beside the machine's limits found in the same run. The models are
 * of random weights made in memory (lab/bench/synthetic.h): nothing is needed but the
 * program, and for a while a file in /tmp that holds the packed one. */
#ifndef LAB_BENCH_BENCH_SPEED_H
#define LAB_BENCH_BENCH_SPEED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct bench_speed_options {
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
    bool json;         /* an object a line instead of a table */
} bench_speed_options;

void bench_speed_options_init(bench_speed_options *o);

/* Measures and prints to stdout; err says why it could not. What the machine has no
 * memory for is left out, saying so. */
quire_err bench_speed_run(const bench_speed_options *o, quire_error *err);

#endif
