#include "sched/scheduler.h"

#include <assert.h>

/* ---- open and close ---- */

quire_err scheduler_open(const scheduler_options *o, scheduler *out) {
    assert(o != NULL);
    size_t n_tasks = (size_t)o->max_tasks, n_seqs = (size_t)o->limits.max_seqs;
    int32_t n_states = o->kv != NULL ? o->kv->n_state_pages : 0;
    size_t n_copies = n_seqs * (size_t)(o->n_groups + n_states);
    scheduler s = {.options = *o, .limits = o->limits, .kv = o->kv};
    s.limits.state_pages = n_states;
    if (o->kv != NULL) {
        s.limits.most = kv_most_of_cache(o->kv, o->most_rows > 0 ? o->most_rows : o->limits.max_rows);
    }
    s.running = mem_new(n_tasks > n_seqs ? n_tasks : n_seqs, sizeof *s.running);
    s.waiting = mem_new(n_tasks, sizeof *s.waiting);
    s.running_seqs = mem_new(n_seqs, sizeof *s.running_seqs);
    s.waiting_seqs = mem_new(n_seqs, sizeof *s.waiting_seqs);
    s.candidates = mem_new(n_seqs, sizeof *s.candidates);
    s.ordered = mem_new(n_tasks, sizeof *s.ordered);
    s.keys = mem_new(n_tasks, sizeof *s.keys);
    s.plan.items = mem_new(n_seqs, sizeof *s.plan.items);
    s.plan.decisions = mem_new(n_seqs, sizeof *s.plan.decisions);
    s.tasks = mem_new(n_seqs, sizeof *s.tasks);
    s.work = mem_new(n_seqs, sizeof *s.work);
    s.copies.pairs = mem_new(n_copies, sizeof *s.copies.pairs);
    s.copies.cap = (int32_t)n_copies;
    bool whole = s.running && s.waiting && s.running_seqs && s.waiting_seqs && s.candidates && s.ordered &&
                 s.keys && s.plan.items && s.plan.decisions && s.tasks && s.work && s.copies.pairs;
    if (!whole || service_counters_open(&s.service, o->max_tenants) != QUIRE_OK) {
        scheduler_close(&s);
        *out = (scheduler){0};
        return QUIRE_NO_MEMORY;
    }
    *out = s;
    return QUIRE_OK;
}

void scheduler_close(scheduler *s) {
    service_counters_close(&s->service);
    void *blocks[] = {s->running,        s->waiting, s->running_seqs, s->waiting_seqs,
                      s->candidates,     s->ordered, s->keys,         s->plan.items,
                      s->plan.decisions, s->tasks,   s->work,         s->copies.pairs};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        mem_free(blocks[i]);
    }
}

/* ---- queues ---- */

/* Inserts t into a queue with room for it. O(entries after it). */
static void queue_insert(sched_task **queue, int32_t *n, sched_task *t) {
    int32_t i = (*n)++;
    for (; i > 0 && queue_goes_after(queue[i - 1], t); i--) {
        queue[i] = queue[i - 1];
    }
    queue[i] = t;
}

void scheduler_wait(scheduler *s, sched_task *t) {
    t->state = TASK_WAITING;
    t->is_first = false;
    queue_insert(s->waiting, &s->n_waiting, t);
}

void scheduler_run(scheduler *s, sched_task *t) {
    if (t->state != TASK_DONE) {
        t->state = t->n_known - t->kv.n_computed == 1 ? TASK_DECODE : TASK_PREFILL;
    }
    queue_insert(s->running, &s->n_running, t);
}

void scheduler_stop(scheduler *s, const sched_task *t) {
    int32_t kept = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        if (s->running[i] != t) {
            s->running[kept++] = s->running[i];
        }
    }
    s->n_running = kept;
}

/* ---- one task ---- */

void scheduler_count_reuse(scheduler *s, sched_task *t, int32_t n) {
    assert(n >= 0);
    int64_t *total = t->n_admitted == 1 ? &s->counts.prompt_tokens_reused : &s->counts.known_tokens_reused;
    *total += n - t->n_reused;
    t->n_reused = n;
    if (t->n_admitted == 1) {
        t->n_cached = n; /* set once: readers may read it from the first token on */
    }
}

