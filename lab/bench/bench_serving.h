/* `quire bench serving [MODEL]`: requests of a trace, or of a Poisson process, answered.
 * Without a model by the simulation, every way to batch and to give memory beside the
 * others (lab/sim/compare.h); with one by the engine, really, through the public API, and
 * beside it what the simulation predicts from what steps cost, which knows nothing of the
 * run: a cost file, or the mean of calibrations before the run and after it, since the
 * speed of a machine that is shared changes from one minute to the next. The same
 * averaged over several runs in turn with calibrations tells the model's error from the
 * machine's. */
#ifndef LAB_BENCH_BENCH_SERVING_H
#define LAB_BENCH_BENCH_SERVING_H

#include "lab/sim/compare_options.h"
#include "quire.h"

typedef struct bench_serving_options {
    quire_options engine; /* model NULL: simulate; n_pages: from the server's kv_tokens */
    compare_options server;
    const char *trace;   /* a file (lab/sim/trace_read.h), or NULL: Poisson arrivals */
    const char *lengths; /* of these: lab/sim/arrivals.h */
    double rate;         /* requests a second */
    int32_t n_requests;  /* of a trace the first; 0: all */
    int32_t seed;
    bool calibrate; /* before and after each real run; server.cost is NULL then */
    int32_t n_runs; /* really, each by an engine of its own */
    bool json;
} bench_serving_options;

void bench_serving_options_init(bench_serving_options *o);
/* Runs and prints to stdout; err says why it could not. */
quire_err bench_serving_run(const bench_serving_options *o, quire_error *err);

#endif
