/* Drafts by a second, smaller model with the same vocabulary. It samples with the target's parameters and the noise of each position, so
 * where both models agree they sample the same token, in sampled text too. Only the first level of a tree has more than one token: besides
 * the sampled one those that the model finds likeliest, at no further cost.
 *
 * The model has a KV cache of its own. A sequence gets a kv_seq in it when it is first drafted for, with block tables as long as a sequence
 * may be, and releases it when it ends or is preempted. What the model computed of a rejected draft is truncated at the next call. Known
 * tokens that it has not seen yet (a prompt at first) are computed then, as many rows a step as its backend takes; it drafts for the
 * sequences that are up to date. When pages run out, it takes those of sequences that are not drafted for in this step; else there is no
 * draft. Invariant: the kv_seq's tables hold its n_computed tokens, of which the first min(n_computed, n_agreed) are the sequence's
 * own. */
#ifndef SPEC_DRAFT_MODEL_H
#define SPEC_DRAFT_MODEL_H

#include "spec/draft.h"

/* Opens the drafter. o->model has the model, its backend, layout and pages. QUIRE_UNSUPPORTED when its vocabulary is not the target's. */
quire_err draft_model_open(const draft_options *o, const draft_target *t, drafter **out, quire_error *err);

#endif
