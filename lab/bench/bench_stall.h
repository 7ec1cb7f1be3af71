/* `quire bench stall`: how much a long prompt slows the streams beside it, with a target
 * time of a step and without. */
#ifndef LAB_BENCH_BENCH_STALL_H
#define LAB_BENCH_BENCH_STALL_H

#include <stdbool.h>

#include "engine/ablations.h"
#include "quire.h"

typedef struct bench_stall_options {
    quire_options engine; /* step_target_us: what is compared with no target */
    engine_ablations off;
    int32_t n_streams; /* that decode all the while */
    int32_t n_prompt;  /* tokens of the prompt that comes in between */
    bool json;
} bench_stall_options;

void bench_stall_options_init(bench_stall_options *o);

/* Without a target and with it: gaps between the streams' tokens undisturbed and while
 * the prompt is computed, and when the prompt's first token came. Prints a table or
 * JSON lines to stdout; err says why it could not. */
quire_err bench_stall_run(const bench_stall_options *o, quire_error *err);

#endif
