/* A request trace: who asked when, for how many tokens, and which of them are the same.
 *
 * Three formats, told apart by the file's first line:
 *   Mooncake  {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [one for each 512 tokens of the prompt]}
 *   Azure     TIMESTAMP,ContextTokens,GeneratedTokens       lengths alone: nothing is the same as anything else
 *   own       {"t": s, "tenant": "name", "prompt": P, "output": P}     t and tenant may be left out
 * where P is a number of tokens that nobody else has, or a list of parts: ["name", n] is the first n tokens of the text of that name, a
 * whole number is a token id. So {"prompt": [["system", 2000], ["user 7", 30]], "output": [["answer 7", 150]]} is a chat's first turn.
 *
 * Tokens are ids. Every text has a range of negative ids of its own, in which it counts up, so two texts never share a token; ids that the
 * file gives are kept. What a file does not say (whether an answer comes back in a later prompt, in Mooncake's and Azure's) counts as
 * different.
 *
 * Immutable after reading. Files are hostile: lengths, sums and nesting are checked, and an error names the line. */
#ifndef LAB_SIM_TRACE_H
#define LAB_SIM_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { TRACE_BLOCK_TOKENS = 512, TRACE_MAX_TOKENS = 1 << 24 }; /* of a hash id; of a request's prompt or answer */

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

/* Reads a file, at most its first `limit` requests (0: all). QUIRE_BAD_FILE, QUIRE_TOO_LARGE, QUIRE_NOT_FOUND, QUIRE_IO, QUIRE_NO_MEMORY;
 * err names file and line, *out is untouched. */
quire_err trace_read(const char *path, int32_t limit, trace *out, quire_error *err);
/* The same from memory; name is what errors call it. */
quire_err trace_parse(str text, const char *name, int32_t limit, trace *out, quire_error *err);
void trace_deinit(trace *t);

/* Every run of tokens becomes a `by`th as long, rounded up: what was the same stays the same, and lengths shrink to what a small model
 * holds. */
void trace_shrink(trace *t, int32_t by);

/* Writes a request's tokens to out[n_prompt + n_output]. */
void trace_tokens(const trace *t, const trace_request *r, int32_t *out);

#endif
