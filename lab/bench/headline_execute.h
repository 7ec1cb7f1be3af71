/* Really serves a trace: executes what lab/sim/serving.h plans with a model, and advances
 * the clock by the time that took; or lets the engine itself serve, step by step on the
 * caller's thread. Planner, kernels and weights are the same, so that servers differ only
 * in memory and batching.
 *
 *   pieces   a sequence's keys and values are contiguous in the pages of its piece; one
 *            that grows is copied by the backend
 *   pages    they are in the pages of its block table
 *   static   each member of a batch has room for the longest sequence; padding has rows
 *            of its own, whose keys and values are never read; members whose answer has
 *            ended are computed until the longest ends
 *   engine   a step is everything that the engine's thread does in one: intake, plan,
 *            pages, forward pass, sampling, publishing, statistics, waking its reader
 * Arrivals are on the same clock, so other programs on the machine delay nobody. Tokens are
 * chosen greedily, so all ways of serving must give the same answers. Owner: one thread. */
#ifndef LAB_BENCH_HEADLINE_EXECUTE_H
#define LAB_BENCH_HEADLINE_EXECUTE_H

#include "lab/bench/model_runner.h"
#include "lab/sim/serving.h"

enum { HEADLINE_PAGE = 16 };

/* Who serves, and the engine's host memory for preempted sequences; 0: they are
 * recomputed. */
typedef struct headline_server {
    bool is_engine;
    int64_t swap_bytes;
} headline_server;

/* Extra pages that padding of static batches needs. */
int32_t headline_padding_pages(int32_t n_pages, int32_t max_len);

/* Serves t on b's model in o->kv_tokens' worth of b's pages of HEADLINE_PAGE tokens;
 * static batches also use the padding pages after them, and 2 x max_seqs sequences a pass.
 * The engine uses these members of o: kv_tokens, page_tokens, max_model_len, max_rows,
 * max_chunk, max_seqs, cache, eviction and speed. *digest: of all answers, as in
 * lab_digest. Free *out with serving_result_deinit; on failure it is empty, and err says
 * why. */
quire_err headline_serve(model_runner *b, const trace *t, headline_server by, const serving_options *o,
                         serving_result *out, uint64_t *digest, quire_error *err);

/* Rows of static batches for padding, and for answers that had ended. */
int64_t headline_padding_rows(const trace *t, const serving_result *r);
int64_t headline_dead_rows(const trace *t, const serving_result *r);

#endif
