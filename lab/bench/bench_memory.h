/* `quire bench memory`: the most memory that three ways of keeping keys and values take,
 * over the least that would do, in three scenarios. */
#ifndef LAB_BENCH_BENCH_MEMORY_H
#define LAB_BENCH_BENCH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "quire.h"

typedef struct bench_memory_options {
    const char *shape;       /* "LAYERS,KV_HEADS,HEAD" */
    const char *pages;       /* tokens a page, "1,16,256" */
    quire_kv_dtype kv_dtype; /* f16, bf16, int8 or f32; any other is f16 */
    double weight_bytes;     /* of the model */
    int32_t max_model_len;   /* what static preallocation gives where nobody knows better */
    bool json;               /* one JSON object a line instead of tables */
} bench_memory_options;

/* Llama 3.2 1B in bf16, KV in f16, pages of 1 .. 256. */
void bench_memory_options_init(bench_memory_options *o);

/* Runs all cases and prints to stdout; err says why it could not. */
quire_err bench_memory_run(const bench_memory_options *o, quire_error *err);

#endif
