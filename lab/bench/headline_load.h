/* One load of `quire bench headline`: requests served one way at one rate of arrivals,
 * really or simulated. */
#ifndef LAB_BENCH_HEADLINE_LOAD_H
#define LAB_BENCH_HEADLINE_LOAD_H

#include "lab/bench/headline_execute.h"
#include "lab/bench/headline_figures.h"

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

typedef struct headline_course {
    bare *b;
    const trace *t;
    trace *drawn; /* t, if its arrivals are drawn anew; NULL if they stay */
    int32_t n_draws;
    uint64_t seed;                 /* of the first draw */
    const serving_options *server; /* memory and limits */
    headline_way way;
    bool really;
    const cost_model *cost; /* of a simulation's steps */
    uint64_t *digest;       /* of the answers so far; 0: none yet */
} headline_course;

/* *out: the load at so many requests a second, INFINITY for all at once; the mean over
 * the draws of arrivals, where there is something to draw. QUIRE_INTERNAL when the way
 * gives other answers than those before it. */
quire_err headline_run_load(const headline_course *k, double rate, headline_load *out, quire_error *err);

#endif
