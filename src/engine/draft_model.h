/* Drafts by a second, smaller model of the same vocabulary. It picks with the target's own sampling and noise of each position, so where
 * both models are of one mind they pick the same token, sampled text included. A tree has more than one token at its first place only:
 * beside the pick those that the model finds likeliest, which costs it nothing.
 *
 * The model has pages of its own, in a pool that nobody else uses. A sequence takes a seat when it is first asked for, with block tables as
 * long as a sequence may be, and gives it up when it ends or is preempted. What the model computed of a rejected draft is taken back at the
 * next ask; what it has not seen yet (a prompt at first) it computes then, as many rows a step as its backend takes; it drafts for those
 * that are up to date. Where pages are lacking those of sequences that are not asked for now are taken; else there is no draft. Invariant:
 * a seat's tables hold its n_computed tokens, which are the sequence's own tokens[0..min(n_computed, draft.n_agreed)) at the front. */
#ifndef ENGINE_DRAFT_MODEL_H
#define ENGINE_DRAFT_MODEL_H

#include "engine/draft.h"

/* e->options.draft.model names the model, its backend, layout and pages. QUIRE_UNSUPPORTED when its vocabulary is not the target's. */
quire_err draft_model_open(struct engine *e, drafter **out, quire_error *err);

#endif
