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

#include "base/hash_index.h"
#include "base/str.h"
#include "lab/sim/trace.h"

/* Builds a trace request by request. Texts are numbered as they are met and get their
 * ranges of ids at the end, when it is known how long each is.
 *
 *   start -> piece ... -> answer -> piece ... -> end, for every request; then finish
 *
 * Owner: the reader. A failed call leaves a builder that only trace_build_deinit may be
 * called on. */

/* Numbers for byte strings: the first new one is 0, the next 1, and so on; the same bytes
 * always get the same number. One thread. */

typedef struct numbering {
    strbuf bytes;        /* all names, one after the other */
    struct named *names; /* [n] */
    size_t cap_names;
    int32_t n;
    hash_index index; /* of names */
} numbering;

/* The number of name, which is added if it is new. QUIRE_NO_MEMORY, or QUIRE_TOO_LARGE
 * past 2^30 names: unchanged. O(name). */
quire_err numbering_of(numbering *g, str name, int32_t *out);
void numbering_deinit(numbering *g);

typedef struct trace_builder {
    numbering names; /* of texts */
    numbering tenants;
    int32_t *text_of; /* [names.n] number of the text */
    int32_t *lengths; /* [n_texts] most tokens asked of it */
    trace_request *requests;
    trace_run *runs; /* first < 0: of text -1 - first, from its start; n > 0 */
    trace_request now;
    size_t cap_text_of, cap_lengths, cap_requests, cap_runs, n_runs;
    int32_t n_texts, n_requests;
    bool in_answer;
} trace_builder;

/* What names a text; the same bytes of different kinds name different texts. */
typedef enum text_kind { TEXT_HASH = 'h', TEXT_NAME = 'n' } text_kind;

void trace_build_deinit(trace_builder *b);
quire_err trace_build_start(trace_builder *b, int64_t arrival_us, str tenant);
/* The first n tokens of a named text, of a new one, or the one token id >= 0.
 * QUIRE_TOO_LARGE when prompt or answer passes TRACE_MAX_TOKENS. */
quire_err trace_build_text(trace_builder *b, text_kind kind, str name, int32_t n);
quire_err trace_build_new(trace_builder *b, int32_t n);
quire_err trace_build_token(trace_builder *b, int32_t id);
/* The prompt ends; the answer's pieces follow. */
void trace_build_answer(trace_builder *b);
/* QUIRE_INVALID when the prompt is empty. */
quire_err trace_build_end(trace_builder *b);
/* Hands the trace over and empties the builder. QUIRE_TOO_LARGE when the texts are longer
 * than 2^31 tokens together. */
quire_err trace_build_finish(trace_builder *b, trace *out);

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
