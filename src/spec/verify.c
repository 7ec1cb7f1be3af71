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
void verify_judge(const verify_walk *w, const sample_pool *p, sample_row *row) {
    const draft_seq *d = w->draft;
    float *certain = w->scratch, *residual = w->scratch + p->n_vocab;
    int32_t *token = &row->result->token;
    uint32_t purpose = SAMPLE_ACCEPT;
    row->goal = SAMPLE_DISTRIBUTION;
    sample_batch(p, row, 1);
    if (row->result->error != QUIRE_OK) {
        return;
    }
    const float *target = row->probs;
    for (int32_t i = DRAFT_ROOT; (i = draft_tree_next(&d->tree, w->outcome.n, w->at, i)) != DRAFT_ROOT; purpose++) {
        *token = d->tree.tokens[i];
        certain[*token] = 1.0f;
        const float *draft = drawn_from(d, i, certain, (size_t)p->n_vocab);
        float uniform = sample_uniform(sample_key_of(&row->context), (sample_purpose)purpose);
        bool accepted = (double)uniform < rejection_accept(target, draft, *token);
        if (!accepted) {
            rejection_residual(target, draft, p->n_vocab, residual);
            target = residual;
        }
        certain[*token] = 0.0f;
        if (accepted) {
            return;
        }
    }
    *token = rejection_draw(target, p->n_vocab, (double)row->context.noise.token);
}
