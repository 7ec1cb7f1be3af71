/* `quire bench preempt`: what it costs to bring a preempted sequence back by swapping and
 * by computing it again, by page size and length, on a model that is really run. After
 * each copy out and in, the next token's logits must be the same to the bit. */
#ifndef LAB_BENCH_BENCH_PREEMPT_H
#define LAB_BENCH_BENCH_PREEMPT_H

#include <stdbool.h>

#include "quire.h"

typedef struct bench_preempt_options {
    quire_options engine; /* model and numeric configuration count, and rows a step */
    const char *pages;    /* tokens a page, "1,16,256" */
    const char *lengths;  /* tokens of the sequence, "128,1024" */
    int32_t n_runs;       /* each figure is the mean and spread of this many */
    bool json;
} bench_preempt_options;

/* Pages of 1 .. 256, sequences of 128, 512 and 1024 tokens, 3 runs. */
void bench_preempt_options_init(bench_preempt_options *o);

/* Measures and prints to stdout; err says why it could not. */
quire_err bench_preempt_run(const bench_preempt_options *o, quire_error *err);

#endif
