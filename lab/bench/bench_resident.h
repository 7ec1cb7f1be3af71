/* `quire bench resident`: memory as a model that is really run takes it, by length and
 * batch, with keys and values in pages, in growing pieces and in pieces with room for the
 * longest. Each case runs in a process of its own, whose peak the system counts; beside
 * it every allocation, counted where it is made. */
#ifndef LAB_BENCH_BENCH_RESIDENT_H
#define LAB_BENCH_BENCH_RESIDENT_H

#include <stdbool.h>

#include "quire.h"

typedef struct bench_resident_options {
    quire_options engine;
    const char *lengths; /* tokens of each sequence: "128,500,1000,2049,4096,8192" */
    const char *batches; /* sequences: "1,4" */
    int32_t max_len;     /* what is reserved for each where all is reserved; 0: the longest of lengths */
    bool json;
} bench_resident_options;

void bench_resident_options_init(bench_resident_options *o);

/* Prints to stdout; err says why it could not. */
quire_err bench_resident_run(const bench_resident_options *o, quire_error *err);

#endif
