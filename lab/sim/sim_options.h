/* What `quire sim` is asked for. */
#ifndef LAB_SIM_SIM_OPTIONS_H
#define LAB_SIM_SIM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "lab/sim/compare_options.h"
#include "quire.h"

typedef struct sim_options {
    const char *trace; /* a file; lab/sim/trace_read.h has the formats */
    /* capacities, "1000,2000"; NULL: from what the trace fills, down to a 128th of it */
    const char *pages;
    const char *policies;            /* "lru,belady", or all */
    const char *svg;                 /* a file to plot hit rate against capacity to, or NULL */
    quire_prefix_cache prefix_cache; /* of tokens, or of whole pages only */
    int32_t page_tokens;             /* 1..512 */
    int32_t concurrency;             /* requests open at once */
    int32_t limit;                   /* requests read of the trace; 0: all */
    compare_options server; /* where it says what serves: simulate that instead (lab/sim/compare.h) */
    bool json;              /* one JSON object a line instead of a table */
} sim_options;

#endif
