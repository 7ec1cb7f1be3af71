/* The engine itself serves a trace, step by step on the caller's thread, and the clock
 * goes on by what its steps take: arrivals are in time of the processor, so other
 * programs on the machine delay nobody. For `quire bench headline`. A step is all that
 * the engine's thread does in one: intake, plan, pages, forward pass, sampling,
 * publishing, statistics, waking its reader. */
#ifndef LAB_BENCH_HEADLINE_ENGINE_H
#define LAB_BENCH_HEADLINE_ENGINE_H

#include "lab/bench/model_runner.h"
#include "lab/sim/serving.h"

/* Serves t on b's model and pages, of which it takes kv_tokens' worth; swap_bytes of host
 * memory for preempted sequences, which else are computed again. Of o these count:
 * kv_tokens, page_tokens, max_model_len, max_rows,
 * max_chunk, max_seqs, cache, eviction, speed and end_us. *digest: of all answers, as
 * lab_digest. serving_result_deinit frees what *out got, which is nothing after a
 * failure. */
quire_err headline_engine_run(model_runner *b, const trace *t, const serving_options *o, int64_t swap_bytes,
                              serving_result *out, uint64_t *digest, quire_error *err);

#endif
