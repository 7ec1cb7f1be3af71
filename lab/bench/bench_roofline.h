/* `quire bench roofline`: what this machine can do at best, which every other bench is
 * held against.
 *
 * A rate is the best of many tries of a fraction of a millisecond (reading: of a pass)
 * with all of so many threads at work, in loops that do nothing else (lab/bench/peak.h);
 * its mean is that of all tries: where other machines share the processor, what they
 * leave of the best over seconds. Threads and instruction set are those of a CPU backend
 * opened the same way. */
#ifndef LAB_BENCH_BENCH_ROOFLINE_H
#define LAB_BENCH_BENCH_ROOFLINE_H

#include <stdbool.h>

#include "lab/bench/bandwidth.h"

/* Bytes or operations a second; a multiplication and an addition are two. */
typedef struct roofline_rate {
    double best, mean;
    const char *by; /* what gave the best */
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
    int32_t megabytes;    /* that are read; more than the caches hold */
    int32_t milliseconds; /* at least, for each rate */
} roofline_effort;

extern const roofline_effort roofline_usual; /* about 2 seconds a measurement */

/* isa, n_threads and cpu_bind as in backend_options. err says why it could not. */
quire_err roofline_measure(const char *isa, int32_t n_threads, const char *cpu_bind,
                           const roofline_effort *effort, roofline *out, quire_error *err);
/* A later measurement of the same threads and instruction set joins r: the best of both,
 * the mean of all. */
void roofline_join(roofline *r, const roofline *later);

typedef struct bench_roofline_options {
    const char *isa;
    const char *threads;  /* "1,2"; NULL: 1, 2, 4 .. one a core, or a processor of cpu_bind's list */
    const char *cpu_bind; /* as in backend_options */
    roofline_effort effort;
    bool json; /* an object a line instead of tables */
} bench_roofline_options;

void bench_roofline_options_init(bench_roofline_options *o);

/* Measures and prints to stdout; err says why it could not. */
quire_err bench_roofline_run(const bench_roofline_options *o, quire_error *err);

#endif
