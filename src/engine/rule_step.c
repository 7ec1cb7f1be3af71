#include "engine/rule_step.h"

#include <stddef.h>

void rule_step_begin(engine *e) {
    work_room_fill(&e->rule_room, RULE_STEP_MOST, RULE_STEP_US);
}

/* ---- outside ---- */

/* Runs on an outside thread, which owns the state until rule_place is RULE_BACK. */
static void run_outside(engine_work *w) {
    sequence *s = (sequence *)(void *)((char *)w - offsetof(sequence, rule_work));
    const wake *engine_wake = s->rule_wake;
    s->rule_error = atomic_load(&s->rule_is_off) ? QUIRE_CANCELLED : sample_prepare(&s->context);
    atomic_store(&s->rule_place, RULE_BACK);
    wake_ring(engine_wake);
    sequence_drop(s);
}

static void give_outside(engine *e, sequence *s) {
    s->rule_work.run = run_outside;
    s->rule_work.tenant = s->outside.tenant;
    s->rule_work.is_off = &s->rule_is_off;
    s->rule_wake = e->in_wake;
    atomic_store(&s->rule_place, RULE_OUTSIDE);
    atomic_fetch_add(&s->holders, 1);
    e->n_rules_outside++;
    e->stats.rules_outside++;
    s->outside.add(s->outside.context, &s->rule_work);
}

/* Takes s's rule back if the outside thread has returned it. */
static void rule_step_take_back(engine *e, sequence *s) {
    if (atomic_load(&s->rule_place) == RULE_BACK) {
        atomic_store(&s->rule_place, RULE_HERE);
        e->n_rules_outside--;
    }
}

/* ---- within a step ---- */

bool rule_step_prepare(sequence *s) {
    if (s->constraint != NULL && s->rule_error == QUIRE_OK && !s->rule.is_ready) {
        quire_err r = sample_prepare(&s->context);
        s->rule_error = r == QUIRE_BUSY ? QUIRE_OK : r;
    }
    return s->constraint == NULL || s->rule.is_ready;
}

/* Computes a missing mask here, or passes the work to an outside thread. False: s has to
 * wait for it, or failed. */
static bool rule_step_make_ready(engine *e, sequence *s) {
    rule_step_take_back(e, s);
    if (atomic_load(&s->rule_place) != RULE_HERE || s->rule_error != QUIRE_OK) {
        return false;
    }
    if (rule_step_prepare(s) || s->rule_error != QUIRE_OK) {
        return s->rule.is_ready;
    }
    if (s->outside.add != NULL) {
        give_outside(e, s);
        return false;
    }
    /* there is no outside thread: computes it now, without a limit */
    work_room *room = work_room_enter(NULL);
    bool made = rule_step_prepare(s);
    (void)work_room_enter(room);
    return made;
}

/* Whether the rule of s failed; false while a text thread has it. */
static bool has_failed(const sequence *s) {
    return atomic_load(&s->rule_place) == RULE_HERE && s->rule_error != QUIRE_OK;
}

bool rule_step_may_run(engine *e, sequence *s) {
    bool may = s->constraint == NULL || rule_step_make_ready(e, s);
    e->some_rule_failed = e->some_rule_failed || (s->constraint != NULL && has_failed(s));
    return may;
}

/* Ends the sequences of a queue whose rules failed. */
static void drop_failed(engine *e, sched_task **queue, int32_t *n) {
    bool some = false;
    for (int32_t i = 0; i < *n; i++) {
        sequence *s = sequence_of(queue[i]);
        if (s->constraint != NULL && s->task.state != TASK_DONE && has_failed(s)) {
            step_finish(e, s, FINISH_ERROR, s->rule_error == QUIRE_INVALID ? QUIRE_INTERNAL : s->rule_error);
            some = true;
        }
    }
    if (some) {
        intake_drop_done(queue, n);
    }
}

void rule_step_planning(engine *e) {
    bool some_failed = e->some_rule_failed;
    e->some_rule_failed = false;
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        sequence *s = running_at(e, i);
        if (s->constraint != NULL) {
            s->task.sits_out = !rule_step_make_ready(e, s);
            some_failed = some_failed || has_failed(s);
        }
    }
    for (int32_t i = 0; i < e->sched.n_waiting && e->n_rules_outside > 0; i++) {
        sequence *s = waiting_at(e, i);
        if (s->constraint != NULL) {
            rule_step_take_back(e, s);
            some_failed = some_failed || has_failed(s);
        }
    }
    if (some_failed) {
        drop_failed(e, e->sched.running, &e->sched.n_running);
        drop_failed(e, e->sched.waiting, &e->sched.n_waiting);
    }
}

void rule_step_ended(engine *e, sequence *s) {
    if (s->constraint != NULL && atomic_load(&s->rule_place) != RULE_HERE) {
        atomic_store(&s->rule_is_off, true);
        e->n_rules_outside--;
    }
}
