/* One step of the engine: from waiting requests to their next tokens. */
#include "base/clock.h"

#include "engine/beam.h"
#include "engine/branch.h"
#include "engine/cache.h"
#include "engine/explain.h"
#include "engine/features.h"
#include "engine/fork.h"
#include "engine/output.h"
#include "engine/rule_step.h"
#include "sched/admission_candidates.h"
#include <assert.h>

/* Plans a step and reserves its pages. False: no row can be computed now. */
static bool engine_step_plan(engine *e, int64_t now_us) {
    if (deadline_check(&e->sched, now_us) > 0) {
        intake_drop_done(e->sched.waiting, &e->sched.n_waiting);
    }
    event_planning(e);
    bool has_items = step_plan(&e->sched, now_us);
    intake_drop_done(e->sched.running, &e->sched.n_running); /* fork_answer may have ended some sequences */
    event_planned(e);
    if (e->sched.copies.n > 0) { /* shared pages that the step writes to are copied first */
        e->mover.copy(e->mover.context, &e->sched.copies);
    }
    return has_items;
}

static bool engine_step_submit(engine *e) {
    int64_t start_ns = clock_ns();
    parks_collect_closed(e);
    intake_drop_cancelled(e, intake_new(e));
    event_polled(e);
    if (e->sched.n_running + e->sched.n_waiting == 0) {
        return false;
    }
    int64_t now_us = clock_us();
    atomic_store(&e->step_started_us, now_us);
    kv_cache_set_time(&e->kv, now_us);
    if (!engine_step_plan(e, now_us)) {
        atomic_store(&e->step_started_us, 0);
        return false;
    }
    stats_pages(e);
    batch_fill(e);
    e->profile.plan_ns += clock_ns() - start_ns;
    model_forward(e->m, &e->step.rows);
    return true;
}

bool step_submit(engine *e) {
    rule_step_begin(e);
    work_room *had = work_room_enter(&e->rule_room);
    bool submitted = engine_step_submit(e);
    (void)work_room_enter(had);
    return submitted;
}

void step_collect(engine *e) {
    e->b->ops->step_wait(e->b);
    work_room *had = work_room_enter(&e->rule_room);
    int64_t start_ns = clock_ns(), sampled_ns = e->profile.sample_ns;
    collect_items(e);
    (void)work_room_enter(had);
    intake_drop_done(e->sched.running, &e->sched.n_running);
    int64_t us = clock_us() - atomic_exchange(&e->step_started_us, 0);
    stats_step(e, us);
    e->profile.commit_ns += clock_ns() - start_ns - (e->profile.sample_ns - sampled_ns);
    /* only a step that ran as planned is used as a measurement */
    if (e->step.rows.n_rows == e->sched.plan.n_rows) {
        scheduler_note_us(&e->sched, (double)us);
    }
}

/* Intake: moves submitted sequences from the in-ring to the queues, and drops cancelled
 * and ended ones. The engine thread. */

/* Prefetches a sequence that another processor has just made. */
static void intake_prefetch(const sequence *s) {
    for (size_t at = 0; at < sizeof *s; at += MEM_ALIGN) {
        __builtin_prefetch((const char *)s + at, 1);
    }
    for (int32_t i = 0; i < s->task.n_known; i += (int32_t)(MEM_ALIGN / sizeof *s->task.tokens)) {
        __builtin_prefetch(s->task.tokens + i);
    }
}

static bool is_cancelled(const engine *e, const sequence *s) {
    if (s->beams != NULL) {
        return beam_is_cancelled(e, s->beams);
    }
    return atomic_load(&e->entries[s->id.index].cancel) == s->id.generation;
}

static bool any_is_cancelled(const engine *e, const sequence *parent) {
    bool any = false;
    for (const sequence *s = parent; s != NULL; s = s->next_child) {
        any = any || is_cancelled(e, s);
    }
    return any;
}

/* Ends s, which has computed all its tokens and generates none. */
static void intake_end(engine *e, sequence *s) {
    stats_pooled(e, s);
    step_finish(e, s, FINISH_LENGTH, QUIRE_OK);
    sequence_drop(s);
}

