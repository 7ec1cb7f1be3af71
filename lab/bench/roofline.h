/* The best rates of this machine, with which every other bench is compared.
 *
 * A rate is the best of many short tries (a fraction of a millisecond; for reading, a
 * pass) with all threads busy, in loops that do nothing else (lab/bench/peak.h). Its mean
 * is over all tries: if other virtual machines share the processor, it shows what they
 * leave over seconds. Threads and instruction set are those of a CPU backend opened the
 * same way. */
#ifndef LAB_BENCH_ROOFLINE_H
#define LAB_BENCH_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Bytes or operations per second; a multiplication and an addition are two. */
typedef struct roofline_rate {
    double best, mean;
    const char *by; /* name of the best loop */
} roofline_rate;

/* No single way to read memory is the fastest everywhere, so several are tried and the
 * best counts. All threads of a backend read one buffer together, stretch by stretch, as
 * products read their weights. */
enum { BANDWIDTH_WAYS = 10, ROOFLINE_RATES = 5 };

struct backend; /* in backend/backend.h, which commands do not include */

/* Measures each way to read a buffer of n_bytes, in several passes over at least run_us
 * microseconds per way. A small buffer is read from the caches, as a small model is. Uses
 * b's threads and instruction set. NO_MEMORY: for the buffer. */
quire_err bandwidth_by_way(struct backend *b, int64_t n_bytes, int64_t run_us,
                           roofline_rate rates[BANDWIDTH_WAYS]);

typedef struct roofline {
    int32_t n_threads, n_measurements;
    char machine[160];                   /* the backend's description of itself */
    roofline_rate reads[BANDWIDTH_WAYS]; /* by each way to read */
    union {
        roofline_rate rates[ROOFLINE_RATES]; /* in the order of roofline_names */
        struct {
            roofline_rate read;      /* by the best way */
            roofline_rate f32, bf16; /* bf16 is f32's if there is no dot product of bf16 */
            /* any two int8 (per channel and Q8_0); 4-bit numbers with int8 */
            roofline_rate int8, int8_small;
        };
    };
} roofline;

extern const char *const roofline_names[ROOFLINE_RATES];

/* Effort of a measurement. */
typedef struct roofline_effort {
    int32_t megabytes;    /* megabytes to read; more than the caches hold */
    int32_t milliseconds; /* least time per rate */
} roofline_effort;

extern const roofline_effort roofline_usual; /* about 2 seconds per measurement */

/* isa, n_threads and cpu_bind as in backend_options. On failure err says why. */
quire_err roofline_measure(const char *isa, int32_t n_threads, const char *cpu_bind,
                           const roofline_effort *effort, roofline *out, quire_error *err);
/* Merges a later measurement with the same threads and instruction set into r: the best
 * of both, the mean of all. */
void roofline_join(roofline *r, const roofline *later);

#endif
