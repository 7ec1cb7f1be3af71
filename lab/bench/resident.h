/* Resident memory of this process: what the system counts, the most of it since a moment
 * that one chooses. */
#ifndef LAB_BENCH_RESIDENT_H
#define LAB_BENCH_RESIDENT_H

#include <stddef.h>

#include "base/err.h"

/* Starts the peak anew, from what is resident now. Where the system does not allow it,
 * the peak is the process's since its start. */
void resident_reset(void);
/* The most bytes that were resident at a time; -1: the system does not tell. */
int64_t resident_peak_bytes(void);

/* Runs run(context, err) in a child process, so that what earlier runs left allocated is
 * not resident beside it, and brings back what it wrote into result[0..n). The process
 * has no other threads. The child's error is the result; QUIRE_INTERNAL when it ended
 * without one. */
quire_err resident_apart(quire_err (*run)(void *context, quire_error *err), void *context, void *result,
                         size_t n, quire_error *err);

#endif
