/* How much memory this process may still take, and keeping what it has. */
#ifndef API_MEMORY_LIMITS_H
#define API_MEMORY_LIMITS_H

#include <stdint.h>

#include "base/err.h"

/* Bytes available now: the kernel's estimate, or what the cgroup's limit leaves, whichever is less. -1 when unknown. */
int64_t memory_available(void);

/* Keeps in memory all that is mapped now: weights, pages, buffers, program. QUIRE_NO_MEMORY: the process may not lock so much; err says how
 * it may. */
quire_err memory_lock(quire_error *err);

#endif
