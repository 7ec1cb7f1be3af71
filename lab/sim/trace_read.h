/* Request traces: when each request arrived, its lengths, and which tokens are shared.
 *
 * Tokens are ids. Every text has its own range of negative ids, which count up, so two
 * texts never share a token; ids given by a file are kept. A trace is immutable after
 * reading. Three formats of files, recognised by the first line:
 *   Mooncake  {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [one
 *             for each 512 tokens of the prompt]}
 *   Azure     TIMESTAMP,ContextTokens,GeneratedTokens: lengths only, nothing is shared
 *   own       {"t": s, "tenant": "name", "prompt": P, "output": P}; t and tenant are
 *             optional
 * P is a number of tokens that nobody else has, or a list of parts: ["name", n] is the
 * first n tokens of the text of that name, an integer is a token id. So {"prompt":
 * [["system", 2000], ["user 7", 30]], "output": [["answer 7", 150]]} is the first turn of
 * a chat. Tokens that a file does not identify, such as answers in the first two formats,
 * count as different from all others.
 *
 * Files are untrusted: lengths, sums and nesting are checked, and an error names the
 * line. */
#ifndef LAB_SIM_TRACE_READ_H
#define LAB_SIM_TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* tokens per hash id; most tokens of a request's prompt or answer */
enum { TRACE_BLOCK_TOKENS = 512, TRACE_MAX_TOKENS = 1 << 24 };

/* Tokens first, first + 1, ..., first + n - 1. */
typedef struct trace_run {
    int32_t first, n;
} trace_run;

typedef struct trace_request {
    int64_t arrival_us; /* from the trace's own zero */
    int64_t first_run;  /* index of its n_runs runs: those of the prompt, then of the answer */
    int32_t n_runs;
    int32_t n_prompt, n_output; /* tokens; n_prompt >= 1 */
    int32_t tenant;             /* 0..n_tenants */
} trace_request;

/* Requests are in order of arrival; equal times keep the file's order. */
typedef struct trace {
    trace_request *requests;
    trace_run *runs;
    int32_t n_requests, n_tenants;
    int32_t longest; /* tokens of the longest request, prompt and answer together */
    int64_t n_prompt_tokens, n_output_tokens;
} trace;

void trace_deinit(trace *t);

/* Divides the length of every run of tokens by `by`, rounding up. Equal texts stay equal,
 * and lengths shrink to what a small model can hold. */
void trace_shrink(trace *t, int32_t by);

/* Maps a token of a trace to one of a model's n_vocab; equal tokens stay equal. */
int32_t trace_token_of(int32_t id, int32_t n_vocab);

/* Writes a request's tokens to out[n_prompt + n_output]. */
void trace_tokens(const trace *t, const trace_request *r, int32_t *out);

/* Reads a file, at most its first `limit` requests (0: all). QUIRE_BAD_FILE,
 * QUIRE_TOO_LARGE, QUIRE_NOT_FOUND, QUIRE_IO, QUIRE_NO_MEMORY; err names file and line,
 * *out is unchanged. */
quire_err trace_read(const char *path, int32_t limit, trace *out, quire_error *err);
/* The same from memory; name: what errors call it. */
quire_err trace_parse(str text, const char *name, int32_t limit, trace *out, quire_error *err);

/* n requests of these lengths, which arrive at once and share no tokens. */
quire_err trace_of_lengths(const int32_t *prompts, const int32_t *outputs, int32_t n, trace *out,
                           quire_error *err);

/* Synthetic requests: arrivals as a Poisson process and lengths like those of known data
 * sets, all from a seed.
 *
 * Lengths are log-normal with the data sets' published means (Kwon et al. 2023,
 * "Efficient Memory Management for Large Language Model Serving with PagedAttention",
 * figure 11); the spread is ours. No tokens are shared. */

/* Names of distributions of lengths, for error texts: "sharegpt, alpaca". */
extern const char arrivals_names[];

typedef struct arrivals_options {
    const char *lengths;
    double rate;  /* requests per second */
    int32_t n;    /* number of requests */
    int32_t most; /* most tokens of a prompt and its answer together; longer ones are redrawn */
    uint64_t seed;
} arrivals_options;

/* The same options give the same requests on every machine, except for the last bits of
 * the C library's logarithm. QUIRE_INVALID, QUIRE_NO_MEMORY. O(n). */
quire_err arrivals_make(const arrivals_options *o, trace *out, quire_error *err);

/* Replaces t's arrivals by a Poisson process of `rate` per second, in the same order. */
void arrivals_space(trace *t, double rate, uint64_t seed);

#endif
