/* `quire bench tiers`: the time to the first token of a prompt whose keys and values are
 * computed, still in the pool, or come back from a tier; through the public API, as its
 * users see it. */
#ifndef LAB_BENCH_BENCH_TIERS_H
#define LAB_BENCH_BENCH_TIERS_H

#include <stdbool.h>

#include "quire.h"

typedef struct bench_tiers_options {
    /* tier_file: a directory of one's own, else a temporary one; tier_redis: measured
     * where given */
    quire_options engine;
    const char *lengths; /* tokens of the prompt, "128,1000" */
    int32_t n_runs;      /* each figure is the mean and spread of this many */
    bool json;
} bench_tiers_options;

/* Prompts of 128, 512 and 1000 tokens, 3 runs. */
void bench_tiers_options_init(bench_tiers_options *o);

/* Measures and prints to stdout; err says why it could not. */
quire_err bench_tiers_run(const bench_tiers_options *o, quire_error *err);

#endif
