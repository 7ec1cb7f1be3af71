/* What a server would do with a trace (`quire sim TRACE --compare` or `--cost FILE`,
 * `quire bench serving`): one table, a row for each way to batch and to give memory, from
 * the simulation in lab/sim/serving.h; and the highest rate of requests that each stands
 * under a bound on latency. */
#ifndef LAB_SIM_COMPARE_H
#define LAB_SIM_COMPARE_H

#include "lab/sim/serving.h"
#include "quire.h"

typedef struct compare_options {
    bool all; /* every policy; else continuous batching with pages alone */
    bool json;
    const char *described; /* "opt-13b,a100-40gb": lab/sim/cost.h. NULL: cost */
    const char *cost;      /* a file of `quire bench calibrate`, or NULL */
    /* bounds in seconds, "first=1,gap=0.1,token=0.2": 99% of first tokens, 99% of
     * answers' mean gaps, the mean of latency by tokens of the answer. NULL: no highest
     * rate is looked for */
    const char *slo;
    quire_prefix_cache prefix_cache; /* of the one row without `all` */
    double cost_per_hour;            /* of the device; 0: not shown */
    double speed;                    /* the trace's clock runs that many times as fast */
    int32_t shrink;                  /* lengths become a shrink-th */
    int32_t page_tokens, max_seqs, max_rows, max_chunk, max_model_len; /* 0: as the device has it */
    int64_t kv_tokens;                                                 /* 0: as the device has it */
    int64_t step_target_us;
    /* Beyond pages alone: rows of their own under `all`, else of the one row */
    int64_t swap_bytes; /* host memory for preempted requests; 0: none */
    quire_preemption preemption_mode;
    /* "0.8,0.6": chances that the first, second .. guess of a step is right; NULL: no
     * guesses */
    const char *acceptance;
    double draft_us; /* that making a step's guesses takes */
} compare_options;

void compare_options_init(compare_options *o);

/* The cost model and the server that the options ask for; out->cost points to *cost.
 * QUIRE_INVALID and what a file can have wrong. */
quire_err compare_server(const compare_options *o, cost_model *cost, serving_options *out, quire_error *err);
/* The same with a cost model that is there already, and stays. */
quire_err compare_server_of(const compare_options *o, const cost_model *cost, serving_options *out,
                            quire_error *err);
/* Runs and prints; name is what the trace is called, note (or NULL) what is to be said of
 * it. */
quire_err compare_run(const compare_options *o, const trace *t, const char *name, quire_error *err);

/* A percentile of values[0..n), which it sorts: 0.99 of them are at or under it. In
 * seconds, from microseconds. */
double compare_seconds(double *values, int32_t n, double part);
double compare_mean_seconds(const double *values, int32_t n);

#endif
