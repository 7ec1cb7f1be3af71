/* NUMA nodes of memory, as bit sets: bit n is node n. Any thread. */
#ifndef BASE_NUMA_H
#define BASE_NUMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The nodes from which this thread may allocate; 0: unknown (no NUMA, or a container that
 * forbids the call). */
uint64_t numa_nodes(void);
/* Interleaves the pages of p[0..n_bytes) over `nodes` as they are touched; pages touched
 * before stay where they are. p is at the start of a page. False: the system refused, and
 * the memory is as usable as before. */
bool numa_interleave(void *p, size_t n_bytes, uint64_t nodes);

#endif
