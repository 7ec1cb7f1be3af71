#include "spec/verify.h"

#include "spec/rejection.h"

bool verify_advance(verify_walk *w, int32_t token) {
    const draft_tree *t = &w->draft->tree;
    draft_outcome *o = &w->outcome;
    int32_t child = draft_tree_child(t, o->n, w->at, token);
    if (child == DRAFT_ROOT) {
        return false;
    }
    o->n_first += child == o->n_accepted++;
    w->at = child;
    o->to_end = draft_tree_next(t, o->n, child, DRAFT_ROOT) == DRAFT_ROOT;
    return true;
}

bool verify_is_judged(const verify_walk *w) {
    return w->scratch != NULL && draft_tree_next(&w->draft->tree, w->outcome.n, w->at, DRAFT_ROOT) != DRAFT_ROOT;
}

/* The distribution that node `at` was drawn from: row depth - 1 of the first branch's; other nodes have probability 1. */
static const float *drawn_from(const draft_seq *d, int32_t at, const float *certain, size_t n_vocab) {
    bool on_first_branch = d->tree.depths[at] == at + 1;
    return d->distributions != NULL && on_first_branch ? d->distributions + n_vocab * (size_t)at : certain;
}

/* The drafts are judged one after the other, each against what is left of the target's distribution after the rejected ones before (Miao et
 * al. 2024, "SpecInfer"). */
quire_err verify_judge(const verify_walk *w, sampler *s, int32_t n_vocab, float *logits, const sample_context *c, int32_t *token) {
    const draft_seq *d = w->draft;
    const float *target;
    float *certain = w->scratch, *residual = w->scratch + n_vocab;
    sample_key key = {d->sampling->seed, d->sample_index, (uint32_t)c->n_tokens};
    uint32_t purpose = SAMPLE_ACCEPT;
    TRY(sampler_distribution(s, logits, c, &target));
    for (int32_t i = DRAFT_ROOT; (i = draft_tree_next(&d->tree, w->outcome.n, w->at, i)) != DRAFT_ROOT; purpose++) {
        *token = d->tree.tokens[i];
        certain[*token] = 1.0f;
        const float *draft = drawn_from(d, i, certain, (size_t)n_vocab);
        bool accepted = (double)sample_uniform(key, (sample_purpose)purpose) < rejection_accept(target, draft, *token);
        if (!accepted) {
            rejection_residual(target, draft, n_vocab, residual);
            target = residual;
        }
        certain[*token] = 0.0f;
        if (accepted) {
            return QUIRE_OK;
        }
    }
    *token = rejection_draw(target, n_vocab, (double)c->noise.token);
    return QUIRE_OK;
}
