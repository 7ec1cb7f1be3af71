/* `quire bench experts`: a mixture of experts beside dense products that read the same
 * bytes. */
#ifndef LAB_BENCH_BENCH_EXPERTS_H
#define LAB_BENCH_BENCH_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct bench_experts_options {
    const char *types;   /* as bench_kernels_options has them */
    const char *rows;    /* "1,8,32" */
    const char *threads; /* "1,2"; NULL: one a core */
    const char *isa;
    int32_t n_experts, n_used, d_model, d_hidden;
    int32_t run_ms; /* least time of a figure */
    bool json;
} bench_experts_options;

void bench_experts_options_init(bench_experts_options *o);

/* Times a gated mixture, routing included, whose rows go to experts as evenly as they
 * can, in another order each time. Beside it a gated feed-forward as wide as the experts
 * that have rows, with as many rows as each of those has. The best of many times of both.
 * Prints a table or JSON lines. QUIRE_INVALID names the flag. */
quire_err bench_experts_run(const bench_experts_options *o, quire_error *err);

#endif
