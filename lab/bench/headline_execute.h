/* Executes the steps of a server without the engine: computes what lab/sim/serving.h
 * plans with the model, and advances the clock by the time that took. For `quire bench
 * headline`, whose baselines differ from the engine only in memory and batching: planner,
 * kernels and weights are the same.
 *
 *   pieces   a sequence's keys and values are contiguous in the pages of its piece; one
 *            that grows is copied by the backend
 *   pages    they are in the pages of its block table
 *   static   each member of a batch has room for the longest sequence; padding has rows
 *            of its own, whose keys and values are never read; members whose answer has
 *            ended are computed until the longest ends
 * Tokens are chosen greedily, so all ways of serving must give the same answers;
 * headline_execution_digest checks that. Owner: one thread. */
#ifndef LAB_BENCH_HEADLINE_EXECUTE_H
#define LAB_BENCH_HEADLINE_EXECUTE_H

#include "lab/bench/model_runner.h"
#include "lab/sim/reservation.h"
#include "lab/sim/serving.h"

typedef struct headline_execution {
    serving_execution hooks; /* their context is this struct */
    model_runner *b;
    const trace *t;
    int32_t *tokens;          /* prompts and answers of all requests, with room for a dead row's token */
    int64_t *offsets;         /* [n_requests] start of each request's tokens */
    int32_t n_pages;          /* memory for keys and values; padding's pages follow it */
    int32_t max_len, per_seq; /* tokens, pages of the longest sequence */
    int32_t *tables;          /* [2 max_seqs][per_seq] block tables of pieces, and of padding */
    int32_t *zeros;           /* [max_len] tokens of padding */
    runner_part *parts;       /* [max_seqs] of the pass being gathered */
    int32_t *out_requests;    /* [max_seqs] the request that gets the token of each output row */
    int32_t *out_at;          /* [max_seqs] and its position in the request's tokens */
    int32_t n_parts, n_out, n_rows;
    int64_t start_us;
} headline_execution;

/* Extra pages that padding of static batches needs. */
int32_t headline_padding_pages(int32_t n_pages, int32_t max_len);

/* b has n_pages + headline_padding_pages pages of HEADLINE_PAGE tokens, and passes of
 * max_rows rows and max_seqs sequences. b and t must outlive *out, which must not move,
 * since hooks.context points to it. QUIRE_NO_MEMORY. */
enum { HEADLINE_PAGE = 16 };
quire_err headline_execution_open(model_runner *b, const trace *t, int32_t n_pages, int32_t max_len,
                                  headline_execution *out);
void headline_execution_close(headline_execution *x);
/* Serves t on b's model with the steps of *so, whose execution it sets. *digest: of all
 * answers. n_pages as above. On failure err says why. */
quire_err headline_execute_run(model_runner *b, const trace *t, int32_t n_pages, serving_options *so,
                               serving_result *out, uint64_t *digest, quire_error *err);
/* Digest of all answers, as in lab_digest. */
uint64_t headline_execution_digest(const headline_execution *x);

/* Lets the engine itself serve a trace, step by step on the caller's thread; the clock
 * advances by the time of its steps. Arrivals are in CPU time, so other programs on the
 * machine delay nobody. For `quire bench headline`. A step is everything that the
 * engine's thread does in one: intake, plan, pages, forward pass, sampling, publishing,
 * statistics, waking its reader. */

/* Serves t on b's model, using o->kv_tokens' worth of b's pages. swap_bytes: host memory
 * for preempted sequences; 0: they are recomputed. Uses these members of o: kv_tokens,
 * page_tokens, max_model_len, max_rows, max_chunk, max_seqs, cache, eviction and speed.
 * *digest: of all answers, as in lab_digest. Free *out with serving_result_deinit; on
 * failure it is empty. */
quire_err headline_engine_run(model_runner *b, const trace *t, const serving_options *o, int64_t swap_bytes,
                              serving_result *out, uint64_t *digest, quire_error *err);

/* Servers without pages, and the engine, executed on one clock with all requests present
 * from the start. Static batches, and iteration-level batching (Yu et al. 2022, "Orca")
 * with contiguous keys and values, go through the simulated server (lab/sim/serving.h),
 * whose steps a model executes; the engine runs its own steps. Tokens are chosen greedily
 * and are the same for all ways (checked by callers). Owner: one thread. */

typedef struct baseline_options {
    bool is_static;
    /* RESERVE_PAGED: the engine. Ignored by static batches, which reserve max_len */
    reservation reservation;
    int32_t n_pages; /* memory in pages of BASELINE_PAGE tokens */
    int32_t max_seqs, max_len;
} baseline_options;

enum { BASELINE_PAGE = 16 };

typedef struct baseline_result {
    /* rows computed; part of them for padding, and for answers that had ended */
    int64_t n_rows, n_padding, n_dead;
    int64_t n_steps, n_dropped;
    int64_t copied_bytes;
    int32_t most_at_once;
    double used; /* part of the reserved slots that held a token, over all steps */
    /* in steps, by figures_time_us: the total, and the mean time to a first token */
    double seconds, first_ms;
    uint64_t digest; /* digest of the answers */
} baseline_result;

/* Pages that the model needs in addition to o->n_pages for keys and values of padding,
 * which are never read. */
int32_t baseline_extra_pages(const baseline_options *o);

/* Serves n requests with a prompt each. b has o->n_pages + baseline_extra_pages(o) pages
 * of BASELINE_PAGE tokens, and passes of at least max_rows rows and 2 x max_seqs
 * sequences. QUIRE_TOO_LARGE: a request does not fit in memory alone. */
quire_err baseline_serve(model_runner *b, const baseline_options *o, const int32_t *prompts,
                         const int32_t *outputs, int32_t n, baseline_result *out, quire_error *err);

#endif
