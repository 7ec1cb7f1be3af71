/* A model without an engine: forward passes over batches that an experiment makes by
 * hand. What the engine does around them (plans, tables, sampling) is the experiment's
 * own business.
 *
 * An encoder takes whole inputs, and no logits are asked of it.
 *
 * Owner: one thread. Sequences' pages are the caller's: any list of page ids will do,
 * from a pool or in one piece. */
#ifndef LAB_BENCH_BARE_H
#define LAB_BENCH_BARE_H

#include "backend/backend.h"
#include "kv/kv_seq.h"
#include "model/model.h"
#include "quire.h"

typedef struct bare_options {
    const quire_options *engine; /* model, compute, kv_dtype, isa, n_threads count */
    /* with has_groups: pages of each group. 0: the caller opens them (kv_open), by the
     * layout */
    int32_t page_tokens, n_pages;
    int32_t max_rows, max_seqs; /* of a pass */
    int32_t max_len;            /* positions that rotary tables reach */
    int32_t max_out;            /* rows of a pass whose logits are wanted; 0: one for each sequence */
    bool has_groups;            /* layers may differ: sequences have a kv_seq in place of one list of pages */
} bare_options;

typedef struct bare {
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
    batch rows; /* of the last pass */
} bare;

/* Rows of one sequence in a pass: tokens first .. first + n_rows of it. */
typedef struct bare_part {
    const int32_t *tokens; /* the sequence's, from its start */
    int32_t first, n_rows;
    /* its block table; NULL: keys and values are stored nowhere (a baseline has its own
     * memory) */
    const int32_t *pages;
    int32_t n_logits; /* rows whose logits are wanted: the last ones */
    /* with has_groups: its block tables, which have pages for its rows; NULL: as pages */
    const kv_seq *seq;
} bare_part;

/* QUIRE_UNSUPPORTED for models whose layers are not all alike, unless has_groups; for
 * latents and states in any case. On failure nothing is left open. */
quire_err bare_open(const bare_options *o, bare *out, quire_error *err);
void bare_close(bare *b);

/* One forward pass; logits of the wanted rows, in the parts' order, are then in
 * bare_logits. QUIRE_TOO_LARGE when it is more than max_rows, max_seqs or max_out. */
quire_err bare_forward(bare *b, const bare_part *parts, int32_t n);
/* Tokens 0..n of a sequence in as many passes as it takes, max_rows rows each; the last
 * row's logits are row 0. */
quire_err bare_prefill(bare *b, const int32_t *tokens, int32_t n, const int32_t *pages);
/* [n_vocab], valid until the next pass. */
const float *bare_logits(const bare *b, int32_t i);
/* The likeliest token of row i, the lowest id of equal ones. */
int32_t bare_greedy(const bare *b, int32_t i);

/* n ids of the vocabulary but 0, the same for the same seed. */
void bare_prompt(const bare *b, uint64_t seed, int32_t n, int32_t *out);

#endif
