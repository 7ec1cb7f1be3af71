/* Swap space: host memory that keeps the pages of preempted sequences, so that they come back instead of being computed again.
 *
 *   preempted: swap_out, then the pages are given back        admitted: cache_take, then swap_in        over: swap_drop
 *
 * A sequence's leading pages that others hold too stay where they are and are found in the prefix cache when it comes back; were they
 * evicted meanwhile, what was swapped out is of no use and all is computed. Pages come back byte for byte, so nothing that is computed
 * after them changes (docs/design.md, Determinism). All by the engine thread; without swap space every function does nothing. */
#ifndef ENGINE_SWAP_H
#define ENGINE_SWAP_H

#include "engine/state.h"

quire_err swap_open(engine *e, quire_error *err);
void swap_close(engine *e);

/* Copies what s has computed, if there is room and --preemption-mode says so (preempt.h); s still holds its pages. */
void swap_out(engine *e, sequence *s);
/* How many tokens s need not compute if it were admitted now, given how many the prefix cache would give it. */
int32_t swap_peek(const engine *e, const sequence *s, int32_t n_cached);
/* s, which was just given what the prefix cache has, goes on where it was preempted, if swap_peek said so. */
void swap_in(engine *e, sequence *s);
/* Forgets what s left there. */
void swap_drop(engine *e, sequence *s);

#endif
