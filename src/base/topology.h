/* Topology: which of the processors that a thread may use share a core, and the memory
 * node of each.
 *
 * Read from the kernel's files below a root ("/sys"). Files may be missing, cut short or
 * contradictory: a processor that they do not mention is a core of its own, on node 0.
 * Any thread; nothing is cached. */
#ifndef BASE_TOPOLOGY_H
#define BASE_TOPOLOGY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { TOPOLOGY_MAX_CPUS = 2048, TOPOLOGY_MAX_NODES = 64 };

/* A set of processors, by their numbers. */
typedef struct cpu_mask {
    uint64_t words[TOPOLOGY_MAX_CPUS / 64];
} cpu_mask;

static inline bool cpu_mask_has(const cpu_mask *m, int32_t cpu) {
    return (m->words[cpu / 64] >> (cpu % 64) & 1) != 0;
}
static inline void cpu_mask_add(cpu_mask *m, int32_t cpu) {
    m->words[cpu / 64] |= (uint64_t)1 << (cpu % 64);
}
int32_t cpu_mask_count(const cpu_mask *m);

/* Parses a list in the kernel's notation, "0-3,8". QUIRE_INVALID leaves *out unchanged;
 * err gives the position, and the caller adds the flag's name. */
quire_err cpu_mask_parse(const char *text, cpu_mask *out, quire_error *err);
/* Writes m as a list in the kernel's notation to out[0..n); it ends in ".." if cut. */
void cpu_mask_print(const cpu_mask *m, char *out, size_t n);

/* Get or set the processors that a thread may use. False: refused, nothing changed. */
bool cpu_mask_get(pthread_t thread, cpu_mask *out);
bool cpu_mask_set(pthread_t thread, const cpu_mask *m);

typedef struct topology_cpu {
    int32_t cpu;
    int32_t sibling; /* index among the processors of the same core */
    int32_t node;
} topology_cpu;

typedef struct topology {
    int32_t n_cpus, n_cores;
    /* [n_cpus] the first processor of each core, by node; then each core's second, .. */
    topology_cpu cpus[TOPOLOGY_MAX_CPUS];
} topology;

/* Reads the topology of the processors in `allowed` only. root: "/sys". */
void topology_read(const char *root, const cpu_mask *allowed, topology *out);

/* Sets of NUMA nodes, as bits: bit n is node n. Any thread. */

/* Returns the set of nodes from which this thread may allocate; 0: unknown (no NUMA, or a
 * container that forbids the call). */
uint64_t numa_nodes(void);
/* Interleaves the pages of p[0..n_bytes) over `nodes` as they are touched; pages touched
 * before stay where they are. p is page-aligned. False: the system refused, and the
 * memory is still usable. */
bool numa_interleave(void *p, size_t n_bytes, uint64_t nodes);

#endif
