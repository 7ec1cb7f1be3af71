#include "engine/verify.h"

#include "engine/cache.h"
#include "engine/finite.h"

/* The next token of s: forced, or picked from the next row of logits. */
static void next_token(engine *e, sequence *s, int32_t i, int32_t *out) {
    if (i < s->draft.n_forced) {
        step_commit(e, s, s->tokens[s->n_known]);
        return;
    }
    step_sample(e, s, e->b->ops->logits(e->b, (*out)++));
}

void verify_item(engine *e, int32_t item, int32_t out) {
    sequence *s = e->step.seqs[item];
    int32_t n = e->step.plan.items[item].n_drafts, n_accepted = 0;
    int32_t row = e->step.batch_seqs[item].row0 + e->step.plan.items[item].n_rows - n; /* the first draft's */
    for (;;) {
        int32_t at = s->n_known, drafted = n_accepted < n ? s->tokens[at] : -1;
        next_token(e, s, n_accepted, &out);
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
        draft_told(e, s, n, n_accepted);
    }
    for (int32_t g = 0; g < s->n_tables && s->state != SEQ_DONE; g++) {
        kv_table_truncate(e->pool, &s->tables[g], s->n_computed, e->layout.page_tokens);
    }
}
