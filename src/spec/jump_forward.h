/* Jump-forward: where a request's rules leave exactly one token that can come next, it is
 * not sampled. Such tokens enter a step as drafts whose rows need no logits
 * (docs/design.md, Drafts), so several are computed in one step and the output is
 * unchanged. The rules are a constraint (sample/constraint.h), which reports what it
 * forces, and allowed_token_ids with one id. */
#ifndef SPEC_JUMP_FORWARD_H
#define SPEC_JUMP_FORWARD_H

#include "core/model_desc.h"
#include "sample/sampler.h"
#include "spec/draft_tree.h"

/* Puts the tokens that must come next after a sequence with this context, at most
 * `most`, into an empty tree, as a line. False when more than one token is possible,
 * or when sampling would have another effect (mirostat's state, an error because
 * nothing is allowed). Pure but for the constraint's caches. O(most), and what the
 * constraint takes. */
bool jump_forward_propose(const sample_context *c, const model_desc *d, int32_t most, draft_tree *out);

#endif
