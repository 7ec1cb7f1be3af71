/* Reads a request trace from a file.
 *
 * Three formats, told apart by the file's first line:
 *   Mooncake  {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [one
 *             for each 512 tokens of the prompt]}
 *   Azure     TIMESTAMP,ContextTokens,GeneratedTokens: lengths alone, nothing is shared
 *   own       {"t": s, "tenant": "name", "prompt": P, "output": P}; t and tenant may be
 *             left out
 * where P is a number of tokens that nobody else has, or a list of parts: ["name", n] is
 * the first n tokens of the text of that name, a whole number is a token id. So
 * {"prompt": [["system", 2000], ["user 7", 30]], "output": [["answer 7", 150]]} is a
 * chat's first turn.
 *
 * What a file does not say (whether an answer comes back in a later prompt, in Mooncake's
 * and Azure's) counts as different.
 *
 * Files are hostile: lengths, sums and nesting are checked, and an error names the
 * line. */
#ifndef LAB_SIM_TRACE_READ_H
#define LAB_SIM_TRACE_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "lab/sim/trace.h"

/* Reads a file, at most its first `limit` requests (0: all). QUIRE_BAD_FILE,
 * QUIRE_TOO_LARGE, QUIRE_NOT_FOUND, QUIRE_IO, QUIRE_NO_MEMORY; err names file and line,
 * *out is untouched. */
quire_err trace_read(const char *path, int32_t limit, trace *out, quire_error *err);
/* The same from memory; name is what errors call it. */
quire_err trace_parse(str text, const char *name, int32_t limit, trace *out, quire_error *err);

/* Requests that nobody recorded: arrivals as a Poisson process, lengths like those of
 * known data sets, all from a seed.
 *
 * Lengths are log-normal with the data sets' published means (Kwon et al. 2023,
 * "Efficient Memory Management for Large Language Model Serving with PagedAttention",
 * figure 11); their spread is ours. Nothing is the same as anything else. */

/* Names of lengths, for error texts: "sharegpt, alpaca". */
extern const char arrivals_names[];

typedef struct arrivals_options {
    const char *lengths;
    double rate;  /* requests a second */
    int32_t n;    /* requests */
    int32_t most; /* tokens of a prompt and its answer together, at most: longer ones are drawn again */
    uint64_t seed;
} arrivals_options;

/* The same requests for the same options, on every machine but for the last bits of the C
 * library's logarithm. QUIRE_INVALID, QUIRE_NO_MEMORY. O(n). */
quire_err arrivals_make(const arrivals_options *o, trace *out, quire_error *err);

/* The requests of t arrive in their order as a Poisson process, rate a second, whenever
 * they came before. */
void arrivals_space(trace *t, double rate, uint64_t seed);

#endif
