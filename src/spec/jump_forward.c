#include "spec/jump_forward.h"

#include "core/sampling_lists.h"
#include "sample/end_tokens.h"

/* Whether a rule of the request could forbid the one allowed token, so that sampling it is an error. */
static bool may_be_forbidden(const sampling_params *p, const model_desc *d, int32_t token) {
    return p->lists->bad_words.n > 0 || p->lists->n_bias > 0 || p->no_repeat_ngram_size > 0 || end_token_is_delayed(p, d, token);
}

bool jump_forward_propose(const sampling_params *p, const model_desc *d, int32_t most, draft_tree *out) {
    const sampling_lists *lists = p->lists;
    if (!lists || !lists->has_allowed || lists->n_allowed != 1 || p->mirostat != MIROSTAT_OFF ||
        may_be_forbidden(p, d, lists->allowed[0])) {
        return false;
    }
    for (int32_t i = 0; i < most; i++) {
        draft_tree_add(out, i - 1, lists->allowed[0]);
    }
    return true;
}
