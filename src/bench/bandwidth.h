/* How fast this machine reads memory: the limit that decoding is measured against. */
#ifndef BENCH_BANDWIDTH_H
#define BENCH_BANDWIDTH_H

#include <stdint.h>

#include "base/err.h"

/* Bytes a second that n_threads together read from a buffer of n_bytes, the best of several passes: a small buffer comes from the caches, as a
 * small model does. NO_MEMORY when the buffer can't be had. */
quire_err bandwidth_measure(int64_t n_bytes, int32_t n_threads, double *bytes_per_s);

#endif
