/* One step of the engine: from waiting requests to their next tokens. */
#include "base/clock.h"
#include "engine/features.h"
#include "engine/rule_step.h"
#include "sched/deadline.h"

/* Plans a step and reserves its pages. False: nothing can be computed now. */
static bool engine_step_plan(engine *e, int64_t now_us) {
    if (deadline_check(&e->sched, now_us) > 0) {
        intake_drop_done(e->sched.waiting, &e->sched.n_waiting);
    }
    event_planning(e);
    bool has_items = step_plan(&e->sched, now_us);
    event_planned(e);
    if (e->sched.copies.n > 0) { /* shared pages that the step writes to */
        e->mover.copy(e->mover.context, &e->sched.copies);
    }
    return has_items;
}

static bool engine_step_submit(engine *e) {
    int64_t start_ns = clock_ns();
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
    if (e->step.rows.n_rows == e->sched.plan.n_rows) { /* the step computed all that was planned */
        scheduler_note_us(&e->sched, (double)us);
    }
}
