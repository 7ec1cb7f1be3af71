/* One case of `quire bench headline`: requests of one kind, a memory that holds a share
 * of what they would take fully reserved, and every way of serving them, at rising rates:
 * really, simulated with this machine's step cost, and simulated with a described
 * device's. */
#ifndef LAB_BENCH_HEADLINE_CASE_H
#define LAB_BENCH_HEADLINE_CASE_H

#include "lab/bench/headline_execute.h"
#include "lab/bench/headline_figures.h"

/* One load of `quire bench headline`: requests served one way at one rate of arrivals,
 * really or simulated. */

typedef enum headline_way {
    HEADLINE_STATIC,  /* padded batches, each member with room for the longest sequence */
    HEADLINE_MAX,     /* by iteration, one piece each: for the longest sequence */
    HEADLINE_POW2,    /* prompt, and the answer rounded up to a power of two */
    HEADLINE_ORACLE,  /* prompt and answer */
    HEADLINE_GROWING, /* what it has; copied when it is full */
    HEADLINE_PAGED,   /* the engine */
    HEADLINE_CACHED,  /* the engine with its prefix cache */
    HEADLINE_SWAPPED, /* the engine with host memory for what it preempts */
    /* the engine's planner and pages without the engine: only all at once, to see what
     * the engine adds */
    HEADLINE_PLANNER,
    HEADLINE_N_WAYS
} headline_way;

const char *headline_way_name(headline_way w);

typedef struct headline_run {
    model_runner *b;
    const trace *t;
    trace *drawn; /* t, if its arrivals are drawn anew; NULL if they stay */
    int32_t n_draws;
    uint64_t seed;                 /* of the first draw */
    const serving_options *server; /* memory and limits */
    headline_way way;
    bool really;
    const cost_model *cost; /* of a simulation's steps */
    uint64_t *digest;       /* of the answers so far; 0: none yet */
} headline_run;

/* *out: the load at so many requests a second, INFINITY for all at once; the mean over
 * the draws of arrivals, where there is something to draw. QUIRE_INTERNAL when the way
 * gives other answers than those before it. */
quire_err headline_run_load(const headline_run *k, double rate, headline_load *out, quire_error *err);

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
    model_runner *b;
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
