/* Where a backend's threads and memory lie.
 *
 * Threads are left to the system's scheduler unless --cpu-bind says otherwise: bound to one processor each, a thread cannot move away from
 * what else runs there, and two engines bound to the same processors halve each other while others idle. So `auto` binds only where there
 * is nothing to choose, that is where threads fill the cores (or all processors) that the process may use; a task of a machine takes a
 * list.
 *
 * Memory of weights and pages comes from the nodes of the threads' processors in turn, where the process may use several. Parts of an op go
 * to whichever thread comes first, so no thread reads the same bytes again and none can have them near; in turns, all nodes' memory is read
 * at once, at the rate of all of them. */
#ifndef CPU_PLACEMENT_H
#define CPU_PLACEMENT_H

#include "base/topology.h"

typedef struct cpu_placement {
    int32_t n_threads;
    bool is_bound;                    /* thread i to cpus[i] */
    int32_t cpus[TOPOLOGY_MAX_CPUS];
    uint64_t nodes;                   /* of the processors that threads may run on */
} cpu_placement;

/* bind: "auto", "none" (or NULL) or a list of processors. n_threads 0: a thread a processor of the list, or else n_usual. Of a list longer
 * than n_threads, one processor a core is taken first. QUIRE_INVALID, with err: not a list, not all in `all`, or fewer than threads. */
quire_err cpu_placement_choose(const char *bind, int32_t n_threads, int32_t n_usual, const topology *all, cpu_placement *out,
                               quire_error *err);

#endif
