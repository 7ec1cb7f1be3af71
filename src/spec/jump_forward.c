#include "spec/jump_forward.h"

#include "base/size.h"
#include "core/params.h"
#include "sample/constraint.h"

/* Whether another rule could forbid the only allowed token: sampling is then an error. */
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

/* Proposes the tokens that the constraint forces, unless another rule could forbid them.
 * An end token is never forced, because the sampler decides whether it is allowed
 * (sample_accept). */
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

void outlook_find(draft_seq *s, const model_desc *d, int32_t n_known, int32_t most,
                  const guess_worth *worth) {
    draft_outlook *o = &s->outlook;
    o->n_known = n_known;
    o->tree.n = 0;
    most = least_i32(most, DRAFT_MAX);
    o->is_forced = !s->samples_each && jump_forward_propose(s->context, d, most, &o->tree);
    if (!o->is_forced) {
        draft_guess(s, most, worth, &o->tree);
    }
}

bool outlook_propose(draft_seq *s, const model_desc *d, int32_t most, const guess_worth *worth) {
    const draft_outlook *o = &s->outlook;
    if (s->context->constraint == NULL) {
        return false;
    }
    if (o->n_known != s->n_known) {
        outlook_find(s, d, s->n_known, most, worth);
    }
    if (o->tree.n == 0) {
        return false;
    }
    s->tree = o->tree;
    s->is_guess = !o->is_forced;
    s->n_jump_forward = o->is_forced ? s->tree.n : 0;
    return true;
}
