/* Jump-forward: where a request's rules leave exactly one token that can come next, it is not sampled. Such tokens enter a step as drafts
 * whose rows need no logits (docs/design.md, Drafts), so several are computed in one step and the output is unchanged. The one such rule is
 * allowed_token_ids with one id. */
#ifndef SPEC_JUMP_FORWARD_H
#define SPEC_JUMP_FORWARD_H

#include "core/model_desc.h"
#include "core/params.h"
#include "spec/draft_tree.h"

/* Puts the tokens that must come next under these parameters, at most `most`, into an empty tree, as a line. False when more than one token
 * is possible, or when sampling would have another effect (mirostat's state, an error because nothing is allowed). Pure. O(most). */
bool jump_forward_propose(const sampling_params *p, const model_desc *d, int32_t most, draft_tree *out);

#endif
