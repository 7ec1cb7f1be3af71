/* Compares memory for keys and values with the minimum: three scenarios, each stored in
 * three ways, token by token.
 *
 *   static      every sequence has room for the longest one from the start
 *   contiguous  every sequence has one buffer that grows by a factor; growing really
 *               copies, and both buffers exist until it is done
 *   paged       pages of the real pool with real block tables and the real index, which
 *               publishes and finds as an engine's does
 * Buffers hold a token as its id, so that copies can be checked; their size is counted in
 * the model's bytes per token. */
#ifndef LAB_BENCH_MEMORY_CASES_H
#define LAB_BENCH_MEMORY_CASES_H

#include "core/kv_layout.h"

typedef enum memory_scenario {
    MEMORY_BATCH, /* 16 prompts of 500, 1000 .. 8000 tokens side by side */
    MEMORY_LONG,  /* one sequence of 100,000 */
    /* one chat from 1,000 to 32,000 tokens: each turn is a request with all earlier
     * tokens and 200 more */
    MEMORY_CHAT,
    MEMORY_N_SCENARIOS
} memory_scenario;

typedef enum memory_method { MEMORY_STATIC, MEMORY_CONTIGUOUS, MEMORY_PAGED } memory_method;

typedef struct memory_case {
    memory_scenario scenario;
    memory_method method;
    /* static: the longest length; contiguous: growth in percent (200: doubles); paged:
     * tokens per page */
    int32_t parameter;
} memory_case;

typedef struct memory_result {
    int64_t live_tokens;    /* tokens at the peak, from which the minimum is computed */
    int64_t minimum_bytes;  /* live_tokens in the model's bytes */
    int64_t peak_bytes;     /* most bytes in use at once; paged: held and cached pages */
    int64_t end_bytes;      /* bytes in use at the last token */
    int64_t copied_bytes;   /* total of the scenario */
    int64_t metadata_bytes; /* paged: block tables, pool, index */
    int64_t n_pages;        /* paged: peak_bytes in pages */
} memory_result;

const char *memory_scenario_name(memory_scenario s);
/* Tokens of the scenario's longest sequence. */
int32_t memory_longest(memory_scenario s);

/* Runs a case for a model of that shape; only its layers and heads are read. INVALID: the
 * shape or page has no layout, or the scenario does not fit a static length. NO_MEMORY.
 * INTERNAL: a copy or the index lost a token. */
quire_err memory_run(const memory_case *c, const model_desc *shape, dtype type, memory_result *out,
                     quire_error *err);

#endif
