/* Row pooling: how a sequence's rows, after the model's last norm, become the one row
 * that its request gets in place of tokens.
 *
 *   open (submitting thread) --> gather: the rows of each step
 *       --> finish: model_pooled, cut, norm --> the reader has it with the end
 *
 * The block is allocated with the sequence, so a step allocates nothing. Each row is
 * taken once, in the order of positions, however often it is computed. So the result has
 * the same bits for any chunks, company and preemption (docs/design.md, Determinism).
 *
 * A row that comes from the prefix cache is not computed. So a mean takes nothing from
 * there but what a preempted sequence has gathered before; a last row may follow any
 * cached prefix (sched_task.reuse_limit). Where rows see later ones, a prompt is computed
 * in one step and its pages cannot be reused: such sequences stay out of the cache. */
#ifndef ENGINE_ROW_POOLING_H
#define ENGINE_ROW_POOLING_H

#include "base/mem.h"
#include "core/params.h"
#include "engine/sequence.h"

/* Gives s, which is new, a block with r's pooling, which is valid: it needs one row and
 * no logits. QUIRE_NO_MEMORY. Any thread. */
quire_err row_pooling_open(const engine_request *r, const model *m, sequence *s);
/* Takes the rows of positions from..from + n of s, which this step has computed and which
 * are finite: rows row0.. of the batch. */
void row_pooling_gather(engine *e, sequence *s, int32_t from, int32_t n, int32_t row0);
/* Makes the result, once every row was taken. QUIRE_NUMERIC: it is not finite. */
quire_err row_pooling_finish(const engine *e, sequence *s);

/* The block in which row_pooling.h gathers a sequence's rows, allocated with the
 * sequence, so that a step allocates nothing. */

typedef struct row_pooling {
    pooling_params params;
    int32_t n_gathered; /* rows 0..n_gathered were taken */
    int32_t width;      /* elements of the result */
    /* [desc_pooled_width] mem_new'd; the engine thread's until the end is published,
     * then the reader's */
    float *result;
    float *row;     /* [d_model] the pooled row; it points into this block, as sum does */
    double *sum;    /* [d_model] of a mean: over the rows that were taken */
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
