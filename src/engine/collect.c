/* Processes what a forward pass has computed: rows are committed, pages published, next
 * tokens sampled. The engine thread. */
#include <string.h>

#include "base/clock.h"
#include "engine/beam.h"
#include "engine/cache.h"
#include "engine/draft_step.h"
#include "engine/features.h"
#include "engine/fork.h"
#include "engine/output.h"
#include "engine/row_pooling.h"
#include "engine/step_lines.h"
#include "engine/step_sample.h"

/* ---- one token ---- */

void step_finish(engine *e, sequence *s, finish_reason reason, quire_err error) {
    if (s->beams != NULL) {
        beam_finish(e, s->beams, reason, error);
        return;
    }
    s->ended_us = clock_us();
    event_ended(e, s);
    kv_seq_release(&e->kv, &s->task.kv, s->task.tokens, reason == FINISH_ERROR ? KV_DROP : KV_KEEP);
    kv_seq_close(&e->kv, &s->task.kv);
    s->task.state = TASK_DONE;
    s->error = error;
    out_publish(s, reason);
}

/* Whether s ends with the token of that kind that it just got, and why. */
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

void step_keep_row(const engine *e, sequence *s, int32_t p, const float *logits) {
    size_t n = (size_t)e->desc->n_vocab;
    if (s->logits_out) {
        memcpy(s->logits_out + (size_t)p * n, logits, n * sizeof *logits);
    }
    if (s->prompt_logprobs && p + 1 < s->task.n_prompt) {
        logprobs_report(logits, e->desc->n_vocab, s->task.tokens[p + 1], s->prompt_logprobs_width,
                        s->prompt_logprobs + (size_t)p * (size_t)s->prompt_logprobs_width);
    }
}

/* ---- one item ---- */

/* Adds n rows of s, the last that were computed, to its pooled row; s ends with the last
 * of its prompt. */
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

/* Commits one item's rows; samples when they reach the last known token. */
static void collect_item(engine *e, int32_t item) {
    sequence *s = planned_at(e, item);
    int32_t n = e->sched.plan.items[item].n_rows - e->sched.plan.items[item].n_drafts;
    int32_t out = e->step.out0[item]; /* the next wanted row; at the end the one to sample from */
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
    /* no sampling from a row that a jump-forward token follows */
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
}

enum { SEQUENCE_AHEAD = 12, TOKENS_AHEAD = 6 }; /* items */

/* Prefetches the sequences of later items, and then their last tokens. */
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
}
