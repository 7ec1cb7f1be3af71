/* A model without an engine: forward passes over batches that an experiment makes itself.
 * What the engine does around them (plans, tables, sampling) is up to the experiment.
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
    const quire_options *engine; /* uses model, compute, kv_dtype, isa and n_threads */
    /* with has_groups: pages of each group; 0: the caller opens them (kv_open) */
    int32_t page_tokens, n_pages;
    int32_t max_rows, max_seqs; /* most per pass */
    int32_t max_len;            /* length of the rotary tables */
    int32_t max_out;            /* rows of a pass with logits; 0: one per sequence */
    int32_t max_adapters;       /* most per pass */
    int32_t max_rank;           /* largest rank of adapters */
    bool has_groups;            /* layers may differ: sequences have a kv_seq instead of one list of pages */
} model_runner_options;

typedef struct model_runner {
    backend *b;
    model *m;
    const model_desc *desc;
    kv_layout layout;
    int32_t max_rows, max_seqs, max_work, max_out;
    int32_t n_threads; /* as requested */
    int32_t *tokens, *positions, *out_rows;
    kv_slot *slots; /* [groups][max_rows] */
    batch_seq *seqs;
    attn_item *work;
    const adapter **adapters; /* [max_seqs] of the current pass */
    int16_t *row_adapters;
    batch rows; /* rows of the last pass */
} model_runner;

/* Rows of one sequence in a pass: its tokens first .. first + n_rows. */
typedef struct runner_part {
    const int32_t *tokens; /* the sequence's tokens, from its start */
    int32_t first, n_rows;
    /* its block table; NULL: keys and values are not stored (for a baseline) */
    const int32_t *pages;
    int32_t n_logits; /* number of rows, the last ones, whose logits are computed */
    /* with has_groups: its block tables with pages for its rows; NULL: uses pages */
    const kv_seq *seq;
    const adapter *adapter; /* adapter of its rows; NULL: none */
} runner_part;

/* QUIRE_UNSUPPORTED: without has_groups, a model whose layers are not all alike with full
 * attention. On failure nothing is left open. */
quire_err model_runner_open(const model_runner_options *o, model_runner *out, quire_error *err);
/* Opens a runner with the named options. */
#define MODEL_RUNNER_OPEN(out, err, ...) model_runner_open(&(model_runner_options){__VA_ARGS__}, (out), (err))
void model_runner_close(model_runner *b);

/* Runs one forward pass; model_runner_logits then has the logits of output rows, in the
 * parts' order. QUIRE_TOO_LARGE: more than max_rows, max_seqs or max_out. */
quire_err model_runner_forward(model_runner *b, const runner_part *parts, int32_t n);
/* Computes tokens 0..n of a sequence in as many passes of max_rows rows as needed; row 0
 * of the logits is then the last row's. */
quire_err model_runner_prefill(model_runner *b, const int32_t *tokens, int32_t n, const int32_t *pages);
/* Logits [n_vocab] of row i, valid until the next pass. */
const float *model_runner_logits(const model_runner *b, int32_t i);
/* The token with the largest logit in row i; ties go to the lowest id. */
int32_t model_runner_greedy(const model_runner *b, int32_t i);

/* Draws n ids of the vocabulary, except 0; the same for the same seed. */
void model_runner_prompt(const model_runner *b, uint64_t seed, int32_t n, int32_t *out);
/* Writes the page ids 0..n in a random order; the same for the same seed. */
void model_runner_scatter(uint64_t seed, int32_t n, int32_t *pages);

#endif
