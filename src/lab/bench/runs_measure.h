/* The parts of `quire bench runs`: tables whose pages lie in runs of adjacent ones, attention over them, and the runs that a pool gives of
 * itself.
 *
 * A run of r is r entries of a block table, the first of them entry 0, r, 2 r ..., whose pages follow one another: what one entry could
 * stand for. */
#ifndef LAB_BENCH_RUNS_MEASURE_H
#define LAB_BENCH_RUNS_MEASURE_H

#include <stdint.h>

#include "core/kv_layout.h"
#include "kv/pool.h"

/* Pages 0..n_pages, whole runs of `run` adjacent ones in an order drawn by seed; the rest, less than a run, last. */
void runs_arrange(int32_t n_pages, int32_t run, uint64_t seed, page_id *pages);
/* How many of these entries of a table lie in runs of `run`. */
int32_t runs_count(const page_id *pages, int32_t n_pages, int32_t run);

/* ---- attention ---- */

/* A CPU backend, on one thread, with the keys and values of one sequence, which fills all its pages. */
typedef struct runs_stage runs_stage;

/* layers, KV heads and head width as in d; values of type f16. */
quire_err runs_stage_open(const model_desc *d, int32_t page_tokens, int32_t n_tokens, runs_stage **out, quire_error *err);
void runs_stage_close(runs_stage *s);
/* CPU time, in microseconds a layer, of the attention of the sequence's last token over all layers, the sequence's pages lying in runs of
 * `run`. */
double runs_attention_us(runs_stage *s, int32_t run);

/* ---- the pool ---- */

/* Sequences that live at once: prompts of 100 to 4,000 tokens, each taking its pages at once, then answers of 1 to 1,000, token by token in
 * turn; who has ended gives its pages back, and another takes its place. */
typedef struct runs_churn {
    int32_t n_seqs, page_tokens, n_ended; /* until so many have ended */
    uint64_t seed;
} runs_churn;

/* Parts (0..1) of all block table entries that lie in runs of 4 and of 16: when the prompts are there in a new pool, and at the end. */
typedef struct runs_found {
    double new_4, new_16, end_4, end_16;
} runs_found;

quire_err runs_find(const runs_churn *c, runs_found *out);

#endif
