/* A request trace: who asked when, for how many tokens, and which of them are the same.
 *
 * Tokens are ids. Every text has a range of negative ids of its own, in which it counts
 * up, so two texts never share a token; ids that the file gives are kept. trace_read.h
 * has the formats of files.
 *
 * Immutable after reading. */
#ifndef LAB_SIM_TRACE_H
#define LAB_SIM_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* of a hash id; of a request's prompt or answer */
enum { TRACE_BLOCK_TOKENS = 512, TRACE_MAX_TOKENS = 1 << 24 };

/* Tokens first, first + 1, ..., first + n - 1. */
typedef struct trace_run {
    int32_t first, n;
} trace_run;

typedef struct trace_request {
    int64_t arrival_us; /* from the trace's own zero */
    int64_t first_run;  /* its n_runs runs: the prompt's, then the answer's */
    int32_t n_runs;
    int32_t n_prompt, n_output; /* tokens; n_prompt >= 1 */
    int32_t tenant;             /* 0..n_tenants */
} trace_request;

/* Requests are in order of arrival, equal times in the file's. */
typedef struct trace {
    trace_request *requests;
    trace_run *runs;
    int32_t n_requests, n_tenants;
    int32_t longest; /* tokens of the longest request, prompt and answer together */
    int64_t n_prompt_tokens, n_output_tokens;
} trace;

void trace_deinit(trace *t);

/* Every run of tokens becomes a `by`th as long, rounded up: what was the same stays the
 * same, and lengths shrink to what a small model holds. */
void trace_shrink(trace *t, int32_t by);

/* A token of a trace as one of a model's n_vocab: the same for the same. */
int32_t trace_token_of(int32_t id, int32_t n_vocab);

/* Writes a request's tokens to out[n_prompt + n_output]. */
void trace_tokens(const trace *t, const trace_request *r, int32_t *out);

#endif
