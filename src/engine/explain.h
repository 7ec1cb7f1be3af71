/* The report on one request's way through the engine (quire_explain.h), for requests that
 * ask for it.
 *
 * The engine thread collects it as it goes, in a block that is allocated with the
 * sequence, so a step allocates nothing. A sequence without a report costs one comparison
 * a step. Every moment of a sequence is counted once: for one kind of wait, for its
 * prefill or for its decoding. */
#ifndef ENGINE_EXPLAIN_H
#define ENGINE_EXPLAIN_H

#include "engine/explain_block.h"
#include "engine/sequence.h"

/* s has reached the engine thread. */
void explain_entered(engine *e, sequence *s);
/* s, with its chained samples, has begun to wait, for the first time: notes how many are
 * before it. O(waiting) for one with a report. */
void explain_queued(engine *e, sequence *s);
/* The plan is made and the admitted sequences run: records why each other sequence waits.
 * O(1) where no sequence has a report, else O(waiting). */
void explain_waiting(engine *e);
/* Each function below does nothing for a sequence without a report. */
/* s is admitted, and has the pages that it reuses. */
void explain_admitted(engine *e, sequence *s);
/* s ends a wait of this kind and runs, with pages that another sequence computed. */
void explain_shared(sequence *s, quire_wait wait);
/* s is about to be preempted. */
void explain_preempted(engine *e, sequence *s);
/* This step has computed n tokens of s. */
void explain_computed(engine *e, sequence *s, int32_t n);
/* s has one more token. */
void explain_token(engine *e, sequence *s, int64_t now_us);
/* So many tokens of s came of a draft: forced, or guessed by its constraint. */
void explain_drafted(sequence *s, int32_t n, bool is_forced);
/* Tokens of s were promoted from a tier. */
void explain_promoted(sequence *s, int32_t n_tokens);
/* Pages of the preempted s were swapped out or in. */
void explain_swapped(sequence *s, int64_t bytes);
/* s is over. */
void explain_ended(engine *e, sequence *s);

#endif
