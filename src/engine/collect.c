/* After a forward pass: commits its rows, publishes pages and samples the next tokens.
 * The engine thread. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/beam.h"
#include "engine/cache.h"
#include "engine/draft_step.h"
#include "engine/features.h"
#include "engine/fork.h"
#include "engine/output.h"
#include "engine/row_pooling.h"
#include "engine/rule_step.h"
#include "engine/state.h"
#include "engine/step_sample.h"
#include "sample/constraint.h"
#include "spec/jump_forward.h"

/* Lines: the samples of a step on all threads. A line is what one sequence samples after
 * its known tokens: one token, or several along its drafts (spec/verify.h) as long as the
 * sampled tokens are drafts. One thread samples a whole line, token after token, and then
 * finds what the sequence's constraint forces or guesses next (spec/jump_forward.h). So
 * masks, log-probabilities and outlooks of different sequences are computed in parallel.
 * The engine thread then commits the tokens in order. */

/* Number of logits rows that a line samples from: one after its last known token and one
 * after each draft. With jump-forward tokens, only the row after the last of them. */
static int32_t step_lines_count_rows(const draft_line *line) {
    int32_t n_forced = line->s->draft.n_jump_forward;
    return n_forced == 0 ? line->n_drafts + 1 : n_forced == line->n_drafts ? 1 : 0;
}

/* Fills a line's sample rows, for the logits from row `out` on. Returns their number. */
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

/* Stores token n of the line in *result: forced, or sampled from `row`. */
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

/* Checks all rows of a line before it is sampled, as step_check_rows would, but in
 * parallel with other lines. */
static void step_lines_check_line(engine *e, const draft_line *line, int32_t worker) {
    sequence *s = line->s;
    int32_t n_logits = step_may_publish(e, s, line->n_rows) ? step_lines_count_rows(line) : 0;
    s->is_checked = step_rows_are_finite(e, worker, line->row0, line->n_rows);
    for (int32_t i = 0; s->is_checked && i < n_logits; i++) {
        s->is_checked = step_logits_are_finite(e, line->rows[i].logits);
    }
}

/* Prepares the mask after a token of a line; between jump-forward tokens none is needed.
 * False: the line ends here. */
static bool prepare_next(sequence *s, const verify_walk *w) {
    bool is_between = s->draft.n_jump_forward > 0 && w->at + 2 < s->draft.n_jump_forward;
    return s->constraint == NULL ||
           (is_between ? s->rule.pending == SAMPLE_NONE_PENDING : rule_step_prepare(s));
}

/* Samples line `task`. Its tokens are written to the sequence's own array before they are
 * committed, as the history of the next sample. */
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
            break; /* the jump-forward token is proposed again in a later step */
        }
        bool is_token = r->error == QUIRE_OK && r->token >= 0;
        end_kind end = is_token ? end_token_kind(&s->sampling, e->desc, r->token) : END_NONE;
        bool ends = !is_token || end != END_NONE;
        /* tokens that the next step may draft */
        int32_t room = s->task.n_max - (s->task.n_known + n + 1) - 1;
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

/* Whether a line has one row and needs only its argmax, which is known. Not with
 * mirostat, since mu is stored for branches. */
static bool step_lines_is_known(const draft_line *line) {
    return line->n_drafts == 0 && line->s->draft.n_jump_forward == 0 && line->rows[0].knows_argmax &&
           line->s->constraint == NULL && line->s->logprobs == NULL && line->s->mus == NULL;
}

#define SAMPLING_PACE (1.0 / 64) /* weight of one step in engine.sample_row_us */

/* Samples n lines, which have n_rows rows of logits together. */
static void sample_lines(engine *e, int32_t n, int32_t n_rows) {
    int64_t start_ns = clock_ns();
    sample_tasks(&e->samples, sample_line, e, n);
    if (n_rows > 0) {
        e->sample_row_us +=
            SAMPLING_PACE * ((double)(clock_ns() - start_ns) * 1e-3 / n_rows - e->sample_row_us);
    }
}

/* Samples all items of the step with ROW_LINE into s->line, for step_sample. If the
 * backend has computed the argmax of a greedy row that no option changes, and the
 * constraint allows it, no mask is made. Call it after the forward pass, before anything
 * is committed. */
