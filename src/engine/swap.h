/* Swap space: host memory that keeps the pages of preempted sequences, so that they need not be computed again.
 *
 *   preempted: swap_out, then the pages are released        admitted: scheduler_admit, then swap_in        over: swap_drop
 *
 * A sequence's leading pages that others hold too are not copied; the prefix cache finds them when the sequence is admitted again. If they
 * were evicted meanwhile, the copy is of no use and all is computed. Pages come back byte for byte, so nothing that is computed after them
 * changes (docs/design.md, Determinism). All by the engine thread; without swap space every function does nothing. */
#ifndef ENGINE_SWAP_H
#define ENGINE_SWAP_H

#include "engine/state.h"

quire_err swap_open(engine *e, quire_error *err);
void swap_close(engine *e);

/* Copies what s has computed, if there is room and --preemption-mode allows it (preempt_cost.h). s still holds its pages. */
void swap_out(engine *e, sequence *s);
/* How many tokens s need not compute if it were admitted now, when the prefix cache gives it n_cached. */
int32_t swap_peek(const engine *e, const sequence *s, int32_t n_cached);
/* Copies the pages back, directly after scheduler_admit, if swap_peek said so: s continues where it was preempted. */
void swap_in(engine *e, sequence *s);
/* Frees the frames of s. */
void swap_drop(engine *e, sequence *s);

#endif
