/* Servers without pages, and the engine, really run by one clock: requests that are all
 * there from the start. Static batches, or iteration-level batching (Yu et al. 2022,
 * "Orca") with keys and values in one piece of memory, go through the simulated server
 * (lab/sim/serving.h), whose steps a model executes (headline_execute.h); the engine runs
 * its own steps (headline_execute.h). Answers are the likeliest tokens, the same for all
 * (checked where it is used). Owner: one thread. */
#ifndef LAB_BENCH_BASELINE_SERVE_H
#define LAB_BENCH_BASELINE_SERVE_H

#include "lab/bench/baseline.h"
#include "lab/bench/model_runner.h"

typedef struct baseline_options {
    bool is_static;
    /* RESERVE_PAGED: the engine. Static: a sequence may become max_len, whatever it
     * says */
    reservation reservation;
    int32_t n_pages; /* memory, in pages of BASELINE_PAGE tokens */
    int32_t max_seqs, max_len;
    double *end_us; /* [n] found: when each answer was given, from the start; NULL: not wanted */
} baseline_options;

enum { BASELINE_PAGE = 16 };

typedef struct baseline_result {
    /* computed rows; of these for padding, and for answers that had ended */
    int64_t n_rows, n_padding, n_dead;
    int64_t n_steps, n_dropped;
    int64_t copied_bytes;
    int32_t most_at_once;
    double used;              /* part of the reserved slots that held a token, of all steps */
    double seconds, first_ms; /* in steps, by figures_time_us: all, and the mean to a first token */
    uint64_t digest;          /* digest of the answers, equal for equal answers */
} baseline_result;

/* Pages that the model below needs beside o->n_pages: keys and values of padding, which
 * nobody reads. */
int32_t baseline_extra_pages(const baseline_options *o);

/* Serves n requests, each with a prompt of its own. b has o->n_pages +
 * baseline_extra_pages(o) pages of BASELINE_PAGE tokens and passes of max_rows rows and 2
 * x max_seqs sequences at least. QUIRE_TOO_LARGE when one does not fit in memory
 * alone. */
quire_err baseline_serve(model_runner *b, const baseline_options *o, const int32_t *prompts,
                         const int32_t *outputs, int32_t n, baseline_result *out, quire_error *err);

#endif
