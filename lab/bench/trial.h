/* Trials: the same requests run in several ways, in turns, for the experiments and
 * demo_sweep.c. */
#ifndef LAB_BENCH_TRIAL_H
#define LAB_BENCH_TRIAL_H

#include "lab/bench/figures.h"
#include "lab/bench/lab.h"
#include "lab/bench/sheet.h"

#define EXPERIMENT_COLUMNS(c) (c), (int32_t)(sizeof(c) / sizeof *(c))

/* One way of running: options and requests, and the fastest of its runs so far. */
typedef struct trial {
    quire_options options;
    engine_ablations off;
    lab_request *requests;
    int32_t n, at_once, max_len;
    lab_result best;
    int64_t peak_bytes; /* counted: weights, buffers, pages */
    /* measured: the process's peak until the end of that run; -1: the system does not
     * tell */
    int64_t resident_bytes;
    int32_t n_done; /* runs */
} trial;

/* n_runs runs of each of the trials, in turns. Counts must be the same in every run, or
 * the way is not what it is taken for: QUIRE_INTERNAL. Only where `counts_vary` (a pool
 * so small that who is preempted depends on time) may they differ. */
quire_err trials_run(trial *t, int32_t n, int32_t n_runs, bool counts_vary, quire_error *err);

/* Tokens of n distinct prompts one after another, lengths[i] each; mem_new'd. Sets
 * tokens, n_tokens, after (-1) and n_output of requests. NULL when out of memory. */
int32_t *trial_prompts(const int32_t *lengths, int32_t n, int32_t n_output, lab_request *requests);

/* Tokens that all sequences have in pages at the end: the last token of an answer has
 * none. */
int64_t trial_live_tokens(const lab_request *requests, int32_t n);
/* Output tokens a second. */
double trial_speed(const lab_result *r);

#endif
