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

#include "engine/row_pooling_block.h"
#include "engine/sequence.h"

/* Gives s, which is new, a block with r's pooling, which is valid: it needs one row and
 * no logits. QUIRE_NO_MEMORY. Any thread. */
quire_err row_pooling_open(const engine_request *r, const model *m, sequence *s);
/* Takes the rows of positions from..from + n of s, which this step has computed and which
 * are finite: rows row0.. of the batch. */
void row_pooling_gather(engine *e, sequence *s, int32_t from, int32_t n, int32_t row0);
/* Makes the result, once every row was taken. QUIRE_NUMERIC: it is not finite. */
quire_err row_pooling_finish(const engine *e, sequence *s);

#endif