static void step_lines_sample(engine *e) {
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

/* ---- one token ---- */

void step_finish(engine *e, sequence *s, finish_reason reason, quire_err error) {
    if (s->beams != NULL) {
        beam_finish(e, s->beams, reason, error);
        return;
    }
    s->ended_us = clock_us();
    event_ended(e, s);
    if (reason == FINISH_ERROR || !parks_take(e, s)) {
        kv_seq_release(&e->kv, &s->task.kv, s->task.tokens, reason == FINISH_ERROR ? KV_DROP : KV_KEEP);
        kv_seq_close(&e->kv, &s->task.kv);
    }
    s->task.state = TASK_DONE;
    s->error = error;
    out_publish(s, reason);
}

/* Why s ends with its newest token, whose kind is `end`; FINISH_NONE: it goes on. */
static finish_reason finish_of(sequence *s, end_kind end) {
    if (end != END_NONE) {
        s->stopped_by_eos = end == END_EOS;
        return FINISH_STOP;
    }
    return s->task.n_known == s->task.n_max ? FINISH_LENGTH : FINISH_NONE;
}

void step_commit(engine *e, sequence *s, int32_t token, end_kind end) {
    s->task.tokens[s->task.n_known++] = token;
    s->task.state = TASK_DECODE;
    event_token(e, s, e->step.collected_us);
    finish_reason reason = finish_of(s, end);
    if (reason != FINISH_NONE) {
        step_finish(e, s, reason, QUIRE_OK);
    } else {
        out_publish(s, FINISH_NONE);
    }
}

/* Stores the logits and log-probabilities that the request wants from prompt row p. */
static void step_keep_row(const engine *e, sequence *s, int32_t p, const float *logits) {
    size_t n = (size_t)e->desc->n_vocab;
    if (s->logits_out) {
        memcpy(s->logits_out + (size_t)p * n, logits, n * sizeof *logits);
    }
    int32_t i = p + 1 - s->prompt_logprobs_start;
    if (s->prompt_logprobs && i >= 0 && p + 1 < s->task.n_prompt) {
        logprobs_report(logits, e->desc->n_vocab, s->task.tokens[p + 1], &s->sampling,
                        s->prompt_logprobs_width,
                        s->prompt_logprobs + (size_t)i * (size_t)s->prompt_logprobs_width);
    }
}

/* ---- one item ---- */

/* Adds the last n computed rows of s to its pooled row; s ends with its prompt. */
static void collect_rows(engine *e, sequence *s, int32_t n, int32_t row0) {
    row_pooling_gather(e, s, s->task.kv.n_computed - n, n, row0);
    if (s->task.kv.n_computed == s->task.n_prompt) {
        quire_err r = row_pooling_finish(e, s);
        if (r == QUIRE_OK) {
            stats_pooled(e, s);
        }
        step_finish(e, s, r == QUIRE_OK ? FINISH_STOP : FINISH_ERROR, r);
    }
}

/* Ends s, which has computed its given tokens and generates none. Its park keeps row
 * `out` of the logits, the one after the last token. */
static void collect_last(engine *e, sequence *s, int32_t out) {
    const float *logits = s->last_row != NULL ? e->b->ops->logits(e->b, out) : NULL;
    s->has_last_row = logits != NULL && step_logits_are_finite(e, logits);
    if (s->has_last_row) {
        memcpy(s->last_row, logits, (size_t)e->desc->n_vocab * sizeof *logits);
    }
    stats_pooled(e, s);
    step_finish(e, s, FINISH_LENGTH, QUIRE_OK);
}

/* Commits one item's rows; samples when they reach the last known token. */
static void collect_item(engine *e, int32_t item) {
    sequence *s = planned_at(e, item);
    int32_t n = e->sched.plan.items[item].n_rows - e->sched.plan.items[item].n_drafts;
    /* next wanted row of the logits; after the loop, the row to sample from */
    int32_t out = e->step.out0[item];
    if (s->task.state == TASK_DONE) {
        return; /* another beam of its search failed */
    }
    int32_t wanted = batch_first_wanted(s);
    for (int32_t p = wanted > s->task.kv.n_computed ? wanted : s->task.kv.n_computed;
         p < s->task.kv.n_computed + n; p++) {
        if (task_wants_logits(&s->task) && p >= s->task.logits_first) {
            step_keep_row(e, s, p, e->b->ops->logits(e->b, out));
        }
        out += p + 1 < s->task.n_known;
    }
    kv_seq_advance(&s->task.kv, n);
    event_computed(e, s, n);
    const row_use use = e->step.uses[item];
    /* a row before a jump-forward token is not sampled from */
    bool has_row = use >= ROW_BEAM && s->draft.n_jump_forward == 0;
    quire_err checked = step_check_rows(e, s, e->step.batch_seqs[item].row0, n, has_row ? out : -1);
    if (checked != QUIRE_OK) {
        step_finish(e, s, FINISH_ERROR, checked);
        return;
    }
    if (beam_publishes(s)) {
        cache_publish(e, s);
    }
    kv_seq_forget(&e->kv, &s->task.kv);
    if (s->no_tokens && s->task.kv.n_computed == s->task.n_known) {
        collect_last(e, s, out);
        return;
    }
    if (use == ROW_POOLED) {
        collect_rows(e, s, n, e->step.batch_seqs[item].row0);
    } else if (use == ROW_BEAM) {
        beam_take(e, s, e->b->ops->logits(e->b, out));
    } else if (use != ROW_NONE) {
        if (s->next_child != NULL) {
            fork_children(e, s, e->b->ops->logits(e->b, out));
        }
        draft_step_verify(e, item, out);
    }
    kv_seq_settle(&e->kv, &s->task.kv);
}

enum { SEQUENCE_AHEAD = 12, TOKENS_AHEAD = 6 }; /* items */

/* Prefetches the sequences of later items, and the last tokens of nearer ones. */
static void prefetch_ahead(const engine *e, int32_t item) {
    if (item + SEQUENCE_AHEAD < e->sched.plan.n_items) {
        sequence_prefetch(planned_at(e, item + SEQUENCE_AHEAD));
        if (e->sched.plan.items[item + SEQUENCE_AHEAD].n_drafts > 0) {
            sequence_prefetch_drafts(planned_at(e, item + SEQUENCE_AHEAD));
        }
    }
    if (item + TOKENS_AHEAD < e->sched.plan.n_items) {
        sequence *s = planned_at(e, item + TOKENS_AHEAD);
        __builtin_prefetch(s->task.tokens + s->task.n_known, 1);
    }
}

void collect_items(engine *e) {
    int64_t start_ns = clock_ns();
    step_lines_sample(e);
    e->profile.sample_ns += clock_ns() - start_ns;
    e->step.collected_us = clock_us();
    for (int32_t i = 0; i < e->sched.plan.n_items; i++) {
        prefetch_ahead(e, i);
        collect_item(e, i);
    }
    parks_follow(e);
}
