/* Memory limits of this process: how much it may still allocate, and locking what it has. */
#ifndef SETUP_MEMORY_LIMITS_H
#define SETUP_MEMORY_LIMITS_H

#include <stdint.h>

#include "base/err.h"

/* Bytes available: the kernel's estimate, or what the cgroup's limit leaves, whichever is less. -1 when unknown. */
int64_t memory_available(void);

/* Locks all mapped memory: weights, pages, buffers, program. QUIRE_NO_MEMORY: the process may not lock so much; err says what allows
 * it. */
quire_err memory_lock(quire_error *err);

#endif
