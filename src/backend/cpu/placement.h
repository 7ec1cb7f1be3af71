/* The placement of a backend's threads and memory on processors and NUMA nodes.
 *
 * The system's scheduler places the threads unless --cpu-bind says otherwise. A bound
 * thread cannot move away from other work on its processor, and two engines bound to the
 * same processors get half of them each while others idle. So `auto` binds only if there
 * is no choice: if threads fill the cores (or all processors) that the process may use.
 * To use a part of a machine, give a list.
 *
 * Memory of weights and pages is interleaved over the nodes of the threads' processors,
 * if the process may use several. Any free worker takes an op's next task, so threads do
 * not read the same bytes in each step and memory cannot be local to them. Interleaving
 * reads all nodes at once, with their total bandwidth. */
#ifndef CPU_PLACEMENT_H
#define CPU_PLACEMENT_H

#include "base/topology.h"

typedef struct cpu_placement {
    int32_t n_threads;
    bool is_bound; /* thread i is bound to cpus[i] */
    int32_t cpus[TOPOLOGY_MAX_CPUS];
    uint64_t nodes; /* nodes of the processors on which threads may run */
} cpu_placement;

/* bind: "auto", "none" (or NULL) or a list of processors. n_threads 0: one thread for
 * each processor of the list, or else n_usual. If the list is longer than n_threads, one
 * processor of each core is taken first. QUIRE_INVALID, with err: not a list, not all in
 * `all`, or fewer than threads. */
quire_err cpu_placement_choose(const char *bind, int32_t n_threads, int32_t n_usual, const topology *all,
                               cpu_placement *out, quire_error *err);

#endif
