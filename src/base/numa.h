/* Nodes of memory, as bits: bit n is node n. Any thread. */
#ifndef BASE_NUMA_H
#define BASE_NUMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The nodes that this thread may have memory of; 0: the system does not say (no NUMA, or a container that forbids asking). */
uint64_t numa_nodes(void);
/* Has the pages of p[0..n_bytes) come from `nodes` in turn as they are touched; those that were stay where they are. p lies at the
 * beginning of a page. false: the system would not, and the memory is as good as before. */
bool numa_interleave(void *p, size_t n_bytes, uint64_t nodes);

#endif
