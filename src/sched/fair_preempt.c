#include "sched/fair_preempt.h"

#include <math.h>

#include "sched/admission_candidates.h"
#include "sched/prefix_wait.h"

/* Running tasks of a tenant besides t. */
static int32_t count_running(const scheduler *s, int32_t slot, const sched_task *t) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        n += s->running[i] != t && s->running[i]->tenant_slot == slot;
    }
    return n;
}

static int32_t count_active(const scheduler *s, int32_t slot) {
    return s->service.slots[slot].n_active;
}

/* The newest task that may be preempted of the tenant that runs most, of those that have
 * more requests than t's tenant and run over `ahead` more than it does besides t. NULL:
 * none. */
static const sched_task *fair_preempt_victim_for(const scheduler *s, const sched_task *t, int32_t ahead) {
    const sched_task *victim = NULL;
    int32_t most = count_running(s, t->tenant_slot, t) + ahead, examined = t->tenant_slot;
    for (int32_t i = s->n_running - 1; i >= 0; i--) {
        const sched_task *r = s->running[i];
        bool is_busier =
            r->tenant_slot != examined && count_active(s, r->tenant_slot) > count_active(s, t->tenant_slot);
        if (!is_busier || r->is_first || r->n_preempted >= s->limits.max_preemptions) {
            continue;
        }
        examined = r->tenant_slot; /* spares counting again for each task of a flood */
        int32_t n = count_running(s, r->tenant_slot, NULL);
        if (n > most) {
            most = n;
            victim = r;
        }
    }
    return victim;
}

static bool may_take_places(const sched_task *t) {
    return t->n_preempted == 0 && t->group == 0;
}

/* Whether a plan may admit t: it waits neither for a prefix nor for tiers. The hook
 * begins to fetch what t lacks. */
static bool fair_preempt_may_go(scheduler *s, sched_task *t) {
    const sched_hooks *hooks = s->options.hooks;
    return !prefix_wait_blocks(s, t) && (hooks->is_ready == NULL || hooks->is_ready(s->options.context, t));
}

/* Whether one more task may run besides those that do. */
static bool has_place(const scheduler *s) {
    return s->n_running < s->limits.max_seqs;
}

/* The waiting task that takes the next place; NULL: none may. *is_passed: the service
 * counters put others before it that may be admitted, since their tenants were served
 * less, be it that their rows are slow. It takes a place all the same where that leaves
 * its tenant running no more than the one that gives it, or than one that could. */
static sched_task *head_of_waiting(scheduler *s, bool *is_passed) {
    int32_t n = candidates_order_begin(s);
    *is_passed = false;
    for (int32_t k = 0, i; k < CANDIDATES_EXAMINED && (i = candidates_order_next(s, n)) < n; k++) {
        sched_task *t = s->waiting[i];
        bool gives_nobody = fair_preempt_victim_for(s, t, *is_passed && !has_place(s)) == NULL;
        if (!gives_nobody && may_take_places(t) && fair_preempt_may_go(s, t)) {
            return t;
        }
        if (gives_nobody || !may_take_places(t)) {
            *is_passed = *is_passed || !prefix_wait_blocks(s, t);
        }
        for (int32_t j = 0; j < n && gives_nobody; j++) { /* nor does it to the others of t's tenant */
            s->keys[j] = s->waiting[j]->tenant_slot == t->tenant_slot ? NAN : s->keys[j];
        }
    }
    return NULL;
}

/* Pages that t's known tokens and the next one take from the pool. */
static int64_t pages_lacking(const scheduler *s, const sched_task *t) {
    sched_seq d = {.n_groups = s->options.n_groups,
                   .n_pages = kv_seq_pages(&t->kv),
                   .n_passed = kv_seq_passed(s->kv, &t->kv)};
    if (t->state == TASK_WAITING) {
        kv_held held;
        (void)kv_seq_peek(s->kv, &t->kv, t->tokens, task_reusable(t), &held);
        d.n_pages = held.n_entries;
        d.n_passed = held.n_entries - held.n_full;
    }
    return sched_pages_claimed(&s->limits, &d, t->n_known + 1);
}

/* Makes t first where another tenant runs more, and makes room for it, *promised pages
 * being those of others that are first. */
static void put_first(scheduler *s, sched_task *t, bool is_passed, int64_t *promised) {
    int32_t n_places = t->state == TASK_WAITING ? 1 : 0;
    int64_t n_pages = *promised + (s->kv != NULL ? pages_lacking(s, t) : 0);
    t->is_first = may_take_places(t) && fair_preempt_victim_for(s, t, is_passed && !has_place(s)) != NULL;
    const sched_task *victim = t->is_first ? fair_preempt_victim_for(s, t, is_passed) : NULL;
    while (victim != NULL && (s->n_running + n_places > s->limits.max_seqs ||
                              (s->kv != NULL && n_pages > kv_cache_available(s->kv)))) {
        scheduler_preempt_group(s, victim, NULL);
        victim = fair_preempt_victim_for(s, t, is_passed);
    }
    *promised = t->is_first ? n_pages : *promised;
}

void fair_preempt(scheduler *s) {
    if (s->options.policy != ADMISSION_FAIR) {
        return;
    }
    int32_t n = 0;
    int64_t promised = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        s->running[i]->is_first = false;
        if (s->running[i]->state == TASK_PREFILL) {
            s->candidates[n++] = s->running[i];
        }
    }
    for (int32_t i = 0; i < n; i++) {
        if (s->candidates[i]->state == TASK_PREFILL) { /* it was not preempted for one before it */
            put_first(s, s->candidates[i], false, &promised);
        }
    }
    for (int32_t i = 0; i < s->n_waiting; i++) {
        s->waiting[i]->is_first = false;
    }
    bool is_passed = false;
    sched_task *head = s->n_running > 0 ? head_of_waiting(s, &is_passed) : NULL;
    if (head != NULL) {
        put_first(s, head, is_passed, &promised);
    }
}
