/* How fast this machine reads memory: the limit that decoding is measured against.
 *
 * No one way to read is the fastest everywhere, so several are tried and the best counts.
 * All threads of a backend's team read one buffer together, stretch by stretch, as
 * products read their weights. */
#ifndef LAB_BENCH_BANDWIDTH_H
#define LAB_BENCH_BANDWIDTH_H

#include <stdint.h>

#include "base/err.h"

enum { BANDWIDTH_WAYS = 10 };

struct backend; /* of backend/backend.h, which the programs do not see */

/* What each way to read is called. */
extern const char *const bandwidth_names[BANDWIDTH_WAYS];

/* Bytes a second: of the best pass, and of all together. */
typedef struct bandwidth {
    double best, mean;
} bandwidth;

/* By each way, from a buffer of n_bytes, in several passes over at least run_us
 * microseconds a way: a small buffer comes from the caches, as a small model does. The
 * threads and the instruction set are b's. NO_MEMORY when the buffer can't be had. */
quire_err bandwidth_by_way(struct backend *b, int64_t n_bytes, int64_t run_us,
                           bandwidth rates[BANDWIDTH_WAYS]);

#endif
