/* Jump ahead: where a request's rules leave exactly one token that can come next, it need not be chosen. Forced tokens enter as drafts
 * whose rows want no logits (docs/design.md, Drafts), so several are computed in one step and nothing that is produced changes. Rules that
 * force tokens today: allowed_token_ids of one id. */
#ifndef ENGINE_JUMP_FORWARD_H
#define ENGINE_JUMP_FORWARD_H

#include "engine/state.h"

/* Makes the tokens that must follow s's known ones, `most` at most, its drafts and sets draft.n_jump_forward; false when more than one
 * could come, or when the choice would do more than choose (log-probabilities, mirostat's state, an error because nothing is allowed).
 * O(most). */
bool jump_forward_propose(const engine *e, sequence *s, int32_t most);

#endif
