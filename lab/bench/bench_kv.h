/* `quire bench kv`: what the page pool's and the index's operations cost, alone and from
 * many threads at once, beside the same pool behind a lock. */
#ifndef LAB_BENCH_BENCH_KV_H
#define LAB_BENCH_BENCH_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct bench_kv_options {
    const char *threads;   /* in the pool at once, "1,2,4,8" */
    const char *pages;     /* pages a pool has, "256,1000000" */
    int32_t page_tokens;   /* of the index */
    int32_t prompt_tokens; /* in the index, a power of two */
    int32_t run_ms;        /* least time of a run */
    int32_t n_runs;        /* each figure is the mean and spread of this many */
    bool json;             /* one JSON object a line instead of tables */
} bench_kv_options;

void bench_kv_options_init(bench_kv_options *o);

/* Measures and prints to stdout; err says why it could not. */
quire_err bench_kv_run(const bench_kv_options *o, quire_error *err);

#endif
