#include "engine/jump_forward.h"

#include "core/sampling_lists.h"

static bool is_one_of(int32_t token, const int32_t *list, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (list[i] == token) {
            return true;
        }
    }
    return false;
}

/* Whether a rule of the request could forbid the one allowed token, so that sampling it is an error. */
static bool may_be_forbidden(const engine *e, const sequence *s, int32_t token) {
    const sampling_params *p = &s->sampling;
    bool ends = is_one_of(token, e->desc->eos, e->desc->n_eos) || is_one_of(token, p->stop_tokens, p->n_stop_tokens);
    return p->lists->bad_words.n > 0 || p->lists->n_bias > 0 || p->no_repeat_ngram_size > 0 || (ends && p->min_tokens > 0);
}

bool jump_forward_propose(const engine *e, sequence *s, int32_t most) {
    const sampling_lists *lists = s->sampling.lists;
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
