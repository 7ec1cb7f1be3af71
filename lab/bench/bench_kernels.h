/* `quire bench kernels`: how fast matrix products are, by type of weights and number of
 * rows, through the backend's own op. */
#ifndef LAB_BENCH_BENCH_KERNELS_H
#define LAB_BENCH_BENCH_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct bench_kernels_options {
    /* "q4_0,q8_0,q4_k,int8,bf16,f16,f32": int8 is per channel, bf16 by bf16 arithmetic,
     * f16 and f32 by f32's */
    const char *types;
    const char *rows;    /* "1,2,4" */
    const char *threads; /* "1,2"; NULL: one a core */
    const char *isa;     /* "auto", "plain", "avx2", "avx512", "amx", "avx512bf16", "neon", "i8mm" */
    /* weights are repeated in memory until they take so much: more than caches hold, as
     * in a model */
    int32_t weights_mib;
    int32_t run_ms; /* least time of a figure */
    bool json;
} bench_kernels_options;

void bench_kernels_options_init(bench_kernels_options *o);

/* Times an up and a down projection, [5632, 2048] and [2048, 5632], one after another,
 * preparing of rows included: the best of many times. GB/s counts the weights alone.
 * Prints a table or JSON lines. */
quire_err bench_kernels_run(const bench_kernels_options *o, quire_error *err);

#endif