/* If s generates no tokens and all its tokens are cached, gives it their pages. */
static bool intake_finds_all(engine *e, sequence *s) {
    kv_held held;
    if (!s->no_tokens || any_is_cancelled(e, s) ||
        kv_seq_peek(&e->kv, &s->task.kv, s->task.tokens, s->task.n_known, &held) < s->task.n_known) {
        return false;
    }
    s->task.needs_no_row = true;
    e->sched.now_us = clock_us();
    scheduler_admit(&e->sched, &s->task);
    return true;
}

/* Adds s, with its chained children, to the waiting list, unless it ends at once. */
static void intake_wait(engine *e, sequence *s) {
    kv_held held;
    cache_enter(e, s);
    if (intake_finds_all(e, s)) {
        intake_end(e, s);
        return;
    }
    s->task.n_found = kv_seq_peek(&e->kv, &s->task.kv, s->task.tokens, task_reusable(&s->task), &held);
    scheduler_wait(&e->sched, &s->task);
    explain_queued(e, s);
    if (e->options.ablations.no_fork_sharing) {
        fork_split(e, s);
    }
}

bool intake_new(engine *e) {
    assert(e != NULL);
    sequence *s;
    bool some_cancelled = false;
    while (e->sched.n_waiting + e->sched.n_running < e->options.max_requests && ring_pop(e->in, &s)) {
        intake_prefetch(s);
        some_cancelled = any_is_cancelled(e, s) || some_cancelled;
        for (sequence *child = s; child != NULL; child = child->next_child) {
            event_entered(e, child);
        }
        if (s->beams != NULL) {
            beam_enter(s);
        }
        if (s->fork_from == NULL || !branch_enter(e, s)) {
            intake_wait(e, s);
        } else if (s->task.kv.n_computed == s->task.n_known) {
            intake_end(e, s);
        }
    }
    return some_cancelled;
}

/* Removes cancelled children from the group of their parent. */
static void drop_cancelled_children(engine *e, sequence *parent) {
    for (sequence **at = &parent->next_child; *at != NULL;) {
        sequence *s = *at;
        if (!is_cancelled(e, s)) {
            at = &s->next_child;
            continue;
        }
        *at = s->next_child;
        s->next_child = NULL;
        step_finish(e, s, FINISH_CANCELLED, QUIRE_CANCELLED);
        sequence_drop(s);
    }
}

void intake_drop_done(sched_task **queue, int32_t *n) {
    int32_t kept = 0;
    for (int32_t i = 0; i < *n; i++) {
        if (queue[i]->state != TASK_DONE) {
            queue[kept++] = queue[i];
        } else {
            sequence_drop(sequence_of(queue[i]));
        }
    }
    *n = kept;
}

void intake_drop_cancelled(engine *e, bool some_came_so) {
    assert(e != NULL);
    unsigned n_cancels = atomic_load(&e->n_cancels);
    if (n_cancels == e->n_cancels_seen && !some_came_so) {
        return;
    }
    e->n_cancels_seen = n_cancels;
    sched_task **queues[2] = {e->sched.running, e->sched.waiting};
    int32_t *counts[2] = {&e->sched.n_running, &e->sched.n_waiting};
    for (int k = 0; k < 2; k++) {
        for (int32_t i = 0; i < *counts[k]; i++) {
            sequence *s = sequence_of(queues[k][i]);
            drop_cancelled_children(e, s);
            if (is_cancelled(e, s)) {
                step_finish(e, s, FINISH_CANCELLED, QUIRE_CANCELLED);
            }
        }
        intake_drop_done(queues[k], counts[k]);
    }
}

/* A parent that ends adds its first child to the waiting list: the loop ends it too. */
void intake_cancel_all(engine *e) {
    assert(e != NULL);
    sequence *s;
    while (e->sched.n_running > 0) {
        s = running_at(e, --e->sched.n_running);
        step_finish(e, s, FINISH_CANCELLED, QUIRE_CANCELLED);
        sequence_drop(s);
    }
    while (ring_pop(e->in, &s)) {
        step_finish(e, s, FINISH_CANCELLED, QUIRE_CANCELLED);
        sequence_drop(s);
    }
    while (e->sched.n_waiting > 0) {
        s = waiting_at(e, --e->sched.n_waiting);
        step_finish(e, s, FINISH_CANCELLED, QUIRE_CANCELLED);
        sequence_drop(s);
    }
    out_wake_readers(e);
}
