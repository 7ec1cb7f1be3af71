/* Row pooling reduces a sequence's rows, after the model's last norm, to the one row that
 * its request gets instead of tokens.
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

/* Allocates the block for r's pooling, which was checked, in the new sequence s, which
 * then needs no logits. QUIRE_NO_MEMORY. Any thread. */
quire_err row_pooling_open(const engine_request *r, const model *m, sequence *s);
/* Gathers the rows of positions [from, from + n) of s: rows row0.. of the batch, which
 * this step computed and which are finite. */
void row_pooling_gather(engine *e, sequence *s, int32_t from, int32_t n, int32_t row0);
/* Computes the result; every row must have been gathered. QUIRE_NUMERIC: the result is
 * not finite. */
quire_err row_pooling_finish(const engine *e, sequence *s);

typedef struct row_pooling {
    pooling_params params;
    int32_t n_gathered; /* rows [0, n_gathered) are gathered */
    int32_t width;      /* elements of the result */
    /* [desc_pooled_width] mem_new'd; the engine thread's until the end is published,
     * then the reader's */
    float *result;
    float *row;     /* [d_model] the pooled row; it points into this block, as sum does */
    double *sum;    /* [d_model] for a mean: the sum of the rows gathered so far */
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
