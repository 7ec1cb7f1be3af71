/* `quire bench engine`: the engine's own work in a step (taking requests in, planning,
 * reserving pages, filling the batch, choosing, telling readers), with the engine's real
 * thread and steps over a model that does nothing. */
#ifndef LAB_BENCH_BENCH_ENGINE_H
#define LAB_BENCH_BENCH_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct bench_engine_options {
    const char *running; /* how many sequences run at once: "1,16,64,256" */
    int32_t n_prompt;    /* tokens of each prompt */
    int32_t page_tokens;
    bool json; /* one JSON object a line instead of a table */
} bench_engine_options;

void bench_engine_options_init(bench_engine_options *o);

/* For each number: sequences that only decode, and ones that end and are followed by
 * others all the while. Prints to stdout; err says why it could not. */
quire_err bench_engine_run(const bench_engine_options *o, quire_error *err);

#endif
