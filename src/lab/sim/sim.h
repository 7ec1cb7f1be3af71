/* `quire sim`: replays a request trace through the page pool, the radix index and eviction, by policy and capacity, and says what was
 * found; or serves it, simulated, and says how fast. */
#ifndef LAB_SIM_SIM_H
#define LAB_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "lab/sim/compare_options.h"
#include "quire_err.h"

typedef struct sim_options {
    const char *trace;        /* a file; lab/sim/trace.h has the formats */
    const char *pages;        /* capacities, "1000,2000"; NULL: from what the trace fills, down to a 128th of it */
    const char *policies;     /* "lru,belady", or all */
    const char *svg;          /* a file to plot hit rate against capacity to, or NULL */
    const char *prefix_cache; /* "token", or "page": whole pages are reused only */
    int32_t page_tokens;      /* 1..512 */
    int32_t concurrency;      /* requests open at once */
    int32_t limit;            /* requests read of the trace; 0: all */
    compare_options server;   /* where it says what serves: simulate that instead (lab/sim/compare.h) */
    bool json;                /* one JSON object a line instead of a table */
} sim_options;

void sim_options_init(sim_options *o);

/* Replays and prints to stdout; err says why it could not. */
quire_err sim_run(const sim_options *o, quire_error *err);

#endif
