/* `quire bench attention`: how fast attention is by itself, by context, batch, heads and
 * type of keys and values, and what pages cost it. */
#ifndef LAB_BENCH_BENCH_ATTENTION_H
#define LAB_BENCH_BENCH_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct bench_attention_options {
    const char *contexts; /* tokens that a decoded one sees, "1024,8192,32768" */
    const char *types;    /* of keys and values: "f16,bf16,int8" */
    /* decodes alone, by so many tokens a page, in no order and in a row: "16,64,256";
     * NULL: everything at 16 */
    const char *pages;
    const char *isa;  /* instruction set */
    int32_t n_prompt; /* tokens of the prompt that is prefilled */
    int32_t n_threads, n_runs;
    bool json; /* one JSON object a line instead of a table */
} bench_attention_options;

void bench_attention_options_init(bench_attention_options *o);

/* Measures and prints to stdout; err says why it could not. */
quire_err bench_attention_run(const bench_attention_options *o, quire_error *err);

#endif
