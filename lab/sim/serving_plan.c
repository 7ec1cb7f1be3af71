/* A simulated server's side of the scheduler: requests with pages go through step_plan as
 * the engine's do; for those with pieces the hooks say what fits. */
#include "lab/sim/serving_beyond.h"

enum { MOVING = -1 }; /* who has a piece into which another moves */

static int64_t rounded(const serving *s, int64_t n_tokens) {
    int64_t by = s->o->piece_tokens > 0 ? s->o->piece_tokens : 1;
    return (n_tokens + by - 1) / by * by;
}

/* Room in one piece for a, if it has none yet. The first one that finds none ends the
 * search: nobody overtakes it. */
static bool take_piece(void *context, sched_task *t) {
    serving *s = context;
    served *a = served_of(t);
    /* it would find others grown, and give way again */
    bool gave_way = s->o->reservation == RESERVE_GROWING && t->n_preempted > 0;
    if (gave_way && s->sched.n_running > 0 && s->r->times.n == a->n_ended) {
        s->is_full = true;
        return false;
    }
    reserved_seq q = {.n_prompt = t->n_prompt, .n_output = t->n_max - t->n_prompt, .n_now = t->n_known};
    int64_t n = rounded(s, reservation_slots(s->o->reservation, &q, s->o->max_model_len, s->page_tokens));
    n = n < s->room.size ? n : s->room.size;
    s->is_full = s->is_full || !first_fit_take(&s->room, (int32_t)t->arrival, n, &a->piece);
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

/* Gives t, whose piece is full, one that holds all that it knows. One that runs alone
 * slides to the memory's start where there is no gap. false in *did: no gap holds it. */
static quire_err grow_piece(serving *s, sched_task *t, bool *did) {
    served *a = served_of(t);
    int64_t first, n = rounded(s, t->n_known);
    *did = first_fit_take(&s->room, MOVING, n, &first);
    if (!*did && s->sched.n_running == 1) {
        first_fit_give(&s->room, (int32_t)t->arrival);
        *did = first_fit_take(&s->room, MOVING, n, &first);
    }
    if (!*did) {
        return QUIRE_OK;
    }
    if (first == a->piece) {
        first_fit_rename(&s->room, MOVING, (int32_t)t->arrival);
        a->reserved = n;
        return QUIRE_OK;
    }
    if (s->o->execution != NULL) {
        TRY(s->o->execution->move(s->o->execution->context, a->piece, first, t->kv.n_computed));
    }
    s->moved += t->kv.n_computed;
    first_fit_give(&s->room, (int32_t)t->arrival);
    first_fit_rename(&s->room, MOVING, (int32_t)t->arrival);
    a->piece = first;
    a->reserved = n;
    return QUIRE_OK;
}

/* Room for what each running request computes in the step; the newest are preempted where
 * there is none. QUIRE_TOO_LARGE: the memory does not hold a request alone. */
static quire_err grow_pieces(serving *s) {
    for (int32_t i = 0; i < s->sched.n_running;) {
        sched_task *t = s->sched.running[i];
        bool did = true;
        if (served_of(t)->reserved < t->n_known) {
            TRY(grow_piece(s, t, &did));
        }
        i += did;
        if (!did && s->sched.n_running == 1) {
            return QUIRE_TOO_LARGE;
        }
        if (!did) {
            sched_task *victim = s->sched.running[s->sched.n_running - 1];
            scheduler_preempt_group(&s->sched, victim, NULL);
            victim->kv.n_computed = 0;
            served_of(victim)->n_ended = s->r->times.n;
        }
    }
    return QUIRE_OK;
}

static const sched_hooks PIECES = {.is_ready = take_piece, .describe = describe_piece, .preempt = give_piece};

quire_err serving_open_scheduler(serving *s) {
    const serving_options *o = s->o;
    scheduler_options k = {.limits = {.max_rows = o->max_rows,
                                      .max_out = o->max_seqs * (1 + o->n_drafts),
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
                           .hooks = s->pieces ? &PIECES : &SERVING_PAGES,
                           .context = s};
    return scheduler_open(&k, &s->sched);
}

quire_err serving_plan(serving *s, bool *did) {
    s->is_full = false;
    s->moved = s->swapped = 0;
    if (s->pieces && s->o->reservation == RESERVE_GROWING) {
        TRY(grow_pieces(s));
    }
    *did = step_plan(&s->sched, (int64_t)s->now);
    /* who got a piece and was not admitted */
    for (int32_t i = 0; s->pieces && i < s->sched.n_candidates; i++) {
        if (s->sched.candidates[i]->state == TASK_WAITING) {
            (void)give_piece(s, s->sched.candidates[i]);
        }
    }
    return QUIRE_OK;
}
