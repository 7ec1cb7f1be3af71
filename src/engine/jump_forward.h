/* Jump-forward: where a request's rules leave exactly one token that can come next, it is not sampled. Such tokens enter a step as drafts
 * whose rows need no logits (docs/design.md, Drafts), so several are computed in one step and the output is unchanged. The one such rule is
 * allowed_token_ids with one id. */
#ifndef ENGINE_JUMP_FORWARD_H
#define ENGINE_JUMP_FORWARD_H

#include "engine/state.h"

/* Makes the tokens that must follow s's known ones, at most `most`, its drafts, and sets draft.n_jump_forward. False when more than one
 * token is possible, or when sampling would have another effect (log-probabilities, mirostat's state, an error because nothing is allowed).
 * O(most). */
bool jump_forward_propose(const engine *e, sequence *s, int32_t most);

#endif
