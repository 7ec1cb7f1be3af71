/* `quire bench headline [MODEL]`: what paging and continuous batching are worth, as the
 * papers measured it, really run. Memory for keys and values holds a share of what all
 * requests would take at the longest sequence's length; requests of known lengths arrive
 * as a Poisson process, faster and faster until the queue grows. Servers without paging
 * (headline_execute.h) and the engine (headline_engine.h) answer the same requests with
 * the same planner, kernels and weights, all answers being equal. Beside each gain stand
 * the published one, the one that this machine's step cost allows (headline_figures.h),
 * and the simulator's for this machine and for the published device.
 *
 * With one compute thread time is that of the processor: other programs on the machine
 * don't lengthen it, and arrivals are in it. */
#ifndef LAB_BENCH_HEADLINE_H
#define LAB_BENCH_HEADLINE_H

#include "quire.h"

typedef struct headline_options {
    /* model, numeric configuration, threads, max_seqs, max_batched_tokens, max_model_len;
     * 0: as chosen here */
    quire_options engine;
    /* random weights of a published shape in place of a model, and their type; NULL:
     * none */
    const char *shape, *type;
    const char *lengths;        /* kinds of requests, "sharegpt,alpaca" */
    const char *trace;          /* a file of requests in place of them (lab/sim/trace_read.h); NULL: none */
    const char *shares;         /* of the memory, percent: "5,10,20" */
    const char *rates;          /* percent of the requests a second that all at once give */
    int32_t n_requests, shrink; /* shrink: lengths, and the longest sequence, become a shrink-th */
    int32_t seed;
    int32_t n_draws;   /* of arrivals, at each rate: means over them */
    double times_idle; /* bound of latency: so many times that of an idle server */
    int32_t n_runs;
    bool quick; /* what was not given is small */
    bool json;
    const char *svg; /* file for the curves; NULL: none */
} headline_options;

void headline_options_init(headline_options *o);
/* Runs and prints to stdout; err says why it could not. */
quire_err headline_run(const headline_options *o, quire_error *err);

#endif
