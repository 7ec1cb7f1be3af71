/* What a sequence's request is told about its way through the engine (quire_explain.h), for those that ask: collected by the engine thread
 * as it goes, in a block that is made with the sequence, so that a step allocates nothing. A sequence without one costs a comparison a
 * step.
 *
 * Time is cut where something changes: each moment of a sequence belongs to one wait, to its prefill or to its decoding. */
#ifndef ENGINE_EXPLAIN_H
#define ENGINE_EXPLAIN_H

#include "engine/explain_block.h"
#include "engine/sequence.h"

/* The engine's thread knows s. */
void explain_enter(engine *e, sequence *s);
/* The plan is made and those admitted run: what every other waits for. n_candidates: waiting sequences that the plan looked at. O(1) where
 * nobody asks, else O(waiting). */
void explain_waiting(engine *e, int32_t n_candidates);
/* Each does nothing for a sequence that does not ask. */
/* s has been given what it reuses and runs. */
void explain_admitted(engine *e, sequence *s);
/* s, which waited for that, runs with pages that another computed. */
void explain_shared(sequence *s, quire_wait wait);
/* s is about to give up its pages. */
void explain_preempted(sequence *s);
/* This step has computed n tokens of s. */
void explain_computed(engine *e, sequence *s, int32_t n);
/* s has a token more. */
void explain_token(sequence *s, int64_t now_us);
/* Tokens came back from a tier for s. */
void explain_promoted(sequence *s, int32_t n_tokens);
/* Pages of s, which was preempted, go to host memory, or come back. */
void explain_swapped(sequence *s, int64_t bytes);
/* s is over. */
void explain_end(engine *e, sequence *s, int64_t now_us);

#endif
