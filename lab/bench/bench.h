/* `quire bench`: how fast the engine prefills and decodes, measured through the public
 * API as its users see it, beside what memory and arithmetic allow. */
#ifndef LAB_BENCH_BENCH_H
#define LAB_BENCH_BENCH_H

#include <stdbool.h>

#include "engine/ablations.h"
#include "quire.h"

typedef struct bench_options {
    quire_options engine;
    engine_ablations off;
    const char *batches;  /* requests at once, "1,4,16" */
    const char *contexts; /* tokens that stand before the decoded ones, "128,1024" */
    int32_t n_decode;     /* tokens decoded for each request */
    int32_t n_runs;       /* each figure is the mean and spread of this many */
    bool json;            /* one JSON object a line instead of a table */
} bench_options;

void bench_options_init(bench_options *o);

/* Measures and prints to stdout; err says why it could not. Figures of a context that the
 * model cannot hold are refused before anything runs. */
quire_err bench_run(const bench_options *o, quire_error *err);

#endif
