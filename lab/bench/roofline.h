/* The best rates of this machine, with which every other bench is compared.
 *
 * A rate is the best of many tries of a fraction of a millisecond (reading: of a pass)
 * with all of so many threads at work, in loops that do nothing else (lab/bench/peak.h);
 * its mean is that of all tries: where other machines share the processor, what they
 * leave of the best over seconds. Threads and instruction set are those of a CPU backend
 * opened the same way. */
#ifndef LAB_BENCH_ROOFLINE_H
#define LAB_BENCH_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* How fast this machine reads memory: the limit that decoding is measured against.
 *
 * No one way to read is the fastest everywhere, so several are tried and the best counts.
 * All threads of a backend's team read one buffer together, stretch by stretch, as
 * products read their weights. */

enum { BANDWIDTH_WAYS = 10 };

struct backend; /* backend/backend.h, which the commands do not include */

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

/* Bytes or operations a second; a multiplication and an addition are two. */
typedef struct roofline_rate {
    double best, mean;
    const char *by; /* name of the best loop */
} roofline_rate;

typedef struct roofline {
    int32_t n_threads, n_measurements;
    char machine[160];               /* the backend's name for itself */
    bandwidth reads[BANDWIDTH_WAYS]; /* by each way, as bandwidth_names */
    roofline_rate read;              /* by the best way */
    roofline_rate f32, bf16;         /* bf16 is f32's where there is no dot product of bf16 */
    /* of any two int8 (per channel and Q8_0), and of 4-bit numbers with int8 */
    roofline_rate int8, int8_small;
} roofline;

/* How much is done for a rate. */
typedef struct roofline_effort {
    int32_t megabytes;    /* megabytes read; more than the caches hold */
    int32_t milliseconds; /* at least, for each rate */
} roofline_effort;

extern const roofline_effort roofline_usual; /* about 2 seconds a measurement */

/* isa, n_threads and cpu_bind as in backend_options. err says why it could not. */
quire_err roofline_measure(const char *isa, int32_t n_threads, const char *cpu_bind,
                           const roofline_effort *effort, roofline *out, quire_error *err);
/* A later measurement of the same threads and instruction set joins r: the best of both,
 * the mean of all. */
void roofline_join(roofline *r, const roofline *later);

#endif
