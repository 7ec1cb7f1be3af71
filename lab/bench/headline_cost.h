/* What a step costs on this machine, as `quire bench calibrate` finds it, but in the time
 * that `quire bench headline` runs by and through the same passes: of one thread's
 * processor, where there is one. Steps of known content are computed; no request is
 * looked at. */
#ifndef LAB_BENCH_HEADLINE_COST_H
#define LAB_BENCH_HEADLINE_COST_H

#include "lab/bench/model_runner.h"
#include "lab/sim/cost.h"

typedef struct headline_cost_options {
    int32_t n_pages, max_rows, max_seqs, max_len; /* memory in pages of HEADLINE_PAGE tokens */
    int32_t n_runs;                               /* of each measurement, in turns */
} headline_cost_options;

/* *off: the mean square of the fit's relative errors, its root. b's pages are
 * overwritten. */
quire_err headline_cost_measure(model_runner *b, const headline_cost_options *o, cost_model *out, double *off,
                                quire_error *err);

#endif
