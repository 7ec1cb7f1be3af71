/* How much memory this process may still take. */
#ifndef API_MEMORY_H
#define API_MEMORY_H

#include <stdint.h>

/* Bytes available now: the kernel's estimate, or what the cgroup's limit leaves, whichever is less. -1 when unknown. */
int64_t memory_available(void);

#endif
