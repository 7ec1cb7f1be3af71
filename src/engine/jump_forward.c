#include "engine/jump_forward.h"

#include "core/sampling_lists.h"
#include "sample/end_tokens.h"

/* Whether a rule of the request could forbid the one allowed token, so that sampling it is an error. */
static bool may_be_forbidden(const engine *e, const sequence *s, int32_t token) {
    const sampling_params *p = &s->sampling;
    return p->lists->bad_words.n > 0 || p->lists->n_bias > 0 || p->no_repeat_ngram_size > 0 || end_token_is_delayed(p, e->desc, token);
}

bool jump_forward_propose(const engine *e, sequence *s, int32_t most) {
    const sampling_lists *lists = s->sampling.lists;
    if (e->kv.n_state_pages > 0) {
        return false; /* one of the tokens may be the last, and a state cannot go back to it */
    }
    if (!lists || !lists->has_allowed || lists->n_allowed != 1 || s->logprobs || s->sampling.mirostat != MIROSTAT_OFF) {
        return false;
    }
    int32_t token = lists->allowed[0];
    if (may_be_forbidden(e, s, token)) {
        return false;
    }
    for (int32_t i = 0; i < most; i++) {
        draft_tree_add(&s->draft.tree, i - 1, token);
    }
    s->draft.n_jump_forward = most;
    return true;
}
