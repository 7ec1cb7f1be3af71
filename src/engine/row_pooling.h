/* Row pooling turns a sequence's rows, after the model's last norm, into the single row
 * that its request gets in place of tokens.
 *
 *   open (submitting thread) --> gather: the rows of each step
 *       --> finish: model_pooled, cut, norm --> the reader has it with the end
 *
 * The block is allocated with the sequence, so a step allocates nothing. Each row is
 * taken once, in the order of positions, however often it is computed. So chunking, other
 * sequences in the batch and preemption do not change a bit of the result
 * (docs/design.md, Determinism).
 *
 * Rows of tokens found in the prefix cache are not computed. So a mean may only reuse
 * tokens whose rows were gathered before a preemption, while a last row may follow any
 * cached prefix (sched_task.reuse_limit). In models whose rows see later ones, a prompt
 * is computed in one step and its pages can't be reused: such sequences stay out of the
 * cache. */
#ifndef ENGINE_ROW_POOLING_H
#define ENGINE_ROW_POOLING_H

#include "base/mem.h"
#include "core/params.h"
#include "engine/sequence.h"

/* Gives a new sequence s the block for r's pooling, which was checked. s then needs one
 * row and no logits. QUIRE_NO_MEMORY. Any thread. */
quire_err row_pooling_open(const engine_request *r, const model *m, sequence *s);
/* Takes positions from..from + n of s, which are rows row0.. of the batch, computed in
 * this step and finite. */
void row_pooling_gather(engine *e, sequence *s, int32_t from, int32_t n, int32_t row0);
/* Computes the result once every row was taken. QUIRE_NUMERIC: it is not finite. */
quire_err row_pooling_finish(const engine *e, sequence *s);

/* The block in which row_pooling.h gathers a sequence's rows, allocated with the
 * sequence, so that a step allocates nothing. */

typedef struct row_pooling {
    pooling_params params;
    int32_t n_gathered; /* rows 0..n_gathered are taken */
    int32_t width;      /* elements of the result */
    /* [desc_pooled_width] mem_new'd; the engine thread's until the end is published,
     * then the reader's */
    float *result;
    float *row;     /* [d_model] the pooled row; it points into this block, as sum does */
    double *sum;    /* [d_model] for a mean: the sum of the rows taken so far */
    int32_t *types; /* [n_prompt] the tokens' types, mem_new'd, or NULL: all are of type 0 */
} row_pooling;

/* NULL does nothing. */
static inline void row_pooling_free(row_pooling *p) {
    if (p != NULL) {
        mem_free(p->result);
        mem_free(p->types);
        mem_free(p);
    }
}

#endif
