#include "engine/draft_sample.h"

#include "sample/end_tokens.h"

/* Whether nothing but the tokens comes of the item's samples, so that they can be drawn before the first is committed. */
static bool is_lined(const engine *e, int32_t item) {
    const sequence *s = planned_at(e, item);
    bool is_exact = !draft_by_rejection(&e->options.draft, &s->sampling) && s->sampling.mirostat == MIROSTAT_OFF;
    return e->sched.plan.items[item].n_drafts > 0 && s->draft.n_jump_forward == 0 && is_exact && s->logprobs == NULL &&
           !task_wants_logits(&s->task) && s->task.state != TASK_DONE;
}

/* Fills the rows of an item: behind its last known token and behind each draft. */
static void fill_rows(const engine *e, sequence *s, int32_t out, draft_line *line) {
    bool takes = e->b->ops->argmax != NULL && sampler_takes_argmax(&s->sampling, s->task.n_known - s->task.n_prompt);
    for (int32_t i = 0; i <= line->n_drafts; i++) {
        int32_t argmax = takes ? e->b->ops->argmax(e->b, out + i) : -1;
        line->rows[i] = (sample_row){
            .logits = e->b->ops->logits(e->b, out + i), .context = s->context, .knows_argmax = argmax >= 0, .argmax = argmax};
    }
}

/* Goes down a line. The history of each sample is the sequence's own array, where the tokens will be known. */
static void sample_line(void *context, int32_t task, int32_t worker) {
    const engine *e = context;
    const draft_line *line = &e->step.lines[task];
    sequence *s = line->s;
    verify_walk w = verify_begin(&s->draft, line->n_drafts, false);
    int32_t n = 0;
    for (bool goes_on = true; goes_on; n++) {
        sample_row *row = &line->rows[verify_row(&w, 0)];
        sample_result *result = &line->results[n];
        *result = NOT_SAMPLED;
        row->result = result;
        row->context.n_tokens = s->task.n_known + n;
        sample_on(&e->samples, worker, row);
        goes_on = result->error == QUIRE_OK && result->token >= 0 &&
                  end_token_kind(&s->sampling, e->desc, result->token) == END_NONE && verify_advance(&w, result->token);
        if (goes_on) {
            s->task.tokens[s->task.n_known + n] = result->token;
        }
    }
    s->line = line->results;
    s->n_line = n;
}

void draft_sample_all(engine *e) {
    step_arrays *a = &e->step;
    int32_t n = 0, n_rows = 0;
    for (int32_t i = 0; i < e->sched.plan.n_items; i++) {
        if (is_lined(e, i)) {
            int32_t n_drafts = e->sched.plan.items[i].n_drafts;
            a->lines[n] = (draft_line){planned_at(e, i), n_drafts, a->line_rows + n_rows, a->line_results + n_rows};
            fill_rows(e, planned_at(e, i), a->out0[i], &a->lines[n++]);
            n_rows += n_drafts + 1;
        }
    }
    sample_tasks(&e->samples, sample_line, e, n);
}
