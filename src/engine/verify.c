#include "engine/verify.h"

#include "engine/cache.h"
#include "engine/finite.h"
#include "engine/rejection.h"

quire_err verify_pick(engine *e, sequence *s, float *logits, const sample_context *c, int32_t *token) {
    if (!s->draft.is_judged) {
        return sampler_pick(e->sampler, logits, c, token);
    }
    const float *target, *draft = s->draft.distributions;
    size_t n = (size_t)e->desc->n_vocab;
    int32_t drafted = s->tokens[s->n_known];
    float *certain = e->draft_scratch, *residual = e->draft_scratch + n;
    TRY(sampler_distribution(e->sampler, logits, c, &target));
    certain[drafted] = 1.0f; /* a drafter without a distribution draws what it drafts for sure */
    draft = draft ? draft + n * (size_t)(s->n_known - s->draft.n_drafted_from) : certain;
    *token = drafted;
    sample_key key = {s->sampling.seed, s->sample_index, (uint32_t)s->n_known};
    if ((double)sample_uniform(key, SAMPLE_ACCEPT) >= rejection_accept(target, draft, drafted)) {
        rejection_residual(target, draft, (int32_t)n, residual);
        *token = rejection_draw(residual, (int32_t)n, (double)c->noise.token);
    }
    certain[drafted] = 0.0f;
    return QUIRE_OK;
}

/* The next token of s: forced, or picked from the next row of logits. */
static void next_token(engine *e, sequence *s, int32_t i, bool has_draft, int32_t *out) {
    if (i < s->draft.n_forced) {
        step_commit(e, s, s->tokens[s->n_known]);
        return;
    }
    s->draft.is_judged = has_draft && verify_by_rejection(e, s);
    step_sample(e, s, e->b->ops->logits(e->b, (*out)++));
    s->draft.is_judged = false;
}

void verify_item(engine *e, int32_t item, int32_t out) {
    sequence *s = e->step.seqs[item];
    int32_t n = e->step.plan.items[item].n_drafts, n_accepted = 0;
    bool forced = s->draft.n_forced > 0;
    int32_t row = e->step.batch_seqs[item].row0 + e->step.plan.items[item].n_rows - n; /* the first draft's */
    for (;;) {
        int32_t at = s->n_known, drafted = n_accepted < n ? s->tokens[at] : -1;
        next_token(e, s, n_accepted, n_accepted < n, &out);
        bool accepted = s->n_known > at && s->tokens[at] == drafted;
        n_accepted += accepted;
        if (!accepted || s->state == SEQ_DONE) {
            break;
        }
        s->n_computed++;
        if (!finite_rows(e, s, row + n_accepted - 1, 1, n_accepted < s->draft.n_forced ? -1 : out)) {
            step_finish(e, s, FINISH_ERROR, QUIRE_NUMERIC);
            break;
        }
        cache_publish(e, s);
        cache_forget(e, s);
    }
    if (n > 0) {
        draft_told(e, s, forced, n, n_accepted);
    }
    for (int32_t g = 0; g < s->n_tables && s->state != SEQ_DONE; g++) {
        kv_table_truncate(e->pool, &s->tables[g], s->n_computed, e->layout.page_tokens);
    }
}
