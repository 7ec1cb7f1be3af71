/* Steps of a server without the engine, really computed: what lab/sim/serving.h plans
 * runs through the model, and the clock goes on by what that took. For `quire bench
 * headline`, whose baselines differ from the engine by memory and batching alone:
 * planner, kernels and weights are the same.
 *
 *   pieces   a sequence's keys and values lie side by side in the pages of its piece; one
 *            that grows is copied, by the backend
 *   pages    they lie in the pages of its block table
 *   static   each member of a batch has room for the longest sequence; pads are rows of
 *            their own, whose keys and values are never read; members whose answer has
 *            ended are computed until the longest ends
 *
 * Answers are the likeliest tokens, so all ways of serving give the same;
 * headline_execution_digest tells. Owner: one thread. */
#ifndef LAB_BENCH_HEADLINE_EXECUTE_H
#define LAB_BENCH_HEADLINE_EXECUTE_H

#include "lab/bench/model_runner.h"
#include "lab/sim/reservation.h"
#include "lab/sim/serving.h"

typedef struct headline_execution {
    serving_execution hooks; /* its context is this struct */
    model_runner *b;
    const trace *t;
    int32_t *tokens;          /* prompts and answers of all requests, with room for a dead row's */
    int64_t *offsets;         /* [n_requests] where a request's begin */
    int32_t n_pages;          /* memory for keys and values; those of padding lie after it */
    int32_t max_len, per_seq; /* tokens, pages of the longest sequence */
    int32_t *tables;          /* [2 max_seqs][per_seq] block tables of pieces, and of padding */
    int32_t *zeros;           /* [max_len] the tokens of padding */
    runner_part *parts;       /* of the pass being gathered: [max_seqs] */
    int32_t *out_requests;    /* [max_seqs] the request that takes the token of a wanted row */
    int32_t *out_at;          /* [max_seqs] and its place in the request's tokens */
    int32_t n_parts, n_out, n_rows;
    int64_t start_us;
} headline_execution;

/* Pages beside the memory that static batches' padding needs. */
int32_t headline_padding_pages(int32_t n_pages, int32_t max_len);

/* b has n_pages + headline_padding_pages pages of HEADLINE_PAGE tokens, and passes of
 * max_rows rows and max_seqs sequences. b and t outlive *out, which is not moved:
 * hooks.context points at it. QUIRE_NO_MEMORY. */
enum { HEADLINE_PAGE = 16 };
quire_err headline_execution_open(model_runner *b, const trace *t, int32_t n_pages, int32_t max_len,
                                  headline_execution *out);
void headline_execution_close(headline_execution *x);
/* Serves t on b's model by the steps of *so, whose execution it sets, and tells the
 * answers' digest; n_pages as above. err says why it could not. */
quire_err headline_execute_run(model_runner *b, const trace *t, int32_t n_pages, serving_options *so,
                               serving_result *out, uint64_t *digest, quire_error *err);
/* Of all answers, as lab_digest: equal where they are. */
uint64_t headline_execution_digest(const headline_execution *x);

/* The engine itself serves a trace, step by step on the caller's thread, and the clock
 * goes on by what its steps take: arrivals are in time of the processor, so other
 * programs on the machine delay nobody. For `quire bench headline`. A step is all that
 * the engine's thread does in one: intake, plan, pages, forward pass, sampling,
 * publishing, statistics, waking its reader. */

/* Serves t on b's model and pages, of which it takes kv_tokens' worth; swap_bytes of host
 * memory for preempted sequences, which else are computed again. Of o these count:
 * kv_tokens, page_tokens, max_model_len, max_rows,
 * max_chunk, max_seqs, cache, eviction and speed. *digest: of all answers, as
 * lab_digest. serving_result_deinit frees what *out got, which is nothing after a
 * failure. */
quire_err headline_engine_run(model_runner *b, const trace *t, const serving_options *o, int64_t swap_bytes,
                              serving_result *out, uint64_t *digest, quire_error *err);

/* Servers without pages, and the engine, run for real on one clock: all requests are there
 * from the start. Static batches, or iteration-level batching (Yu et al. 2022,
 * "Orca") with keys and values in one piece of memory, go through the simulated server
 * (lab/sim/serving.h), whose steps a model executes (headline_execute.h); the engine runs
 * its own steps (headline_execute.h). Answers are the likeliest tokens, the same for all
 * (checked where it is used). Owner: one thread. */

typedef struct baseline_options {
    bool is_static;
    /* RESERVE_PAGED: the engine. Static: a sequence may become max_len, whatever it
     * says */
    reservation reservation;
    int32_t n_pages; /* memory, in pages of BASELINE_PAGE tokens */
    int32_t max_seqs, max_len;
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

/* Pages that the model needs in addition to o->n_pages, for the keys and values of
 * padding, which are never read. */
int32_t baseline_extra_pages(const baseline_options *o);

/* Serves n requests, each with a prompt of its own. b has o->n_pages +
 * baseline_extra_pages(o) pages of BASELINE_PAGE tokens and passes of max_rows rows and 2
 * x max_seqs sequences at least. QUIRE_TOO_LARGE when one does not fit in memory
 * alone. */
quire_err baseline_serve(model_runner *b, const baseline_options *o, const int32_t *prompts,
                         const int32_t *outputs, int32_t n, baseline_result *out, quire_error *err);

#endif
