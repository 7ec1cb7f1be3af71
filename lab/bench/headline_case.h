/* One case of `quire bench headline`: requests of one kind, memory for a share of what
 * they would take if fully reserved, and every way of serving them, at rising rates:
 * executed, simulated with this machine's step cost, and simulated with a described
 * device's. Its figures are pure functions of what was served. */
#ifndef LAB_BENCH_HEADLINE_CASE_H
#define LAB_BENCH_HEADLINE_CASE_H

#include "lab/bench/headline_execute.h"
#include "lab/bench/model_runner.h"
#include "lab/sim/cost.h"
#include "lab/sim/serving.h"

/* The result of one load. Means over steps are means of counts, so they are exact if all
 * requests arrive at once. */
typedef struct headline_load {
    double rate; /* arrivals per second; infinite: all at once */
    /* mean over requests of (arrival to end) / tokens of the answer, in seconds */
    double latency;
    double tokens_s; /* answer tokens per second, from the first arrival to the last end */
    /* means over steps: running requests; share of reserved memory that holds tokens */
    double at_once, live;
    double n_steps, n_preemptions;
    step_work work;                /* work of all steps together, including padding and dead rows */
    double steps_at[COST_N_KNOTS]; /* as in serving_result */
} headline_load;

headline_load headline_load_of(const serving_result *r, double rate);

/* Adds a load to *mean, the mean of n loads at one rate. With n = 0: *mean = load. */
void headline_load_mean(headline_load *mean, int32_t n, const headline_load *load);

/* The rate at which latency first exceeds the bound, among loads[0..n) in ascending order
 * of finite rates; interpolated between neighbours on logarithmic scales. If the first
 * load already exceeds it, or none does, returns the first or last rate and sets
 * *is_between to false. */
double headline_highest_rate(const headline_load *loads, int32_t n, double bound, bool *is_between);

/* Microseconds that the cost model allows for the load's work: steps by their rows,
 * logits, pairs of attention, and copies. Planning, sampling and idle time are not
 * included. */
double headline_allowed_us(const cost_model *c, const headline_load *load);

/* How much longer the load's work takes at one cost than at the other: 0.25 if the longer
 * time is 1.25 times the shorter. */
double headline_drift(const cost_model *a, const cost_model *b, const headline_load *load);

/* Index of the run with the median of reached[0..n), n >= 1: the lower median if n is
 * even; equal runs rank by index. */
int32_t headline_median_run(const double *reached, int32_t n);

/* Seconds per token of a request of mean lengths on an idle server. */
double headline_idle_latency(const cost_model *c, double mean_prompt, double mean_output, int32_t max_rows);

typedef struct headline_cost_options {
    int32_t n_pages, max_rows, max_seqs, max_len; /* memory in pages of HEADLINE_PAGE tokens */
    int32_t n_runs;                               /* runs per measurement, alternating */
} headline_cost_options;

/* Measures what a step costs on this machine, in steps of known content, by
 * figures_time_us. *off: root mean square of the fit's relative errors. Overwrites b's
 * pages. */
quire_err headline_cost_measure(model_runner *b, const headline_cost_options *o, cost_model *out, double *off,
                                quire_error *err);

typedef enum headline_way {
    HEADLINE_STATIC,  /* padded batches, with room for the longest sequence per member */
    HEADLINE_MAX,     /* iteration-level batching, contiguous memory for the longest sequence each */
    HEADLINE_POW2,    /* room for the prompt, and the answer's length rounded up to a power of two */
    HEADLINE_ORACLE,  /* room for prompt and answer */
    HEADLINE_GROWING, /* room for the present length; copied when full */
    HEADLINE_PAGED,   /* run by the engine itself */
    HEADLINE_CACHED,  /* the engine with its prefix cache */
    HEADLINE_SWAPPED, /* the engine with swap space */
    /* the engine's planner and pages without the engine, only for all requests at once:
     * shows what the engine adds */
    HEADLINE_PLANNER,
    HEADLINE_N_WAYS
} headline_way;

const char *headline_way_name(headline_way w);

enum { HEADLINE_MAX_LOADS = 16, HEADLINE_MAX_RUNS = 64 };
#define HEADLINE_STEADY 0.05 /* a load is repeated if its step costs changed by more than this around it */

/* All requests at once, then at ascending rates. */
typedef struct headline_sweep {
    headline_load burst, loads[HEADLINE_MAX_LOADS];
    /* executed: step costs, the mean of right before and right after the load */
    cost_model burst_cost, costs[HEADLINE_MAX_LOADS];
    int32_t n_loads;
    double highest; /* highest rate under the bound */
    bool is_between;
} headline_sweep;

typedef struct headline_case {
    const char *lengths;    /* name of the distribution of lengths */
    double share;           /* memory as a part of what all requests take at the maximum length */
    serving_options server; /* memory and limits; its clock is that of the loads */
    cost_model cost;        /* this machine's step cost, the mean of all measurements */
    double cost_off;        /* mean of the fits' root mean square relative errors */
    int32_t n_costs;
    int32_t n_loads, n_again;   /* loads executed; part of them that replaced another run */
    double bound, device_bound; /* latency bounds in seconds per token: here, on the device */
    headline_sweep real[HEADLINE_N_WAYS], simulated[HEADLINE_N_WAYS], device[HEADLINE_N_WAYS];
} headline_case;

typedef struct headline_case_options {
    model_runner *b;
    trace *t;          /* arrivals of about one per second; redrawn if there are several draws */
    const trace *many; /* the same kind with enough requests for a queue to grow: for the device's rates */
    const cost_model *device; /* cost of the described device */
    const int32_t *rates; /* in percent of the simulated throughput, in requests per second, of all at once */
    int32_t n_rates;
    int32_t n_draws; /* draws of arrivals at each rate */
    /* executed runs of all at once, 1 to HEADLINE_MAX_RUNS; the one with the median share
     * of what step costs allow counts */
    int32_t n_runs;
} headline_case_options;

/* Fills the sweeps of *c, whose lengths, share and server are set. QUIRE_INTERNAL: two
 * ways gave different answers. */
quire_err headline_case_run(const headline_case_options *o, headline_case *c, quire_error *err);

#endif
