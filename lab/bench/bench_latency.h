/* `quire bench latency`: what a token takes by how many came before it, for a whole
 * model: keys and values in pages, in one piece, and nowhere, so that all before it is
 * computed again. The ways take turns and choose the same tokens. */
#ifndef LAB_BENCH_BENCH_LATENCY_H
#define LAB_BENCH_BENCH_LATENCY_H

#include <stdbool.h>

#include "quire.h"

typedef struct bench_latency_options {
    quire_options engine;
    const char *contexts; /* tokens before the measured ones: "128,256,512,1024,2048" */
    int32_t n_steps;      /* measured tokens, one by one */
    int32_t n_runs;
    bool json;
} bench_latency_options;

void bench_latency_options_init(bench_latency_options *o);

/* Prints to stdout; err says why it could not. */
quire_err bench_latency_run(const bench_latency_options *o, quire_error *err);

#endif
