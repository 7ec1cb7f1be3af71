/* One case of `quire bench headline`: requests of one kind, a memory that holds a share
 * of what they would take fully reserved, and every way of serving them, at rising rates:
 * really, simulated with this machine's step cost, and simulated with a described
 * device's. */
#ifndef LAB_BENCH_HEADLINE_CASE_H
#define LAB_BENCH_HEADLINE_CASE_H

#include "lab/bench/headline_execute.h"
#include "lab/bench/model_runner.h"
#include "lab/sim/cost.h"
#include "lab/sim/serving.h"

/* The figures of `quire bench headline`, as pure functions of what was served: a load's,
 * the highest rate under a bound of latency, and the time that a machine's step cost
 * allows for the work that a way of serving did. */

/* The result of one load. Means over steps are means of counts, so they are exact if all
 * requests come at once. */
typedef struct headline_load {
    double rate; /* arrivals per second; infinite: all at once */
    /* mean of a request's time from arrival to its end by the answer's tokens, seconds */
    double latency;
    double tokens_s; /* tokens of answers per second, from the first arrival to the last end */
    /* requests running; part of the reserved room that holds a token: means over steps */
    double at_once, live;
    double n_steps, n_preemptions;
    step_work work;                /* work of all steps together, including padding and dead rows */
    double steps_at[COST_N_KNOTS]; /* as serving_result's */
} headline_load;

headline_load headline_load_of(const serving_result *r, double rate);

/* Adds a load to *mean, the mean of n loads at one rate. With n = 0 *mean becomes the
 * load. */
void headline_load_mean(headline_load *mean, int32_t n, const headline_load *load);

/* The rate at which the latency of loads[0..n), in ascending order of their rates, all
 * finite, first passes the bound: on the straight line between its neighbours, both
 * scales logarithmic. The first load's rate where that passes it, the last one's where
 * none does: *is_between is false. */
double headline_highest_rate(const headline_load *loads, int32_t n, double bound, bool *is_between);

/* Microseconds that the cost model allows for the load's work: its steps by their rows,
 * logits, the pairs that attention read, and what was copied. Nothing is added for
 * planning, sampling or idling. */
double headline_allowed_us(const cost_model *c, const headline_load *load);

/* By how much the load's work takes longer at one cost than at the other: 0.25 if the
 * longer time is 1.25 times the shorter. */
double headline_drift(const cost_model *a, const cost_model *b, const headline_load *load);

/* Which of n runs has the median of reached[0..n): the lower one of an even number; equal
 * runs count in their order. n >= 1. */
int32_t headline_median_run(const double *reached, int32_t n);

/* Seconds per token of a request of mean lengths on an idle server. */
double headline_idle_latency(const cost_model *c, double mean_prompt, double mean_output, int32_t max_rows);

/* What a step costs on this machine, in the time that `quire bench headline` runs by and
 * through the same passes: of one thread's processor, where there is one. Steps of known
 * content are computed; no request is looked at. */

typedef struct headline_cost_options {
    int32_t n_pages, max_rows, max_seqs, max_len; /* memory in pages of HEADLINE_PAGE tokens */
    int32_t n_runs;                               /* of each measurement, in turns */
} headline_cost_options;

/* *off: the mean square of the fit's relative errors, its root. b's pages are
 * overwritten. */
quire_err headline_cost_measure(model_runner *b, const headline_cost_options *o, cost_model *out, double *off,
                                quire_error *err);

/* One load of `quire bench headline`: requests served one way at one rate of arrivals,
 * really or simulated. */

typedef enum headline_way {
    HEADLINE_STATIC,  /* padded batches, each member with room for the longest sequence */
    HEADLINE_MAX,     /* iteration-level batching, one piece each, with room for the longest sequence */
    HEADLINE_POW2,    /* prompt, and the answer rounded up to a power of two */
    HEADLINE_ORACLE,  /* prompt and answer */
    HEADLINE_GROWING, /* its present length; copied when full */
    HEADLINE_PAGED,   /* the engine */
    HEADLINE_CACHED,  /* the engine with its prefix cache */
    HEADLINE_SWAPPED, /* the engine with swap space */
    /* the engine's planner and pages without the engine, only for all requests at once:
     * shows what the engine adds */
    HEADLINE_PLANNER,
    HEADLINE_N_WAYS
} headline_way;

const char *headline_way_name(headline_way w);

typedef struct headline_run {
    model_runner *b;
    const trace *t;
    trace *drawn; /* t, if its arrivals are drawn anew; NULL if they stay */
    int32_t n_draws;
    uint64_t seed;                 /* seed of the first draw */
    const serving_options *server; /* memory and limits */
    headline_way way;
    bool really;
    const cost_model *cost; /* step costs of a simulation */
    uint64_t *digest;       /* digest of the answers so far; 0: none yet */
} headline_run;

enum { HEADLINE_MAX_LOADS = 16, HEADLINE_MAX_RUNS = 64 };
#define HEADLINE_STEADY 0.05 /* a load runs again if its step costs changed by more than this around it */

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
    double share;           /* memory as a part of what all requests take at the maximum length */
    serving_options server; /* memory and limits; its clock is that of the loads */
    cost_model cost;        /* this machine's, the mean of all that was measured */
    double cost_off;        /* the root of the mean square of the fits' relative errors, mean */
    int32_t n_costs;
    int32_t n_loads, n_again;   /* really run; of those, runs that replaced another */
    double bound, device_bound; /* bounds of latency in seconds a token: here, on the device */
    headline_sweep real[HEADLINE_N_WAYS], simulated[HEADLINE_N_WAYS], device[HEADLINE_N_WAYS];
} headline_case;

typedef struct headline_case_options {
    model_runner *b;
    trace *t;                 /* arrivals of about one a second; drawn anew where there are several draws */
    const trace *many;        /* the same kind, so many that a queue can grow: for the device's rates */
    const cost_model *device; /* the described one's */
    double times_idle;        /* bound, as a multiple of an idle server's latency */
    const int32_t *rates;     /* in percent of the requests a second that all at once give, simulated */
    int32_t n_rates;
    int32_t n_draws; /* draws of arrivals at each rate */
    uint64_t seed;   /* of the first */
    /* of all at once, really, 1 to HEADLINE_MAX_RUNS: the one that reaches the median of
     * what steps allow counts */
    int32_t n_runs;
} headline_case_options;

/* Fills the sweeps of *c, whose lengths, share and server are set. QUIRE_INTERNAL when
 * two ways give different answers. */
quire_err headline_case_run(const headline_case_options *o, headline_case *c, quire_error *err);

#endif
