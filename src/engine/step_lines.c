#include "engine/step_lines.h"

#include <assert.h>

#include "base/clock.h"
#include "engine/draft_step.h"
#include "engine/rule_step.h"
#include "engine/step_sample.h"
#include "sample/end_tokens.h"
#include "spec/outlook.h"

/* Rows of logits that a line samples from: after its last known token and after each
 * draft. Of jump-forward tokens only the last of all is followed by one. */
static int32_t step_lines_count_rows(const draft_line *line) {
    int32_t n_forced = line->s->draft.n_jump_forward;
    return n_forced == 0 ? line->n_drafts + 1 : n_forced == line->n_drafts ? 1 : 0;
}

/* Fills the rows of a line from row `out` of the logits on, and returns how many there
 * are. */
static int32_t step_lines_fill_rows(const engine *e, int32_t out, const draft_line *line) {
    const sequence *s = line->s;
    int32_t n = step_lines_count_rows(line);
    bool takes =
        e->b->ops->argmax != NULL && sampler_takes_argmax(&s->sampling, s->task.n_known - s->task.n_prompt);
    for (int32_t i = 0; i < n; i++) {
        int32_t argmax = takes ? e->b->ops->argmax(e->b, out + i) : -1;
        line->rows[i] = (sample_row){.logits = e->b->ops->logits(e->b, out + i),
                                     .context = s->context,
                                     .knows_argmax = argmax >= 0,
                                     .argmax = argmax};
    }
    return n;
}

/* A token of the line, which is forced or sampled from `row`; n of its tokens are before
 * it. */
static void step_lines_take_token(engine *e, sequence *s, int32_t worker, int32_t n, const verify_walk *w,
                                  sample_row *row, sample_result *result) {
    *result = NOT_SAMPLED;
    if (row == NULL) {
        result->token = s->draft.tree.tokens[w->at + 1];
        result->error = sample_accept(&s->context, result->token);
        return;
    }
    row->result = result;
    row->context.n_tokens = s->task.n_known + n;
    step_sample_row(e, s, worker, row, NULL);
}

/* Checks all rows of a line before it is sampled, as step_check_rows requires; here
 * threads share the work. */
static void step_lines_check_line(engine *e, const draft_line *line, int32_t worker) {
    sequence *s = line->s;
    int32_t n_logits = step_may_publish(e, s, line->n_rows) ? step_lines_count_rows(line) : 0;
    s->is_checked = step_rows_are_finite(e, worker, line->row0, line->n_rows);
    for (int32_t i = 0; s->is_checked && i < n_logits; i++) {
        s->is_checked = step_logits_are_finite(e, line->rows[i].logits);
    }
}

/* Prepares what follows a token of a line. Between jump-forward tokens no mask is needed.
 * False: the line ends here. */
static bool prepare_next(sequence *s, const verify_walk *w) {
    bool is_between = s->draft.n_jump_forward > 0 && w->at + 2 < s->draft.n_jump_forward;
    return s->constraint == NULL ||
           (is_between ? s->rule.pending == SAMPLE_NONE_PENDING : rule_step_prepare(s));
}

/* Goes down a line. The history of each sample is the sequence's own array, where the
 * tokens will be known. */
static void sample_line(void *context, int32_t task, int32_t worker) {
    engine *e = context;
    const draft_line *line = &e->step.lines[task];
    sequence *s = line->s;
    verify_walk w = verify_begin(&s->draft, line->n_drafts, false);
    int32_t n = 0;
    work_room *had = work_room_enter(&e->rule_room);
    step_lines_check_line(e, line, worker);
    for (bool goes_on = true; goes_on; n++) {
        int32_t row = verify_row(&w, 0);
        sample_result *r = &line->results[n];
        step_lines_take_token(e, s, worker, n, &w, row < 0 ? NULL : &line->rows[row], r);
        if (r->error == QUIRE_BUSY && n > 0) {
            break; /* a jump-forward token that could not be taken: it is proposed again */
        }
        bool is_token = r->error == QUIRE_OK && r->token >= 0;
        end_kind end = is_token ? end_token_kind(&s->sampling, e->desc, r->token) : END_NONE;
        bool ends = !is_token || end != END_NONE;
        int32_t room = s->task.n_max - (s->task.n_known + n + 1) - 1; /* for drafts of the next step */
        s->line_end = (uint8_t)end;
        bool is_prepared = ends || prepare_next(s, &w);
        goes_on = !ends && is_prepared && verify_advance(&w, r->token);
        if (goes_on) {
            s->task.tokens[s->task.n_known + n] = r->token;
        } else if (!ends && s->constraint != NULL && is_prepared && room > 0 &&
                   !e->options.ablations.no_jump_forward) {
            guess_worth worth = step_guess_worth(e);
            outlook_find(&s->draft, e->desc, s->task.n_known + n + 1, room, &worth);
        }
    }
    (void)work_room_enter(had);
    s->line = line->results;
    s->n_line = n;
}

/* Whether nothing remains to be done for a line of one row but to take the argmax. With
 * mirostat, mu has to be kept for branches. */
static bool step_lines_is_known(const draft_line *line) {
    return line->n_drafts == 0 && line->s->draft.n_jump_forward == 0 && line->rows[0].knows_argmax &&
           line->s->constraint == NULL && line->s->logprobs == NULL && line->s->mus == NULL;
}

#define SAMPLING_PACE (1.0 / 64) /* part of engine.sample_row_us that a step changes */

/* Samples n lines with so many rows of logits together. */
static void sample_lines(engine *e, int32_t n, int32_t n_rows) {
    int64_t start_ns = clock_ns();
    sample_tasks(&e->samples, sample_line, e, n);
    if (n_rows > 0) {
        e->sample_row_us +=
            SAMPLING_PACE * ((double)(clock_ns() - start_ns) * 1e-3 / n_rows - e->sample_row_us);
    }
}

void step_lines_sample(engine *e) {
    step_arrays *a = &e->step;
    int32_t n = 0, n_rows = 0, n_results = 0;
    for (int32_t i = 0; i < e->sched.plan.n_items; i++) {
        draft_line *line = &a->lines[n];
        sequence *s = planned_at(e, i);
        const sched_item *it = &e->sched.plan.items[i];
        assert(s->n_line == 0);
        s->is_checked = false;
        if (a->uses[i] != ROW_LINE) {
            continue;
        }
        *line = (draft_line){.s = s,
                             .row0 = a->batch_seqs[i].row0,
                             .n_rows = it->n_rows,
                             .n_drafts = it->n_drafts,
                             .rows = a->line_rows + n_rows,
                             .results = a->line_results + n_results};
        n_results += line->n_drafts + 1;
        int32_t filled = step_lines_fill_rows(e, a->out0[i], line);
        if (step_lines_is_known(line)) {
            line->results[0] = (sample_result){line->rows[0].argmax, QUIRE_OK};
            s->line = line->results;
            s->n_line = 1;
            s->line_end = (uint8_t)end_token_kind(&s->sampling, e->desc, line->rows[0].argmax);
        } else {
            n_rows += filled;
            n++;
        }
    }
    sample_lines(e, n, n_rows);
}
