/* Variants: the same requests run in several ways, in turns, for the experiments and
 * demo_sweep.c. */
#ifndef LAB_BENCH_VARIANT_H
#define LAB_BENCH_VARIANT_H

#include "lab/bench/figures.h"
#include "lab/bench/lab.h"
#include "lab/bench/result_table.h"

/* One way of running: options and requests, and the fastest of its runs so far. */
typedef struct variant {
    quire_options options;
    engine_ablations off;
    lab_request *requests;
    int32_t n, at_once, max_len;
    lab_result best;
    int64_t peak_bytes; /* counted: weights, buffers, pages */
    /* measured: the process's peak until the end of that run; -1: the system does not
     * tell */
    int64_t resident_bytes;
    int32_t n_done;                    /* runs */
    lab_result runs[FIGURES_MAX_RUNS]; /* [n_done] */
} variant;

/* n_runs runs of each of the variants, in turns. Counts must be the same in every run, or
 * the way is not what it is taken for: QUIRE_INTERNAL. Only where `counts_vary` (a pool
 * so small that who is preempted depends on time) may they differ. */
quire_err variants_run(variant *t, int32_t n, int32_t n_runs, bool counts_vary, quire_error *err);

/* Tokens of n distinct prompts one after another, lengths[i] each; mem_new'd. Sets
 * tokens, n_tokens, after (-1) and n_output of requests. NULL when out of memory. */
int32_t *variant_prompts(const int32_t *lengths, int32_t n, int32_t n_output, lab_request *requests);

/* Tokens that all sequences have in pages at the end: the last token of an answer has
 * none. */
int64_t variant_live_tokens(const lab_request *requests, int32_t n);
/* The run of the median speed (sorts t's runs), and the largest distance of another's
 * speed from it. */
const lab_result *variant_median(variant *t, double *spread);
/* Output tokens a second. */
double variant_speed(const lab_result *r);

#endif
