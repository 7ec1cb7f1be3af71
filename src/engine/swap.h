/* Swapping of preempted sequences (kv/kv_seq.h): decides by measured costs who is swapped out (preempt_cost.h), and counts.
 *
 *   preempted: swap_out, then the pages are released        admitted: scheduler_admit, then swap_in
 *
 * Pages come back byte for byte, so nothing that is computed after them changes (docs/design.md, Determinism). All by the engine thread;
 * without swap space every function does nothing. */
#ifndef ENGINE_SWAP_H
#define ENGINE_SWAP_H

#include "engine/state.h"

/* Gives e->kv, which is open and still empty, swap space. err says why there is none. */
quire_err swap_open(engine *e, quire_error *err);
/* Copies what s has computed, if there is room and --preemption-mode allows it. s still holds its pages. */
void swap_out(engine *e, sequence *s);
/* Copies the pages back, directly after scheduler_admit, if kv_seq_swap_peek said so: s continues where it was preempted. */
void swap_in(engine *e, sequence *s);

#endif
