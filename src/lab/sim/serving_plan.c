/* A simulated server's side of the scheduler: requests with pages go through step_plan as the engine's do; for those with pieces the hooks
 * say what fits. */
#include "lab/sim/serving_state.h"

/* Room in one piece for a, if it has none yet. The first one that finds none ends the search: nobody overtakes it. */
static bool take_piece(void *context, sched_task *t) {
    serving *s = context;
    served *a = served_of(t);
    reserved_seq q = {.n_prompt = t->n_prompt, .n_output = t->n_max - t->n_prompt, .n_now = t->n_max};
    int64_t n = reservation_slots(s->o->reservation, &q, s->o->max_model_len, s->page_tokens);
    n = n < s->room.size ? n : s->room.size;
    s->is_full = s->is_full || !first_fit_take(&s->room, (int32_t)t->arrival, n);
    a->reserved = s->is_full ? 0 : n;
    return !s->is_full;
}

static void describe_piece(void *context, const sched_task *t, sched_seq *d) {
    (void)context;
    (void)t;
    d->n_pages = INT32_MAX / 2; /* nothing can lack of its piece */
}

static bool give_piece(void *context, sched_task *t) {
    serving *s = context;
    first_fit_give(&s->room, (int32_t)t->arrival);
    return false;
}

static const sched_hooks PAGES = {0}, PIECES = {.is_ready = take_piece, .describe = describe_piece, .preempt = give_piece};

quire_err serving_open_scheduler(serving *s) {
    const serving_options *o = s->o;
    scheduler_options k = {.limits = {.max_rows = o->max_rows,
                                      .max_out = o->max_seqs,
                                      .max_seqs = o->max_seqs,
                                      .max_chunk = o->max_chunk > 0 ? o->max_chunk : o->max_rows,
                                      .page_tokens = s->page_tokens,
                                      .max_preemptions = SCHED_MAX_PREEMPTIONS,
                                      .target_us = (double)o->step_target_us},
                           .policy = ADMISSION_FCFS,
                           .n_groups = 1,
                           .max_tasks = s->t->n_requests,
                           .max_tenants = 1,
                           .kv = s->pieces ? NULL : &s->kv,
                           .hooks = s->pieces ? &PIECES : &PAGES,
                           .context = s};
    return scheduler_open(&k, &s->sched);
}

bool serving_plan(serving *s) {
    s->is_full = false;
    bool has_items = step_plan(&s->sched, (int64_t)s->now);
    for (int32_t i = 0; s->pieces && i < s->sched.n_candidates; i++) { /* who got a piece and was not admitted */
        if (s->sched.candidates[i]->state == TASK_WAITING) {
            (void)give_piece(s, s->sched.candidates[i]);
        }
    }
    return has_items;
}
