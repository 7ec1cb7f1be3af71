/* Places a backend's threads and memory on processors and NUMA nodes.
 *
 * Threads are placed by the operating system unless --cpu-bind says otherwise. A pinned
 * thread cannot move away from other work on its processor, and two engines pinned to the
 * same processors get half of each while others idle. So "auto" pins only if there is no
 * choice: if the threads fill the cores (or all processors) that the process may use.
 * Give a list to use part of a machine.
 *
 * Memory of weights and pages is interleaved over the NUMA nodes of the threads'
 * processors. Any free worker takes an op's next task, so a thread does not read the same
 * bytes in each step and memory cannot be local to it; interleaving uses the bandwidth of
 * all nodes. */
#ifndef CPU_PLACEMENT_H
#define CPU_PLACEMENT_H

#include "base/topology.h"

typedef struct cpu_placement {
    int32_t n_threads;
    bool is_bound; /* thread i is pinned to cpus[i] */
    int32_t cpus[TOPOLOGY_MAX_CPUS];
    uint64_t nodes; /* NUMA nodes of the processors on which threads may run */
} cpu_placement;

/* bind: "auto", "none" (or NULL), or a list of processors. n_threads 0: one per processor
 * of the list or, without a list, n_usual. If the list is longer than n_threads, one
 * processor of each core is taken first. QUIRE_INVALID, with err: not a list, a processor
 * outside `all`, or fewer processors than threads. */
quire_err cpu_placement_choose(const char *bind, int32_t n_threads, int32_t n_usual, const topology *all,
                               cpu_placement *out, quire_error *err);

#endif
