/* One case of `quire bench headline`: requests of one kind, a memory that holds a share
 * of what they would take fully reserved, and every way of serving them, at rising rates:
 * really, simulated with this machine's step cost, and simulated with a described
 * device's. */
#ifndef LAB_BENCH_HEADLINE_CASE_H
#define LAB_BENCH_HEADLINE_CASE_H

#include "lab/bench/headline_load.h"

enum { HEADLINE_MAX_LOADS = 16, HEADLINE_MAX_RUNS = 64 };
#define HEADLINE_STEADY 0.05 /* a load runs again where what its work costs changed by more around it */

/* Everybody at once, then at rates in ascending order. */
typedef struct headline_sweep {
    headline_load burst, loads[HEADLINE_MAX_LOADS];
    /* really run: of steps, the mean of right before and right after the load */
    cost_model burst_cost, costs[HEADLINE_MAX_LOADS];
    int32_t n_loads;
    double highest; /* rate under the bound */
    bool is_between;
} headline_sweep;

typedef struct headline_case {
    const char *lengths;    /* name of the kind of requests */
    double share;           /* memory, of what all requests take at the longest sequence's length */
    serving_options server; /* memory and limits; its clock is that of the loads */
    cost_model cost;        /* this machine's, the mean of all that was measured */
    double cost_off;        /* the root of the mean square of the fits' relative errors, mean */
    int32_t n_costs;
    int32_t n_loads, n_again;   /* really run; of those, runs that replaced another */
    double bound, device_bound; /* of latency, seconds a token: here, on the device */
    headline_sweep real[HEADLINE_N_WAYS], simulated[HEADLINE_N_WAYS], device[HEADLINE_N_WAYS];
} headline_case;

typedef struct headline_case_options {
    bare *b;
    trace *t;                 /* arrivals of about one a second; drawn anew where there are several draws */
    const trace *many;        /* the same kind, so many that a queue can grow: for the device's rates */
    const cost_model *device; /* the described one's */
    double times_idle;        /* the bound: so many times the latency of an idle server */
    const int32_t *rates;     /* in percent of the requests a second that all at once give, simulated */
    int32_t n_rates;
    int32_t n_draws; /* of arrivals, at each rate */
    uint64_t seed;   /* of the first */
    /* of all at once, really, 1 to HEADLINE_MAX_RUNS: the one that reaches the median of
     * what steps allow counts */
    int32_t n_runs;
} headline_case_options;

/* Fills the sweeps of *c, whose lengths, share and server are set. QUIRE_INTERNAL when
 * two ways give different answers. */
quire_err headline_case_run(const headline_case_options *o, headline_case *c, quire_error *err);

#endif
