/* `quire bench start`: from exec to a model's first token, the first time and, with the
 * pack cache, every later time; and how much of that is the token's own arithmetic. */
#ifndef LAB_BENCH_BENCH_START_H
#define LAB_BENCH_BENCH_START_H

#include <stdbool.h>

#include "quire.h"

enum { START_MAX_RUNS = 64 };

typedef struct bench_start_options {
    quire_options engine; /* the model, compute mode, KV type, threads and instruction set count */
    int32_t n_runs;       /* 1..START_MAX_RUNS */
    bool json;
} bench_start_options;

/* Milliseconds of n_runs starts, from before the program is started to the first bytes
 * that it writes of a prompt of one token's logits. */
typedef struct start_figure {
    double least_ms, median_ms;
} start_figure;

/* All with the files in the page cache: one start before them does not count. */
typedef struct start_times {
    start_figure first;  /* with an empty pack cache; of a packed model without one */
    start_figure second; /* with the entry that a start has left there */
    bool has_second;     /* false for packed models and the built-in one, which no cache keeps */
    double token_ms;     /* the same request in an engine that is open, at least */
} start_times;

void bench_start_options_init(bench_start_options *o);
/* Starts quire, which lies beside quire-lab or in PATH, again and again. */
quire_err bench_start_measure(const bench_start_options *o, start_times *out, quire_error *err);
/* Measures, and prints a table or a JSON line to stdout. */
quire_err bench_start_run(const bench_start_options *o, quire_error *err);

#endif
