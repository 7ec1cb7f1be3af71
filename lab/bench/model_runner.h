/* A model without an engine: forward passes over batches that an experiment makes by
 * hand. What the engine does around them (plans, tables, sampling) is the experiment's
 * own business.
 *
 * An encoder takes whole inputs and gives no logits.
 *
 * Owner: one thread. The caller supplies the sequences' pages: any list of page ids, from
 * a pool or consecutive. */
#ifndef LAB_BENCH_MODEL_RUNNER_H
#define LAB_BENCH_MODEL_RUNNER_H

#include "backend/backend.h"
#include "kv/kv_seq.h"
#include "model/model.h"
#include "quire.h"

typedef struct model_runner_options {
    const quire_options *engine; /* model, compute, kv_dtype, isa, n_threads count */
    /* with has_groups: pages of each group. 0: the caller opens them (kv_open), by the
     * layout */
    int32_t page_tokens, n_pages;
    int32_t max_rows, max_seqs; /* of a pass */
    int32_t max_len;            /* positions that rotary tables reach */
    int32_t max_out;            /* rows of a pass whose logits are wanted; 0: one for each sequence */
    int32_t max_adapters;       /* of a pass */
    int32_t max_rank;           /* of adapters */
    bool has_groups;            /* layers may differ: sequences have a kv_seq in place of one list of pages */
} model_runner_options;

typedef struct model_runner {
    backend *b;
    model *m;
    const model_desc *desc;
    kv_layout layout;
    int32_t max_rows, max_seqs, max_work, max_out;
    int32_t n_threads; /* as asked for */
    int32_t *tokens, *positions, *out_rows;
    kv_slot *slots; /* [groups][max_rows] */
    batch_seq *seqs;
    attn_item *work;
    const adapter **adapters; /* [max_seqs] of a pass */
    int16_t *row_adapters;
    batch rows; /* rows of the last pass */
} model_runner;

/* Rows of one sequence in a pass: tokens first .. first + n_rows of it. */
typedef struct runner_part {
    const int32_t *tokens; /* the sequence's, from its start */
    int32_t first, n_rows;
    /* its block table; NULL: keys and values are stored nowhere (a baseline has its own
     * memory) */
    const int32_t *pages;
    int32_t n_logits; /* rows whose logits are wanted: the last ones */
    /* with has_groups: its block tables, which have pages for its rows; NULL: as pages */
    const kv_seq *seq;
    const adapter *adapter; /* adapter of its rows; NULL: none */
} runner_part;

/* QUIRE_UNSUPPORTED for models whose layers are not all alike with full attention, unless
 * has_groups. On failure nothing is left open. */
quire_err model_runner_open(const model_runner_options *o, model_runner *out, quire_error *err);
/* The same, by the options that are named. */
#define MODEL_RUNNER_OPEN(out, err, ...) model_runner_open(&(model_runner_options){__VA_ARGS__}, (out), (err))
void model_runner_close(model_runner *b);

/* One forward pass; logits of the wanted rows, in the parts' order, are then in
 * model_runner_logits. QUIRE_TOO_LARGE when it is more than max_rows, max_seqs or
 * max_out. */
quire_err model_runner_forward(model_runner *b, const runner_part *parts, int32_t n);
/* Tokens 0..n of a sequence in as many passes as it takes, max_rows rows each; the last
 * row's logits are row 0. */
quire_err model_runner_prefill(model_runner *b, const int32_t *tokens, int32_t n, const int32_t *pages);
/* [n_vocab], valid until the next pass. */
const float *model_runner_logits(const model_runner *b, int32_t i);
/* The likeliest token of row i, the lowest id of equal ones. */
int32_t model_runner_greedy(const model_runner *b, int32_t i);

/* n ids of the vocabulary but 0, the same for the same seed. */
void model_runner_prompt(const model_runner *b, uint64_t seed, int32_t n, int32_t *out);
/* The page ids 0..n in an order drawn at random, the same for the same seed. */
void model_runner_scatter(uint64_t seed, int32_t n, int32_t *pages);

#endif