void scheduler_admit(scheduler *s, sched_task *t) {
    t->n_admitted++;
    t->n_reused = 0;
    if (t->n_admitted == 1) {
        t->queue_us = s->now_us - t->submitted_us; /* set once, like n_cached */
    }
    *(t->n_admitted == 1 ? &s->counts.prompt_tokens_queried : &s->counts.known_tokens_queried) += t->n_known;
    if (s->kv != NULL) {
        /* cannot fail: the block tables have room */
        (void)kv_seq_admit(s->kv, &t->kv, t->tokens, task_reusable(t));
        scheduler_count_reuse(s, t, t->kv.n_computed);
    }
}

void scheduler_keep_whole_pages(scheduler *s, sched_task *t) {
    assert(s->limits.page_tokens > 0);
    int32_t keep = t->kv.n_computed - t->kv.n_computed % s->limits.page_tokens;
    if (keep < t->kv.n_computed) {
        kv_seq_truncate(s->kv, &t->kv, keep);
        scheduler_count_reuse(s, t, keep);
    }
}

/* Preempts t, which is in neither queue: releases its pages and adds it to the waiting
 * queue. */
static void scheduler_preempt(scheduler *s, sched_task *t) {
    if (s->options.hooks->preempt != NULL && s->options.hooks->preempt(s->options.context, t)) {
        return;
    }
    if (s->kv != NULL) {
        kv_seq_release(s->kv, &t->kv, t->tokens, KV_KEEP);
    }
    t->n_preempted++;
    s->counts.preemptions++;
    scheduler_wait(s, t);
}

void scheduler_preempt_marked(scheduler *s) {
    int32_t kept = 0, n = s->n_running;
    for (int32_t i = 0; i < n && s->plan.n_preempted > 0; i++) {
        if (s->plan.decisions[i] == SCHED_PREEMPTED) {
            scheduler_preempt(s, s->running[i]);
        } else {
            s->running[kept++] = s->running[i];
        }
        s->n_running = kept;
    }
}

/* Whether t is `other` or in its group. */
static bool scheduler_is_with(const sched_task *t, const sched_task *other) {
    return t == other || (t->group != 0 && t->group == other->group);
}

void scheduler_preempt_group(scheduler *s, const sched_task *victim, const sched_task *spared) {
    s->plan.n_preempted = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        bool goes = scheduler_is_with(s->running[i], victim) &&
                    (spared == NULL || !scheduler_is_with(s->running[i], spared));
        s->plan.decisions[i] = goes ? SCHED_PREEMPTED : SCHED_IDLE;
        s->plan.n_preempted += goes;
    }
    scheduler_preempt_marked(s);
}

static int32_t turn_least_served(const turn_claim *claims, int32_t n) {
    int32_t least = 0;
    for (int32_t i = 1; i < n; i++) {
        least = claims[i].served_us < claims[least].served_us ? i : least;
    }
    return least;
}

/* The longest step of any claim but c: how long c may have to wait. */
static double longest_step_beside(const turn_claim *claims, int32_t n, const turn_claim *c) {
    double longest = 0.0;
    for (int32_t i = 0; i < n; i++) {
        longest = &claims[i] != c && claims[i].step_us > longest ? claims[i].step_us : longest;
    }
    return longest;
}

/* Whether c meets its deadline only if it goes now. A deadline that is already missed
 * does not count. */
static bool is_urgent(const turn_claim *claims, int32_t n, const turn_claim *c, int64_t now_us) {
    const double left = (double)(c->deadline_us - now_us);
    return c->deadline_us > 0 && left >= 0.0 && left < c->step_us + longest_step_beside(claims, n, c);
}

int32_t turn_choose(const turn_claim *claims, int32_t n, int64_t now_us) {
    assert(n >= 1);
    const int32_t least = turn_least_served(claims, n);
    int32_t first = least;
    int64_t earliest = INT64_MAX;
    for (int32_t i = 0; i < n; i++) {
        const turn_claim *c = &claims[i];
        const bool may = c->served_us - claims[least].served_us <= TURN_MOST_AHEAD_US;
        if (may && c->deadline_us < earliest && is_urgent(claims, n, c, now_us)) {
            first = i;
            earliest = c->deadline_us;
        }
    }
    return first;
}

double turn_resume(double served_us, const turn_claim *others, int32_t n, double most_us) {
    assert(n >= 0);
    const double least = n > 0 ? others[turn_least_served(others, n)].served_us : most_us;
    return served_us > least ? served_us : least;
}

double turn_pass(double served_us, double taken_us) {
    return served_us > taken_us ? served_us : taken_us;
}
