/* What the engine adds to the scheduler's decisions (sched/scheduler.h): pages that lie
 * outside the pool, drafts, beams, deadlines, and the events of features.h. The context
 * of every hook is the engine. */
#include "engine/beam.h"
#include "engine/features.h"
#include "engine/rule_step.h"

static bool sched_hooks_is_ready(void *context, sched_task *t) {
    engine *e = context;
    return rule_step_may_run(e, sequence_of(t)) &&
           !kv_tiering_waits(e->tiering, &t->kv, t->tokens, task_reusable(t), e->sched.now_us,
                             e->options.tiers.wait_us);
}

static void sched_hooks_describe(void *context, const sched_task *t, sched_seq *d) {
    const sequence *s = sequence_of(t);
    d->n_drafts = t->state == TASK_WAITING ? 0 : s->draft.tree.n;
    d->is_jump_forward = d->n_drafts > 0 && s->draft.n_jump_forward > 0;
    if (s->beams != NULL) {
        beam_describe(context, s, d);
    }
}

static void admitted(void *context, sched_task *t) {
    event_admitted(context, sequence_of(t));
}

static bool sched_hooks_preempt(void *context, sched_task *t) {
    sequence *s = sequence_of(t);
    if (s->beams != NULL) {
        beam_preempt(context, s);
        return true;
    }
    s->n_preempted++;
    event_preempted(context, s);
    return false;
}

static void sched_hooks_settle(void *context) {
    beam_settle(context);
}

static void reserved(void *context, const sched_task *t, int32_t n_rows, int32_t n_pages) {
    const engine *e = context;
    const kv_table *own[KV_MAX_GROUPS];
    audit_note note = {.step = e->stats.steps, .request = t->arrival, .n_rows = n_rows, .n_pages = n_pages};
    if (n_pages > 0) {
        int32_t n_own = kv_seq_list_tables(&t->kv, own), n = engine_list_tables(e);
        audit_file_note(e->audit_file, &note, own, n_own, e->step.tables, n);
    }
}

/* Ends the sequence and all samples of its prompt. */
static void sched_hooks_refuse(void *context, sched_task *t, int32_t after_s) {
    engine *e = context;
    sequence *s = sequence_of(t);
    while (s->next_child != NULL) {
        sequence *next = s->next_child;
        s->next_child = next->next_child;
        next->next_child = NULL;
        next->retry_after_s = after_s;
        step_finish(e, next, FINISH_ERROR, QUIRE_BUSY);
        sequence_drop(next);
    }
    s->retry_after_s = after_s;
    step_finish(e, s, FINISH_ERROR, QUIRE_BUSY);
    e->stats.deadlines_refused++;
}

#define HOOKS                                                                                                \
    .is_ready = sched_hooks_is_ready, .describe = sched_hooks_describe, .admitted = admitted,                \
    .preempt = sched_hooks_preempt, .settle = sched_hooks_settle, .refuse = sched_hooks_refuse

const sched_hooks *sched_hooks_of(bool audits) {
    static const sched_hooks plain = {HOOKS}, audited = {HOOKS, .reserved = reserved};
    return audits ? &audited : &plain;
}
