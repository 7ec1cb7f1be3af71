/* `quire bench sampler`: what choosing a token from a row of logits costs. */
#ifndef LAB_BENCH_BENCH_SAMPLER_H
#define LAB_BENCH_BENCH_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct bench_sampler_options {
    const char *vocabularies; /* sizes, "32000,151936" */
    int32_t n_rows;           /* of one step */
    int32_t n_threads;        /* 0: one a core */
    int32_t n_runs;
    bool json;
} bench_sampler_options;

void bench_sampler_options_init(bench_sampler_options *o);

/* Nanoseconds a logit by kind of request and vocabulary, for rows of normally distributed
 * logits that no other row is like. Prints a table or JSON lines. */
quire_err bench_sampler_run(const bench_sampler_options *o, quire_error *err);

#endif
