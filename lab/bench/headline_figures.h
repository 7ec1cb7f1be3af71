/* The figures of `quire bench headline`, as pure functions of what was served: a load's,
 * the highest rate under a bound of latency, and the time that a machine's step cost
 * allows for the work that a way of serving did. */
#ifndef LAB_BENCH_HEADLINE_FIGURES_H
#define LAB_BENCH_HEADLINE_FIGURES_H

#include "lab/sim/serving.h"

/* What one load gave. Means over steps are of counts, so they are exact where all
 * requests come at once. */
typedef struct headline_load {
    double rate; /* requests a second that arrive; infinite: all at once */
    /* mean of a request's time from arrival to its end by the answer's tokens, seconds */
    double latency;
    double tokens_s; /* of answers, from the first arrival to the last end */
    /* requests running; part of the reserved room that holds a token: means over steps */
    double at_once, live;
    double n_steps, n_preemptions;
    step_work work;                /* of all steps together, padding and dead rows among it */
    double steps_at[COST_N_KNOTS]; /* as serving_result's */
} headline_load;

headline_load headline_load_of(const serving_result *r, double rate);

/* *mean, the mean of n loads at one rate, becomes the mean of those and another. With n =
 * 0 it becomes that. */
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

/* How much longer or shorter the load's work takes at one cost than at the other: 0.25
 * where the longer time is 1.25 of the shorter. */
double headline_drift(const cost_model *a, const cost_model *b, const headline_load *load);

/* Which of n runs has the median of reached[0..n): the lower one of an even number; equal
 * runs count in their order. n >= 1. */
int32_t headline_median_run(const double *reached, int32_t n);

/* Seconds a token that a request of mean lengths takes on an idle server. */
double headline_idle_latency(const cost_model *c, double mean_prompt, double mean_output, int32_t max_rows);

#endif
