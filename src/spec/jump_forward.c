#include "spec/jump_forward.h"

#include "core/sampling_lists.h"
#include "sample/end_tokens.h"

/* Whether a rule of the request could forbid the one allowed token, so that sampling it
 * is an error. */
static bool may_be_forbidden(const sampling_params *p, const model_desc *d, int32_t token) {
    return p->lists->bad_words.n > 0 || p->lists->n_bias > 0 || p->no_repeat_ngram_size > 0 ||
           end_token_is_delayed(p, d, token);
}

static bool propose_allowed(const sampling_params *p, const model_desc *d, int32_t most, draft_tree *out) {
    const sampling_lists *lists = p->lists;
    if (!lists || !lists->has_allowed || lists->n_allowed != 1 || may_be_forbidden(p, d, lists->allowed[0])) {
        return false;
    }
    for (int32_t i = 0; i < most; i++) {
        draft_tree_add(out, i - 1, lists->allowed[0]);
    }
    return true;
}

/* Not beside other rules that could forbid what the constraint forces. Nor is an end
 * token forced: the sampler decides whether it is allowed (sample_accept). */
static bool propose_forced(const sample_context *c, const model_desc *d, int32_t most, draft_tree *out) {
    const sampling_params *p = c->params;
    const constraint *k = c->constraint;
    int32_t ids[DRAFT_MAX];
    if (k->ops->forced == NULL || p->lists != NULL || p->no_repeat_ngram_size > 0) {
        return false;
    }
    int32_t n = k->ops->forced(k, c->constraint_state, ids, most < DRAFT_MAX ? most : DRAFT_MAX);
    for (int32_t i = 0; i < n && end_token_kind(p, d, ids[i]) == END_NONE; i++) {
        draft_tree_add(out, i - 1, ids[i]);
    }
    return out->n > 0;
}

bool jump_forward_propose(const sample_context *c, const model_desc *d, int32_t most, draft_tree *out) {
    if (c->params->mirostat != MIROSTAT_OFF) {
        return false;
    }
    return c->constraint != NULL ? propose_forced(c, d, most, out) : propose_allowed(c->params, d, most, out);
}
