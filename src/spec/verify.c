#include "spec/verify.h"

#include <stddef.h>

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
    return w->by_rejection && draft_tree_next(&w->draft->tree, w->outcome.n, w->at, DRAFT_ROOT) != DRAFT_ROOT;
}

/* The distribution from which node i was drawn: row depth - 1 of the first branch's
 * distributions. Other nodes were given probability 1. */
static rejection_draft drafted(const draft_seq *d, int32_t i, int32_t n_vocab) {
    bool has_one = d->distributions != NULL && d->tree.depths[i] == i + 1;
    return (rejection_draft){d->tree.tokens[i],
                             has_one ? d->distributions + (size_t)n_vocab * (size_t)i : NULL};
}

/* Makes `token` the row's result. Its probability is over 0, so the constraint allows
 * it. */
static void verify_choose(const sample_row *row, int32_t token) {
    quire_err accepted = sample_accept(&row->context, token);
    row->result->token = token;
    row->result->error = accepted == QUIRE_INVALID ? QUIRE_INTERNAL : accepted;
}

/* Judges the drafts one after another, each against what the rejected drafts before it
 * have left of the target's distribution (Miao et al. 2024, "SpecInfer"). */
void verify_judge(const verify_walk *w, const sample_pool *p, sample_row *row) {
    const draft_tree *t = &w->draft->tree;
    uint32_t purpose = SAMPLE_ACCEPT;
    row->goal = SAMPLE_DISTRIBUTION;
    sample_batch(p, row, 1);
    if (row->result->error != QUIRE_OK) {
        return;
    }
    for (int32_t i = DRAFT_ROOT; (i = draft_tree_next(t, w->outcome.n, w->at, i)) != DRAFT_ROOT; purpose++) {
        rejection_draft draft = drafted(w->draft, i, p->n_vocab);
        float uniform = sample_uniform(sample_key_of(&row->context), (sample_purpose)purpose);
        if ((double)uniform < rejection_accept(row->probs, &draft)) {
            verify_choose(row, draft.token);
            return;
        }
        rejection_residual(row->probs, &draft, p->n_vocab);
    }
    verify_choose(row, rejection_draw(row->probs, p->n_vocab, (double)row->context.noise.token));
}

/* The probability with which the drafter drew token i. */
static double drawn_with(const rejection_draft *d, int32_t i) {
    return d->distribution != NULL ? (double)d->distribution[i] : i == d->token;
}

double rejection_accept(const float *target, const rejection_draft *draft) {
    double p = (double)target[draft->token], q = drawn_with(draft, draft->token);
    if (q <= 0.0) {
        return 0.0;
    }
    return p >= q ? 1.0 : p / q;
}

void rejection_residual(float *target, const rejection_draft *draft, int32_t n_vocab) {
    double total = 0.0;
    for (int32_t i = 0; i < n_vocab; i++) {
        double d = (double)target[i] - drawn_with(draft, i);
        total += d > 0.0 ? d : 0.0;
    }
    for (int32_t i = 0; i < n_vocab && total > 0.0; i++) {
        double d = (double)target[i] - drawn_with(draft, i);
        target[i] = d > 0.0 ? (float)(d / total) : 0.0f;
    }
}

int32_t rejection_draw(const float *distribution, int32_t n_vocab, double u) {
    double total = 0.0, cumulated = 0.0;
    int32_t last = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        total += (double)distribution[i];
    }
    for (int32_t i = 0; i < n_vocab; i++) {
        cumulated += (double)distribution[i];
        if (distribution[i] > 0.0f) {
            last = i;
            if (cumulated > u * total) {
                break;
            }
        }
    }
    return last;
}
