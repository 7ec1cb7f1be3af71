/* Builds a trace request by request. Texts are numbered as they are met and get their
 * ranges of ids at the end, when it is known how long each is.
 *
 *   start -> piece ... -> answer -> piece ... -> end, for every request; then finish
 *
 * Owner: the reader. A failed call leaves a builder that only trace_build_deinit may be
 * called on. */
#ifndef LAB_SIM_TRACE_BUILD_H
#define LAB_SIM_TRACE_BUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash_index.h"
#include "base/str.h"
#include "lab/sim/trace.h"

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

#endif
