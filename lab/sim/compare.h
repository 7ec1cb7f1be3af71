/* What a server would do with a trace (`quire sim TRACE --compare` or `--cost FILE`,
 * `quire bench serving`): one table, a row for each way to batch and to give memory, from
 * the simulation in lab/sim/serving.h; and the highest rate of requests that each stands
 * under a bound on latency. */
#ifndef LAB_SIM_COMPARE_H
#define LAB_SIM_COMPARE_H

#include "lab/sim/compare_options.h"
#include "lab/sim/serving.h"

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
