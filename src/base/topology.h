/* Processors: which of those that a thread may use share a core, and which node of memory is theirs.
 *
 * Read from the kernel's files below a root ("/sys"), which may be missing, cut short or contradict each other: a processor of which they
 * say nothing is a core by itself, on node 0. Any thread; nothing is kept. */
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

/* A list as the kernel writes and people type it, "0-3,8". QUIRE_INVALID leaves *out as it was; err has the position and no name of a flag.
 */
quire_err cpu_mask_parse(const char *text, cpu_mask *out, quire_error *err);
/* The same list of m, which ends in ".." where it does not fit n bytes. */
void cpu_mask_print(const cpu_mask *m, char *out, size_t n);

/* The processors that a thread may run on. false: the system did not say, or would not have it; nothing changed. */
bool cpu_mask_get(pthread_t thread, cpu_mask *out);
bool cpu_mask_set(pthread_t thread, const cpu_mask *m);

typedef struct topology_cpu {
    int32_t cpu;
    int32_t sibling; /* how many processors of its core come before it */
    int32_t node;
} topology_cpu;

typedef struct topology {
    int32_t n_cpus, n_cores;
    /* [n_cpus], first one of each core, those of a node side by side; then the cores' second ones.. */
    topology_cpu cpus[TOPOLOGY_MAX_CPUS];
} topology;

/* Of the processors in `allowed`; others do not exist. */
void topology_read(const char *root, const cpu_mask *allowed, topology *out);

#endif
