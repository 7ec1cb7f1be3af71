#include "engine/verify.h"

#include "engine/cache.h"
#include "engine/draft.h"
#include "engine/finite.h"
#include "spec/rejection.h"

/* The distribution that node `at` of s's draft was drawn from: row depth - 1 of the first branch's; other nodes have probability 1. */
static const float *drawn_from(const sequence *s, int32_t at, const float *certain, size_t n_vocab) {
    const draft_tree *t = &s->draft.tree;
    bool on_first_branch = t->depths[at] == at + 1;
    return s->draft.distributions != NULL && on_first_branch ? s->draft.distributions + n_vocab * (size_t)at : certain;
}

/* Rejection sampling: judges the drafts behind node draft.at one after the other, each against what is left of the target's distribution
 * after the rejected ones before (Miao et al. 2024, "SpecInfer"). */
static quire_err judge(engine *e, const sequence *s, float *logits, const sample_context *c, int32_t *token) {
    const draft_tree *t = &s->draft.tree;
    const float *target;
    size_t n = (size_t)e->desc->n_vocab;
    float *certain = e->draft_scratch, *residual = e->draft_scratch + n;
    sample_key key = {s->sampling.seed, s->sample_index, (uint32_t)s->task.n_known};
    uint32_t purpose = SAMPLE_ACCEPT;
    TRY(sampler_distribution(e->sampler, logits, c, &target));
    for (int32_t i = DRAFT_ROOT; (i = draft_tree_next(t, s->draft.n_rows, s->draft.at, i)) != DRAFT_ROOT; purpose++) {
        *token = t->tokens[i];
        certain[*token] = 1.0f;
        const float *draft = drawn_from(s, i, certain, n);
        bool accepted = (double)sample_uniform(key, (sample_purpose)purpose) < rejection_accept(target, draft, *token);
        if (!accepted) {
            rejection_residual(target, draft, (int32_t)n, residual);
            target = residual;
        }
        certain[*token] = 0.0f;
        if (accepted) {
            return QUIRE_OK;
        }
    }
    *token = rejection_draw(target, (int32_t)n, (double)c->noise.token);
    return QUIRE_OK;
}

quire_err verify_sample(engine *e, sequence *s, float *logits, const sample_context *c, int32_t *token) {
    bool is_judged = draft_tree_next(&s->draft.tree, s->draft.n_rows, s->draft.at, DRAFT_ROOT) != DRAFT_ROOT;
    return is_judged ? judge(e, s, logits, c, token) : sampler_sample(e->sampler, logits, c, token);
}

/* The row of logits behind node `at`, where `out` is that behind the last known token; -1: there is none, since a jump-forward token
 * follows. */
static int32_t row_behind(const sequence *s, int32_t at, int32_t out) {
    if (s->draft.n_jump_forward > 0) {
        return at + 1 == s->draft.n_jump_forward ? out : -1; /* the only one with a row */
    }
    return out + 1 + at;
}

/* Commits the next token of s, behind node `at` of its drafts, of which the first n have rows: a jump-forward token, or one sampled from
 * row `out` of the logits. */
static void next_token(engine *e, sequence *s, int32_t at, int32_t n, int32_t out) {
    if (out < 0) {
        step_commit(e, s, s->draft.tree.tokens[at + 1]);
        return;
    }
    s->draft.at = at;
    s->draft.n_rows = n > 0 && draft_by_rejection(e, s) ? n : 0;
    step_sample(e, s, e->b->ops->logits(e->b, out));
    s->draft.n_rows = 0;
}

/* Moves what was computed of s's next token, at index `place` of its tables, to the slot of its position. */
static void take_place(engine *e, const sequence *s, int32_t place) {
    kv_move_pair pairs[KV_MAX_GROUPS];
    for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
        pairs[g] = (kv_move_pair){.src = {kv_seq_slot(&e->kv, &s->task.kv, g, place)},
                                  .dst = {kv_seq_slot(&e->kv, &s->task.kv, g, s->task.kv.n_computed)},
                                  .group = g};
    }
    if (place != s->task.kv.n_computed) {
        e->b->ops->kv_move(e->b, pairs, s->task.kv.n_tables);
    }
}

void verify_item(engine *e, int32_t item, int32_t out) {
    sequence *s = planned_at(e, item);
    const draft_tree *tree = &s->draft.tree;
    const int32_t n = e->sched.plan.items[item].n_drafts, place = s->task.kv.n_computed; /* place: index of the first draft */
    const int32_t row = e->step.batch_seqs[item].row0 + e->sched.plan.items[item].n_rows - n;
    int32_t at = DRAFT_ROOT;
    draft_outcome o = {.n = n, .is_jump_forward = s->draft.n_jump_forward > 0};
    for (;;) {
        int32_t known = s->task.n_known;
        next_token(e, s, at, n, row_behind(s, at, out));
        int32_t child = s->task.n_known > known ? draft_tree_child(tree, n, at, s->task.tokens[known]) : DRAFT_ROOT;
        if (child == DRAFT_ROOT) {
            break;
        }
        o.n_first += child == o.n_accepted++;
        at = child;
        if (s->task.state == TASK_DONE) {
            break;
        }
        take_place(e, s, place + at);
        kv_seq_advance(&s->task.kv, 1);
        if (!finite_rows(e, s, row + at, 1, row_behind(s, at, out))) {
            step_finish(e, s, FINISH_ERROR, QUIRE_NUMERIC);
            break;
        }
        cache_publish(e, s);
        kv_seq_forget(&e->kv, &s->task.kv);
    }
    if (n > 0) {
        o.to_end = draft_tree_next(tree, n, at, DRAFT_ROOT) == DRAFT_ROOT;
        draft_report(e, s, &o);
    }
    if (s->task.state != TASK_DONE) {
        kv_seq_trim(&e->kv, &s->task.kv);
    }
}
