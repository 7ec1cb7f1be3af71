/* `quire bench runs`: what it would gain if several adjacent pages had one entry in a block table, and how often a pool has adjacent pages.
 */
#ifndef LAB_BENCH_RUNS_H
#define LAB_BENCH_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct bench_runs_options {
    const char *shape;    /* "layers,KV heads,head width" of one group; four query heads share a KV head */
    const char *contexts; /* tokens of the sequence that attention reads, "1024,8192" */
    int32_t page_tokens, n_runs;
    bool json; /* one JSON object a line instead of tables */
} bench_runs_options;

void bench_runs_options_init(bench_runs_options *o);

/* Measures and prints to stdout; err says why it could not. */
quire_err bench_runs_run(const bench_runs_options *o, quire_error *err);

#endif
